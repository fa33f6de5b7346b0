"""The gradient paradigm on real embeddings (Li et al. 2024, section 3.2, Figures 5 and 7 to 9).

Held-out sentences are encoded twice with dropout; row i of one view belongs to row i of the other. What
compares an anchor with its negatives does so in batches, whose short last one is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.gradient.sampled_angles import TAUS, FloatArray, RatioBounds, ratio_bounds
from bench.nn.backbone import TransformerEncoder
from bench.nn.device import to_float64
from bench.training.batch_encoding import pooled_states
from bench.training.randomness import own_random_state

BATCH = 128
MARGIN = 0.3
STRENGTHS = (0.5, 1.0, 2.0)
RATIOS = (0.5, 1.0, 1.25, 1.5, 2.0)


def dropout_views(
    encoder: TransformerEncoder, sentences: Sequence[str], seed: int
) -> tuple[FloatArray, FloatArray]:
    """Encode sentences twice with the model's dropout: [CLS] without a head, two unit (n, dim).

    Draws from the stream ``views`` of the seed; the model's mode and other random states stay as they were.
    BenchError: a vector that is zero or not finite.
    """
    model = encoder.model
    rows, training = encoder.token_ids(sentences), model.training
    with own_random_state(seed, "views", encoder.device), torch.no_grad():
        model.train()
        try:
            states = pooled_states(model, [*rows, *rows], encoder.tokenizer.pad_token_id)
        finally:
            model.train(training)
    vectors = to_float64(states).cpu().numpy()
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not norms.all():
        raise BenchError("a held-out sentence's vector is zero or not finite")
    unit: FloatArray = vectors / norms
    return unit[: len(rows)], unit[len(rows) :]


def batch_cosines(first: FloatArray, second: FloatArray, batch: int = BATCH) -> FloatArray:
    """Cosines of all anchors with all second views of their batch, (batches, batch, batch)."""
    if first.shape != second.shape or first.ndim != 2 or batch < 2 or len(first) < batch:
        message = f"views {first.shape} and {second.shape} with batches of {batch}"
        raise ValueError(f"{message}; expected two (n, dim), n at least a batch of 2 or more")
    whole = len(first) // batch * batch
    a, b = (view[:whole].reshape(-1, batch, view.shape[1]) for view in (first, second))
    cosines: FloatArray = np.clip(a @ b.transpose(0, 2, 1), -1, 1)
    return cosines


def pair_cosines(cosines: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cosines of positive pairs (batches * batch,) and of negative ones (Figures 5, 8c, 9)."""
    own = np.eye(cosines.shape[1], dtype=bool)
    return cosines[:, own].ravel(), cosines[:, ~own].ravel()


def cosine_density(values: FloatArray, bins: int = 200) -> tuple[FloatArray, FloatArray]:
    """Edges (bins + 1,) and histogram density (bins,) of cosines on [-1, 1] (Figure 5)."""
    heights, edges = np.histogram(values, bins=bins, range=(-1, 1), density=True)
    return edges, heights


@dataclass(frozen=True)
class HardestNegatives:
    """Every kept anchor's cosines, and ``alpha``, the tangent plane's angle between the directions."""

    positive: FloatArray
    negative: FloatArray
    alpha: FloatArray


def hardest_negatives(
    first: FloatArray, second: FloatArray, m: float = MARGIN, batch: int = BATCH
) -> HardestNegatives:
    """Find the hardest negatives of the anchors that the baseline keeps: s_ii - max_{k != i} s_ik < m."""
    cosines = batch_cosines(first, second, batch)
    own, values, places = find_hardest(cosines)
    kept = own - values < m
    numbers = np.flatnonzero(kept)
    near, far = second[numbers], second[(np.arange(len(cosines))[:, None] * batch + places).ravel()[numbers]]
    s_near, s_far = own[kept], values[kept]
    # between tangent directions: (h' . h_j - s_ii s_ij) / (sin sin)
    sines = np.sqrt(np.maximum((1 - s_near**2) * (1 - s_far**2), 1e-24))
    between = ((near * far).sum(axis=1) - s_near * s_far) / sines
    return HardestNegatives(s_near, s_far, np.arccos(np.clip(between, -1, 1)))


