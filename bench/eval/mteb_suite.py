"""Suites that mteb measures, those from local files too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.data.mteb_names import has_own_tasks
from bench.data.source import DataSource
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.eval.measure import Measure, MeasureContext, ScoreName, SuiteResult
from bench.eval.mteb_cache import check_cached_data, check_declared_data
from bench.eval.mteb_scores import own_score_names, rank_score_names, shared_metric
from bench.eval.mteb_setup import require_mteb
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.records.record import RunRecord, Score, safe_name

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.eval.item_changes import ItemChange


class MtebSuite(Measure[MtebTask]):
    """What mteb makes of an encoder.

    mteb asks for vectors itself, in its own order, and keeps each finished task in the campaign's folder. Its
    data are always the reference: data sets are pinned by their revision, and local files are their own.
    mteb's version is in the record, but not in the key. What a record keeps of its predictions is said in
    :mod:`bench.eval.mteb_predictions`.
    """

    counted, encodes_once, needs_vectors = "items", False, True
    moved_means = (
        "STS: as ranks in the task (1: most similar), below them similarity or gold score. Classification, "
        "bitext: other classes or sentences found, first those that one of A and B has right. Retrieval, "
        "reranking: the query's own scores."
    )

    @property
    def notes(self) -> tuple[str, ...]:
        """How mteb averages, and the suite's own note, if it has one."""
        average = "Measured by mteb: a task's value is the mean over its subsets and splits."
        return (average, *super().notes)

    def load(self, source: DataSource) -> list[MtebTask]:
        """Look the tasks up; see :func:`bench.eval.mteb_tasks.load_mteb_suite`."""
        return load_mteb_suite(self.name, source)

    def check_early(self) -> None:
        """Refuse data sets that are neither here nor may be fetched, if mteb needn't be imported for that."""
        if not has_own_tasks(self.name):
            check_declared_data(self.name)

    def check(self, tasks: Sequence[MtebTask]) -> None:
        """Refuse to go on without mteb, or with data sets that are neither here nor may be fetched."""
        require_mteb()
        check_cached_data(self.name, tasks)

    def sentences(self, tasks: Sequence[MtebTask]) -> Iterator[str]:
        """Yield nothing: the data are loaded by mteb, when it measures."""
        return iter(())

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[MtebTask], setting: MeasureContext
    ) -> SuiteResult:
        """Measure the tasks that aren't finished yet; see :func:`bench.eval.mteb_run.evaluate_mteb`."""
        from bench.eval.mteb_run import evaluate_mteb

        return evaluate_mteb(
            encoder,
            tasks,
            name=f"bench/{safe_name(setting.model.replace(' ', '-'))}",
            folder=setting.folder / "mteb",
            identity=setting.identity,
            force=setting.force,
            progress=setting.progress,
            about=setting.about,
        )

    def rescore(
        self, tasks: Sequence[MtebTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score again what is kept, where the gold is at hand."""
        from bench.eval.mteb_predictions import rescore_tasks

        return rescore_tasks(tasks, predictions, record)

    def main_metric(self, tasks: Sequence[MtebTask]) -> str:
        """Return the metric that all tasks share, else "main_score"."""
        return shared_metric(tasks) if tasks else ""

    def own_scores(self, tasks: Sequence[MtebTask], record: RunRecord) -> set[ScoreName]:
        """Return the tasks' scores, their subsets' and the averages."""
        return own_score_names(tasks, record.scores)

    def side_scores(self, tasks: Sequence[MtebTask], record: RunRecord) -> set[ScoreName]:
        """Return what retrieval has at other ranks."""
        return rank_score_names(tasks)

    def draws(
        self,
        task: MtebTask,
        rows: FloatArray,
        record: RunRecord,
        rng: np.random.Generator,
        count: int,
    ) -> NDArray[np.float64]:
        """The task's score in draws of items, within each subset."""
        from bench.eval.mteb_predictions import draw_task_scores

        return draw_task_scores(task, rows, record, rng, count)

    def moved(
        self, task: MtebTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items that two runs treat most differently, by the task's kind."""
        from bench.eval.mteb_predictions import find_item_changes

        return find_item_changes(task, one, other, record, count)
