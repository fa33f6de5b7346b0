"""One cell: its task for a worker, how it is built, measured and written, and its outcomes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bench.config.run_spec import RunSpec
from bench.data.data_source import DataSource
from bench.data.training_data import TrainingData
from bench.encoder import FloatArray, PairScorer, Progress
from bench.errors import BenchError, NotComparableError, StorageError, printable
from bench.eval.measure import MeasureContext, SuiteResult
from bench.eval.recomputation import open_checker
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.execution import events
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.model_card import collect_model_facts
from bench.execution.record_probes import add_probes, find_missing_probes, find_probe_suite, load_probe_data
from bench.execution.stage_cache import StageCache
from bench.nn.device import torch_threads
from bench.plan.job import Job, cell_model_block
from bench.records.environment import build_timing, clean_traceback, collect_provenance, strip_paths
from bench.records.fingerprint import ENCODER_FACTS, fact_values, hash_canonical_json
from bench.records.record import ALL, RunRecord, Score
from bench.records.record_schema import ENCODER, TRAINING
from bench.records.sealed_plan import SealedPlan, load_plan
from bench.records.store import ResultStore
from bench.schema import convert_facts, is_number
from bench.stages import planned_steps

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
Suites = Mapping[str, list[SuiteTask]]


@dataclass(frozen=True)
class CellTask:
    """Task of a worker; it must pickle."""

    jobs: tuple[Job, ...]  # one cell on its pending suites
    spec: RunSpec
    training: TrainingData | None
    wait: bool = False  # for a process that computes the same cell, in place of the outcome "busy"
    running: Path | None = None  # folder of the run's events
    besides: Mapping[str, int] = field(default_factory=dict)  # work other than training

    def stage_keys(self) -> frozenset[str]:
        """Return the keys of the cell's stages."""
        return frozenset(stage.key for stage in self.jobs[0].cell.all_stages)

    def find_missing_stages(self, finished: Path) -> dict[str, tuple[str, int]]:
        """Return name and planned steps of the stages that the stage cache lacks, by key."""
        texts = self.training.texts if self.training else {}
        missing = {}
        for name, _, stage in self.jobs[0].cell.named_stages:
            if not (finished / stage.key).is_dir():
                config, text, steps = dict(stage.spec.config), texts.get(stage.spec.text), 0
                if text is not None and {"batch_size", "steps"} <= config.keys():
                    steps = planned_steps(config, len(text.sentences))
                missing[stage.key] = name, steps
        return missing


@dataclass(frozen=True)
class Outcome:
    """Result of one job: "ran", "probed" (an existing record got probes), "failed", or another process's."""

    # That is "done", "busy", or "conflict", for a finished cell of another specification.
    job: Job
    state: str
    record: RunRecord | None = None
    conflict: NotComparableError | None = None


def measure_job(
    builder: EncoderBuilder, tasks: Sequence[SuiteTask], job: Job, spec: RunSpec, progress: Progress | None
) -> SuiteResult:
    """Score a cell's selected checkpoint on a suite; raises BenchError for unsupported settings."""
    # Below fp32 the facts name the precision and, if asked for, hold its effect. A cell that trains also has
    # scores of its last checkpoint (metric "spearman_last"), which show the effect of selection by dev set.
    suite, precision = measure_of(job.suite), spec.precision
    if precision != "fp32" and not suite.encodes_once:
        raise BenchError(f"{job.suite} is measured in fp32 only", hint="without --precision")
    context = MeasureContext(
        solver=spec.transfer_solver,
        model=f"{job.cell.profile}-{job.cell.describe()}",
        identity=hash_canonical_json(fact_values(job.record, ENCODER_FACTS)),
        folder=ResultStore(spec.results, spec.campaign).root,
        force=spec.force,
        progress=progress,
        about={} if suite.encodes_once else collect_model_facts(builder),
    )

    def measure(checkpoint: str, precision: str) -> SuiteResult:
        encoder = builder.encoder(checkpoint, precision)
        coverage = hasattr(encoder, "coverage")  # which it measures while it encodes
        kept = spec.keep_vectors and suite.encodes_once and not coverage
        if kept and not isinstance(encoder, PairScorer):
            from bench.eval.vector_storage import CachedEncoder

            identity = [suite.version, context.identity, checkpoint, precision]
            encoder = CachedEncoder(encoder, spec.results / ".vectors", identity)
        return suite.measure(encoder, tasks, context)

    result = measure("selected", precision)
    scores, facts = result.scores, dict(result.facts)
    if precision != "fp32":
        about: dict[str, Any] = {"name": precision}
        if spec.precision_effect:
            about = precision_effect(precision, scores, measure("selected", "fp32").scores)
        facts |= {"evaluation_precision": about, "precision": precision}
    if job.cell.trains and suite.scores_last:
        last = measure("last", precision).scores if builder.last_differs() else scores
        scores += tuple(replace(score, metric="spearman_last") for score in last if score.subset == ALL)
    return replace(result, scores=scores, facts=facts)


