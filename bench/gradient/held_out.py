"""The gradient paradigm on held-out sentences while a method trains (Li et al. 2024, Figures 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.gradient.real_embeddings import (
    BATCH,
    MARGIN,
    batch_cosines,
    dropout_views,
    find_hardest,
    pair_cosines,
)
from bench.gradient.sampled_angles import ANGLE, FloatArray, arccon_ratio, euclidean_distance
from bench.nn.backbone import TransformerEncoder
from bench.nn.dropout import set_dropout
from bench.stages import StageContext
from bench.training.randomness import generator
from bench.training.sentence_encoder import RecordingEncoder

HELD_OUT = 0.1


def hold_out(sentences: Sequence[str], seed: int, share: float = HELD_OUT) -> tuple[list[str], list[str]]:
    """Split a text at random into sentences to train on and to measure, each in the order of the text."""
    held = int(share * len(sentences))
    if not 0 < held < len(sentences):
        message = f"a share of {share} holds out {held} of {len(sentences)} sentences"
        raise InputError(message, expected="some in both parts")
    chosen = set(torch.randperm(len(sentences), generator=generator(seed, "held_out"))[:held].tolist())
    fit = [text for number, text in enumerate(sentences) if number not in chosen]
    return fit, [sentences[number] for number in sorted(chosen)]


@dataclass(frozen=True)
class Snapshot:
    """Held-out figures at one training step, 0 before training (Figures 8b, 8c and 9); angles in radians.

    ``kept`` is the share of anchors that the baseline keeps; the ratios are means over these, None without
    any. The angles are means and standard deviations.
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
    """Measure two views (n, dim) of the held-out sentences; ``u`` is ArcCon's margin in radians."""
    cosines = batch_cosines(first, second, batch)
    positive, negative = pair_cosines(cosines)
    own, values, _ = find_hardest(cosines)
    kept = own - values < m
    arccon = met = None
    if kept.any():
        arccon = float(arccon_ratio(own[kept], u).mean())
        met = float((euclidean_distance(values[kept]) / euclidean_distance(own[kept])).mean())
    near, far = np.arccos(positive), np.arccos(negative)
    return Snapshot(
        step,
        float(kept.mean()),
        arccon,
        met,
        float(positive.mean()),
        (float(near.mean()), float(near.std())),
        (float(far.mean()), float(far.std())),
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

    ``share`` of the text is held out, of which at most ``most`` sentences are measured. Returns the stage's
    facts, the measured sentences, and the snapshots by rising step. BenchError: the stage trains something
    other than one transformer, or its dev score isn't of [CLS].
    """
    fit, held = hold_out(context.sentences, context.seed, share)
    held = held[:most]
    if len(held) < batch:
        message = f"{len(held)} sentences are held out, less than a batch of {batch}"
        raise InputError(message, hint="use a longer text or a larger share")
    every = int(context.config["eval_every"])
    snapshots: list[Snapshot] = []

    def measure(encoder: Encoder) -> None:
        views = dropout_views(_unwrap_transformer(encoder), held, context.seed)
        snapshots.append(take_snapshot(every * len(snapshots), *views, m=m, batch=batch))

    def dev_score(encoder: Encoder, *select: str) -> float:
        measure(encoder)
        return context.dev_score(encoder, *select)

    untrained = TransformerEncoder(context.model, "cls", device=context.device)
    set_dropout(untrained.model, float(context.config["dropout"]))
    measure(untrained)
    columns = {"partners": context.partners, "negatives": context.negatives}
    given: dict[str, Any] = {
        name: hold_out(column, context.seed, share)[0] for name, column in columns.items() if column
    }
    corpus = f"{context.corpus}/without {share}"
    facts = train(replace(context, sentences=fit, **given, corpus=corpus, dev_score=dev_score))
    return facts, held, snapshots


def _unwrap_transformer(encoder: Encoder) -> TransformerEncoder:
    """Return the transformer of an encoder of [CLS]; BenchError: another kind of encoder."""
    if isinstance(encoder, RecordingEncoder):
        encoder = encoder.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise BenchError("the dev score is not of one transformer", expected="a training of [CLS]")
    if encoder.pooling != "cls":
        raise BenchError(f"the dev score is of '{encoder.pooling}'", expected="a training of [CLS]")
    return encoder
