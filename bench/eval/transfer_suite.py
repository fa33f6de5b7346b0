"""A suite of transfer tasks: from an encoder to scores, predicted classes and facts about the fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.data.tasks import LabelledTask, suite_average
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError
from bench.eval.embed import embed
from bench.eval.transfer import Labels, Protocol, TransferResult, run_task
from bench.records.record import ALL, Score


@dataclass(frozen=True)
class TransferRun:
    """What a suite gave.

    Args:
        results: By task, in the suite's order.
        protocol: How they were fitted.
    """

    results: dict[str, TransferResult]
    protocol: Protocol

    @property
    def scores(self) -> tuple[Score, ...]:
        """Accuracy on test ("all") and in validation ("dev"), MRPC's F1, and the tasks' average."""
        scores = []
        for task, result in self.results.items():
            n = len(result.gold)
            scores.append(Score(task, ALL, "accuracy", result.accuracy, n))
            scores.append(Score(task, "dev", "accuracy", float(np.mean(result.dev)), result.n_dev))
            if task == "MRPC":
                scores.append(Score(task, ALL, "f1", result.f1, n))
        average = suite_average(result.accuracy for result in self.results.values())
        return (*scores, Score("avg", ALL, "accuracy", average, len(self.results)))

    @property
    def predictions(self) -> dict[str, FloatArray]:
        """Predicted class of every test item, float32 (items,) by task, in the task's order."""
        return {task: result.predictions.astype(np.float32) for task, result in self.results.items()}

    @property
    def facts(self) -> dict[str, Any]:
        """Solver; for each task number of fits, chosen regularisations, classes, largest gradient norm."""
        tasks = {
            task: {
                "fits": result.fits,
                "regs": list(result.regs),
                "classes": list(result.classes),
                **({} if result.gradient is None else {"largest_gradient": result.gradient}),
            }
            for task, result in self.results.items()
        }
        return {"solver": self.protocol.solver, "tasks": tasks}


def evaluate_transfer(
    encoder: Encoder | PairScorer,
    tasks: Sequence[LabelledTask],
    protocol: Protocol,
    *,
    progress: Progress | None = None,
) -> TransferRun:
    """Encode every distinct sentence of a suite once and solve its tasks.

    Args:
        encoder: The encoder.
        tasks: The tasks.
        protocol: How they are fitted.
        progress: Called with finished sentences.

    Raises:
        BenchError: a method without vectors, or (naming the task) one that can't be solved.
    """
    if isinstance(encoder, PairScorer):
        raise BenchError(
            "this method compares pairs and has no vectors to classify",
            expected="a method with vectors, or a suite of pairs such as sts7",
        )
    vectors = embed(encoder, (s for task in tasks for s in sentences_of(task)), progress=progress)
    return TransferRun({task.id: run_task(task, vectors, protocol) for task in tasks}, protocol)


def sentences_of(task: LabelledTask) -> Iterator[str]:
    """All sentences of a task."""
    for split in task.splits:
        yield from split.first
        yield from split.second


def gold_classes(task: LabelledTask) -> Labels:
    """Class of every test item, (items,), in the order of the predictions."""
    classes = sorted({label for split in task.splits for label in split.labels})
    tested = [split for split in task.splits if split.name == "test"] or task.splits
    return np.array([classes.index(label) for split in tested for label in split.labels])
