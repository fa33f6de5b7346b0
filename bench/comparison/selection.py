"""Arguments of compare and diff: a method, one run, a record's file, or a folder of records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.row_lookup import find_row, search_rows
from bench.errors import InputError, NotComparableError, printable
from bench.records.fingerprint import SPECIFICATION, compute_family_key
from bench.records.record import ALL, RunRecord
from bench.records.store import ResultStore

_OF_ONE_RUN = re.compile(r"no-seed|seed-\d+")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by key, in order.

    >>> group_by(["ab", "c", "de"], len)
    {2: ['ab', 'de'], 1: ['c']}
    """
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def format_seeds(seeds: Sequence[int]) -> str:
    """Format seeds as on the command line: 1-5, or 1,3,7."""
    if not seeds:
        return "no seeds"
    rising = len(seeds) > 2 and all(following == seed + 1 for seed, following in pairwise(seeds))
    text = f"{seeds[0]}-{seeds[-1]}" if rising else ",".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {text}"


def sort_runs_by_seed(runs: Iterable[CampaignRun]) -> list[CampaignRun]:
    """Return the runs in the order of their seeds."""
    return sorted(runs, key=lambda run: run.record.seed or 0)


@dataclass(frozen=True)
class Side:
    """Finished runs of an argument, in the order of their paths, and failed ones; ``single`` is one run."""

    text: str
    runs: tuple[CampaignRun, ...]
    single: bool = False
    is_path: bool = False
    failed: tuple[CampaignRun, ...] = ()


def read_data_orders(record: RunRecord) -> frozenset[tuple[str, int]]:
    """Return (training text's sha256, batch size) of a run's stages, empty for several batch sizes."""
    sizes = {size for name, size in record.options.items() if name.split(".")[-1] == "batch_size"}
    if len(sizes) != 1 or "corpus" not in record.training:
        return frozenset()
    corpus = record.training["corpus"]
    texts = [stage.get("text", corpus) for stage in record.training.get("stages", {}).values()]
    (size,) = sizes
    return frozenset((text.get("sha256"), size) for text in texts)


def read_stage_keys(record: RunRecord) -> set[str]:
    """Return the keys of the stages that a run and its members trained."""
    return {str(stage["key"]) for stage in record.training.get("stages", {}).values() if stage.get("key")}


@dataclass(frozen=True)
class Group:
    """Finished runs of one method, suite and profile, by seed, and failed ones; ``single`` is one run."""

    label: str
    runs: tuple[CampaignRun, ...]
    single: bool = False
    failed: tuple[CampaignRun, ...] = ()

    @property
    def deterministic(self) -> bool:
        """True if the method has no seeds."""
        return self.runs[0].record.seed is None

    @property
    def is_checkpoint(self) -> bool:
        """True for a single run of a method with seeds."""
        return self.single and not self.deterministic

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, if any."""
        return tuple(run.record.seed for run in self.runs if run.record.seed is not None)

    @cached_property
    def data_orders(self) -> frozenset[frozenset[tuple[str, int]]]:
        """The different orders of training data of its runs, see :func:`read_data_orders`."""
        return frozenset(read_data_orders(run.record) for run in self.runs)

    @cached_property
    def stage_keys(self) -> tuple[frozenset[str], ...]:
        """The keys of the stages that each run and its members trained."""
        return tuple(frozenset(read_stage_keys(run.record)) for run in self.runs)

    @cached_property
    def specifications(self) -> tuple[tuple[Any, ...], ...]:
        """The values of the specification's facts of each run."""
        return tuple(tuple(fact.value(run.record) for fact in SPECIFICATION) for run in self.runs)

    @property
    def place(self) -> tuple[str, str]:
        """Profile and suite."""
        record = self.runs[0].record
        return record.profile, record.suite

    def scores(self, task: str) -> list[float]:
        """Return the score over all items of a task (or "avg") of each run."""
        return [value for run in self.runs if (value := run.record.score(task, ALL)) is not None]