def precision_effect(name: str, scores: Sequence[Score], full: Sequence[Score]) -> dict[str, Any]:
    """Return every task's score in fp32, and the difference that a lower precision makes."""
    fp32 = {(score.task, score.subset, score.metric): score.value for score in full}
    tasks = {}
    for score in scores:
        if score.subset == ALL and score.metric != "f1":
            value = fp32[score.task, score.subset, score.metric]
            tasks[score.task] = {"fp32": value, "difference": score.value - value}
    return {"name": name, "tasks": tasks}


def run_cell(task: CellTask, suites: Suites | None = None) -> list[Outcome]:
    """Run one cell's pending suites, read here or in ``suites``, under its lock; add missing probes."""
    spec, first = task.spec, task.jobs[0]
    cell, store = first.cell, ResultStore(spec.results, spec.campaign)
    cache = StageCache(spec.results / ".stages")
    stages = task.find_missing_stages(cache.root)
    suite_names, work = [job.suite for job in task.jobs], events.count_cell_work(stages, task.besides)
    about = {"method": cell.method, "seed": cell.seed, "suites": suite_names, "work": work}
    file = events.open_cell_file(task.running, first.place.folder, about)
    with closing(events.CellEvents(file, stages, task.besides)) as running:
        running.report({"doing": events.WAITS})
        with store.claim(first.place, wait=task.wait) as mine:
            if not mine:
                running.close(remove=True)
                return [Outcome(job, "busy") for job in task.jobs]
            running.report({"doing": events.LOADS})
            progress, report = running.sentences, running.report
            builder = EncoderBuilder(cell, spec.device, task.training, cache, progress, report)
            plan = load_plan(store.root)  # a damaged one ends the run before the cell is computed
            locked = _LockedCell(task, DataSource.of_run(spec), store, builder, suites or {}, running, plan)
            needs_torch = cell.model is not None or any(measure_of(j.suite).needs_torch for j in task.jobs)
            with torch_threads(spec.threads, needs_torch=needs_torch):
                locked.train_stages()
                outcomes = [locked.add_missing_probes(locked.finish_job(job)) for job in task.jobs]
            failed = (outcome.state for outcome in outcomes if outcome.state in events.FAILED)
            state, scores = next(failed, outcomes[-1].state), dict[str, float]()
            for outcome in outcomes:
                record = outcome.record
                if record and record.status == "ok" and (score := record.score("avg")) is not None:
                    scores[outcome.job.suite] = score
            running.end(state, scores)
            return outcomes


