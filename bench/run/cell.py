"""One cell: build, measure, write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.data.suites import data_folder
from bench.encoder import FloatArray
from bench.errors import BenchError, NotComparableError, StorageError, printable
from bench.eval.suite import SuiteTask, measure_of
from bench.nn.threads import torch_threads
from bench.plan.expected import named_model
from bench.plan.job import Job
from bench.records.blocks import ENCODER, TRAINING, kept_facts
from bench.records.provenance import clean_traceback, provenance, timing, without_paths
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.run.builder import Builder
from bench.run.events import EVALUATES, LOADS, PROBES, WAITS, CellEvents, all_work, cell_file
from bench.run.measure import measure_job
from bench.run.probing import add_probes, missing_probes, probe_data, probed_suite
from bench.run.stage_cache import StageCache
from bench.run.task import CellTask, Outcome
from bench.schema import number

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
Suites = Mapping[str, list[SuiteTask]]


def run_cell(task: CellTask, suites: Suites | None = None) -> list[Outcome]:
    """Run one cell's pending suites under its lock, and add the probes that their records lack.

    Args:
        task: The cell; its data are looked for where it runs.
        suites: The suites' data where this process has read them already; a worker reads its own.
    """
    spec, cell = replace(task.spec, data=data_folder(task.spec.data)), task.jobs[0].cell
    store = ResultStore(spec.results, spec.campaign)
    cache = StageCache(spec.results / ".stages")
    with closing(_events(task, cache)) as events, store.claim(task.jobs[0].place, wait=task.wait) as mine:
        if not mine:
            events.drop()
            return [Outcome(job, "busy") for job in task.jobs]
        events.report({"doing": LOADS})
        builder = Builder(cell, spec.device, task.training, cache, events.sentences, events.report)
        running = _Running(replace(task, spec=spec), store, builder, suites or {}, events)
        measuring = any(measure_of(job.suite).needs_torch for job in task.jobs)
        with torch_threads(spec.threads, needs_torch=measuring or cell.model is not None):
            outcomes = [running.probed(running.outcome(job)) for job in task.jobs]
        _end(events, outcomes)
        return outcomes


def _events(task: CellTask, cache: StageCache) -> CellEvents:
    """What the cell tells, to nobody where its run has no folder for it."""
    first, stages = task.jobs[0], task.to_train(cache.root)
    about = {
        "method": first.cell.method,
        "seed": first.cell.seed,
        "suites": [job.suite for job in task.jobs],
        "work": all_work(stages, task.besides),
    }
    events = CellEvents(cell_file(task.running, first.place.folder, about), stages, task.besides)
    events.report({"doing": WAITS})
    return events


def _end(events: CellEvents, outcomes: Sequence[Outcome]) -> None:
    scores = {o.job.suite: o.record.score("avg") for o in outcomes if o.record and o.record.status == "ok"}
    bad = next((o.state for o in outcomes if o.state in ("failed", "conflict")), None)
    known = {suite: score for suite, score in scores.items() if score is not None}
    events.end(bad or outcomes[-1].state, known)


@dataclass(frozen=True)
class _Running:
    """A cell whose lock is held."""

    task: CellTask
    store: ResultStore
    builder: Builder
    suites: Suites
    events: CellEvents

    def outcome(self, job: Job) -> Outcome:
        """Take the record if another process finished the job between planning and now, else run it."""
        record = None if self.task.spec.force else self.store.finished(job.place)
        if record is None:
            return self._run(job)
        if record.key != job.key:
            conflict = NotComparableError(
                f"another process just finished {job.cell.describe()} on {job.suite} under another "
                "specification",
                where=str(self.store.path(job.place)),
                hint="name another --campaign",
            )
            return Outcome(job, "conflict", conflict=conflict)
        return Outcome(job, "done", record)

    def _run(self, job: Job) -> Outcome:
        """Measure and write one record."""
        started, wall, cpu = time.time(), time.perf_counter(), time.process_time()
        record, predictions = self._measured(job)
        block = timing(started=started, wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
        if job.cell.trains:
            block["training_cpu_seconds"] = _training_seconds(self.builder)
        record = replace(record, timing=record.timing | block)
        if record.status == "failed" and self.store.scored(job.place):
            return Outcome(job, "failed", record)  # what fails costs no scores: predictions alone may be gone
        record = self.store.write(job.place, record, predictions)
        return Outcome(job, "ran" if record.status == "ok" else "failed", record)

    def _measured(self, job: Job) -> tuple[RunRecord, dict[str, FloatArray] | None]:
        """Return record and predictions; a failure becomes a record with its traceback, never a number."""
        spec = self.task.spec
        facts: dict[str, Any] = {**job.record.provenance, "encoder": {}}
        facts |= provenance(device=spec.device, threads=spec.threads)
        try:
            tasks = self._tasks(job)
            encoder = self.builder.encoder()
            facts["encoder"] |= kept_facts(encoder.facts, ENCODER, "the encoder's facts")
            if spec.precision != "fp32" and "dtype" in facts["encoder"]:
                facts["encoder"]["dtype"] = _DTYPES[spec.precision]
            self.events.report({"doing": EVALUATES, "suite": job.suite})
            found = measure_job(self.builder, tasks, job, spec, self.events.sentences)
            facts |= found.facts
            if measure_of(job.suite).encodes_once:  # else what it knew isn't of this suite's sentences
                coverage = getattr(encoder, "coverage", {})
                facts["encoder"] |= kept_facts(coverage, ENCODER, "the encoder's coverage")
            training = kept_facts(self.builder.facts(), TRAINING, "the facts of its training")
            elsewhere, processors = _trained_elsewhere(self.builder)
            facts |= elsewhere
            record = replace(job.record, status="ok", scores=found.scores, training=training)
            record = replace(record, timing=processors)
            record = replace(record, provenance=facts, backbone=named_model(self.builder.cell))
            return record, found.predictions
        except StorageError:
            raise  # the next cell's training would be in vain as well
        except (Exception, SystemExit) as error:
            record = replace(job.record, training={}, provenance=facts)
            return replace(record, reason=_reason(error), traceback=clean_traceback(error)), None

    def _tasks(self, job: Job) -> list[SuiteTask]:
        """The suite's tasks, if they are those that were planned with."""
        spec = self.task.spec
        tasks = self.suites.get(job.suite) or _suite_tasks(
            job.source or job.suite, spec.data, spec.accept_data, self.task.world_seed
        )
        planned = [(task_id, facts["sha256"]) for task_id, facts in job.record.tasks.items()]
        if [(task.id, task.sha256) for task in tasks] != planned:
            raise BenchError("the evaluation data changed since the run was planned", where=job.suite)
        return tasks

    def probed(self, outcome: Outcome) -> Outcome:
        """Add the probes that a finished record lacks; a failure leaves the record as it is."""
        job, record, spec = outcome.job, outcome.record, self.task.spec
        if record is None or record.status != "ok" or not spec.probes:
            return outcome
        try:
            data = probe_data(probed_suite(spec), spec.data, spec.accept_data, self.task.world_seed)
            missing = missing_probes(record, spec.probes, data)
            if not missing:
                return outcome
            self.events.report({"doing": PROBES})
            record = add_probes(record, missing, data, self.builder, self.events.sentences)
            predictions = self.store.predictions(record) if record.predictions else None
            record = self.store.write(job.place, record, predictions)
        except StorageError:
            raise
        except Exception as error:
            failed = replace(record, status="failed", reason=f"probes: {_reason(error)}")
            return Outcome(job, "failed", failed)
        return Outcome(job, "ran" if outcome.state == "ran" else "probed", record)


def _reason(error: BaseException) -> str:
    """Why something failed, in one line that names no path of this machine."""
    reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
    return printable(without_paths(" ".join(reason.split())))


def _training_seconds(builder: Builder) -> dict[str, float]:
    """CPU seconds of each finished stage; none where a stage doesn't say, which fails the cell."""
    try:
        seconds = builder.training_seconds()
    except KeyError:
        return {}
    return {stage: value for stage, value in seconds.items() if number(value)}


def _trained_elsewhere(builder: Builder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What provenance and timing say of stages that were trained with other versions or hardware, if any."""
    made = builder.trained_otherwise()
    processors = {role: each.pop("processor") for role, each in made.items() if "processor" in each}
    versions = {role: each for role, each in made.items() if each}
    return (
        {"trained_with": versions} if versions else {},
        {"training_processor": processors} if processors else {},
    )


@cache
def _suite_tasks(name: str, data: Path | None, accept_data: bool, world_seed: int) -> list[SuiteTask]:
    return measure_of(name).load(data, accept_data=accept_data, world_seed=world_seed)
