"""Semantic textual similarity: Spearman over all pairs of a task, and the other conventions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from bench.data.tasks import PairSubset, PairTask, suite_average
from bench.encoder import Encoder, FloatArray, PairScorer, Progress, WordCounter
from bench.errors import BenchError
from bench.eval.embeddings import compare_pairs, distinct_sentences, embed_sentences, report_words
from bench.records.record import ALL, Score


def spearman(predicted: NDArray[np.floating], gold: NDArray[np.floating]) -> float:
    """Spearman's rank correlation of (n,) similarities with gold scores, ties by average rank, in [-1, 1].

    It is undefined, a BenchError, for fewer than two pairs, NaN or infinite values, or equal values.

    >>> round(spearman(np.array([0.1, 0.4, 0.3, 0.9]), np.array([1.0, 2.0, 3.0, 4.0])), 6)
    0.8
    """
    if len(predicted) != len(gold) or len(gold) < 2:
        raise BenchError(f"no correlation of {len(predicted)} predictions with {len(gold)} gold scores")
    if not np.isfinite(predicted).all():
        raise BenchError("a prediction is not finite, so the correlation is undefined")
    # from 1.18 on scipy ranks float32 in float32, whose sums err in the eighth digit
    x, y = (rankdata(np.asarray(side, dtype=np.float64)) for side in (predicted, gold))
    x -= x.mean()
    y -= y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale == 0:
        side, expected = ("predictions", None) if y @ y else ("gold scores", "gold scores that differ")
        what = f"all {len(gold)} {side} are equal, so the correlation is undefined"
        raise BenchError(what, expected=expected)
    return float(np.clip((x @ y) / scale, -1.0, 1.0))


def predict_similarities(
    encoder: Encoder | PairScorer,
    tasks: Sequence[PairTask],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> dict[str, FloatArray]:
    """Return float32 (pairs,) similarities a task, in its order; equal vectors raise BenchError."""
    pairs = {task.id: list(task.all_pairs()) for task in tasks}
    predictions = {}
    if isinstance(encoder, PairScorer):
        for task_id, task_pairs in pairs.items():
            predictions[task_id] = compare_pairs(encoder, *_split_pairs(task_pairs))
            if progress:
                progress(len(task_pairs))
        report_words(encoder, _pair_sentences(pairs))
        return predictions
    embeddings = embed_sentences(
        encoder, _pair_sentences(pairs), batch_tokens=batch_tokens, progress=progress
    )
    report_words(encoder, embeddings.rows)
    for task_id, task_pairs in pairs.items():
        predictions[task_id] = embeddings.cosine(*_split_pairs(task_pairs)).astype(np.float32)
    for task_id, values in predictions.items():
        if len(values) < 2 or np.ptp(values):
            continue
        if embeddings.all_equal:
            what = "all predictions are equal, so the correlation is undefined (a collapsed encoder?)"
            raise BenchError(what)
        if isinstance(encoder, WordCounter):
            try:
                encoder.cover(distinct_sentences(_pair_sentences({task_id: pairs[task_id]})))
            except BenchError as error:
                where = f"{task_id}: {error.where}" if error.where else task_id
                raise BenchError(error.what, where=where, expected=error.expected, hint=error.hint) from error
    return predictions


def score_task(task: PairTask, predictions: FloatArray) -> list[Score]:
    """Score one task from its predictions; raises BenchError for a wrong number, or an undefined correlation.

    Spearman "all" takes all pairs in one correlation. Several subsets have one each, and their "mean" and
    "wmean" (weighted by pairs).
    """
    gold = [np.asarray(subset.gold) for subset in task.subsets]
    if len(predictions) != task.pairs:
        raise BenchError(f"{len(predictions)} predictions for {task.pairs} pairs", where=task.id)
    value = _task_spearman(predictions, np.concatenate(gold), task.id, task.subsets)
    scores = [Score(task.id, ALL, "spearman", value, task.pairs)]
    if len(gold) == 1:
        return scores
    sizes = [len(part) for part in gold]
    parts = np.split(predictions, np.cumsum(sizes)[:-1])
    values = []
    for part, part_gold, subset in zip(parts, gold, task.subsets, strict=True):
        values.append(_task_spearman(part, part_gold, f"{task.id}, {subset.name}", [subset]))
        scores.append(Score(task.id, subset.name, "spearman", values[-1], len(part)))
    scores.append(Score(task.id, "mean", "spearman", float(np.mean(values)), task.pairs))
    scores.append(Score(task.id, "wmean", "spearman", float(np.average(values, weights=sizes)), task.pairs))
    return scores


def dev_spearman(encoder: Encoder, task: PairTask, select: str = "cosine") -> float:
    """Spearman over all pairs of a dev set, to select a checkpoint; raises BenchError if it is undefined.

    ``select`` is "cosine" or "best_of_four": the largest of cosine, dot product and the negative Euclidean
    and Manhattan distances (the selection in UNSEE's released code).
    """
    if select == "cosine":
        return score_task(task, predict_similarities(encoder, [task])[task.id])[0].value
    first, second = _split_pairs(list(task.all_pairs()))
    embeddings = embed_sentences(encoder, (*first, *second))
    gold = np.concatenate([np.asarray(subset.gold) for subset in task.subsets])
    similarities = [embeddings.cosine(first, second), *embeddings.unnormalised(first, second)]
    return max(_task_spearman(values, gold, task.id, task.subsets) for values in similarities)


def score_suite(tasks: Sequence[PairTask], predictions: Mapping[str, FloatArray]) -> tuple[Score, ...]:
    """Score all tasks, and their average (task "avg") as the mean of the unrounded "all" values."""
    scores = [score for task in tasks for score in score_task(task, predictions[task.id])]
    average = suite_average(score.value for score in scores if score.subset == ALL)
    return (*scores, Score("avg", ALL, "spearman", average, len(tasks)))


def _task_spearman(
    predicted: NDArray[np.floating], gold: NDArray[np.floating], where: str, subsets: Sequence[PairSubset]
) -> float:
    """Spearman's correlation; its BenchError names task and files."""
    try:
        return spearman(predicted, gold)
    except BenchError as error:
        files = ", ".join(dict.fromkeys(subset.source for subset in subsets if subset.source))
        where = f"{where} ({files})" if files else where
        raise BenchError(error.what, where=where, expected=error.expected) from error


def _pair_sentences(pairs: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[str]:
    return (sentence for task_pairs in pairs.values() for pair in task_pairs for sentence in pair)


def _split_pairs(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [first for first, _ in pairs], [second for _, second in pairs]
