"""Possible times of a record: when it began, and how many seconds its processors can have given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bench.records.record import RunRecord

SLACK = timedelta(days=1)
"""Largest lead of another machine's clock."""
SECONDS_A_SENTENCE = 3600.0
"""More CPU seconds than any training takes a sentence: a BERT-large takes about ten."""
MOST_CORES = 4096
"""More cores than one machine has."""
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
"""Before any run of bench."""
_CLOCK_STEPS = 1.05, 1.0  # share and seconds by which two clocks of one machine may differ


def find_timing_faults(record: RunRecord) -> Iterator[str]:
    """Yield impossible seconds of a record, whatever the time is now."""
    timing = record.timing
    wall, cpu, cores = (timing.get(name) for name in ("wall_seconds", "cpu_seconds", "cores"))
    if wall is not None and cpu is not None:
        cores = cores or MOST_CORES  # where the system didn't say
        share, seconds = _CLOCK_STEPS
        if cpu > cores * wall * share + seconds:
            most = f"{cores:,} cores give {cores * wall:,.1f} in {wall:,.1f} seconds"
            yield f"it took {cpu:,.1f} CPU seconds, and {most}"
    stages = record.training.get("stages", {})
    for role, took in timing.get("training_cpu_seconds", {}).items():
        sentences = max(1, stages.get(role, {}).get("sentences_seen", 1))
        if took > SECONDS_A_SENTENCE * sentences:
            yield f"stage {role} took {took:,.0f} CPU seconds for {sentences:,} sentences"


def find_impossible_start(record: RunRecord, now: datetime | None = None) -> str:
    """Return the contradiction of a record's times with the clock, or ""."""
    started = record.timing.get("started")
    if started is None:
        return ""
    latest = (now or datetime.now(UTC)) + SLACK
    begin = datetime.fromisoformat(started)
    if begin < FIRST:
        return f"it started on {started}, before there was a bench"
    if begin > latest:
        return f"it started on {started}, which is still to come"
    wall = record.timing.get("wall_seconds", 0.0)
    if wall > (latest - begin).total_seconds():
        return f"it started on {started} and took {wall:,.0f} seconds, which are still to come"
    return ""


def start_date(record: RunRecord) -> str:
    """Return the date and time of its start for tables, "" for an impossible one."""
    return "" if find_impossible_start(record) else str(record.timing.get("started", ""))
