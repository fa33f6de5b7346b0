"""A cell's encoder on a suite: at the precision that is asked for, and at its last checkpoint too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError
from bench.eval.measure import Measured, Setting
from bench.eval.suite import SuiteTask, measure_of
from bench.plan.job import Job
from bench.records.facts import ENCODER, digest, values
from bench.records.record import ALL, Score
from bench.records.store import ResultStore
from bench.request.spec import RunSpec
from bench.run.about import about_model
from bench.run.builder import Builder


def measure_job(
    builder: Builder, tasks: Sequence[SuiteTask], job: Job, spec: RunSpec, progress: Progress | None
) -> Measured:
    """Score a cell's selected checkpoint on a suite, and what is to be compared with it.

    Below fp32 the facts say what the precision changed. For a cell that trains there are also scores of the
    last checkpoint (metric "spearman_last"), which show what choosing on the dev set was worth.

    Raises:
        BenchError: a precision or a method that the suite can't be measured with.
    """
    suite, precision = measure_of(job.suite), spec.precision
    if precision != "fp32" and not suite.encodes_once:
        raise BenchError(f"{job.suite} is measured in fp32 only", hint="without --precision")
    setting = _setting(job, spec, progress, builder)

    def measured(checkpoint: str, precision: str) -> Measured:
        encoder = _at_precision(builder.encoder(checkpoint), precision)
        if spec.keep_vectors and suite.encodes_once:
            identity = [suite.version, setting.identity, checkpoint, precision]
            encoder = _keeping(encoder, spec.results / ".vectors", identity)
        return suite.measure(encoder, tasks, setting)

    found = measured("selected", precision)
    scores, facts = found.scores, dict(found.facts)
    if precision != "fp32":
        full = measured("selected", "fp32").scores
        facts |= {"evaluation_precision": precision_effect(precision, scores, full), "precision": precision}
    if job.cell.trains and suite.scores_last:
        last = measured("last", precision).scores if builder.last_differs() else scores
        scores += tuple(replace(score, metric="spearman_last") for score in last if score.subset == ALL)
    return replace(found, scores=scores, facts=facts)


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


def _setting(job: Job, spec: RunSpec, progress: Progress | None, builder: Builder) -> Setting:
    return Setting(
        solver=spec.transfer_solver,
        model=f"{job.cell.profile}-{job.cell.describe()}",
        identity=digest(values(job.record, ENCODER)),
        folder=ResultStore(spec.results, spec.campaign).root,
        force=spec.force,
        progress=progress,
        about=about_model(builder),
    )


def _at_precision(encoder: Encoder | PairScorer, precision: str) -> Encoder | PairScorer:
    """Return the encoder at a precision; loads no torch for fp32."""
    if precision == "fp32":
        return encoder
    from bench.nn.precision import at_precision

    lowered: Encoder | PairScorer = at_precision(encoder, precision)
    return lowered


def _keeping(encoder: Encoder | PairScorer, folder: Path, identity: Sequence[object]) -> Encoder | PairScorer:
    """Let an encoder keep its vectors, unless it reports on the sentences that it encodes."""
    if isinstance(encoder, PairScorer) or hasattr(encoder, "coverage"):
        return encoder
    from bench.eval.vector_cache import CachedEncoder

    return CachedEncoder(encoder, folder, identity)
