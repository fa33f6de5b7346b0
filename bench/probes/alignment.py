"""Alignment: how close pairs of like meaning lie on the unit sphere (Wang and Isola 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import BenchError
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeInputs
from bench.probes.unit_sphere import UNIT, Vectors, unit_vectors

if TYPE_CHECKING:
    from bench.data.tasks import PairTask
    from bench.eval.embeddings import Embeddings

GOLD = 4.0


def positive_pairs(
    tasks: Sequence[PairTask], threshold: float = GOLD, *, strict: bool = False
) -> tuple[list[str], list[str]]:
    """Return both sides of the pairs whose gold score is at least ``threshold`` (strict: above it)."""
    pairs = [
        pair
        for task in tasks
        for subset in task.subsets
        for *pair, gold in zip(subset.first, subset.second, subset.gold, strict=True)
        if gold > threshold or (gold == threshold and not strict)
    ]
    return [str(first) for first, _ in pairs], [str(second) for _, second in pairs]


def alignment(first: Vectors, second: Vectors, alpha: float = 2.0) -> float:
    """Mean of ||x / |x| - y / |y| ||^alpha over pairs, in [0, 2^alpha]; lower is better (Wang, Isola 2020).

    Args:
        first: (n, d) vectors, n at least 1.
        second: (n, d) vectors of their partners.
        alpha: Exponent, above 0.

    Raises:
        BenchError: no pair, or a vector of length 0.
        ValueError: shapes that don't fit, or another alpha.

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
    first, second = positive_pairs(inputs.data.tasks, strict=strict)

    def of(found: Embeddings) -> float:
        rows = [[found.rows[sentence] for sentence in side] for side in (first, second)]
        return alignment(found.vectors[rows[0]], found.vectors[rows[1]])

    gold = f"{'above' if strict else 'at least'} {GOLD:g}"
    return {
        "value": of(inputs.embeddings),
        "towers": [of(part) for part in inputs.parts],
        "pairs": len(first),
        "gold": gold,
        "convention": (
            f"mean squared distance (alpha 2) of the {len(first):,} pairs of gold score {gold}, {UNIT}"
        ),
    }


PROBE = Probe(
    "alignment",
    "mean squared distance of pairs of like meaning, unit vectors",
    needs="vectors",
    measure=_measure_alignment,
    table=VECTORS,
    columns=(ProbeColumn("alignment"),),
)
