"""What an argument of compare and diff names: a method, one run, a record's file, a folder of records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from bench.comparison.item_bootstrap import CampaignRun
from bench.config.method_ids import match_recorded_id
from bench.errors import InputError, NotComparableError, printable, unknown_name
from bench.nn.model_folder import hash_requested_model
from bench.records.fingerprint import compute_family_key
from bench.records.record import ALL, RunRecord
from bench.records.store import ResultStore

_OF_ONE_RUN = re.compile(r"no-seed|seed-\d+")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def match_method_id(text: str, names: Collection[str], records: Iterable[RunRecord] = ()) -> str:
    """Return the row that a text means, a folder's by its path too (:func:`recorded` of request)."""
    return match_recorded_id(text, names, records, hash_requested_model)


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items of each key, both in their order.

    >>> group_by(["ab", "c", "de"], len)
    {2: ['ab', 'de'], 1: ['c']}
    """
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def format_seeds(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line: 1-5, or 1,3,7."""
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
    """Finished runs that an argument names.

    Args:
        text: The argument, of a method its name in records.
        runs: The runs, in the order of their paths.
        single: It names one run, not a method as its seeds vary.
        is_path: It names a file or folder.
        failed: Runs of the same that have no score.
    """

    text: str
    runs: tuple[CampaignRun, ...]
    single: bool = False
    is_path: bool = False
    failed: tuple[CampaignRun, ...] = ()

    @property
    def by_method(self) -> dict[str, list[CampaignRun]]:
        """The runs of each method."""
        return group_by(self.runs, lambda run: run.record.method)


@dataclass(frozen=True)
class Group:
    """Finished runs of one method on one suite of one profile, under one specification.

    Args:
        label: What sentences call it.
        runs: One run per seed, by seed, or that of a deterministic method.
        single: One run was asked for.
        failed: Its runs that have no score.
    """

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
        """True if one of a method's runs was asked for: it speaks for itself, not for the method."""
        return self.single and not self.deterministic

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs; none of a deterministic method."""
        return tuple(run.record.seed for run in self.runs if run.record.seed is not None)

    @property
    def place(self) -> tuple[str, str]:
        """Profile and suite."""
        record = self.runs[0].record
        return record.profile, record.suite

    def scores(self, task: str) -> list[float]:
        """Spearman over all pairs of a task (or "avg"), one a run."""
        return [value for run in self.runs if (value := run.record.score(task, ALL)) is not None]


def resolve_sides(names: Iterable[str], store: ResultStore, where: str) -> tuple[Side, ...]:
    """Find what arguments name. The campaign is read once, and not at all where all are paths.

    Args:
        names: Each a path (with a "/", or one that exists where the campaign has no such method),
            METHOD#SEED, or a method id of the campaign.
        store: The campaign.
        where: The command, for errors.

    Raises:
        InputError: nothing of that name.
        DataError: a damaged record.
    """

    @cache
    def runs() -> list[CampaignRun]:
        return [CampaignRun(store, record) for record in store.records()]

    return tuple(_resolve_side(name, store, runs, where) for name in names)


def _resolve_side(text: str, store: ResultStore, runs: Callable[[], list[CampaignRun]], where: str) -> Side:
    path = Path(text)
    if not text.strip():
        raise InputError("an empty name", where=where, expected="a method, METHOD#SEED or a path")
    if path.exists() and (os.sep in text or not store.root.is_dir()):
        return _read_side(text, where)
    names = {run.record.method for run in runs()}
    name, _, seed = text.rpartition("#")
    known = [run.record for run in runs()]
    text, name = (match_method_id(each, names, known) for each in (text, name))
    single = text not in names and name in names and seed.isdecimal()
    if not single and text not in names:
        if path.exists():
            return _read_side(text, where)
        if text.endswith(".json") or os.sep in text:
            raise InputError(f"there is no record or folder '{text}'", where=where)
        raise unknown_name("method", text, names, where=where)
    named = [run for run in runs() if run.record.method == (name if single else text)]
    found = _select_finished(named)
    if single:
        seeds = sorted({run.record.seed for run in found if run.record.seed is not None})
        found = [run for run in found if run.record.seed == int(seed)]
        if not found:
            there = ", ".join(map(str, seeds))
            raise InputError(
                f"{name} has no finished seed {seed}",
                where=where,
                expected=f"one of {there}" if there else None,
            )
        return Side(f"{name}#{seed}", tuple(found), single=True)
    return Side(text, tuple(found), failed=tuple(_select_failed(named)))


def _read_side(text: str, where: str) -> Side:
    """The runs of a record's file, or of a folder of records at any depth of a campaign."""
    path = Path(os.path.abspath(text))
    below = [path] if path.is_file() else path.rglob("*.json")
    files = {file for file in below if _is_record_file(file)}
    roots = {file.parents[3] for file in files}
    if not roots:
        raise InputError(
            "no records here",
            where=text,
            expected="results/CAMPAIGN, a folder below it, or a record's .json",
        )
    if len(roots) > 1:
        campaigns = ", ".join(sorted(root.name for root in roots))
        raise InputError(f"several campaigns ({campaigns})", where=text, expected="one of them")
    root = roots.pop()
    store = ResultStore(root.parent, root.name)
    runs = [run for record in store.records() if (run := CampaignRun(store, record)).path in files]
    single = path.is_file() or {file.parent for file in files} == {path}
    return Side(text, tuple(_select_finished(runs)), single, is_path=True, failed=tuple(_select_failed(runs)))


