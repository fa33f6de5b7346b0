"""Use of the space by embeddings: figures that show a collapse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Collapse(NamedTuple):
    """Figures of n vectors of d dimensions."""

    effective_rank: float  # 1 (all on one line) to min(n, d)
    mean_cosine: float  # over all pairs of different rows, -1 to 1; 1 if all point one way
    # mean standard deviation of the unit vectors' dimensions, times sqrt(d): 0 if equal, about 1 if spread
    deviation: float


def collapse_figures(vectors: NDArray[np.floating]) -> Collapse:
    """Return the figures of (n, d) vectors, n at least 2, in float64; the direction of a zero row is 0.

    >>> spread = collapse_figures(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]))
    >>> [round(figure, 4) for figure in spread]
    [1.8899, -0.3333, 1.0]
    """
    x = vectors.astype(np.float64)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-8)
    n, d = unit.shape
    total = unit.sum(0)
    mean_cosine = (total @ total - (unit**2).sum()) / (n * (n - 1))
    return Collapse(effective_rank(x), float(mean_cosine), float(unit.std(0).mean() * np.sqrt(d)))


def effective_rank(vectors: NDArray[np.floating]) -> float:
    """Return exp of the entropy of the normalised singular values of (n, d) vectors (Roy and Vetterli 2007).

    The matrix stays uncentred. 1 for rank one or all zeros, k for k equal singular values.

    >>> round(effective_rank(np.eye(3)), 6)
    3.0
    """
    values = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
    total = values.sum()
    if total == 0:
        return 1.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))
