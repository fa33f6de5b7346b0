"""Items that two runs treat differently: pairs whose rank changed, other classes, other scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from bench.eval.measure import ItemChange

Texts = Sequence[tuple[str, ...]]


def rank_changes(
    texts: Texts, gold: Sequence[float], one: ArrayLike, other: ArrayLike, count: int
) -> list[ItemChange]:
    """Return the items whose rank of similarity changed most, the largest change first, ties in their order.

    Ranks are average ranks, 1 for the most similar. The change is the second rank less the first.
    """
    values = [np.asarray(given, dtype=np.float64) for given in (one, other, gold)]
    ranks = [rankdata(-given) for given in values]
    change = ranks[1] - ranks[0]
    items = []
    for row in _largest_rows(np.abs(change), count):
        a, b = (f"{ranks[side][row]:g}\n{values[side][row]:.3f}" for side in (0, 1))
        right = f"{ranks[2][row]:g}\n{values[2][row]:g}"
        items.append(ItemChange(row + 1, f"{change[row]:+g}", a, b, right, texts[row]))
    return items


def class_changes(
    texts: Texts, gold: Sequence[str], one: Sequence[str], other: Sequence[str], count: int
) -> list[ItemChange]:
    """Return items of which two runs predict different classes, first those that one of them has right."""
    truth, first, second = (np.asarray(given, dtype=object) for given in (gold, one, other))
    differs = np.flatnonzero(first != second)
    change = (second == truth).astype(int) - (first == truth).astype(int)
    words = {1: "right in B", -1: "right in A", 0: "wrong in both"}
    items = []
    for place in _largest_rows(np.abs(change[differs]), count):
        row = int(differs[place])
        cells = (str(one[row]), str(other[row]), str(gold[row]))
        items.append(ItemChange(row + 1, words[int(change[row])], *cells, texts[row]))
    return items


def score_changes(texts: Texts, one: ArrayLike, other: ArrayLike, count: int) -> list[ItemChange]:
    """Return the items whose own scores differ most."""
    first, second = (np.asarray(given, dtype=np.float64) for given in (one, other))
    change = second - first
    return [
        ItemChange(row + 1, f"{change[row]:+.3f}", f"{first[row]:.3f}", f"{second[row]:.3f}", "-", texts[row])
        for row in _largest_rows(np.abs(change), count)
        if change[row]
    ]


def _largest_rows(sizes: NDArray[np.number], count: int) -> list[int]:
    rows: list[int] = np.argsort(-sizes, kind="stable")[:count].tolist()
    return rows
