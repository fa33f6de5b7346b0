"""Alignment: distance of pairs of like meaning on the unit sphere (Wang and Isola 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeInputs

if TYPE_CHECKING:
    from bench.data.tasks import PairTask

GOLD = 4.0
UNIT = "vectors of length 1; lower is better"  # the end of a convention
Vectors = NDArray[np.floating]


def unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    """Divide each row of (n, d) by its length, in float64; raises BenchError for a row of length 0.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 2.0]])).tolist()
    [[0.6, 0.8], [0.0, 1.0]]
    """
    x = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if not norms.all():
        what = f"vector {int(np.argmin(norms)) + 1} of {len(x)} has length 0, so it has no direction"
        raise BenchError(what)
    units: NDArray[np.float64] = x / norms
    return units


def positive_pairs(
    tasks: Sequence[PairTask], threshold: float = GOLD, *, strict: bool = False
) -> tuple[list[str], list[str]]:
    """Return both sides of the pairs whose gold score is at least ``threshold`` (strict: above it)."""
    first: list[str] = []
    second: list[str] = []
    for task in tasks:
        for subset in task.subsets:
            for a, b, gold in zip(subset.first, subset.second, subset.gold, strict=True):
                if gold > threshold or (gold == threshold and not strict):
                    first.append(a)
                    second.append(b)
    return first, second


def alignment(first: Vectors, second: Vectors, alpha: float = 2.0) -> float:
    """Mean of ||x / |x| - y / |y| ||^alpha over pairs, in [0, 2^alpha]; lower is better (Wang, Isola 2020).

    Both are (n, d), alpha is above 0. It raises BenchError for missing pairs and vectors of length 0.
    One pair of the same direction, and one at a right angle, whose squared distance is 2:

    >>> round(alignment(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[5.0, 0.0], [0.0, 1.0]])), 6)
    1.0
    """
    if first.shape != second.shape or alpha <= 0:
        raise ValueError(f"vectors {first.shape} and {second.shape}, alpha={alpha}")
    if not len(first):
        raise BenchError("no pair of like meaning, so there is no alignment")
    distances = np.linalg.norm(unit_vectors(first) - unit_vectors(second), axis=1)
    return float(np.mean(distances**alpha))


def _measure_alignment(inputs: ProbeInputs) -> dict[str, Any]:
    strict = inputs.options.strict
    pairs = positive_pairs(inputs.data.tasks, strict=strict)
    values = []
    for part in (inputs.embeddings, *inputs.parts):
        values.append(alignment(part.select(pairs[0]), part.select(pairs[1])))
    count, gold = len(pairs[0]), f"{'above' if strict else 'at least'} {GOLD:g}"
    return {
        "value": values[0],
        "towers": values[1:],
        "pairs": count,
        "gold": gold,
        "convention": f"mean squared distance (alpha 2) of the {count:,} pairs of gold score {gold}, {UNIT}",
    }


PROBE = Probe(
    "alignment",
    "mean squared distance of pairs of like meaning, unit vectors",
    needs="vectors",
    measure=_measure_alignment,
    table=VECTORS,
    columns=(ProbeColumn("alignment"),),
)
