"""The numerics of a training step, by number: what is faster and rounds or draws otherwise gets a new one.

Older ones stay, so that older records can be rerun to the digit and their campaigns go on.

1. As in all records that name none.
2. The last layer of a BERT or RoBERTa is computed for [CLS] alone where a loss reads no other state of it
   (:func:`bench.nn.attention.cls_alone`), each word embedding is looked up once a batch
   (:func:`bench.nn.lookup.looked_up_once`), and AdamW's step is torch's fused one on the CPU too. The
   mathematics are the same; dropout draws for fewer states, and sums are added in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

NUMERICS = (1, 2)
LATEST = NUMERICS[-1]

_current: ContextVar[int] = ContextVar("numerics", default=LATEST)


@contextmanager
def following(numerics: int) -> Iterator[None]:
    """Train by these numerics, one of ``NUMERICS``, within the block; outside of any by the latest."""
    token = _current.set(numerics)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> int:
    """The numerics to train by here."""
    return _current.get()
