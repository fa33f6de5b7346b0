"""Suites of transfer tasks: from an encoder to scores, predicted classes and facts about the fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.data_source import DataSource
from bench.data.sentence_clusters import Texts
from bench.data.suites import is_reference, load_transfer
from bench.data.tasks import LabelledTask, suite_average
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError
from bench.eval.embeddings import embed_sentences, report_words
from bench.eval.measure import (
    ItemChange,
    Labels,
    Measure,
    MeasureContext,
    PairTests,
    ScoreName,
    SuiteResult,
)
from bench.eval.transfer_items import f1_score, right_answers, scored_items
from bench.records.record import ALL, RunRecord, Score

if TYPE_CHECKING:  # they load torch or scipy, which planning a suite doesn't need
    from bench.eval.transfer import Protocol
    from bench.stats.resampling import Statistic


class TransferSuite(Measure[LabelledTask]):
    """Accuracy of logistic regressions on frozen vectors."""

    counted, metric = "items", "accuracy"
    unit = "clusters of tested items that share a sentence"
    change_columns = (
        "Items of which A and B predict different classes, those first that one of them has right."
    )

    def load(self, source: DataSource) -> list[LabelledTask]:
        """Read and check the tasks."""
        return load_transfer(self.name, source)

    def settings(self, solver: str) -> dict[str, Any]:
        """Return the solver."""
        return {"solver": solver}

    def is_reference(self, task: LabelledTask) -> bool:
        """True if the data have the committed fingerprint."""
        return is_reference(task)

    def sentences(self, tasks: Sequence[LabelledTask]) -> Iterator[str]:
        """Yield all sentences of all splits."""
        return (sentence for task in tasks for sentence in labelled_sentences(task))

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[LabelledTask], setting: MeasureContext
    ) -> SuiteResult:
        """Encode the sentences and solve the tasks; see :func:`evaluate_transfer`."""
        from bench.eval.transfer import Protocol

        return evaluate_transfer(encoder, tasks, Protocol(setting.solver), progress=setting.progress)

    def rescore(
        self, tasks: Sequence[LabelledTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the predicted classes again: everything but the accuracies in validation."""
        scores = []
        for task in tasks:
            classes, items = predictions[task.id], scored_items(task)
            accuracy = float(np.mean(items.weights * right_answers(task, classes)))
            scores.append(Score(task.id, ALL, "accuracy", accuracy, len(classes)))
            if task.id == "MRPC":
                scores.append(Score(task.id, ALL, "f1", f1_score(classes, items.gold), len(classes)))
        return (*scores, _average_accuracy(scores, len(tasks)))

    def side_scores(self, tasks: Sequence[LabelledTask], record: RunRecord) -> set[ScoreName]:
        """Return the accuracies in validation."""
        return {(task.id, "dev", self.metric) for task in tasks}

    def item_texts(self, task: LabelledTask, record: RunRecord) -> list[Texts | int]:
        """Return the sentence, or both, of every tested item."""
        items = scored_items(task).items
        return [list(zip(items.first, items.second, strict=True) if items.second else zip(items.first))]

    def item_statistics(self, task: LabelledTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Accuracy in draws of the tested items of all folds, with their weights in the mean over folds."""
        from bench.stats.resampling import mean_statistic

        accuracy = mean_statistic(scored_items(task).weights * right_answers(task, rows))
        return [lambda counts: np.clip(accuracy(counts), 0, 1)]

    def pair_tests(
        self,
        task: LabelledTask | None,
        one: FloatArray,
        other: FloatArray,
        scores: tuple[float, float],
        clusters: Labels | None,
    ) -> PairTests:
        """McNemar's exact test, by clusters of items that share a sentence."""
        from bench.stats.classification_statistics import mcnemar

        if task is None:
            return {}
        return {"mcnemar": mcnemar(right_answers(task, one), right_answers(task, other), clusters)}

    def find_changes(
        self, task: LabelledTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items of which two runs predict different classes."""
        from bench.eval.item_changes import class_changes

        scored = scored_items(task)
        items, names = scored.items, dict(enumerate(scored.classes))
        sides = (items.first, items.second) if items.second else (items.first,)
        a = [names.get(int(number), "?") for number in one]
        b = [names.get(int(number), "?") for number in other]
        return class_changes(list(zip(*sides, strict=True)), items.labels, a, b, count)


def evaluate_transfer(
    encoder: Encoder | PairScorer,
    tasks: Sequence[LabelledTask],
    protocol: Protocol,
    *,
    progress: Progress | None = None,
) -> SuiteResult:
    """Encode every distinct sentence of a suite once and solve its tasks, on the encoder's device.

    Scores are the accuracy on test ("all") and in validation ("dev"), F1 of MRPC, and the average. Facts are
    the solver, and each task's number of fits, regularisations, classes and largest gradient norm. A method
    for pairs, and an unsolvable task, raise BenchError.
    """
    from bench.eval.transfer import run_transfer_task
    from bench.nn.two_phase_encoding import find_device

    if isinstance(encoder, PairScorer):
        what = "this method compares pairs and has no vectors to classify"
        raise BenchError(what, expected="a method with vectors, or a suite of pairs such as sts7")
    sentences = (sentence for task in tasks for sentence in labelled_sentences(task))
    vectors = embed_sentences(encoder, sentences, progress=progress)
    report_words(encoder, vectors.rows)
    device = find_device(encoder)
    scores: list[Score] = []
    predictions: dict[str, FloatArray] = {}
    facts: dict[str, Any] = {}
    for task in tasks:
        result = run_transfer_task(task, vectors, protocol, device)
        n = len(result.gold)
        scores.append(Score(task.id, ALL, "accuracy", result.accuracy, n))
        scores.append(Score(task.id, "dev", "accuracy", float(np.mean(result.dev)), result.n_dev))
        if task.id == "MRPC":
            scores.append(Score(task.id, ALL, "f1", result.f1, n))
        predictions[task.id] = result.predictions.astype(np.float32)
        facts[task.id] = {"fits": result.fits, "regs": list(result.regs), "classes": list(result.classes)}
        if result.gradient is not None:
            facts[task.id]["largest_gradient"] = result.gradient
    scores.append(_average_accuracy(scores, len(tasks)))
    return SuiteResult(tuple(scores), predictions, {"transfer": {"solver": protocol.solver, "tasks": facts}})


def labelled_sentences(task: LabelledTask) -> Iterator[str]:
    """Yield all sentences of a task."""
    for split in task.splits:
        yield from split.first
        yield from split.second


def _average_accuracy(scores: Sequence[Score], tasks: int) -> Score:
    values = [score.value for score in scores if (score.subset, score.metric) == (ALL, "accuracy")]
    return Score("avg", ALL, "accuracy", suite_average(values), tasks)
