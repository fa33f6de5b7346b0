"""The heap: what a training step frees stays with the process, for the next step to reuse."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_LARGEST = 2**31 - 1  # mallopt takes an int


@cache
def keep_freed_memory() -> bool:
    """Let glibc's malloc keep what is freed, instead of giving large blocks back to the system at once.

    A step frees and asks again for the same blocks. Those above 32 MB, as the gradient of a BERT's word
    embeddings (one a chunk) and AdamW's temporaries, come from the system each time, page by page: 1 to 10%
    of a step of all-MiniLM-L6-v2, by machine (docs/speed.md). No number changes, nor does the peak; what is
    freed after it stays with the process. Without glibc this does nothing.

    Returns:
        True where it took effect.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; no C library by that way
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
