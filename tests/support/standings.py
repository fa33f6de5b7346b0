"""Synthetic methods whose averages are what a test says, for tests of groups, ranks and differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from tests.support.campaigns import make_record


def campaign(tmp_path: Path, *records: RunRecord, **more: Any) -> Campaign:
    """The campaign ``camp`` of these records."""
    return replace(make_campaign(ResultStore(tmp_path, "camp"), records), **more)


def seeds(method: str, *averages: float, stage: str = "") -> list[RunRecord]:
    """Runs of seeds 1, 2, ...; those of one ``stage`` share a trained stage seed by seed."""
    made = [
        make_record(method, seed, {"STS12": value, "STSB": value})
        for seed, value in enumerate(averages, start=1)
    ]
    for record in made if stage else ():
        record.training["stages"]["simcse"]["key"] = f"{stage} {record.seed}"
    return made


def alone(method: str, value: float) -> RunRecord:
    """A method without seeds."""
    return make_record(method, None, {"STS12": value, "STSB": value}, corpus=None)
