"""Suites of sentence pairs with gold scores: STS, the embedded world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.data.data_source import DataSource
from bench.data.sentence_clusters import Texts
from bench.data.suites import is_reference, load_suite
from bench.data.tasks import PairTask
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.eval.measure import ItemChange, Labels, Measure, MeasureContext, PairTests, SuiteResult
from bench.records.record import RunRecord, Score

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.stats.resampling import Statistic


class PairSuite(Measure[PairTask]):
    """Spearman's correlation of similarities with gold scores."""

    metric, needs_torch, scores_last = "spearman", False, True
    unit = "clusters of pairs that share a sentence"
    change_columns = (
        "Each cell: the pair's rank in the task (1: most similar), below it the similarity or gold score. "
        "change: rank in B minus rank in A."
    )

    def load(self, source: DataSource) -> list[PairTask]:
        """Read and check the tasks."""
        return load_suite(self.name, source)[1]

    def is_reference(self, task: PairTask) -> bool:
        """True if the data have the committed fingerprint, or come with the program."""
        return is_reference(task)

    def sentences(self, tasks: Sequence[PairTask]) -> Iterator[str]:
        """Yield both sentences of every pair."""
        return (sentence for task in tasks for pair in task.all_pairs() for sentence in pair)

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[PairTask], setting: MeasureContext
    ) -> SuiteResult:
        """Score an encoder, or a method that compares pairs."""
        from bench.eval.sts import predict_similarities, score_suite

        predictions = predict_similarities(encoder, tasks, progress=setting.progress)
        return SuiteResult(score_suite(tasks, predictions), predictions)

    def rescore(
        self, tasks: Sequence[PairTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the similarities again: everything but the last checkpoint's scores."""
        from bench.eval.sts import score_suite

        return score_suite(tasks, predictions)

    def item_texts(self, task: PairTask, record: RunRecord) -> list[Texts | int]:
        """Return both sentences of every pair."""
        return [list(task.all_pairs())]

    def item_statistics(self, task: PairTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Correlate in draws of pairs."""
        from bench.stats.resampling import spearman_statistic

        return [spearman_statistic(rows, _gold_scores(task))]

    def pair_tests(
        self,
        task: PairTask | None,
        one: FloatArray,
        other: FloatArray,
        scores: tuple[float, float],
        clusters: Labels | None,
    ) -> PairTests:
        """Williams' and Steiger's tests, from the correlations of both with gold and with each other.

        Of pairs that share sentences, the test by clusters instead.
        """
        from bench.stats.resampling import spearman_rows

        if clusters is not None:
            from bench.stats.clustered_tests import clustered_test

            if task is None:
                return {"clustered": None}
            return {"clustered": clustered_test(one, other, _gold_scores(task), clusters)}
        return compare_correlations(scores, float(spearman_rows(one, other)[0]), len(one))

    def find_changes(
        self, task: PairTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the pairs whose rank of similarity changed most."""
        from bench.eval.item_changes import rank_changes

        return rank_changes(list(task.all_pairs()), _gold_scores(task).tolist(), one, other, count)


def compare_correlations(scores: tuple[float, float], between: float, items: int) -> PairTests:
    """Return Williams' and Steiger's tests of two correlations with gold, from that between both sides."""
    from bench.stats.correlations import steiger, williams

    tests: PairTests = {}
    for test in (williams, steiger):
        try:
            tests[test.__name__] = test(*scores, between, items)
        except ValueError:  # a correlation of 1 with the gold scores
            tests[test.__name__] = None
    return tests


def _gold_scores(task: PairTask) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(subset.gold, dtype=np.float64) for subset in task.subsets])