def _is_record_file(file: Path) -> bool:
    """True for CAMPAIGN/PROFILE/METHOD/seed-N/SUITE.json; a campaign too may be called seed-N."""
    folder = file.parent
    if not _OF_ONE_RUN.fullmatch(folder.name) or len(file.parents) <= 3 or file.name.startswith("."):
        return False
    return not any(inner.is_dir() for inner in folder.iterdir())


def _select_finished(runs: Sequence[CampaignRun]) -> list[CampaignRun]:
    return [run for run in runs if run.record.status == "ok"]


def _select_failed(runs: Sequence[CampaignRun]) -> list[CampaignRun]:
    return [run for run in runs if run.record.status == "failed"]


def match_sides(
    a: Side, b: Side, where: str, *, profile: str | None = None, suite: str | None = None
) -> list[tuple[Group, Group]]:
    """Pair what two sides have in common: every profile and suite; of several methods those of one id.

    Where a side is a path, two profiles are paired too if each side has but one.

    Args:
        a: One side.
        b: The other.
        where: The command, for errors.
        profile: Only this profile.
        suite: Only this suite.

    Raises:
        InputError: nothing in common, or the same runs on both sides.
        NotComparableError: a method's runs under several specifications.
    """
    first, second = (_filter_runs(side, profile, suite).by_method for side in (a, b))
    names = [(name, name) for name in first if name in second]
    if len(first) == len(second) == 1:
        names = [(next(iter(first)), next(iter(second)))]
    if first and second and not names:
        there = (f"{side.text} has {', '.join(found)}" for side, found in ((a, first), (b, second)))
        raise InputError(f"no method is on both sides: {'; '.join(there)}", where=where)
    pairs = []
    for one, other in names:
        labels = _label_groups(a, b, first[one], second[other])
        for runs_a, runs_b in _match_places(first[one], second[other], across=a.is_path or b.is_path):
            _refuse_shared_runs(a.text, b.text, runs_a, runs_b, where)
            pairs.append((_build_group(labels[0], runs_a, a), _build_group(labels[1], runs_b, b)))
    if not pairs:
        raise InputError(
            f"no suite has finished records of both {a.text} and {b.text}",
            where=where,
            hint="bench report shows what there is",
        )
    for group in (group for pair in pairs for group in pair):
        check_family(group)
    return pairs


