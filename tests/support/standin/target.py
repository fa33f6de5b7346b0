"""Which device the stand-in plays, chosen once for a process; nothing here imports torch."""

from __future__ import annotations

KINDS = ("cuda", "mps")
_chosen = ["cuda"]


def choose(kind: str) -> None:
    """Play this kind of device; call it before anything else of the stand-in is imported."""
    assert kind in KINDS, kind
    _chosen[0] = kind


def played() -> str:
    """The kind of device."""
    return _chosen[0]
