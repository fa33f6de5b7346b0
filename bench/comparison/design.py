"""Choice of the test over seeds, from the records of stages and batches, before any score is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from bench.comparison.confounders import are_paired, describe_pairing
from bench.comparison.selection import Group
from bench.stats.seed_design import PAIRED_TESTS, RequestedTest, Seeds, SeedTest, choose_design, common_seeds


@dataclass(frozen=True)
class Design:
    """The test over seeds and its reason: what pairs the runs of a seed, by the records."""

    test: SeedTest
    asked: RequestedTest
    pairs: str | None
    left_out: tuple[Seeds, Seeds] = ((), ())
    too_few: int = 0

    @property
    def paired(self) -> bool:
        """True if run i of both sides is a pair."""
        return self.test in PAIRED_TESTS


def choose_comparison_design(
    a: Group, b: Group, asked: RequestedTest, where: str
) -> tuple[Group, Group, Design]:
    """Choose the test over seeds, and both sides' runs that it uses, without reading scores."""
    common = common_seeds(a.seeds, b.seeds)
    shared = describe_pairing(_select_seeds(a, common[0]), _select_seeds(b, common[1])) if common[0] else None
    names = (a.label, b.label)
    chosen = choose_design(a.seeds, b.seeds, pairs=shared is not None, asked=asked, names=names, where=where)
    # a sentence names what the runs share only if each run has a partner, also if --test ignores it
    pairs = shared if chosen.seeds[0] == chosen.seeds[1] else None
    first, second = _select_seeds(a, chosen.seeds[0]), _select_seeds(b, chosen.seeds[1])
    return first, second, Design(chosen.test, asked, pairs, chosen.left_out, chosen.too_few)


_find_common, _choose = lru_cache(maxsize=1024)(common_seeds), lru_cache(maxsize=1024)(choose_design)
"""Rows of a table have few different seeds."""


def choose_tested_runs(a: Group, b: Group) -> tuple[Group, Group, bool]:
    """Return both sides' runs of the automatic test, and whether they are pairs, without the reasons.

    The same choice as :func:`choose_comparison_design`, for tables of many pairs.
    """
    common = _find_common(a.seeds, b.seeds)
    pairs = bool(common[0]) and are_paired(_select_seeds(a, common[0]), _select_seeds(b, common[1]))
    chosen = _choose(a.seeds, b.seeds, pairs=pairs)
    return _select_seeds(a, chosen.seeds[0]), _select_seeds(b, chosen.seeds[1]), chosen.paired


def _select_seeds(group: Group, seeds: Seeds) -> Group:
    """Return the group with the runs of these seeds only; a deterministic one is unchanged."""
    if group.seeds == seeds:
        return group
    return replace(group, runs=tuple(run for run in group.runs if run.record.seed in seeds))
