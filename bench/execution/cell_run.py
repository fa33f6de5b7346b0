"""One cell: what a worker gets, how it builds, measures and writes, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.config.spec import RunSpec
from bench.data.source import DataSource
from bench.data.training_data import TrainingData
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError, NotComparableError, StorageError, printable
from bench.eval.measure import MeasureContext, SuiteResult
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.events import (
    EVALUATES,
    LOADS,
    PROBES,
    WAITS,
    CellEvents,
    count_cell_work,
    find_missing_steps,
    open_cell_file,
)
from bench.execution.model_card import collect_model_facts
from bench.execution.record_probes import add_probes, find_missing_probes, find_probe_suite, load_probe_data
from bench.execution.stage_cache import StageCache
from bench.nn.device import torch_threads
from bench.plan.job import Job, cell_model_block
from bench.records.environment import build_timing, clean_traceback, collect_provenance, strip_paths
from bench.records.fingerprint import ENCODER_FACTS, fact_values, hash_canonical_json
from bench.records.record import ALL, RunRecord, Score
from bench.records.record_schema import ENCODER, TRAINING
from bench.records.store import ResultStore
from bench.schema import convert_facts, is_number


@dataclass(frozen=True)
class CellTask:
    """What a worker gets (it must pickle).

    Args:
        jobs: One cell on its pending suites.
        spec: What the user asked for; paths in it are looked up where the cell runs.
        training: Training text and dev set, None where no method trains.
        wait: Wait for a process that computes the same cell instead of answering "busy".
        running: Folder of the run's events, None for none.
        besides: Its other work, for the events: see :func:`bench.execution.events.count_cell_work`.
    """

    jobs: tuple[Job, ...]
    spec: RunSpec
    training: TrainingData | None
    wait: bool = False
    running: Path | None = None
    besides: Mapping[str, int] = field(default_factory=dict)

    def to_train(self, finished: Path) -> dict[str, tuple[str, int]]:
        """Name and planned steps of the cell's stages that aren't in a folder of finished ones, by key."""
        texts = self.training.texts.items() if self.training else ()
        sizes = {name: len(text.sentences) for name, text in texts}
        named = [(name, stage) for name, _, stage in self.jobs[0].cell.named_stages]
        return find_missing_steps(named, sizes, finished)


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    "ran", "probed" (it was there already), "failed", "done" (by another process), "busy" (another has it) or
    "conflict" (another process finished another specification there; why is in ``conflict``).
    """

    job: Job
    state: str
    record: RunRecord | None = None
    conflict: NotComparableError | None = None


def measure_job(
    builder: EncoderBuilder, tasks: Sequence[SuiteTask], job: Job, spec: RunSpec, progress: Progress | None
) -> SuiteResult:
    """Score a cell's selected checkpoint on a suite, and what is to be compared with it.

    Below fp32 the facts say what the precision changed. For a cell that trains there are also scores of the
    last checkpoint (metric "spearman_last"), which show what choosing on the dev set was worth.

    Raises:
        BenchError: a precision or a method that the suite can't be measured with.
    """
    suite, precision = measure_of(job.suite), spec.precision
    if precision != "fp32" and not suite.encodes_once:
        raise BenchError(f"{job.suite} is measured in fp32 only", hint="without --precision")
    setting = _measure_setting(job, spec, progress, builder)

    def measured(checkpoint: str, precision: str) -> SuiteResult:
        encoder = _lower_precision(builder.encoder(checkpoint), precision)
        if spec.keep_vectors and suite.encodes_once:
            identity = [suite.version, setting.identity, checkpoint, precision]
            encoder = _cache_vectors(encoder, spec.results / ".vectors", identity)
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


def _measure_setting(
    job: Job, spec: RunSpec, progress: Progress | None, builder: EncoderBuilder
) -> MeasureContext:
    return MeasureContext(
        solver=spec.transfer_solver,
        model=f"{job.cell.profile}-{job.cell.describe()}",
        identity=hash_canonical_json(fact_values(job.record, ENCODER_FACTS)),
        folder=ResultStore(spec.results, spec.campaign).root,
        force=spec.force,
        progress=progress,
        about={} if measure_of(job.suite).encodes_once else collect_model_facts(builder),
    )


def _lower_precision(encoder: Encoder | PairScorer, precision: str) -> Encoder | PairScorer:
    """Return the encoder at a precision; loads no torch for fp32."""
    if precision == "fp32":
        return encoder
    from bench.nn.precision import cast_encoder

    lowered: Encoder | PairScorer = cast_encoder(encoder, precision)
    return lowered


