"""A suite of ours on an encoder, at the precision that is asked for, with vectors kept where that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.data.suites import TRANSFER_SUITES
from bench.data.tasks import LabelledTask, PairTask
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.eval.suite import EVALUATION, SuiteTask
from bench.plan.job import Job
from bench.records.record import ALL, Score

if TYPE_CHECKING:
    from bench.run.task import CellTask


def at_precision(encoder: Encoder | PairScorer, task: CellTask) -> Encoder | PairScorer:
    """Return the encoder at the cell's precision; loads no torch for fp32."""
    if task.precision == "fp32":
        return encoder
    from bench.nn import precision

    lowered: Encoder | PairScorer = precision.at_precision(encoder, task.precision)
    return lowered


def kept(
    encoder: Encoder | PairScorer, job: Job, task: CellTask, *, precision: str, checkpoint: str = "selected"
) -> Encoder | PairScorer:
    """Let the encoder keep its vectors where that is asked for; one that reports on sentences never does."""
    if not task.keep_vectors or isinstance(encoder, PairScorer) or hasattr(encoder, "coverage"):
        return encoder
    from bench.eval.vector_cache import CachedEncoder

    identity = {
        "evaluation": EVALUATION,
        "cell": job.cell.identity(),
        "checkpoint": checkpoint,
        "precision": precision,
        "device": task.device,
        "threads": task.threads,
    }
    return CachedEncoder(encoder, task.results / ".vectors", identity)


def precision_effect(name: str, scores: Sequence[Score], full: Sequence[Score]) -> dict[str, Any]:
    """What a record says of a precision: every task's score in fp32, and what the precision adds to it."""
    known = {(score.task, score.subset, score.metric): score.value for score in full}
    tasks = {
        score.task: {
            "fp32": known[score.task, score.subset, score.metric],
            "difference": score.value - known[score.task, score.subset, score.metric],
        }
        for score in scores
        if score.subset == ALL and score.metric != "f1"
    }
    return {"name": name, "tasks": tasks}


def evaluate(
    encoder: Encoder | PairScorer,
    tasks: Sequence[SuiteTask],
    job: Job,
    task: CellTask,
    progress: Progress | None,
) -> tuple[tuple[Score, ...], dict[str, FloatArray], dict[str, Any]]:
    """Scores and predictions of a suite of ours, and what the record says of how they were got."""
    if job.suite in TRANSFER_SUITES:
        from bench.eval.transfer import Protocol
        from bench.eval.transfer_suite import evaluate_transfer

        labelled = [each for each in tasks if isinstance(each, LabelledTask)]
        run = evaluate_transfer(encoder, labelled, Protocol(task.transfer_solver), progress=progress)
        return run.scores, run.predictions, {"transfer": run.facts}
    from bench.eval.sts import predict, score_suite

    pairs = [each for each in tasks if isinstance(each, PairTask)]
    predictions = predict(encoder, pairs, progress=progress)
    return score_suite(pairs, predictions), predictions, {}
