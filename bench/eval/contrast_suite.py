"""Contrast suites: is a sentence nearer to its paraphrase than to a changed sentence?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.data.contrast_items import ContrastTask, contrast_sentences
from bench.data.data_source import DataSource
from bench.data.sentence_clusters import Texts, mark_source
from bench.data.suites import CONTRAST, SUITES, load_contrast
from bench.data.tasks import suite_average
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.errors import BenchError
from bench.eval.embeddings import compare_pairs, embed_sentences, report_words
from bench.eval.measure import ItemChange, Labels, Measure, MeasureContext, PairTests, SuiteResult
from bench.records.record import ALL, RunRecord, Score

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.stats.resampling import Statistic

TIE = 1e-6  # similarities that differ by at most this are equal


class ContrastSuite(Measure[ContrastTask]):
    """Accuracy of "nearer to the paraphrase than to the distractor".

    By the cosine, as in suites of pairs; a method for pairs compares by its own similarity.
    """

    counted, metric, needs_torch = "items", "accuracy", False
    unit = "clusters of items that share a sentence or a source"
    change_columns = "Items of which A and B choose differently, those first that one of them has right."

    @property
    def notes(self) -> tuple[str, ...]:
        """The accuracy of chance, of a user's text too."""
        return super().notes if self.name in SUITES.names() else (SUITES.get(CONTRAST).note,)

    def load(self, source: DataSource) -> list[ContrastTask]:
        """Make the items."""
        return load_contrast(self.name, source)

    def is_reference(self, task: ContrastTask) -> bool:
        """True if the sentences have the committed fingerprint, or are the user's own text."""
        return task.reference

    def sentences(self, tasks: Sequence[ContrastTask]) -> Iterator[str]:
        """Yield all three sentences of every item."""
        return (sentence for task in tasks for sentence in contrast_sentences(task))

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[ContrastTask], setting: MeasureContext
    ) -> SuiteResult:
        """Predict the similarity to each sentence's paraphrase less that to its distractor."""
        margins: dict[str, FloatArray] = {}
        vectors = None
        if not isinstance(encoder, PairScorer):
            vectors = embed_sentences(encoder, self.sentences(tasks), progress=setting.progress)
        for task in tasks:
            anchors, paraphrases, distractors = (list(side) for side in zip(*task.triples, strict=True))
            if isinstance(encoder, PairScorer):
                near = compare_pairs(encoder, anchors, paraphrases).astype(np.float64)
                margin = near - compare_pairs(encoder, anchors, distractors).astype(np.float64)
                if setting.progress:
                    setting.progress(2 * task.items)
            elif vectors is not None:
                margin = vectors.cosine(anchors, paraphrases) - vectors.cosine(anchors, distractors)
            margins[task.id] = margin.astype(np.float32)
        report_words(encoder, self.sentences(tasks))
        facts = {}
        for task in tasks:
            rules, number, sha256 = task.text
            origin = {"sentences": number, "sha256": sha256} if sha256 else {"world": number}
            ties = int((credit_items(task, margins[task.id]) == 0.5).sum())
            facts[task.id] = {"made_by": rules, **origin, "ties": ties}
        return SuiteResult(_contrast_scores(tasks, margins), margins, {"contrast": facts})

    def rescore(
        self, tasks: Sequence[ContrastTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the differences again."""
        return _contrast_scores(tasks, predictions)

    def item_texts(self, task: ContrastTask, record: RunRecord) -> list[Texts | int]:
        """Return all three sentences of every item, and a mark of its source if sentences came in clusters.

        STS-B's sentences came in pairs of similar ones, so a cluster of pairs is the source. The items of a
        made-up world are single draws: independent given the world, in spite of common frames.
        """
        if not task.sources:
            return [task.triples]
        marks = (mark_source("text", number) for number in task.sources)
        return [[(*triple, mark) for triple, mark in zip(task.triples, marks, strict=True)]]

    def item_statistics(self, task: ContrastTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Accuracy in draws of items."""
        from bench.stats.resampling import mean_statistic

        return [mean_statistic(credit_items(task, rows))]

    def pair_tests(
        self,
        task: ContrastTask | None,
        one: FloatArray,
        other: FloatArray,
        scores: tuple[float, float],
        clusters: Labels | None,
    ) -> PairTests:
        """McNemar's exact test, by clusters of items that share a sentence; a tie counts as wrong."""
        from bench.stats.classification_statistics import mcnemar

        return {"mcnemar": mcnemar(one > TIE, other > TIE, clusters)}

    def find_changes(
        self, task: ContrastTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items of which two runs choose differently."""
        from bench.eval.item_changes import class_changes

        names = np.array(["distractor", "tie", "paraphrase"])
        a, b = (names[(2 * credit_items(task, side)).astype(int)].tolist() for side in (one, other))
        return class_changes(task.triples, ["paraphrase"] * task.items, a, b, count)


def credit_items(task: ContrastTask, margins: FloatArray) -> NDArray[np.float64]:
    """Credit 1 if the paraphrase is nearer, 0 if the distractor is, 1/2 for a tie; (..., items)."""
    if margins.shape[-1] != task.items:
        raise BenchError(f"{margins.shape[-1]} predictions for {task.items} items", where=task.id)
    if not np.isfinite(margins).all():
        raise BenchError("a prediction is not finite", where=task.id)
    return np.where(np.abs(margins) <= TIE, 0.5, (margins > 0).astype(np.float64))


def _contrast_scores(tasks: Sequence[ContrastTask], margins: Mapping[str, FloatArray]) -> tuple[Score, ...]:
    scores = []
    for task in tasks:
        accuracy = float(credit_items(task, margins[task.id]).mean())
        scores.append(Score(task.id, ALL, "accuracy", accuracy, task.items))
    average = suite_average(score.value for score in scores)
    return (*scores, Score("avg", ALL, "accuracy", average, len(tasks)))
