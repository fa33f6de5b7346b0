"""Isotropy: the collapse figures of vectors, and the spectrum behind the effective rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.eval.embedding_collapse import collapse_figures
from bench.probes.interface import VECTORS, Probe, ProbeColumn

CONVENTION = (
    "vectors as the encoder gives them, not centred: effective rank is exp of the entropy of the normalised "
    "singular values, the spectrum; of their unit vectors: mean cosine over all pairs of different "
    "sentences, deviation the mean over dimensions of the standard deviation (divisor n) times sqrt(dim)"
)


def spectrum(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Singular values of uncentred (n, d) vectors, divided by their sum: (min(n, d),), descending.

    Raises BenchError if all vectors are 0.

    >>> spectrum(np.diag([3.0, 1.0])).tolist()
    [0.75, 0.25]
    """
    values = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
    if not values[0]:
        raise BenchError("all vectors are 0, so there is no spectrum")
    shares: NDArray[np.float64] = values / values.sum()
    return shares


def isotropy(vectors: NDArray[np.floating]) -> dict[str, Any]:
    """Return the collapse figures of (n, d) vectors, and the share of their spectrum in the first k values.

    Fewer than two vectors, or only zero ones, raise BenchError. Four directions, equally used:

    >>> figures = isotropy(np.eye(4))
    >>> round(figures["effective_rank"], 6), figures["mean_cosine"], figures["cumulative"]
    (4.0, 0.0, {'1': 0.25, '2': 0.5, '4': 1.0})
    """
    if len(vectors) < 2:
        raise BenchError(f"isotropy needs at least two sentences, here are {len(vectors)}")
    shares = spectrum(vectors)
    sums = np.cumsum(shares)
    return {
        **collapse_figures(vectors)._asdict(),
        "dim": vectors.shape[1],
        "cumulative": {str(2**i): float(sums[2**i - 1]) for i in range(len(shares).bit_length())},
        "spectrum": shares.tolist(),
        "convention": CONVENTION,
    }


PROBE = Probe(
    "isotropy",
    "effective rank, mean cosine, deviation and spectrum of the vectors",
    needs="vectors",
    measure=lambda inputs: isotropy(inputs.vectors),
    table=VECTORS,
    columns=(
        ProbeColumn("effective rank", ("effective_rank",), ".1f"),
        ProbeColumn("mean cosine", ("mean_cosine",)),
        ProbeColumn("deviation", ("deviation",)),
    ),
    drawn=("spectrum",),
)
