"""Pairs of sentences on which two runs disagree: those whose rank of similarity changed most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from bench.compare.draws import Run
from bench.compare.select import Group
from bench.data.tasks import PairTask
from bench.encoder import FloatArray
from bench.errors import InputError


@dataclass(frozen=True)
class MovedPair:
    """One pair of a task; ranks are average ranks among its pairs, 1 for the most similar.

    Args:
        number: Position in the task, from 1.
        subset: Subset it belongs to.
        sentences: Both.
        gold: Gold score.
        gold_rank: Rank of the gold score.
        similarities: Of the first run and of the second.
        ranks: Of these.
    """

    number: int
    subset: str
    sentences: tuple[str, str]
    gold: float
    gold_rank: float
    similarities: tuple[float, float]
    ranks: tuple[float, float]

    @property
    def change(self) -> float:
        """Rank in the second run minus rank in the first: positive if the second finds it less alike."""
        return self.ranks[1] - self.ranks[0]


def moved_pairs(task: PairTask, a: FloatArray, b: FloatArray, count: int) -> list[MovedPair]:
    """Return the pairs whose rank changed most, the largest change first, equal ones in the task's order.

    Args:
        task: The task.
        a: (pairs,) similarities of one run.
        b: (pairs,) similarities of the other.
        count: How many.
    """
    rows = [
        (subset.name, first, second, score)
        for subset in task.subsets
        for first, second, score in zip(subset.first, subset.second, subset.gold, strict=True)
    ]
    ranks_a, ranks_b, ranks_gold = (rankdata(-np.asarray(v)) for v in (a, b, [row[3] for row in rows]))
    order = np.argsort(-np.abs(ranks_b - ranks_a), kind="stable")[:count]
    return [
        MovedPair(
            i + 1,
            rows[i][0],
            (rows[i][1], rows[i][2]),
            rows[i][3],
            float(ranks_gold[i]),
            (float(a[i]), float(b[i])),
            (float(ranks_a[i]), float(ranks_b[i])),
        )
        for i in order.tolist()
    ]


def choose(a: Group, b: Group, seed: int | None, where: str) -> tuple[Run, Run]:
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
