"""In what the machines of two sides of records differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.records.fingerprint import MACHINE, SETTING
from bench.records.record import RunRecord


def machine_facts(record: RunRecord) -> dict[str, str]:
    """Versions, device, threads, ranks and CPU of a record: where all are equal, so are the bytes."""
    found: dict[str, str] = {}
    for fact in (*SETTING, *MACHINE):
        value = fact.value(record)
        if isinstance(value, Mapping):
            found |= {name: str(each) for name, each in value.items() if each is not None}
        elif value not in (None, ""):
            found[fact.name] = str(value)
    return found


def machine_differences(
    then: Sequence[RunRecord], now: Sequence[RunRecord]
) -> tuple[tuple[str, list[str], list[str]], ...]:
    """Return (name, values then, values now) of the versions and hardware in which both sides differ."""
    before, after = _machine_values(then), _machine_values(now)
    return tuple(
        (name, before[name], after[name]) for name in before if name in after and before[name] != after[name]
    )


def machine_warnings(then: Sequence[RunRecord], now: Sequence[RunRecord]) -> tuple[str, ...]:
    """Say which versions and which hardware differ, a line each."""
    return tuple(
        f"{name} then {' and '.join(was)}, now {' and '.join(now_is)}"
        for name, was, now_is in machine_differences(then, now)
    )


def _machine_values(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    facts = [machine_facts(record) for record in records]
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: sorted({each[name] for each in facts if name in each}) for name in names}