def resolve_sides(
    names: Iterable[str],
    store: ResultStore,
    where: str,
    *,
    profile: str | None = None,
    suite: str | None = None,
    keep: Callable[[RunRecord], bool] = lambda record: True,
) -> tuple[Side, ...]:
    """Find the runs of arguments; the campaign is read once, and only for a method.

    Each is a path (with a "/", or an existing one if the campaign has no such row), or names a row of the
    campaign, see :func:`bench.comparison.row_lookup.find_row`, with #SEED for one run. ``profile`` and
    ``suite`` narrow the rows that a name may mean; ``keep`` says which of the campaign's records count.
    """

    @cache
    def load_runs() -> list[CampaignRun]:
        return [CampaignRun(store, record) for record in store.records() if keep(record)]

    def list_rows() -> list[RunRecord]:
        records = [run.record for run in load_runs()]
        chosen = [r for r in records if profile in (None, r.profile) and suite in (None, r.suite)]
        return chosen or records

    return tuple(_resolve_side(name, store, load_runs, list_rows, where) for name in names)


def _resolve_side(
    text: str,
    store: ResultStore,
    load_runs: Callable[[], list[CampaignRun]],
    list_rows: Callable[[], list[RunRecord]],
    where: str,
) -> Side:
    path = Path(text)
    if not text.strip():
        raise InputError("an empty name", where=where, expected="a method, METHOD#SEED or a path")
    if path.exists() and (os.sep in text or not store.root.is_dir()):
        return _read_side(text, where)
    method, seed = _find_run(text, list_rows(), where)
    if method is None:
        return _read_side(text, where)
    of_method = [run for run in load_runs() if run.record.method == method]
    finished = _select_by_status(of_method, "ok")
    if seed is None:
        return Side(method, finished, failed=_select_by_status(of_method, "failed"))
    chosen = tuple(run for run in finished if run.record.seed == seed)
    if not chosen:
        seeds = sorted({run.record.seed for run in finished if run.record.seed is not None})
        expected = f"one of {', '.join(map(str, seeds))}" if seeds else None
        raise InputError(f"{method} has no finished seed {seed}", where=where, expected=expected)
    return Side(f"{method}#{seed}", chosen, single=True)


def _find_run(text: str, records: Sequence[RunRecord], where: str) -> tuple[str | None, int | None]:
    """Return the row that a text names, with the seed of METHOD#SEED, or no row for a path."""
    names = {record.method for record in records}
    name, _, seed = text.rpartition("#")
    if search_rows(text, names, records):
        return find_row(text, names, records, where=where), None
    if seed.isdecimal() and search_rows(name, names, records):
        return find_row(name, names, records, where=where), int(seed)
    if Path(text).exists():
        return None, None
    if text.endswith(".json") or os.sep in text:
        raise InputError(f"there is no record or folder '{text}'", where=where)
    return find_row(text, names, records, where=where), None


def _read_side(text: str, where: str) -> Side:
    """Return the runs of a record's file, or of a folder of records at any depth of a campaign."""
    path = Path(os.path.abspath(text))
    candidates = [path] if path.is_file() else path.rglob("*.json")
    files = {file for file in candidates if _is_record_file(file)}
    roots = {file.parents[3] for file in files}
    if not roots:
        expected = "results/CAMPAIGN, a folder below it, or a record's .json"
        raise InputError("no records here", where=text, expected=expected)
    if len(roots) > 1:
        campaigns = ", ".join(sorted(root.name for root in roots))
        raise InputError(f"several campaigns ({campaigns})", where=text, expected="one of them")
    root = roots.pop()
    store = ResultStore(root.parent, root.name)
    runs = [run for record in store.records() if (run := CampaignRun(store, record)).path in files]
    single = path.is_file() or {file.parent for file in files} == {path}
    failed = _select_by_status(runs, "failed")
    return Side(text, _select_by_status(runs, "ok"), single, is_path=True, failed=failed)


def _is_record_file(file: Path) -> bool:
    """True for CAMPAIGN/PROFILE/METHOD/seed-N/SUITE.json, unless seed-N is a campaign."""
    folder = file.parent
    if not _OF_ONE_RUN.fullmatch(folder.name) or len(file.parents) <= 3 or file.name.startswith("."):
        return False
    return not any(inner.is_dir() for inner in folder.iterdir())


def _select_by_status(runs: Sequence[CampaignRun], status: str) -> tuple[CampaignRun, ...]:
    return tuple(run for run in runs if run.record.status == status)


