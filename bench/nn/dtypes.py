"""Number types: those of a folder's weights, read without loading them, and what is computed with."""

from __future__ import annotations

import json
from pathlib import Path

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_LARGEST = 100_000_000  # bytes of a header, as in safetensors


def stored_dtypes(*folders: Path) -> tuple[str, ...]:
    """Return the floating types of the weights in safetensors files of folders, the most used first.

    Empty where there are none: a pickle isn't opened for it.
    """
    found: dict[str, int] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.safetensors"))):
        for tensor in _header(file).values():
            name = tensor.get("dtype") if isinstance(tensor, dict) else None
            if name in _NAMES:
                found[_NAMES[name]] = found.get(_NAMES[name], 0) + 1
    return tuple(sorted(found, key=lambda name: -found[name]))


def dtype_facts(*folders: Path | None) -> dict[str, str | int]:
    """Return what a record says of the types of an encoder loaded as float32; None: from no folder."""
    names = stored_dtypes(*(folder for folder in folders if folder))
    return {"dtype": "float32", **({"folder_dtype": "+".join(names)} if names else {})}


def _header(file: Path) -> dict[str, object]:
    """The header of a safetensors file; nothing of a damaged one, which can't be loaded either."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            found = json.loads(stream.read(length)) if length < _LARGEST else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
