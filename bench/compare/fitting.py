"""The measured coverage that fits an interval: which row of ``bench.stats.coverage`` its sentence quotes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from bench.compare.design import Design
from bench.stats.coverage import Row, measured
from bench.stats.hierarchical import ComponentsDifference

UNEQUAL = 2.0  # spreads over seeds that differ by so much count as unequal
METHODS = {"paired": "paired t", "sign-flip": "paired t", "student": "student"}


def row_of_seeds(
    design: Design, x: Sequence[float], y: Sequence[float], r: float | None, scores: str = "normal"
) -> Row:
    """Return the row of the interval over seeds; of two that fit, the one that held less often.

    Args:
        design: The test.
        x: Scores of one side.
        y: Scores of the other.
        r: Correlation of the pairs.
        scores: "normal", or "collapse" for sides with outlying seeds.
    """
    method = METHODS.get(design.test, "welch")
    if method == "student":
        return measured(method, max(len(x), len(y)), 1, design=scores)
    if method == "paired t":
        return measured(method, len(x), len(y), correlation=r or 0.0, design=scores)
    rows = [measured(method, len(x), len(y), design=scores)]
    if scores == "normal" and (sides := _unequal(x, y)):
        rows.append(measured(method, *sides, design="spread 3:1"))
    return min(rows, key=lambda row: row.measured)


def row_of_permutation(x: Sequence[float], y: Sequence[float]) -> Row | None:
    """Return the row of the permutation of runs where spreads are unequal, else None."""
    sides = _unequal(x, y)
    return measured("permutation", *sides, design="spread 3:1") if sides else None


def _unequal(x: Sequence[float], y: Sequence[float]) -> tuple[int, int] | None:
    """The seeds of the side that spreads more, and the other's; None where they spread about as much."""
    (wide, n_wide), (narrow, n) = sorted(((stdev(side), len(side)) for side in (x, y)), reverse=True)
    return (n_wide, n) if wide >= UNEQUAL * narrow else None


def row_of_components(found: ComponentsDifference, r: float | None) -> Row:
    """Return the row of the interval for seeds and items.

    Args:
        found: The components: the larger decides between "items dominate" and "seeds dominate".
        r: Correlation of the pairs.
    """
    method = "components, paired" if found.paired else "components"
    scores = "items dominate" if found.items > found.seeds else "seeds dominate"
    n_b, n_a = sorted((found.n_a, found.n_b))  # of a method without seeds 1, the last
    correlation = (r or 0.0) if found.paired else None
    return measured(method, n_a, n_b, correlation, design=scores, target="further seeds, further items")
