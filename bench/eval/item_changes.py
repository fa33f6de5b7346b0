"""Items that two runs treat differently: pairs whose rank changed, other classes, other scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata


@dataclass(frozen=True)
class ItemChange:
    """One item of a task, in words; the columns are what the suite's measure says they are.

    Args:
        number: Position among the task's scored items, from 1.
        change: What changed from the first run to the second.
        one: What the first run says of it.
        other: What the second says.
        gold: What is right.
        texts: The item's sentences, or its query.
    """

    number: int
    change: str
    one: str
    other: str
    gold: str
    texts: tuple[str, ...]


def rank_changes(
    texts: Sequence[tuple[str, ...]], gold: Sequence[float], one: ArrayLike, other: ArrayLike, count: int
) -> list[ItemChange]:
    """Return the items whose rank changed most, the largest change first, equal ones in their order.

    Ranks are average ranks, 1 for the most similar; change is the second's less the first's, positive if the
    second finds the item less alike.

    Args:
        texts: Of each item.
        gold: Gold score of each.
        one: (items,) similarities of one run.
        other: (items,) similarities of the other.
        count: How many.
    """
    values = [np.asarray(given, dtype=np.float64) for given in (one, other, gold)]
    ranks = [rankdata(-given) for given in values]
    change = ranks[1] - ranks[0]

    def cell(side: int, row: int) -> str:
        shown = f"{values[side][row]:g}" if side == 2 else f"{values[side][row]:.3f}"
        return f"{ranks[side][row]:g}\n{shown}"

    return [
        ItemChange(row + 1, f"{change[row]:+g}", cell(0, row), cell(1, row), cell(2, row), texts[row])
        for row in _largest_rows(np.abs(change), count)
    ]


def class_changes(
    texts: Sequence[tuple[str, ...]],
    gold: Sequence[str],
    one: Sequence[str],
    other: Sequence[str],
    count: int,
) -> list[ItemChange]:
    """Return items of which two runs predict different classes, those first that one of them has right.

    Args:
        texts: Of each item.
        gold: Class of each.
        one: Predicted classes of one run.
        other: Of the other.
        count: How many.
    """
    truth, first, second = (np.asarray(given, dtype=object) for given in (gold, one, other))
    differs = np.flatnonzero(first != second)
    change = (second == truth).astype(int) - (first == truth).astype(int)
    words = {1: "right in B", -1: "right in A", 0: "wrong in both"}
    order = differs[np.argsort(-np.abs(change[differs]), kind="stable")][:count]
    return [
        ItemChange(
            row + 1, words[int(change[row])], str(one[row]), str(other[row]), str(gold[row]), texts[row]
        )
        for row in order.tolist()
    ]


def score_changes(
    texts: Sequence[tuple[str, ...]], one: ArrayLike, other: ArrayLike, count: int
) -> list[ItemChange]:
    """Return the items whose own scores differ most.

    Args:
        texts: Of each item.
        one: (items,) scores of one run.
        other: Of the other.
        count: How many.
    """
    first, second = (np.asarray(given, dtype=np.float64) for given in (one, other))
    change = second - first
    return [
        ItemChange(row + 1, f"{change[row]:+.3f}", f"{first[row]:.3f}", f"{second[row]:.3f}", "-", texts[row])
        for row in _largest_rows(np.abs(change), count)
        if change[row]
    ]


def _largest_rows(sizes: NDArray[np.float64], count: int) -> list[int]:
    rows: list[int] = np.argsort(-sizes, kind="stable")[:count].tolist()
    return rows