def _cache_vectors(
    encoder: Encoder | PairScorer, folder: Path, identity: Sequence[object]
) -> Encoder | PairScorer:
    """Let an encoder keep its vectors, unless it reports on the sentences that it encodes."""
    if isinstance(encoder, PairScorer) or hasattr(encoder, "coverage"):
        return encoder
    from bench.eval.vector_cache import CachedEncoder

    return CachedEncoder(encoder, folder, identity)


_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
Suites = Mapping[str, list[SuiteTask]]


def run_cell(task: CellTask, suites: Suites | None = None) -> list[Outcome]:
    """Run one cell's pending suites under its lock, and add the probes that their records lack.

    Args:
        task: The cell; its data are looked for where it runs.
        suites: The suites' data where this process has read them already; a worker reads its own.
    """
    spec, cell = task.spec, task.jobs[0].cell
    store = ResultStore(spec.results, spec.campaign)
    cache = StageCache(spec.results / ".stages")
    with (
        closing(_open_events(task, cache)) as events,
        store.claim(task.jobs[0].place, wait=task.wait) as mine,
    ):
        if not mine:
            events.drop()
            return [Outcome(job, "busy") for job in task.jobs]
        events.report({"doing": LOADS})
        builder = EncoderBuilder(cell, spec.device, task.training, cache, events.sentences, events.report)
        running = _LockedCell(task, DataSource.of_run(spec), store, builder, suites or {}, events)
        measuring = any(measure_of(job.suite).needs_torch for job in task.jobs)
        with torch_threads(spec.threads, needs_torch=measuring or cell.model is not None):
            with running.noted():
                if running.to_measure():
                    builder.folders()
            outcomes = [running.probed(running.outcome(job)) for job in task.jobs]
        _report_end(events, outcomes)
        return outcomes


def _open_events(task: CellTask, cache: StageCache) -> CellEvents:
    """What the cell tells, to nobody where its run has no folder for it."""
    first, stages = task.jobs[0], task.to_train(cache.root)
    about = {
        "method": first.cell.method,
        "seed": first.cell.seed,
        "suites": [job.suite for job in task.jobs],
        "work": count_cell_work(stages, task.besides),
    }
    events = CellEvents(open_cell_file(task.running, first.place.folder, about), stages, task.besides)
    events.report({"doing": WAITS})
    return events


def _report_end(events: CellEvents, outcomes: Sequence[Outcome]) -> None:
    scores = {o.job.suite: o.record.score("avg") for o in outcomes if o.record and o.record.status == "ok"}
    bad = next((o.state for o in outcomes if o.state in ("failed", "conflict")), None)
    known = {suite: score for suite, score in scores.items() if score is not None}
    events.end(bad or outcomes[-1].state, known)


