"""Word vectors from a text's co-occurrence counts: where a language model's embeddings may start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def compute_spectral_embeddings(
    rows: Sequence[Sequence[int]], tokens: int, size: int, std: float
) -> NDArray[np.float32]:
    """Leading eigenvectors of the positive pointwise mutual information of tokens in one row.

    PPMI(a, b) = max(0, log p(a, b) / (p(a) p(b))), p(a, b) the share of pairs of different tokens that stand
    in one row (Levy and Goldberg 2014, section 3). A token's vector is its row of the eigenvectors times the
    roots of the eigenvalues, at the length that a random one would have: tokens of like company get like
    vectors. Needs memory for tokens x tokens numbers.

    Args:
        rows: Token ids of each document.
        tokens: Size of the vocabulary.
        size: Dimensions; at most ``tokens``.
        std: Standard deviation of a number in a token's vector.

    Returns:
        (tokens, size) float32; zeros for a token without company.
    """
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    read = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    pairs = np.unique(np.repeat(np.arange(len(rows)), lengths) * tokens + read)
    documents, members = np.divmod(pairs, tokens)
    ones = np.ones(len(members))
    incidence = sparse.csr_matrix((ones, (documents, members)), shape=(len(rows), tokens))
    together = (incidence.T @ incidence).toarray()
    np.fill_diagonal(together, 0.0)
    single = together.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * single.sum() / np.outer(single, single))
    information = np.where(together > 0, np.maximum(information, 0.0), 0.0)
    values, vectors = np.linalg.eigh(information)
    leading = np.argsort(-values, kind="stable")[:size]
    embeddings = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    scaled = np.divide(embeddings, norms, out=np.zeros_like(embeddings), where=norms > 1e-9)
    found: NDArray[np.float32] = (scaled * std * np.sqrt(size)).astype(np.float32)
    return found
