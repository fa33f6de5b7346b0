"""What a source of results made elsewhere holds, before it becomes records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.encoder import FloatArray
from bench.records.record import Score


@dataclass(frozen=True)
class PublishedRun:
    """One run of one method, as published.

    Args:
        method: Id of its row: a model's name, a method's.
        seed: None for a result without a seed.
        scores: In the metric's unit, each task's and the average's, as in a record.
        tasks: Facts of each task, in the order of the scores. "sha256" is of what identifies its data;
            scores of equal hashes are comparable.
        facts: What else the source says of it, such as its revision or its number of parameters.
        predictions: By task, see :mod:`bench.eval.imported_suite`; None if only scores were published.
        notes: For every table with its record.
    """

    method: str
    seed: int | None
    scores: tuple[Score, ...]
    tasks: Mapping[str, dict[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, FloatArray] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedResults:
    """All runs of a source on one suite.

    Args:
        suite: Name of the suite in tables.
        source: Where they come from: "kind", "label", "sha256" of what was read, and where known
            "repository", "commit", "date", "licence".
        notes: Lines for the terminal: what was chosen, and what differs between rows.
        left_out: Rows that aren't comparable with the others, each with its reason.
        table_notes: Lines for every table with these rows.
    """

    suite: str
    runs: tuple[PublishedRun, ...]
    source: Mapping[str, str]
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    table_notes: tuple[str, ...] = ()