@dataclass
class _LockedCell:
    """A cell whose lock is held.

    Args:
        task: The cell.
        source: Where its data come from.
        store: Its records.
        builder: Its encoders.
        suites: The suites' data where they have been read.
        events: What it tells.
        begun: Wall clock, seconds and CPU seconds when the work for the next record began.
    """

    task: CellTask
    source: DataSource
    store: ResultStore
    builder: EncoderBuilder
    suites: Suites
    events: CellEvents
    begun: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Go on after an error of the training: the measurement meets it again, and writes it down.

        Raises:
            StorageError: the next cell's training would be in vain as well.
        """
        self.begun = _read_clocks()
        try:
            yield
        except StorageError:
            raise
        except (Exception, SystemExit):
            return

    def to_measure(self) -> bool:
        """True if a record is missing; raises BenchError if the data of one changed."""
        missing = [job for job in self.task.jobs if self._find_finished(job) is None]
        for job in missing:
            self._load_tasks(job)
        return bool(missing)

    def _find_finished(self, job: Job) -> RunRecord | None:
        """The record that is there already."""
        return None if self.task.spec.force else self.store.finished(job.place)

    def outcome(self, job: Job) -> Outcome:
        """Take the record if another process finished the job between planning and now, else run it."""
        record = self._find_finished(job)
        if record is None:
            return self._run_job(job)
        if record.key != job.key:
            conflict = NotComparableError(
                f"another process just finished {job.cell.describe()} on {job.suite} under another "
                "specification",
                where=str(self.store.path(job.place)),
                hint="name another --campaign",
            )
            return Outcome(job, "conflict", conflict=conflict)
        return Outcome(job, "done", record)

    def _run_job(self, job: Job) -> Outcome:
        """Measure and write one record."""
        record, predictions = self._measure_record(job)
        started, wall, cpu = self.begun
        self.begun = _read_clocks()
        block = build_timing(started=started, wall=self.begun[1] - wall, cpu=self.begun[2] - cpu)
        if job.cell.trains:
            block["training_cpu_seconds"] = _stage_cpu_seconds(self.builder)
        record = replace(record, timing=record.timing | block)
        if record.status == "failed" and self.store.scored(job.place):
            return Outcome(job, "failed", record)  # what fails costs no scores: predictions alone may be gone
        record = self.store.write(job.place, record, predictions)
        return Outcome(job, "ran" if record.status == "ok" else "failed", record)

    def _measure_record(self, job: Job) -> tuple[RunRecord, dict[str, FloatArray] | None]:
        """Return record and predictions; a failure becomes a record with its traceback, never a number."""
        spec = self.task.spec
        facts: dict[str, Any] = {**job.record.provenance, "encoder": {}}
        facts |= collect_provenance(device=spec.device, threads=spec.threads)
        try:
            tasks = self._load_tasks(job)
            encoder = self.builder.encoder()
            facts["encoder"] |= convert_facts(encoder.facts, ENCODER, "the encoder's facts")
            if spec.precision != "fp32" and "dtype" in facts["encoder"]:
                facts["encoder"]["dtype"] = _DTYPES[spec.precision]
            self.events.report({"doing": EVALUATES, "suite": job.suite})
            found = measure_job(self.builder, tasks, job, spec, self.events.sentences)
            facts |= found.facts
            if measure_of(job.suite).encodes_once:  # else what it knew isn't of this suite's sentences
                coverage = getattr(encoder, "coverage", {})
                facts["encoder"] |= convert_facts(coverage, ENCODER, "the encoder's coverage")
            training = convert_facts(self.builder.facts(), TRAINING, "the facts of its training")
            elsewhere, processors = _training_environments(self.builder)
            facts |= elsewhere
            record = replace(job.record, status="ok", scores=found.scores, training=training)
            record = replace(record, timing=processors)
            record = replace(record, provenance=facts, backbone=cell_model_block(self.builder.cell))
            return record, found.predictions
        except StorageError:
            raise  # the next cell's training would be in vain as well
        except (Exception, SystemExit) as error:
            record = replace(job.record, training={}, provenance=facts)
            return replace(record, reason=_failure_reason(error), traceback=clean_traceback(error)), None

    def _load_tasks(self, job: Job) -> list[SuiteTask]:
        """The suite's tasks, if they are those that were planned with."""
        tasks = self.suites.get(job.suite) or _load_cell_suite(job.source or job.suite, self.source)
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
            data = load_probe_data(find_probe_suite(spec), self.source)
            missing = find_missing_probes(record, spec.probes, data)
            if not missing:
                return outcome
            self.events.report({"doing": PROBES})
            record = add_probes(record, missing, data, self.builder, self.events.sentences)
            predictions = self.store.predictions(record) if record.predictions else None
            record = self.store.write(job.place, record, predictions)
        except StorageError:
            raise
        except Exception as error:
            failed = replace(record, status="failed", reason=f"probes: {_failure_reason(error)}")
            return Outcome(job, "failed", failed)
        return Outcome(job, "ran" if outcome.state == "ran" else "probed", record)


def _read_clocks() -> tuple[float, float, float]:
    """The wall clock, and seconds by it and of this process to subtract."""
    return time.time(), time.perf_counter(), time.process_time()


def _failure_reason(error: BaseException) -> str:
    """Why something failed, in one line that names no path of this machine."""
    reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
    return printable(strip_paths(" ".join(reason.split())))


def _stage_cpu_seconds(builder: EncoderBuilder) -> dict[str, float]:
    """CPU seconds of each finished stage; none where a stage doesn't say, which fails the cell."""
    try:
        seconds = builder.training_seconds()
    except KeyError:
        return {}
    return {stage: value for stage, value in seconds.items() if is_number(value)}


def _training_environments(builder: EncoderBuilder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What provenance and timing say of stages that were trained with other versions or hardware, if any."""
    made = builder.trained_otherwise()
    processors = {role: each.pop("processor") for role, each in made.items() if "processor" in each}
    versions = {role: each for role, each in made.items() if each}
    return (
        {"trained_with": versions} if versions else {},
        {"training_processor": processors} if processors else {},
    )


@cache
def _load_cell_suite(name: str, source: DataSource) -> list[SuiteTask]:
    return measure_of(name).load(source)
