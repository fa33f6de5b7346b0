"""What a report reads: a campaign's records, and the files that other commands put into its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.config.sweep_manifest import Manifest
from bench.errors import DataError
from bench.records.record import RecordPlace, RunRecord, is_supervised
from bench.records.store import ResultStore
from bench.reports.records import by_profile_and_suite, check_comparable, round_averages

OVERLAP = "overlap*.csv"
"""Files of ``bench data overlap TEXT --format csv`` in the campaign's folder."""
PROBES = "probes*.json"
"""Files of ``bench probe METHOD... --format json``: densities' curves, attention maps."""
ALONG = "along*.json"
"""Files of ``bench probe METHOD... --along --out``: probes at every dev evaluation."""
GRADIENT = "gradient"
"""Folder of ``bench gradient --out``."""
OTHERS = (OVERLAP, PROBES, ALONG, f"{GRADIENT}/**/*")
"""All files of other commands in the campaign's folder."""


@dataclass(frozen=True)
class Campaign:
    """Records to report on, and how.

    Args:
        stores: The campaign, or several that are one here, see :mod:`bench.reports.merge_campaigns`.
        records: Those that were asked for, averages rounded if asked for.
        sweeps: Grids of its sweeps.
        baseline: Method that the daggers compare with; None for none.
        rounded: True if averages are those of rounded scores.
        pairs: True to list every pair of methods below the matrix of their differences.
        names: What is shown for a method in place of its id, by id.
        given: Methods in the order in which their rows stand; empty for the best first.
        known: Number of methods from which these were chosen, 0 where they were not.
        known_by: The same of a profile and suite.
        homes: Of several campaigns that which has a record, by the record's place.
        rank_supervised: True to rank supervised rows among the others.
        last: True if scores of trained methods are the last checkpoint's.
        unrounded: The records as they are kept, by their place, where ``rounded``.
        kept: What several parts of a report need, computed once.
    """

    stores: tuple[ResultStore, ...]
    records: tuple[RunRecord, ...]
    sweeps: tuple[Manifest, ...] = ()
    baseline: str | None = None
    rounded: bool = False
    pairs: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    known: int = 0
    known_by: Mapping[tuple[str, str], int] = field(default_factory=dict)
    homes: Mapping[RecordPlace, ResultStore] = field(default_factory=dict, compare=False)
    rank_supervised: bool = False
    last: bool = False
    unrounded: Mapping[RecordPlace, RunRecord] = field(default_factory=dict, compare=False, repr=False)
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The campaign's name; of several their names with commas between them."""
        return ",".join(store.campaign for store in self.stores)

    @property
    def several(self) -> bool:
        """True for several campaigns."""
        return len(self.stores) > 1

    def home(self, record: RunRecord) -> ResultStore:
        """The campaign that has a record."""
        return self.homes.get(record.place, self.stores[0])

    def as_kept(self, record: RunRecord) -> RunRecord:
        """A record without the rounding of its average: what was made from its predictions belongs to it."""
        return self.unrounded.get(record.place, record)

    def files(self, pattern: str) -> list[tuple[ResultStore, Path]]:
        """Files of other commands in the campaigns' folders; of those of one name and content the first."""
        found: dict[tuple[str, bytes | None], tuple[ResultStore, Path]] = {}
        for store in self.stores:
            for path in sorted(store.root.glob(pattern)):
                name = path.relative_to(store.root).as_posix()
                found.setdefault((name, _read_bytes(path) if self.several else None), (store, path))
        return list(found.values())

    def shown(self, method: str) -> str:
        """What a method is called here."""
        return self.names.get(method, method)

    def place(self, method: str, average: float) -> tuple[bool, float, str]:
        """Return the sort key of a method's row: supervised ones stand below the others."""
        if self.given:
            return False, self.given.index(method), ""
        return method in self.apart, -average, method

    @property
    def apart(self) -> frozenset[str]:
        """The supervised methods, unless they are ranked among the others."""
        if "apart" not in self.kept:
            found = () if self.rank_supervised else filter(is_supervised, self.records)
            self.kept["apart"] = frozenset(record.method for record in found)
        apart: frozenset[str] = self.kept["apart"]
        return apart

    def apart_note(self, methods: Iterable[str], how: str = " (--rank-supervised ranks them)") -> list[str]:
        """Say which of a table's methods aren't ranked as they are supervised, and how they would be."""
        names = ", ".join(dict.fromkeys(self.shown(method) for method in methods if method in self.apart))
        return [f"Supervised, so not ranked with the others: {names}{how}."] if names else []


def _read_bytes(path: Path) -> bytes | None:
    """A file's bytes; None for one that its reader will refuse."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def make_campaign(
    store: ResultStore,
    records: Sequence[RunRecord],
    sweeps: Sequence[Manifest] = (),
    baseline: str | None = None,
    *,
    rounded: bool = False,
) -> Campaign:
    """Return the records of a campaign as a report reads them.

    Raises:
        NotComparableError: a method's seeds under different specifications, or a suite's rows on other data.
    """
    return prepare_campaign(Campaign((store,), tuple(records), tuple(sweeps), baseline, rounded))


def prepare_campaign(campaign: Campaign) -> Campaign:
    """Return a campaign with its averages rounded if asked for; raises what :func:`make_campaign` does."""
    if campaign.rounded:
        kept = {record.place: record for record in campaign.records}
        campaign = replace(campaign, records=tuple(round_averages(campaign.records)), unrounded=kept)
    for group in by_profile_and_suite(campaign.records):
        check_comparable(group, campaign.name)
    return campaign


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
