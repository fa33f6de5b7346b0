"""The gradient paradigm on held-out sentences while a method trains (Li et al. 2024, Figures 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.gradient.angles import ANGLE, FloatArray, arccon_ratio, euclidean_distance
from bench.gradient.views import BATCH, MARGIN, batch_cosines, dropout_views, find_hardest, pair_cosines
from bench.nn.backbone import TransformerEncoder
from bench.nn.dropout import set_dropout
from bench.stages import StageContext
from bench.training.randomness import generator
from bench.training.sentence_encoder import RecordingEncoder

HELD_OUT = 0.1


def hold_out(sentences: Sequence[str], seed: int, share: float = HELD_OUT) -> tuple[list[str], list[str]]:
    """Split a text at random: what to train on, and what to measure on, each in the text's order.

    Raises:
        InputError: a share that leaves one of them empty.

    Example:
        >>> hold_out(["a", "b", "c", "d"], seed=1, share=0.5)
        (['a', 'd'], ['b', 'c'])
    """
    held = int(share * len(sentences))
    if not 0 < held < len(sentences):
        raise InputError(
            f"a share of {share} holds out {held} of {len(sentences)} sentences",
            expected="some in both parts",
        )
    chosen = set(torch.randperm(len(sentences), generator=generator(seed, "held_out"))[:held].tolist())
    fit = [text for number, text in enumerate(sentences) if number not in chosen]
    return fit, [sentences[number] for number in sorted(chosen)]


@dataclass(frozen=True)
class Snapshot:
    """Held-out figures at one training step (Figures 8b, 8c and 9); angles in radians.

    Args:
        step: Optimiser steps so far; 0 is the model before training.
        kept: Share of anchors that the baseline keeps.
        arccon_ratio: Mean ratio of ArcCon over the kept anchors, None where there is none.
        met_ratio: Mean ratio of MET over them.
        positive_cosine: Mean cosine of positive pairs.
        positive_angle: Mean and standard deviation of their angles.
        negative_angle: The same of negative pairs.
    """

    step: int
    kept: float
    arccon_ratio: float | None
    met_ratio: float | None
    positive_cosine: float
    positive_angle: tuple[float, float]
    negative_angle: tuple[float, float]


def take_snapshot(
    step: int,
    first: FloatArray,
    second: FloatArray,
    *,
    m: float = MARGIN,
    u: float = ANGLE,
    batch: int = BATCH,
) -> Snapshot:
    """Measure two views of the held-out sentences.

    Args:
        step: The training step.
        first: Anchors, (n, dim), unit rows.
        second: Their positives, (n, dim).
        m: Margin of the kept anchors.
        u: ArcCon's margin in radians.
        batch: Sentences a batch.

    Example:
        >>> first, second = np.eye(2), np.array([[0.8, 0.6], [0.6, 0.8]])
        >>> shot = take_snapshot(0, first, second, batch=2)
        >>> shot.kept, round(shot.met_ratio, 3), round(shot.positive_cosine, 3)
        (1.0, 1.414, 0.8)
    """
    cosines = batch_cosines(first, second, batch)
    positive, negative = pair_cosines(cosines)
    own, values, _ = find_hardest(cosines)
    kept = own - values < m
    some = bool(kept.any())
    ratio = euclidean_distance(values[kept]) / euclidean_distance(own[kept])
    angles = np.arccos(positive), np.arccos(negative)
    return Snapshot(
        step,
        float(kept.mean()),
        float(arccon_ratio(own[kept], u).mean()) if some else None,
        float(ratio.mean()) if some else None,
        float(positive.mean()),
        (float(angles[0].mean()), float(angles[0].std())),
        (float(angles[1].mean()), float(angles[1].std())),
    )


def watch_training(
    train: Callable[[StageContext], dict[str, Any]],
    context: StageContext,
    *,
    share: float = HELD_OUT,
    most: int | None = None,
    m: float = MARGIN,
    batch: int = BATCH,
) -> tuple[dict[str, Any], list[str], list[Snapshot]]:
    """Train a stage on a part of its text and measure the rest before it and at every dev evaluation.

    Args:
        train: The stage's training, of a method that trains one transformer's [CLS].
        context: Its context; ``out`` gets the checkpoints.
        share: Share that is held out.
        most: Measure this many of the held-out sentences at most; None for all.
        m: Margin of the kept anchors.
        batch: Sentences a batch.

    Returns:
        The stage's facts, the sentences that were measured, and the snapshots by rising step.

    Raises:
        InputError: a share that leaves less than a batch of held-out sentences, or none to train on.
        BenchError: the stage trains something other than one transformer, or its dev score isn't of [CLS].
    """
    fit, held = hold_out(context.sentences, context.seed, share)
    held = held[:most]
    if len(held) < batch:
        raise InputError(
            f"{len(held)} sentences are held out, less than a batch of {batch}",
            hint="use a longer text or a larger share",
        )
    every = int(context.config["eval_every"])
    found: list[Snapshot] = []

    def measure(encoder: Encoder) -> None:
        views = dropout_views(_unwrap_transformer(encoder), held, context.seed)
        found.append(take_snapshot(every * len(found), *views, m=m, batch=batch))

    def dev_score(encoder: Encoder, *select: str) -> float:
        measure(encoder)
        return context.dev_score(encoder, *select)

    untrained = TransformerEncoder(context.model, "cls", device=context.device)
    set_dropout(untrained.model, float(context.config["dropout"]))
    measure(untrained)
    partners, negatives = (
        hold_out(column, context.seed, share)[0] if column else ()
        for column in (context.partners, context.negatives)
    )
    corpus = f"{context.corpus}/without {share}"
    columns = replace(context, sentences=fit, partners=partners, negatives=negatives)
    facts = train(replace(columns, corpus=corpus, dev_score=dev_score))
    return facts, held, found


def _unwrap_transformer(encoder: Encoder) -> TransformerEncoder:
    """The transformer whose [CLS] is measured; raises BenchError for any other encoder."""
    if isinstance(encoder, RecordingEncoder):
        encoder = encoder.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise BenchError("the gradient probe measures methods that train one transformer")
    if encoder.pooling != "cls":
        raise BenchError(
            f"the gradient probe measures [CLS], and this training's dev score is of '{encoder.pooling}'"
        )
    return encoder
