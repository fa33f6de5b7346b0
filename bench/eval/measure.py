"""The measurement of an encoder by a suite: one base class for every kind of suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.data.data_source import DataSource
from bench.data.sentence_clusters import Texts
from bench.data.suites import SUITES
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError
from bench.records.record import ALL, AVERAGE, RunRecord, Score

if TYPE_CHECKING:  # they load scipy, which planning a suite doesn't need
    from bench.stats.classification_statistics import McNemarTest
    from bench.stats.correlations import CorrelationTest
    from bench.stats.resampling import Statistic

T = TypeVar("T")
ScoreName: TypeAlias = tuple[str, str, str]  # of a score: task, subset and metric
AnyEncoder: TypeAlias = Encoder | PairScorer
Predictions: TypeAlias = Mapping[str, FloatArray]
Scores: TypeAlias = tuple[Score, ...]
Labels: TypeAlias = NDArray[np.intp]
PairTests: TypeAlias = "dict[str, CorrelationTest | McNemarTest | None]"
"""Tests of two checkpoints on one task by name, null if undefined.

"williams" and "steiger", or "clustered" for items that share texts, of correlations; "mcnemar" of classes.
"""


@dataclass(frozen=True)
class MeasureContext:
    """Settings of a measurement in addition to the encoder and the tasks."""

    solver: str  # solver of transfer tasks, "exact" or "sgd"
    model: str  # the encoder's name for readers: profile, method and seed
    identity: str  # sha256 of what determines the encoder, for kept results
    folder: Path  # the campaign's folder, for kept results
    force: bool = False  # measure again what is kept
    progress: Progress | None = None  # called with finished sentences
    about: Mapping[str, Any] = field(default_factory=dict)  # the model card's licence and training data


@dataclass(frozen=True)
class SuiteResult:
    """A suite's results of an encoder."""

    scores: tuple[Score, ...]
    predictions: dict[str, FloatArray] | None = None  # float32 (items,) by task, None without
    facts: dict[str, Any] = field(default_factory=dict)  # blocks of the record's provenance


@dataclass(frozen=True)
class ItemChange:
    """One item of a task, in words; ``Measure.change_columns`` describes the columns."""

    number: int  # position among the task's scored items, from 1
    change: str  # from the first run to the second
    one: str  # the first run's value
    other: str  # the second run's value
    gold: str  # the right value
    texts: tuple[str, ...]  # the item's sentences, or its query


