"""Suites of sentence pairs with gold scores: STS, the embedded world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.data.suites import is_reference, load_suite
from bench.data.tasks import PairTask
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.eval.measure import Measure, Measured, Setting
from bench.records.record import RunRecord, Score


class PairSuite(Measure[PairTask]):
    """Spearman's correlation of similarities with gold scores."""

    needs_torch, scores_last = False, True

    def load(self, data: Path | None, *, accept_data: bool, world_seed: int) -> list[PairTask]:
        """Read and check the tasks; see :func:`bench.data.suites.load_suite`."""
        return load_suite(self.name, data, accept_data=accept_data, world_seed=world_seed)[1]

    def is_reference(self, task: PairTask) -> bool:
        """True if the data have the committed fingerprint, or come with the program."""
        return is_reference(task)

    def sentences(self, tasks: Sequence[PairTask]) -> Iterator[str]:
        """Yield both sentences of every pair."""
        return (sentence for task in tasks for pair in task.all_pairs() for sentence in pair)

    def measure(self, encoder: Encoder | PairScorer, tasks: Sequence[PairTask], setting: Setting) -> Measured:
        """Score an encoder, or a method that compares pairs; see :func:`bench.eval.sts.score_suite`."""
        from bench.eval.sts import predict, score_suite

        predictions = predict(encoder, tasks, progress=setting.progress)
        return Measured(score_suite(tasks, predictions), predictions)

    def rescore(
        self, tasks: Sequence[PairTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the similarities again: everything but the last checkpoint's scores."""
        from bench.eval.sts import score_suite

        return score_suite(tasks, predictions)
