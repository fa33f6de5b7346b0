"""What a report reads: a campaign's records, and the files that other commands put into its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import DataError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.records import by_profile_and_suite, check_comparable, senteval_rounding
from bench.sweeps.manifest import Manifest

OVERLAP = "overlap*.csv"
"""Files of ``bench data overlap TEXT --format csv`` in the campaign's folder."""
PROBES = "probes*.json"
"""Files of ``bench probe METHOD... --format json``: densities' curves, attention maps."""
GRADIENT = "gradient"
"""Folder of ``bench gradient --out``."""


@dataclass(frozen=True)
class Campaign:
    """Records to report on, and how.

    Args:
        store: The campaign.
        records: Those that were asked for, averages rounded if asked for.
        sweeps: Grids of its sweeps.
        baseline: Method that the daggers compare with; None for none.
        rounded: True if averages are those of rounded scores.
        pairs: True to list every pair of methods below the matrix of their differences.
        names: What is shown for a method in place of its id, by id.
        given: Methods in the order in which their rows stand; empty for the best first.
        known: Number of methods from which these were chosen, 0 where they were not.
        kept: What several parts of a report need, computed once.
    """

    store: ResultStore
    records: tuple[RunRecord, ...]
    sweeps: tuple[Manifest, ...] = ()
    baseline: str | None = None
    rounded: bool = False
    pairs: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    known: int = 0
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.store.campaign

    def shown(self, method: str) -> str:
        """What a method is called here."""
        return self.names.get(method, method)

    def place(self, method: str, average: float) -> tuple[float, str]:
        """Return the sort key of a method's row."""
        return (self.given.index(method), "") if self.given else (-average, method)


def make_campaign(
    store: ResultStore,
    records: Sequence[RunRecord],
    sweeps: Sequence[Manifest] = (),
    baseline: str | None = None,
    *,
    rounded: bool = False,
) -> Campaign:
    """Return the records as a report reads them.

    Raises:
        NotComparableError: a method's seeds under different specifications, or a suite's rows on other data.
    """
    chosen = tuple(senteval_rounding(records)) if rounded else tuple(records)
    for group in by_profile_and_suite(chosen):
        check_comparable(group, store.campaign)
    return Campaign(store, chosen, tuple(sweeps), baseline, rounded)


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read a csv file of another command.

    Raises:
        DataError: it can't be read, or lacks a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"this table can't be read: {error}", where=str(path)) from error
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing or any(None in row.values() for row in rows):
        raise DataError(
            f"this table lacks {', '.join(missing) or 'cells'}",
            where=str(path),
            expected=f"the columns {', '.join(columns)}",
            hint="write it anew, or move it out of the campaign's folder",
        )
    return rows


def read_json(path: Path) -> Any:
    """Read a JSON file of another command; raises DataError if it isn't one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"this is not JSON: {error}", where=str(path), hint="write it anew, or move it away"
        ) from error
