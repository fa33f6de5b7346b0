"""What a record's training gave, and whether two records measured the same to the last bit."""

from __future__ import annotations

from typing import Any

from bench.records.record import RunRecord

_ASKED = ("key", "version", "text", "settings", "numerics", "precision", "ranks")
"""What was asked for, not measured."""
_LATER = ("loss_curve",)
"""What a training gave that older records don't keep."""


def same_numbers(then: RunRecord, now: RunRecord) -> bool:
    """True if scores, similarities and training are the same to the last bit, whatever they came from."""
    was, is_now = both_measured(then, now)
    return (then.scores, then.predictions, was) == (now.scores, now.predictions, is_now)


def both_measured(then: RunRecord, now: RunRecord) -> tuple[dict[str, dict[str, Any]], ...]:
    """Return :func:`measured` of two records, without what one of them is too old to keep."""
    was, is_now = measured(then), measured(now)
    for role in was.keys() & is_now.keys():
        for name in _LATER:
            if (name in was[role]) != (name in is_now[role]):
                was[role].pop(name, None)
                is_now[role].pop(name, None)
    return was, is_now


def measured(record: RunRecord) -> dict[str, dict[str, Any]]:
    """Return what each stage's training gave, without what was asked for."""
    return {
        role: {name: value for name, value in stage.items() if name not in _ASKED}
        for role, stage in record.training.get("stages", {}).items()
    }
