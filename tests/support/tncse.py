"""Tiny stages of TNCSE."""

from __future__ import annotations

TINY = {"batch_size": 8, "lr": 1e-3}


def sets(*methods: str, **changes: object) -> tuple[str, ...]:
    """--set for stages of a few steps, without translations."""
    joint = {"steps": 2, "eval_every": 1, "rtt": "none", **TINY}
    texts = [f"{method}.{name}={value}" for method in methods for name, value in {**joint, **changes}.items()]
    texts += [
        f"{method}.{role}.{name}={value}"
        for method in methods
        for role in ("sub1", "sub2")
        for name, value in {"steps": 3, **TINY}.items()
    ]
    return tuple(part for text in texts for part in ("--set", text))
