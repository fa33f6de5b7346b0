"""The dev evaluation during training: a score that chooses, figures that show a collapse, losses to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from bench.encoder import Encoder, FloatArray, Progress
from bench.eval.collapse import Collapse, collapse_figures
from bench.stages import Report

POINTS = 50


def loss_curve(losses: Sequence[float], most: int = POINTS) -> list[list[float]]:
    """Thin a training's losses: each point is the mean over the steps since the point before.

    Args:
        losses: One a step.
        most: Largest number of points.

    Returns:
        Rows (last step, mean loss), steps from 1; a row a step where there are no more than ``most``.

    >>> loss_curve([4.0, 2.0, 1.0, 1.0, 0.5], most=3)
    [[2, 3.0], [4, 1.0], [5, 0.5]]
    """
    size = math.ceil(len(losses) / most)
    starts = range(0, len(losses), size or 1)
    return [[min(at + size, len(losses)), fmean(losses[at : at + size])] for at in starts]


class DevEvaluation:
    """Scores an encoder again and again while it learns.

    Args:
        dev_score: Spearman of an encoder on the dev set; its second argument is the similarity.
        encoder: The encoder.
        select: That similarity.
        collapse: True keeps the collapse figures of the dev sentences' vectors.
        report: Called with them, as "collapse".
    """

    def __init__(
        self,
        dev_score: Callable[..., float],
        encoder: Encoder,
        select: str = "cosine",
        collapse: bool = False,
        report: Report | None = None,
    ) -> None:
        self.select, self.collapse = select, collapse
        self.figures: list[Collapse] = []
        """Of every evaluation so far."""
        self._dev_score, self._encoder, self._report = dev_score, encoder, report

    def score(self) -> float:
        """Evaluate now."""
        watched = Watched(self._encoder) if self.collapse else self._encoder
        more = () if self.select == "cosine" else (self.select,)
        score = self._dev_score(watched, *more)
        if isinstance(watched, Watched):
            self.figures.append(collapse_figures(np.concatenate(watched.seen)))
            if self._report:
                self._report({"collapse": list(self.figures[-1])})
        return score


class Watched:
    """An encoder that keeps the vectors that it returns.

    Args:
        encoder: What encodes.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.dim, self.facts, self.encoder = encoder.dim, encoder.facts, encoder
        self.seen: list[FloatArray] = []

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """See :class:`bench.encoder.Encoder`."""
        vectors = self.encoder.encode(sentences, batch_tokens, progress)
        self.seen.append(np.array(vectors, copy=True))
        return vectors
