"""Probes in records: find records that lack them, and add them; scores stay as they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from bench.config import profiles
from bench.config.run_spec import RunSpec
from bench.data.data_source import DataSource
from bench.data.suites import load_suite
from bench.encoder import Progress
from bench.errors import BenchError
from bench.eval.recomputation import open_checker
from bench.execution.encoder_builder import EncoderBuilder
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.probes.interface import VERSION, ProbeData
from bench.records.record import RunRecord

_OF_TRAINING = ("selected_step", "selected_dev", "last_loss")


def find_probe_suite(spec: RunSpec) -> str:
    """Return the suite whose sentences a run probes: the profile's dev set."""
    return profiles.load_profile(spec.profile).dev


@cache
def load_probe_data(suite: str, source: DataSource) -> ProbeData:
    """Read the sentences to probe; raises InputError if they are missing, DataError if damaged."""
    return ProbeData(suite, tuple(load_suite(suite, source)[1]))


def find_unprobed_jobs(plan: Plan) -> list[Job]:
    """Return finished jobs whose records lack a requested probe; raises as :func:`load_probe_data`."""
    spec = plan.spec
    data = load_probe_data(find_probe_suite(spec), DataSource.of_run(spec))
    jobs = []
    for job in plan.jobs:
        state = plan.states[job.place]
        if state.status == "done" and state.record and find_missing_probes(state.record, spec.probes, data):
            jobs.append(job)
    return jobs


def find_missing_probes(record: RunRecord, names: tuple[str, ...], data: ProbeData) -> tuple[str, ...]:
    """Return the names that a record lacks; all if its probes are of other sentences or another version."""
    return tuple(name for name in names if name not in _valid_probes(record, data))


def add_probes(
    record: RunRecord,
    names: tuple[str, ...],
    data: ProbeData,
    builder: EncoderBuilder,
    progress: Progress | None,
) -> RunRecord:
    """Return a finished record with the named probes of its encoder; BenchError for another encoder."""
    from bench.probes.measurement import drop_curves, measure_probes

    encoder = builder.encoder()
    _check_same_training(record, builder)
    measured = measure_probes(encoder, data, names, progress=progress)
    probes = add_cost_efficiency(_valid_probes(record, data) | drop_curves(measured.probes), record)
    timing = {**record.timing, "probes": record.timing.get("probes", {}) | measured.timing}
    return replace(record, probes=probes, timing=timing)


def find_finished_record(plan: Plan, job: Job) -> RunRecord | None:
    """Return the finished record of exactly this job; raises as :meth:`ResultStore.finished`.

    Raises DataError for scores that contradict the record's predictions.
    """
    record = plan.store.finished(job.place)
    if record is None or record.key != job.key:
        return None
    checker = open_checker(plan.store, plan.spec.data)
    checker.require(plan.store, record, {task.id: task for task in plan.suites[job.suite]})
    checker.memory.save()
    return record


def add_cost_efficiency(probes: dict[str, Any], record: RunRecord) -> dict[str, Any]:
    """Add eta of the record's suite to the cost: its average x 100 per GMAC (JTCSE, Table VII)."""
    cost, average = probes.get("cost", {}), record.score("avg")
    if average is None or not cost.get("gmac"):  # 0: a table of token vectors
        return probes
    return {**probes, "cost": {**cost, "eta": 100 * average / cost["gmac"], "eta_suite": record.suite}}


def _valid_probes(record: RunRecord, data: ProbeData) -> dict[str, Any]:
    """Return the probes of a record if they are of these sentences and this version."""
    fits = record.probes.get("version") == VERSION and record.probes.get("data") == data.facts
    return record.probes if fits else {}


def _check_same_training(record: RunRecord, builder: EncoderBuilder) -> None:
    then, now = record.training.get("stages", {}), builder.facts().get("stages", {})
    for role, facts in now.items():
        if any(then.get(role, {}).get(name) != facts.get(name) for name in _OF_TRAINING):
            what = f"stage '{role}' was trained again and gave another encoder than the record's"
            expected = "the stages that the record was made with"
            raise BenchError(what, expected=expected, hint="run the cell again with --force")