@dataclass
class _LockedCell:
    """A cell under its lock. ``begun``: clocks at the start of the work for the next record."""

    task: CellTask
    source: DataSource
    store: ResultStore
    builder: EncoderBuilder
    suites: Suites
    running: events.CellEvents
    plan: SealedPlan | None
    begun: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def train_stages(self) -> None:
        """Train the stages where a record is missing; raises StorageError."""
        self.begun = _read_clocks()
        try:
            missing = [job for job in self.task.jobs if self._find_finished(job) is None]
            for job in missing:
                self._load_tasks(job)
            if missing:
                self.builder.folders()
        except StorageError:
            raise
        except (Exception, SystemExit):  # the measurement meets it again, and records it
            return

    def _find_finished(self, job: Job) -> RunRecord | None:
        """Return the finished record at a job's place; of this job only one that its predictions confirm."""
        record = None if self.task.spec.force else self.store.finished(job.place)
        if record is None or record.key != job.key:
            return record
        checker = open_checker(self.store, self.task.spec.data)
        try:
            tasks = {task.id: task for task in self._load_tasks(job)}
        except BenchError:  # changed data, which the measurement reports
            return record
        outcome = checker.check(self.store, record, tasks)
        checker.memory.save()
        return record if outcome.error is None else None

    def finish_job(self, job: Job) -> Outcome:
        """Run the job, unless another process has finished it since the plan."""
        record = self._find_finished(job)
        if record is None:
            return self._run_job(job)
        if record.key == job.key:
            return Outcome(job, "done", record)
        cell, where = f"{job.cell.describe()} on {job.suite}", str(self.store.path(job.place))
        what = f"another process just finished {cell} under another specification"
        conflict = NotComparableError(what, where=where, hint="name another --campaign")
        return Outcome(job, "conflict", conflict=conflict)

    def _run_job(self, job: Job) -> Outcome:
        record, predictions = self._measure_record(job)
        started, wall, cpu = self.begun
        self.begun = _read_clocks()
        timing = build_timing(started=started, wall=self.begun[1] - wall, cpu=self.begun[2] - cpu)
        if job.cell.trains:
            seconds: dict[str, float] = {}
            with suppress(KeyError):  # a stage without its time, which fails the cell
                seconds = self.builder.training_seconds()
            timing["training_cpu_seconds"] = {role: s for role, s in seconds.items() if is_number(s)}
        if self.plan is not None:
            timing["plan"] = self.plan.identity
        record = replace(record, timing=record.timing | timing)
        if record.status == "failed" and self.store.scored(job.place):
            return Outcome(job, "failed", record)  # keep the old scores, of which predictions may be missing
        record = self.store.write(job.place, record, predictions)
        return Outcome(job, "ran" if record.status == "ok" else "failed", record)

    def _measure_record(self, job: Job) -> tuple[RunRecord, dict[str, FloatArray] | None]:
        """Return record and predictions; of a failure a record with its traceback only."""
        spec = self.task.spec
        facts: dict[str, Any] = {**job.record.provenance, "encoder": {}}
        facts |= collect_provenance(device=spec.device, threads=spec.threads)
        try:
            tasks = self._load_tasks(job)
            encoder = self.builder.encoder(precision=spec.precision)
            facts["encoder"] |= convert_facts(encoder.facts, ENCODER, "the encoder's facts")
            if spec.precision != "fp32" and "dtype" in facts["encoder"]:
                facts["encoder"]["dtype"] = _DTYPES[spec.precision]
            self.running.report({"doing": events.EVALUATES, "suite": job.suite})
            result = measure_job(self.builder, tasks, job, spec, self.running.sentences)
            facts |= result.facts
            if measure_of(job.suite).encodes_once:  # otherwise its coverage isn't of this suite's sentences
                coverage = getattr(encoder, "coverage", {})
                facts["encoder"] |= convert_facts(coverage, ENCODER, "the encoder's coverage")
            training = convert_facts(self.builder.facts(), TRAINING, "the facts of its training")
            processors, others = {}, {}
            for role, environment in self.builder.diff_stage_environments().items():
                if "processor" in environment:
                    processors[role] = environment.pop("processor")
                if environment:
                    others[role] = environment
            if others:
                facts["trained_with"] = others
            timing = {"training_processor": processors} if processors else {}
            backbone, scores = cell_model_block(self.builder.cell), result.scores
            record = replace(job.record, status="ok", scores=scores, training=training, provenance=facts)
            return replace(record, timing=timing, backbone=backbone), result.predictions
        except StorageError:
            raise  # the next cell would fail as well
        except (Exception, SystemExit) as error:
            record = replace(job.record, training={}, provenance=facts)
            return replace(record, reason=_failure_reason(error), traceback=clean_traceback(error)), None

    def _load_tasks(self, job: Job) -> list[SuiteTask]:
        """Return the suite's tasks; raises BenchError if they changed since the plan."""
        tasks = self.suites.get(job.suite) or _load_cell_suite(job.source or job.suite, self.source)
        planned = [(task_id, facts["sha256"]) for task_id, facts in job.record.tasks.items()]
        if [(task.id, task.sha256) for task in tasks] != planned:
            raise BenchError("the evaluation data changed since the run was planned", where=job.suite)
        return tasks

    def add_missing_probes(self, outcome: Outcome) -> Outcome:
        """Add the probes that a finished record lacks; after a failure the record stays as it is."""
        job, record, spec = outcome.job, outcome.record, self.task.spec
        if record is None or record.status != "ok" or not spec.probes:
            return outcome
        try:
            data = load_probe_data(find_probe_suite(spec), self.source)
            missing = find_missing_probes(record, spec.probes, data)
            if not missing:
                return outcome
            self.running.report({"doing": events.PROBES})
            record = add_probes(record, missing, data, self.builder, self.running.sentences)
            predictions = self.store.predictions(record) if record.predictions else None
            record = self.store.write(job.place, record, predictions)
        except StorageError:
            raise
        except Exception as error:
            failed = replace(record, status="failed", reason=f"probes: {_failure_reason(error)}")
            return Outcome(job, "failed", failed)
        return Outcome(job, "ran" if outcome.state == "ran" else "probed", record)


def _read_clocks() -> tuple[float, float, float]:
    """Return the time, wall-clock seconds and CPU seconds."""
    return time.time(), time.perf_counter(), time.process_time()


def _failure_reason(error: BaseException) -> str:
    """Return an error in one line, stripped of paths."""
    reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
    return printable(strip_paths(" ".join(reason.split())))


@cache
def _load_cell_suite(name: str, source: DataSource) -> list[SuiteTask]:
    return measure_of(name).load(source)
