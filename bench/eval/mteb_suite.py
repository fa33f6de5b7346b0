"""Suites that mteb measures, those from local files too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bench.data.data_source import DataSource
from bench.data.mteb_names import has_own_tasks
from bench.data.sentence_clusters import Texts
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.eval.measure import ItemChange, Measure, MeasureContext, ScoreName, SuiteResult
from bench.eval.mteb_cache import check_cached_data, check_declared_data
from bench.eval.mteb_scores import RETRIEVAL, metric_name, shared_metric
from bench.eval.mteb_setup import import_mteb
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.records.record import ALL, AVERAGE, RunRecord, Score, safe_name

if TYPE_CHECKING:  # it loads scipy, which planning a suite doesn't need
    from bench.stats.resampling import Statistic


class MtebSuite(Measure[MtebTask]):
    """Scores of mteb, which asks for vectors itself and keeps each finished task in the campaign's folder.

    Its data are always the reference: data sets have a fixed revision, and local files are their own. Records
    store mteb's version; the key leaves it out. :mod:`bench.eval.mteb_predictions` lists the predictions.
    """

    counted, encodes_once, needs_vectors = "items", False, True
    unit = "clusters of items that share a text or a translation"
    change_columns = (
        "STS: as ranks in the task (1: most similar), below them similarity or gold score. Classification, "
        "bitext: other classes or sentences found, first those that one of A and B has right. Retrieval, "
        "reranking: the query's own scores."
    )

    @property
    def notes(self) -> tuple[str, ...]:
        """Mteb's rule for averages, and the suite's own note."""
        average = "Measured by mteb: a task's value is the mean over its subsets and splits."
        return (average, *super().notes)

    def load(self, source: DataSource) -> list[MtebTask]:
        """Look the tasks up."""
        return load_mteb_suite(self.name, source)

    def check_early(self) -> None:
        """Refuse missing data sets that mteb's sources declare."""
        if not has_own_tasks(self.name):
            check_declared_data(self.name)

    def check(self, tasks: Sequence[MtebTask]) -> None:
        """Refuse a missing mteb, and offline missing data sets."""
        if find_spec("mteb") is None:  # an import takes seconds
            import_mteb()
        check_cached_data(self.name, tasks)

    def sentences(self, tasks: Sequence[MtebTask]) -> Iterator[str]:
        """Return an empty iterator: mteb loads the data when it measures."""
        return iter(())

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[MtebTask], setting: MeasureContext
    ) -> SuiteResult:
        """Measure unfinished tasks."""
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
        """Score the predictions again, as far as the gold is available."""
        from bench.eval.mteb_predictions import rescore_tasks

        return rescore_tasks(tasks, predictions, record)

    def main_metric(self, tasks: Sequence[MtebTask]) -> str:
        """Return the metric that all tasks share, otherwise "main_score"."""
        return shared_metric(tasks) if tasks else ""

    def own_scores(self, tasks: Sequence[MtebTask], record: RunRecord) -> set[ScoreName]:
        """Return the tasks' scores, their subsets' and the averages."""
        metrics, shared = {task.id: metric_name(task.score) for task in tasks}, shared_metric(tasks)
        names: set[ScoreName] = {(AVERAGE, ALL, shared)}
        for task, metric in metrics.items():
            names |= {(task, ALL, shared), (task, ALL, metric)}
        for score in record.scores:  # a subset may have any name
            if score.subset != ALL and score.metric == metrics.get(score.task):
                names.add((score.task, score.subset, score.metric))
        kinds = {task.kind for task in tasks}
        return names | {(kind, "mean", shared) for kind in kinds if len(kinds) > 1}

    def side_scores(self, tasks: Sequence[MtebTask], record: RunRecord) -> set[ScoreName]:
        """Return retrieval's scores at other ranks, and their averages."""
        ranked = [task.id for task in tasks if task.kind == "Retrieval"]
        rows = (*ranked, AVERAGE) if len(ranked) == len(tasks) else ranked
        return {(row, ALL, metric_name(name)) for row in rows for name in RETRIEVAL}

    def item_texts(self, task: MtebTask, record: RunRecord) -> list[Texts | int]:
        """Return the sentences, or the query, of every item of each subset."""
        from bench.eval.mteb_predictions import part_texts

        return part_texts(task, record)

    def task_unit(self, task: MtebTask) -> str:
        """Return the unit of the task's kind."""
        from bench.eval.mteb_kinds import kind_of

        kind = kind_of(task)
        return "" if kind is None else kind.unit

    def item_statistics(self, task: MtebTask, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Score each subset in draws of its items."""
        from bench.eval.mteb_predictions import part_statistics

        return part_statistics(task, rows, record)

    def find_changes(
        self, task: MtebTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items that two runs treat most differently, by the task's kind."""
        from bench.eval.mteb_predictions import find_item_changes

        return find_item_changes(task, one, other, record, count)
