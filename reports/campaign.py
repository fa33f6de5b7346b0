"""Hold a campaign's records, and read the files that other commands put into its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.comparison.selection import group_by
from bench.config.sweep_manifest import Manifest
from bench.errors import DataError
from bench.records.campaign_manifest import find_file_fault, read_campaign_manifest
from bench.records.record import RecordPlace, RunRecord, is_supervised
from bench.records.sealed_plan import SealedPlan, load_plan
from bench.records.store import ResultStore
from bench.render.grid import DASH, Grid
from bench.render.row_names import join_names
from bench.reports.method_family import MethodFamily, choose_family
from bench.reports.record_groups import by_method, by_profile_and_suite, check_comparable, round_averages

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
SELF_SEALED = (ALONG,)
"""Files that hold a hash of their own content."""
UNSEALED = "As recorded, under no seal of the campaign"
"""Mark of what comes from a file that the campaign's manifest doesn't name."""
REPAIR = "write it again, or move it out of the campaign's folder"
"""Hint on a damaged file of another command."""
RESEAL = "restore it; if you wrote it again yourself, seal it anew: bench verify results/CAMPAIGN --seal"
"""Hint on a sealed file that changed."""
_COUNTS = ("task", "level", "sentences", "touched", "pairs", "clean_pairs")
_COUNTS_NOTE = (
    "Test sentences that a training text contains: exactly, by letters and digits (key), or by "
    "eight words in a row (near); a pair is clean where it contains neither sentence."
)
_CLEAN = ("profile", "method", "seed", "task", "level", "all", "n_all", "clean", "low", "high", "n_clean")
_CLEAN_NOTE = (
    "A method's score on all and on the clean pairs, in the metric's unit; 95% interval of Bonett and Wright."
)
MARGIN = 0.005
"""Default of ``margin``: half a point."""


@dataclass(frozen=True)
class Campaign:
    """Records to report on, and how.

    Args:
        stores: The campaign, or several merged ones (:mod:`bench.reports.merge_campaigns`).
        records: The selected records, averages rounded if ``rounded``.
        baseline: Row that the others are compared with; None for simcse where it is there.
        family_kind: "baseline" for rows against it, "all" for all pairs; None: the first, if there is one.
        margin: Largest difference from the baseline that counts as none, in the metric's unit.
        named: Rows that ``--methods`` named; they are the tested family.
        all_rows: True to list the rows that are set aside too.
        pairs: True to list every pair of methods below the matrix of their differences.
        names: Printed names of methods, by id.
        footnotes: Options that a printed name leaves out, by the name.
        given: Methods in the order of their rows; empty for the best first.
        known: Number of methods from which these were chosen, 0 for all.
        known_by: The same of a profile and suite.
        homes: Of several campaigns the one that has a record, by the record's place.
        chosen: Profile and suite that were asked for, None for all.
        last: True if scores of trained methods are the last checkpoint's.
        unrounded: The stored records by their place, if ``rounded``.
        plans: Sealed plans by the name of their campaign.
        whole: False for some of a campaign's records, which don't show what is missing of its plan.
        kept: Values shared by parts of a report, computed once.
    """

    stores: tuple[ResultStore, ...]
    records: tuple[RunRecord, ...]
    sweeps: tuple[Manifest, ...] = ()
    baseline: str | None = None
    rounded: bool = False
    pairs: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    footnotes: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    known: int = 0
    known_by: Mapping[tuple[str, str], int] = field(default_factory=dict)
    homes: Mapping[RecordPlace, ResultStore] = field(default_factory=dict, compare=False)
    rank_supervised: bool = False
    chosen: tuple[str | None, str | None] = (None, None)
    last: bool = False
    family_kind: str | None = None
    margin: float = MARGIN
    named: tuple[str, ...] = ()
    all_rows: bool = False
    unrounded: Mapping[RecordPlace, RunRecord] = field(default_factory=dict, compare=False, repr=False)
    plans: Mapping[str, SealedPlan] = field(default_factory=dict, compare=False)
    whole: bool = True
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Its name; names of several with commas between them."""
        return ",".join(store.campaign for store in self.stores)

    @property
    def several(self) -> bool:
        """True for several campaigns."""
        return len(self.stores) > 1

    def home(self, record: RunRecord) -> ResultStore:
        """Return the campaign that has a record."""
        return self.homes.get(record.place, self.stores[0])

    def as_kept(self, record: RunRecord) -> RunRecord:
        """Return a record with its stored average, to which draws of its predictions belong."""
        return self.unrounded.get(record.place, record)

    def files(self, pattern: str) -> list[tuple[ResultStore, Path]]:
        """Return other commands' files in the folders; of those with equal name and content the first.

        Raises DataError for a file that changed since the campaign's manifest sealed it.
        """
        files: dict[tuple[str, bytes | None], tuple[ResultStore, Path]] = {}
        for store in self.stores:
            sealed = self._manifest(store)
            for path in sorted(store.root.glob(pattern)):
                name = path.relative_to(store.root).as_posix()
                if name in sealed and (fault := find_file_fault(store.root, name, sealed)):
                    raise DataError(fault, where=str(path), hint=RESEAL)
                files.setdefault((name, _read_bytes(path) if self.several else None), (store, path))
        return list(files.values())

    def _manifest(self, store: ResultStore) -> Mapping[str, str]:
        """Return the hashes of a store's manifest, read once."""
        key = "manifest", store.root
        if key not in self.kept:
            self.kept[key] = read_campaign_manifest(store.root) or {}
        sealed: Mapping[str, str] = self.kept[key]
        return sealed

    def unsealed_files(self, store: ResultStore) -> list[str]:
        """Return the files of other commands that neither the manifest nor a hash of their own seals."""
        return list_unsealed_files(store.root, self._manifest(store))

    def unsealed_note(self) -> str:
        """Return a line on the files of other commands that no manifest seals, "" without such a file."""
        names = []
        for store in self.stores:
            unsealed = self.unsealed_files(store)
            names += [f"{store.campaign}/{name}" if self.several else name for name in unsealed]
        return f"{UNSEALED}: {', '.join(names)}." if names else ""

    def shown(self, method: str) -> str:
        """Return a method's printed name."""
        return self.names.get(method, method)

    def place(self, method: str, average: float | None) -> tuple[bool, float, str]:
        """Return the sort key of a method's row: supervised ones stand below the others."""
        if self.given:
            return False, self.given.index(method), ""
        return method in self.apart, float("inf") if average is None else -average, method

    @cached_property
    def apart(self) -> frozenset[str]:
        """The supervised methods, unless they are ranked among the others."""
        if self.rank_supervised:
            return frozenset()
        return frozenset(by_method(filter(is_supervised, self.records)))

    def family(self, records: Sequence[RunRecord]) -> MethodFamily:
        """Return the rows of one profile and suite that are tested together, and the others."""
        # the campaign holds these records as long as the family
        key = ("family", self.named, self.rank_supervised, *map(id, records))
        if key not in self.kept:
            family = choose_family(records, named=self.named, rank_supervised=self.rank_supervised)
            self.kept[key] = family
        chosen: MethodFamily = self.kept[key]
        return chosen

    def listed(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return the records of the rows that a table of one profile and suite lists."""
        hidden = frozenset() if self.all_rows else self.family(records).hidden
        return [record for record in records if record.method not in hidden]

    def sweeps_by_name(self) -> dict[str, list[Manifest]]:
        """Return the grids of each sweep."""
        return group_by(self.sweeps, lambda manifest: manifest.sweep)

    def apart_note(self, methods: Iterable[str], how: str = " (--rank-supervised ranks them)") -> list[str]:
        """Return a note that lists a table's supervised methods, which are unranked."""
        names = join_names(dict.fromkeys(map(self.shown, filter(self.apart.__contains__, methods))))
        return [f"Supervised, so not ranked with the others: {names}{how}."] * bool(names)

    def title(self, subject: str, records: Sequence[RunRecord]) -> str:
        """Return a table's title: its subject, and the profile and suite of its records."""
        return f"{subject}: {records[0].suite}, profile {records[0].profile}, campaign {self.name}"

    def grids(self, make: Callable[[Campaign, Sequence[RunRecord]], Grid | None]) -> list[Grid]:
        """Return the table of every profile and suite that has one."""
        grids = (make(self, records) for records in by_profile_and_suite(self.records))
        return [grid for grid in grids if grid is not None]


def list_side_files(root: Path) -> list[str]:
    """Return the paths of the files of other commands that reports read, below a campaign."""
    paths = {path for pattern in OTHERS for path in root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(root).as_posix() for path in paths)
    return [name for name in names if not any(part.startswith(".") for part in name.split("/"))]


def list_unsealed_files(root: Path, sealed: Mapping[str, str]) -> list[str]:
    """Return those that neither a manifest nor a hash of their own seals."""
    own = {path.name for pattern in SELF_SEALED for path in root.glob(pattern)}
    return [name for name in list_side_files(root) if name not in sealed and name not in own]


def _read_bytes(path: Path) -> bytes | None:
    """A file's bytes, if readable; its reader will refuse others."""
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
    """Return the records of a campaign as a report reads them; raises as :func:`prepare_campaign`."""
    baseline, family, margin = choose_test((store,), baseline, None, None)
    source = Campaign((store,), tuple(records), tuple(sweeps), baseline, rounded)
    return prepare_campaign(replace(source, family_kind=family, margin=margin))


def load_plans(stores: Iterable[ResultStore]) -> dict[str, SealedPlan]:
    """Return the sealed plans of campaigns by name; raises DataError for a damaged one."""
    plans = ((store.campaign, load_plan(store.root)) for store in stores)
    return {name: plan for name, plan in plans if plan is not None}


def choose_test(
    stores: Sequence[ResultStore], baseline: str | None, family: str | None, margin: float | None
) -> tuple[str | None, str | None, float]:
    """Return baseline, family and margin: those that are given, otherwise those of one campaign's plan."""
    plans = load_plans(stores)
    if len(stores) > 1 or not plans:
        return baseline, family, MARGIN if margin is None else margin
    (plan,) = plans.values()
    if baseline is None and family is None:
        baseline = plan.baseline
        family = plan.family
    return baseline, family, plan.margin if margin is None else margin


def prepare_campaign(campaign: Campaign) -> Campaign:
    """Return a campaign with checked records and its plans, its averages rounded if ``rounded``.

    Raises:
        DataError: a damaged plan.
        NotComparableError: a method's seeds under different specifications, or a suite's rows on other data.
    """
    campaign = replace(campaign, plans=load_plans(campaign.stores))
    if campaign.rounded:
        kept = {record.place: record for record in campaign.records}
        campaign = replace(campaign, records=tuple(round_averages(campaign.records)), unrounded=kept)
    for group in by_profile_and_suite(campaign.records):
        check_comparable(group, campaign.name)
    return campaign


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read a csv file of another command; raises DataError for an unreadable file or a missing column."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"unreadable table: {error}", where=str(path)) from error
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing or any(None in row.values() for row in rows):
        what = f"the table lacks {', '.join(missing) or 'cells'}"
        raise DataError(what, where=str(path), expected=f"the columns {', '.join(columns)}", hint=REPAIR)
    return rows


def read_json(path: Path) -> Any:
    """Read a JSON file of another command; raises DataError for another file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"invalid JSON: {error}", where=str(path), hint=REPAIR) from error


def overlap_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every csv file of ``bench data overlap`` in the campaign's folder."""
    grids = []
    for store, path in campaign.files(OVERLAP):
        with path.open(encoding="utf-8", errors="replace") as stream:
            with_scores = "method" in stream.readline().split(",")
        columns, note = (_CLEAN, _CLEAN_NOTE) if with_scores else (_COUNTS, _COUNTS_NOTE)
        rows = [tuple(row[name] or DASH for name in columns) for row in read_table(path, columns)]
        header = tuple(name.replace("_", " ") for name in columns)
        where = f"{store.campaign}/{path.name}" if campaign.several else path.name
        notes = (note, f"{UNSEALED}.") if path.name in campaign.unsealed_files(store) else (note,)
        grids.append(Grid(f"Overlap with training text, {where}", header, tuple(rows), notes))
    return grids
