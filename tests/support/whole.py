"""Training steps that compute every state of every layer, and look each embedding up anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from bench.nn.cross_attention import compute_twin_states
from bench.nn.hidden_states import compute_last_states
from bench.training import batch_encoding


@contextmanager
def plainly() -> Iterator[None]:
    """Within the block nothing is spared that a loss doesn't read."""

    def twins(*given: Any, cls_only: bool, **more: Any) -> Any:
        return compute_twin_states(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_encoding, "share_embedding_lookup", lambda *_: nullcontext())
        patch.setattr(
            batch_encoding, "compute_last_states", lambda model, chunk, **_: compute_last_states(model, chunk)
        )
        patch.setattr(batch_encoding, "compute_twin_states", twins)
        yield