@dataclass(frozen=True)
class Measure(ABC, Generic[T]):
    """A suite and everything that depends on its kind; made by :func:`measure_of`.

    torch and mteb are loaded by :meth:`load` (of mteb's tasks) or :meth:`measure` at the earliest.
    """

    name: str  # the suite's name, as in ``--suite`` or in a record
    version: ClassVar[int] = 1  # raised when the numbers of the evaluation change; part of every job's key
    counted: ClassVar[str] = "pairs"  # a record's word for scored items: "pairs" or "items"
    unit: ClassVar[str] = "clusters of items that share a sentence"
    """The sampling unit of statistics over the suite's items, a phrase for outputs; see :meth:`task_unit`."""
    metric: ClassVar[str] = ""
    """Metric of the suite's average; "" if it depends on the tasks, see :meth:`main_metric`."""
    needs_torch: ClassVar[bool] = True  # true if measuring any encoder needs torch
    encodes_once: ClassVar[bool] = True
    """True if every distinct sentence is encoded exactly once, all in one call.

    This is a condition for keeping vectors, a lower precision, estimates of a run, and the coverage of words.
    """
    needs_vectors: ClassVar[bool] = False  # true if a method for pairs is refused before anything runs
    scores_last: ClassVar[bool] = False
    """True if the last checkpoint is scored in addition to the selected one."""
    change_columns: ClassVar[str] = ""  # caption of the columns of ``bench compare --show-items``

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for every record and table of the suite: its own note, if it has one."""
        note = SUITES.get(self.name).note if self.name in SUITES.names() else ""
        return (note,) if note else ()

    @abstractmethod
    def load(self, source: DataSource) -> list[T]:
        """Read and check the tasks; raises InputError if unknown, DataError for damaged or differing data."""

    def check_early(self) -> None:
        """Refuse missing data before :meth:`load`, where that takes long; raises InputError."""

    def check(self, tasks: Sequence[T]) -> None:
        """Refuse missing data before an encoder is built; raises InputError."""

    def settings(self, solver: str) -> dict[str, Any]:
        """Return settings of the evaluation that keys need; ``solver`` as in :class:`MeasureContext`."""
        return {}

    def is_reference(self, task: T) -> bool:
        """True if a task's data have the committed fingerprint, or come with the program or the user."""
        return True

    @abstractmethod
    def sentences(self, tasks: Sequence[T]) -> Iterator[str]:
        """Yield the encoded sentences, repetitions included, if they are known beforehand."""

    @abstractmethod
    def measure(self, encoder: AnyEncoder, tasks: Sequence[T], setting: MeasureContext) -> SuiteResult:
        """Score an encoder on tasks from :meth:`load`; raises BenchError for an unsuitable encoder."""

    def recorded_tasks(self, record: RunRecord) -> dict[str, T] | None:
        """Return the tasks that a record holds itself, by name; None if they are read from the data."""
        return None

    def rescore(self, tasks: Sequence[T], predictions: Predictions, record: RunRecord) -> Scores:
        """Return the scores that predictions and gold give; may raise BenchError."""
        return ()

    def main_metric(self, tasks: Sequence[T]) -> str:
        """Return the metric of the suite's average, "" if it depends on missing tasks."""
        return self.metric

    def own_scores(self, tasks: Sequence[T], record: RunRecord) -> set[ScoreName]:
        """Return the suite's own scores whose predictions a record may lack."""
        return set()

    def side_scores(self, tasks: Sequence[T], record: RunRecord) -> set[ScoreName]:
        """Return additional scores, whose predictions a record lacks; here of the last checkpoint."""
        if not self.scores_last or not record.training.get("stages"):
            return set()
        return {(task, ALL, f"{self.metric}_last") for task in (*record.tasks, AVERAGE)}

    def item_texts(self, task: T, record: RunRecord) -> list[Texts | int]:
        """Return the texts of every item, for each part of the task; their number if the texts are missing.

        Items that share a text depend on one another: statistics draw them together. Items of one source,
        such as translations of a pair, share a text from :func:`mark_source`. Parts are scored one by one; a
        task's score is their mean. Raises BenchError as :meth:`item_statistics`.
        """
        raise BenchError("the items of this suite can't be drawn", where=f"suite {self.name}")

    def task_unit(self, task: T) -> str:
        """Return the sampling unit of a task's items, a phrase as ``unit``; "" if its items aren't drawn."""
        return self.unit

    def item_statistics(self, task: T, rows: FloatArray, record: RunRecord) -> list[Statistic]:
        """Return the scores of (runs, predictions) as a function of counts of items, for each part of a task.

        ``record`` is one of the runs'. A score of other things than items and missing predictions raise
        BenchError; the functions raise ValueError for a score that is undefined in a draw.
        """
        raise BenchError("the items of this suite can't be drawn", where=f"suite {self.name}")

    def pair_tests(
        self,
        task: T | None,
        one: FloatArray,
        other: FloatArray,
        scores: tuple[float, float],
        clusters: Labels | None,
    ) -> PairTests:
        """Test two checkpoints with these scores on the items of a task, null if its data are missing.

        ``clusters`` are the (items,) numbers of clusters of items that share a text; None if no two do, or
        without the texts.
        """
        return {}

    def find_changes(
        self, task: T, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return at most ``count`` items that two runs treat most differently, the clearest first.

        Missing predictions raise BenchError; ``record`` is one of the runs'.
        """
        raise BenchError("no predictions of the items are kept", where=f"suite {self.name}")