def _build_group(label: str, runs: Sequence[CampaignRun], side: Side) -> Group:
    """The runs as a group, with those of their method, profile and suite that failed."""
    record = runs[0].record
    failed = [
        run
        for run in sort_runs_by_seed(side.failed)
        if (run.record.method, run.record.profile, run.record.suite)
        == (record.method, record.profile, record.suite)
    ]
    return Group(label, tuple(runs), side.single, tuple(failed))


def _refuse_shared_runs(
    a: str, b: str, runs_a: list[CampaignRun], runs_b: list[CampaignRun], where: str
) -> None:
    if {run.path.resolve() for run in runs_a} & {run.path.resolve() for run in runs_b}:
        what = f"'{a}' against itself" if a == b else f"'{a}' and '{b}' have runs in common"
        raise InputError(what, where=where, expected="two methods")


def check_family(group: Group) -> None:
    """Raise NotComparableError where the runs of a method were measured under several specifications."""
    if len({compute_family_key(run.record) for run in group.runs}) > 1:
        raise NotComparableError(
            f"the seeds of {group.label} were measured under different specifications",
            where=", suite ".join(group.place),
        )


def _filter_runs(side: Side, profile: str | None, suite: str | None) -> Side:
    runs = (
        run
        for run in side.runs
        if profile in (None, run.record.profile) and suite in (None, run.record.suite)
    )
    return replace(side, runs=tuple(runs))


def _match_places(
    a: list[CampaignRun], b: list[CampaignRun], *, across: bool
) -> list[tuple[list[CampaignRun], list[CampaignRun]]]:
    one, other = _group_by_place(a), _group_by_place(b)
    common = [place for place in sorted(one) if place in other]
    if common or not across or len({p for p, _ in one}) != 1 or len({p for p, _ in other}) != 1:
        return [(one[place], other[place]) for place in common]
    by_suite = {suite: runs for (_, suite), runs in other.items()}
    return [(runs, by_suite[suite]) for (_, suite), runs in sorted(one.items()) if suite in by_suite]


def _group_by_place(runs: Sequence[CampaignRun]) -> dict[tuple[str, str], list[CampaignRun]]:
    """Runs by profile and suite, in the order of their seeds."""
    return group_by(sort_runs_by_seed(runs), lambda run: (run.record.profile, run.record.suite))


def _label_groups(a: Side, b: Side, runs_a: list[CampaignRun], runs_b: list[CampaignRun]) -> tuple[str, str]:
    """Method ids, with seed for a single run, and what tells them apart where they are the same."""
    one, other = (
        f"{runs[0].record.method}#{runs[0].record.seed}"
        if side.single and runs[0].record.seed is not None
        else runs[0].record.method
        for side, runs in ((a, runs_a), (b, runs_b))
    )
    if one != other:
        return printable(one), printable(other)
    campaigns = runs_a[0].store.campaign, runs_b[0].store.campaign
    places = campaigns if campaigns[0] != campaigns[1] else (a.text, b.text)
    return printable(f"{one} ({places[0]})"), printable(f"{other} ({places[1]})")


def choose_runs(a: Group, b: Group, seed: int | None, where: str) -> tuple[CampaignRun, CampaignRun]:
    """Choose one run per side; a deterministic method has only one.

    Args:
        a: One side.
        b: The other.
        seed: Seed of both; None for the lowest that they have in common, or the only run of each.
        where: The command, for errors.

    Raises:
        InputError: a side has no run of that seed, or they have no seed in common.
    """
    seeded = [set(group.seeds) for group in (a, b) if group.seeds]
    common = set.intersection(*seeded) if seeded and seed is None else {seed}
    wanted = min((one for one in common if one is not None), default=None)
    chosen = []
    for group in (a, b):
        fits = [run for run in group.runs if run.record.seed in (None, wanted)]
        if not fits and seed is None and len(group.runs) == 1:
            fits = list(group.runs)
        if not fits:
            known = ", ".join(map(str, group.seeds))
            what = f"{group.label} has no finished seed {seed}" if seed is not None else "no seed in common"
            raise InputError(what, where=where, expected=f"for {group.label} one of {known}")
        chosen.append(fits[0])
    return chosen[0], chosen[1]
