"""The average over all cells that were trained again, as one more cell: it sees what all of them lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from bench.gate.drops import Sides, choose_seed_design, name_test, sort_records_by_seed
from bench.gate.verdict import AVERAGE, Key
from bench.records.record import ALL, RunRecord, Score

_MIXED = "score"  # what cells of several metrics have in common: a share of 1


def average_cells(cells: Mapping[Key, Sides]) -> tuple[Key, Sides] | None:
    """Return the average over seeded cells as a cell of its own, for ``drops``, ``limit`` and ``sees``.

    Each of its runs is the mean of the cells' runs of one seed, so that the spread over seeds is that of the
    mean, whatever the cells share. Cells with equal bytes belong to it: their drop is 0. A cell with a single
    seed on a side doesn't, as it has no spread.

    Args:
        cells: Compared cells by key, equal ones among them; the deterministic ones are left out.

    Returns:
        Its key, ("", "average of 3 cells", ""), and its runs of the seeds that all its cells have; None for
        fewer than two cells, for fewer than two such seeds on a side, and where some cells are pairs and
        others aren't.
    """
    seeded = [sides for sides in cells.values() if _has_spread(sides)]
    if len(seeded) < 2 or len({sides.same_seeds for sides in seeded}) > 1:
        return None
    name = f"average of {len(seeded)} cells"
    then, now, reference, new = (
        _average_by_seed(name, side)
        for side in (
            [sides.then for sides in seeded],
            [sides.now for sides in seeded],
            [sides.reference for sides in seeded],
            [sides.new for sides in seeded],
        )
    )
    if min(len(then), len(now)) < 2:
        return None
    test = name_test(choose_seed_design(then, now, pairs=seeded[0].same_seeds))
    machine = all(sides.same_machine for sides in seeded)
    return ("", name, ""), Sides(then, now, test, reference, new, same_machine=machine)


def _has_spread(sides: Sides) -> bool:
    return sides.then[0].seed is not None and min(len(sides.then), len(sides.now)) > 1


def _average_by_seed(name: str, cells: Sequence[Sequence[RunRecord]]) -> tuple[RunRecord, ...]:
    """One record a seed that all cells have, in the seeds' order: the mean of their averages."""
    sides = [{record.seed: record for record in sort_records_by_seed(side)} for side in cells]
    common = set.intersection(*(set(side) for side in sides))
    return tuple(
        _average_records(name, [side[seed] for side in sides]) for seed in sides[0] if seed in common
    )


def _average_records(name: str, records: Sequence[RunRecord]) -> RunRecord:
    metrics = {record.metric for record in records}
    values = [value for record in records if (value := record.score(AVERAGE)) is not None]
    scores: tuple[Score, ...] = ()
    if len(values) == len(records):  # else what reads the score says that it lacks
        metric = metrics.pop() if len(metrics) == 1 else _MIXED
        scores = (Score(AVERAGE, ALL, metric, fmean(values), len(values)),)
    return replace(records[0], profile="", method=name, suite="", scores=scores, predictions=None)