def match_sides(
    a: Side, b: Side, where: str, *, profile: str | None = None, suite: str | None = None
) -> list[tuple[Group, Group]]:
    """Pair the groups of two sides by profile and suite; of several methods those of one id.

    Two profiles are paired too if a side is a path and each has only one. ``profile`` and ``suite`` filter.
    """
    first, second = (_group_by_method(side, profile, suite) for side in (a, b))
    names = [(name, name) for name in first if name in second]
    if len(first) == len(second) == 1:
        names = [(next(iter(first)), next(iter(second)))]
    if first and second and not names:
        methods = f"{a.text} has {', '.join(first)}; {b.text} has {', '.join(second)}"
        raise InputError(f"no method is on both sides: {methods}", where=where)
    pairs = []
    for one, other in names:
        labels = _label_groups(a, b, first[one], second[other])
        for runs_a, runs_b in _match_places(first[one], second[other], across=a.is_path or b.is_path):
            if {run.path.resolve() for run in runs_a} & {run.path.resolve() for run in runs_b}:
                what = f"'{a.text}' and '{b.text}' have runs in common"
                what = f"'{a.text}' against itself" if a.text == b.text else what
                raise InputError(what, where=where, expected="two methods")
            pairs.append((_build_group(labels[0], runs_a, a), _build_group(labels[1], runs_b, b)))
    if not pairs:
        what = f"no suite has finished records of both {a.text} and {b.text}"
        raise InputError(what, where=where, hint="bench report shows what there is")
    for group in chain.from_iterable(pairs):
        check_family(group)
    return pairs


def _build_group(label: str, runs: Sequence[CampaignRun], side: Side) -> Group:
    """Group the runs, with the failed ones of their method, profile and suite."""
    key = attrgetter("method", "profile", "suite")
    failed = group_by(sort_runs_by_seed(side.failed), lambda run: key(run.record))
    return Group(label, tuple(runs), side.single, tuple(failed.get(key(runs[0].record), ())))


def check_family(group: Group) -> None:
    """Raise NotComparableError for runs of several specifications."""
    if len({compute_family_key(run.record) for run in group.runs}) > 1:
        what = f"the seeds of {group.label} were measured under different specifications"
        raise NotComparableError(what, where=", suite ".join(group.place))


def _group_by_method(side: Side, profile: str | None, suite: str | None) -> dict[str, list[CampaignRun]]:
    runs = []
    for run in side.runs:
        if profile in (None, run.record.profile) and suite in (None, run.record.suite):
            runs.append(run)
    return group_by(runs, lambda run: run.record.method)


def _match_places(
    a: list[CampaignRun], b: list[CampaignRun], *, across: bool
) -> list[tuple[list[CampaignRun], list[CampaignRun]]]:
    place = attrgetter("record.profile", "record.suite")
    first, second = (group_by(sort_runs_by_seed(side), place) for side in (a, b))
    common = sorted(first.keys() & second.keys())
    has_one_profile = len({p for p, _ in first}) == len({p for p, _ in second}) == 1
    if common or not across or not has_one_profile:
        return [(first[key], second[key]) for key in common]
    by_suite = {suite: runs for (_, suite), runs in second.items()}
    return [(runs, by_suite[suite]) for (_, suite), runs in sorted(first.items()) if suite in by_suite]


def _label_groups(a: Side, b: Side, runs_a: list[CampaignRun], runs_b: list[CampaignRun]) -> tuple[str, str]:
    """Return method ids, with the seed of a single run, and campaigns or arguments for equal ids."""
    names = []
    for side, runs in ((a, runs_a), (b, runs_b)):
        method, seed = runs[0].record.method, runs[0].record.seed
        names.append(f"{method}#{seed}" if side.single and seed is not None else method)
    if names[0] == names[1]:
        campaigns = runs_a[0].store.campaign, runs_b[0].store.campaign
        places = campaigns if campaigns[0] != campaigns[1] else (a.text, b.text)
        names = [f"{name} ({place})" for name, place in zip(names, places, strict=True)]
    return printable(names[0]), printable(names[1])


def choose_runs(a: Group, b: Group, seed: int | None, where: str) -> tuple[CampaignRun, CampaignRun]:
    """Choose one run per side: of a seed, of the lowest common seed, or the only run of each."""
    seeded = [set(group.seeds) for group in (a, b) if group.seeds]
    common = set.intersection(*seeded) if seeded and seed is None else {seed}
    wanted = min((one for one in common if one is not None), default=None)
    chosen = []
    for group in (a, b):
        fits = [run for run in group.runs if run.record.seed in (None, wanted)]
        if not fits and seed is None and len(group.runs) == 1:
            fits = list(group.runs)
        if not fits:
            what = f"{group.label} has no finished seed {seed}" if seed is not None else "no seed in common"
            expected = f"for {group.label} one of {', '.join(map(str, group.seeds))}"
            raise InputError(what, where=where, expected=expected)
        chosen.append(fits[0])
    return chosen[0], chosen[1]
