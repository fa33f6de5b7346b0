"""Contrast suites: is a sentence nearer to its paraphrase than to what no longer says the same?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.data.contrast_items import ContrastTask, contrast_sentences
from bench.data.source import DataSource
from bench.data.suites import CONTRAST, SUITES, load_contrast
from bench.data.tasks import suite_average
from bench.encoder import Encoder, FloatArray, PairScorer
from bench.errors import BenchError
from bench.eval.embeddings import compare_pairs, embed_sentences, report_words
from bench.eval.measure import Measure, MeasureContext, PairTests, SuiteResult
from bench.records.record import ALL, RunRecord, Score

if TYPE_CHECKING:  # they load scipy, which planning a suite doesn't need
    from bench.eval.item_changes import ItemChange

TIE = 1e-6
"""Similarities that differ by at most this are equal."""


class ContrastSuite(Measure[ContrastTask]):
    """Accuracy of "nearer to the paraphrase than to the distractor".

    By the cosine, as in suites of pairs; a method without vectors compares by its own similarity.
    """

    counted, metric, needs_torch = "items", "accuracy", False
    moved_means = "Items of which A and B choose differently, those first that one of them has right."

    @property
    def notes(self) -> tuple[str, ...]:
        """What chance is, of a user's text too."""
        return super().notes if self.name in SUITES.names() else (SUITES.get(CONTRAST).note,)

    def load(self, source: DataSource) -> list[ContrastTask]:
        """Make the items; see :func:`bench.data.suites.load_contrast`."""
        return load_contrast(self.name, source)

    def is_reference(self, task: ContrastTask) -> bool:
        """True if the sentences are those that everybody has, or the user's own text."""
        return task.reference

    def sentences(self, tasks: Sequence[ContrastTask]) -> Iterator[str]:
        """Yield all three sentences of every item."""
        return (sentence for task in tasks for sentence in contrast_sentences(task))

    def measure(
        self, encoder: Encoder | PairScorer, tasks: Sequence[ContrastTask], setting: MeasureContext
    ) -> SuiteResult:
        """Compare every sentence with its paraphrase and its distractor; kept is the difference."""
        predictions = contrast_margins(encoder, tasks, setting)
        facts = {task.id: _contrast_facts(task, predictions[task.id]) for task in tasks}
        return SuiteResult(_contrast_scores(tasks, predictions), predictions, {"contrast": facts})

    def rescore(
        self, tasks: Sequence[ContrastTask], predictions: Mapping[str, FloatArray], record: RunRecord
    ) -> tuple[Score, ...]:
        """Score the differences again."""
        return _contrast_scores(tasks, predictions)

    def draws(
        self,
        task: ContrastTask,
        rows: FloatArray,
        record: RunRecord,
        rng: np.random.Generator,
        count: int,
    ) -> NDArray[np.float64]:
        """Accuracy in draws of items."""
        from bench.stats.resampling import mean_draws

        return np.clip(mean_draws(credit_items(task, rows), rng, count), 0, 1)

    def pair_tests(
        self, task: ContrastTask | None, one: FloatArray, other: FloatArray, scores: tuple[float, float]
    ) -> PairTests:
        """McNemar's exact test; a tie is no right answer there."""
        from bench.stats.labels import mcnemar

        return {"mcnemar": mcnemar(one > TIE, other > TIE)}

    def moved(
        self, task: ContrastTask, one: FloatArray, other: FloatArray, record: RunRecord, count: int
    ) -> list[ItemChange]:
        """Return the items of which two runs choose differently."""
        from bench.eval.item_changes import class_changes

        names = {0.0: "distractor", 0.5: "tie", 1.0: "paraphrase"}
        a, b = ([names[value] for value in credit_items(task, side).tolist()] for side in (one, other))
        return class_changes(task.triples, ["paraphrase"] * task.items, a, b, count)


def contrast_margins(
    encoder: Encoder | PairScorer, tasks: Sequence[ContrastTask], setting: MeasureContext
) -> dict[str, FloatArray]:
    """Return float32 (items,) a task: similarity to the paraphrase less that to the distractor."""
    found: dict[str, FloatArray] = {}
    every = (sentence for task in tasks for sentence in contrast_sentences(task))
    vectors = (
        None
        if isinstance(encoder, PairScorer)
        else embed_sentences(encoder, every, progress=setting.progress)
    )
    for task in tasks:
        anchors, same, changed = (list(side) for side in zip(*task.triples, strict=True))
        if vectors is not None:
            difference = vectors.cosine(anchors, same) - vectors.cosine(anchors, changed)
        elif isinstance(encoder, PairScorer):
            near, far = (compare_pairs(encoder, anchors, side).astype(np.float64) for side in (same, changed))
            difference = near - far
            if setting.progress:
                setting.progress(2 * task.items)
        found[task.id] = difference.astype(np.float32)
    report_words(encoder, (sentence for task in tasks for sentence in contrast_sentences(task)))
    return found


def credit_items(task: ContrastTask, differences: FloatArray) -> NDArray[np.float64]:
    """What each item counts: 1 where the paraphrase is nearer, 0 where the distractor is, 1/2 for a tie.

    Args:
        task: The task.
        differences: (items,) as :func:`margins` gives them, or (runs, items).

    Raises:
        BenchError: a wrong number of them, or one that isn't finite.
    """
    if differences.shape[-1] != task.items:
        raise BenchError(f"{differences.shape[-1]} predictions for {task.items} items", where=task.id)
    if not np.isfinite(differences).all():
        raise BenchError("a prediction is not finite", where=task.id)
    return np.where(np.abs(differences) <= TIE, 0.5, (differences > 0).astype(np.float64))


def _contrast_scores(
    tasks: Sequence[ContrastTask], predictions: Mapping[str, FloatArray]
) -> tuple[Score, ...]:
    scores = [
        Score(task.id, ALL, "accuracy", float(credit_items(task, predictions[task.id]).mean()), task.items)
        for task in tasks
    ]
    average = suite_average(score.value for score in scores)
    return (*scores, Score("avg", ALL, "accuracy", average, len(tasks)))


def _contrast_facts(task: ContrastTask, differences: FloatArray) -> dict[str, object]:
    """What the items are made from, and how many ended in a tie."""
    rules, number, sha256 = task.text
    origin = {"sentences": number, "sha256": sha256} if sha256 else {"world": number}
    return {"made_by": rules, **origin, "ties": int((credit_items(task, differences) == 0.5).sum())}