def required_ratios(hardest: HardestNegatives, strength: float, *, acute: bool = False) -> RatioBounds:
    """Lemma 1's bounds of every kept anchor (Figure 8a); ``acute``: angles below 90 degrees, as released."""
    chosen = np.ones(len(hardest.positive), dtype=bool)
    if acute:
        chosen = (hardest.positive > 0) & (hardest.negative > 0) & (np.cos(hardest.alpha) > 0)
    positive, negative = np.arccos(hardest.positive[chosen]), np.arccos(hardest.negative[chosen])
    return ratio_bounds(positive, negative, hardest.alpha[chosen], strength)


def hardest_shares(
    first: FloatArray,
    second: FloatArray,
    taus: Sequence[float],
    *,
    form: str = "paper",
    m: float = MARGIN,
    batch: int = BATCH,
) -> FloatArray:
    """Mean share of the hardest negative by temperature, (taus,) (Figure 7).

    "paper": of the softmax weights, all anchors. "released": of the length of the weighted sum of tangent
    directions, along it, kept anchors only. BenchError: no anchor is kept.
    """
    if form not in ("paper", "released") or not all(tau > 0 for tau in taus):
        raise ValueError(f"form '{form}', taus {tuple(taus)}; expected paper or released, and above 0")
    cosines = batch_cosines(first, second, batch)
    own, values, places = find_hardest(cosines)
    kept = own - values < m
    if form == "released" and not kept.any():
        raise BenchError(f"no anchor is kept at margin {m}")
    shares = []
    for tau in taus:
        weights = np.exp((_mask_positives(cosines) - values[..., None]) / tau)
        weights /= weights.sum(axis=2, keepdims=True)
        top = np.take_along_axis(weights, places[..., None], axis=2)[..., 0]
        if form == "paper":
            shares.append(top.mean())
            continue
        whole = cosines.shape[0] * batch
        a, b = (view[:whole].reshape(-1, batch, view.shape[1]) for view in (first, second))
        total = weights @ b - (weights * cosines).sum(axis=2, keepdims=True) * a
        hardest = np.take_along_axis(b, places[..., None], axis=1) - values[..., None] * a
        along = top * (hardest * total).sum(axis=2) / np.maximum((total**2).sum(axis=2), 1e-24)
        shares.append(along[kept].mean())
    return np.array(shares)


def embedding_figures(
    first: FloatArray,
    second: FloatArray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    taus: Sequence[float] = TAUS,
    m: float = MARGIN,
    batch: int = BATCH,
) -> dict[str, Any]:
    """Compute Figures 5, 7 and 8a of one encoder's views (n, dim) as JSON values.

    "density" of both kinds of cosines on 200 equal intervals of [-1, 1]; "hardest_share" by temperature in
    both forms (released: None without a kept anchor); "lemma" by lambda: kept anchors, how many have an
    imaginary root, how many each ratio of :data:`RATIOS` brings nearer, and the lower bounds.
    """
    positive, negative = pair_cosines(batch_cosines(first, second, batch))
    hardest = hardest_negatives(first, second, m, batch)
    paper, released = hardest_shares(first, second, taus, batch=batch).tolist(), None
    if len(hardest.positive):
        released = hardest_shares(first, second, taus, form="released", m=m, batch=batch).tolist()
    lemma = []
    for strength in strengths:
        bounds = required_ratios(hardest, strength)
        nearer = {f"{r:g}": int(((bounds.lower < r) & (r < bounds.upper)).sum()) for r in RATIOS}
        counts = {"kept": len(bounds.real), "imaginary": bounds.imaginary, "nearer": nearer}
        lemma.append({"lambda": strength, **counts, "lower": bounds.lower.tolist()})
    kinds = {"positive": positive, "negative": negative}
    return {
        "density": {kind: cosine_density(cosines)[1].tolist() for kind, cosines in kinds.items()},
        "hardest_share": {"taus": list(taus), "paper": paper, "released": released},
        "lemma": lemma,
    }


def find_hardest(cosines: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Cosine with the positive, largest with a negative, and its place, each (batches, batch)."""
    others = _mask_positives(cosines)
    places = others.argmax(axis=2)
    values = np.take_along_axis(others, places[..., None], axis=2)[..., 0]
    return np.diagonal(cosines, axis1=1, axis2=2), values, places


def _mask_positives(cosines: FloatArray) -> FloatArray:
    """Replace the positive by -inf."""
    return np.where(np.eye(cosines.shape[1], dtype=bool), -math.inf, cosines)
