"""Where a stage that was used again was trained with other versions or hardware than evaluated it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench.records.record import RunRecord


def otherwise(made: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """What of one :func:`bench.records.provenance.made_with` is otherwise in another.

    >>> made = {"python": "3.11", "versions": {"torch": "2.5", "numpy": "2.0"}}
    >>> otherwise(made, {"python": "3.11", "versions": {"torch": "2.6", "numpy": "2.0"}})
    {'versions': {'torch': '2.5'}}
    """
    found = {name: value for name, value in made.items() if value != here.get(name)}
    if "versions" in found:
        there = here["versions"]
        found["versions"] = {name: v for name, v in made["versions"].items() if v != there.get(name)}
    return found


def made_by(name: str) -> Callable[[RunRecord], Any]:
    """Return what reads a fact of the provenance that training and evaluation have each."""
    return lambda record: _also(record.provenance.get(name), _trained(record, name))


def gpu(record: RunRecord) -> str:
    """The GPU, "" for none."""
    devices = (record.provenance.get("device"), *_trained(record, "device"))
    own, *trained = (str(device).partition(" ")[2] for device in devices)
    return str(_also(own, trained))


def versions(record: RunRecord) -> dict[str, Any]:
    """Versions of the packages."""
    own = record.provenance.get("versions") or {}
    trained = _trained(record, "versions")
    return {name: _also(own[name], [each[name] for each in trained if name in each]) for name in own}


def cpu(record: RunRecord) -> Any:
    """The processor."""
    return _also(record.timing.get("processor"), record.timing.get("training_processor", {}).values())


def _trained(record: RunRecord, name: str) -> list[Any]:
    """What stages were trained with, where that isn't what evaluated them."""
    found = record.provenance.get("trained_with", {}).values()
    return [each[name] for each in found if name in each]


def _also(value: Any, trained: Iterable[Any]) -> Any:
    """What evaluated, and in brackets what trained stages where that was another."""
    others = sorted({str(each or "none") for each in trained})
    return f"{value or 'none'} (in training {' and '.join(others)})" if others else value
