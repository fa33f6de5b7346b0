"""``bench probe --along``: repeated trainings of methods' own stages, with probes at every dev evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench.cli.options import check_device, make_spec, print_json, print_stderr
from bench.cli.plan_notes import print_plan_notes
from bench.cli.terminal import format_grids, progress_bar
from bench.cli.trained_rows import choose_trained_row
from bench.config import profiles
from bench.data.data_source import DataSource
from bench.encoder import Progress
from bench.errors import BenchError, InputError
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.record_probes import load_probe_data
from bench.execution.stage_cache import StageCache
from bench.plan.cell import Cell
from bench.plan.plan import Plan, make_plan
from bench.probes import parse_probes
from bench.probes.interface import ProbeData, ProbeOptions
from bench.reports.tables.probe_correlations import QUANTITIES
from bench.stages import Stage, StageContext
from bench.training_probes.evaluations import (
    EvaluationLog,
    ProbedEvaluation,
    TrainingProbes,
    probe_evaluations,
    read_training_probes,
    write_training_probes,
)
from bench.training_probes.tables import evaluation_grids, evaluation_relations, within_relations


def probe_training(
    methods: tuple[str, ...],
    names: str,
    form: str,
    heatmaps: Path | None,
    out: Path | None,
    options: dict[str, Any],
) -> None:
    """Train and probe; print the evaluations, and correlations of probes with the dev score."""
    if heatmaps is not None or options["sentence"] is not None:
        where = "--sentence" if heatmaps is None else "--heatmaps"
        raise InputError("attention maps are not drawn with --along", where=where)
    wanted = _parse_quantities(names)
    rows = (choose_trained_row(method, options) for method in methods)
    plan = make_plan(make_spec({**options, "methods": ",".join(rows)}))
    print_plan_notes(plan)
    spec = plan.spec
    check_device(spec.device)
    check_probed_plan(plan)
    dev = spec.dev or profiles.load_profile(spec.profile).dev
    data = load_probe_data(options["suite"] or dev, DataSource.of_run(spec))
    how = ProbeOptions(strict=options["strict"], groups=options["groups"], per_head=options["per_head"])
    evaluations = _read_evaluations(out, spec.profile, dev, data, wanted, strict=how.strict)
    for probed in probe_trainings(plan, data, wanted, how, evaluations):
        evaluations += probed
        if out is not None:
            try:
                write_training_probes(out, TrainingProbes(spec.profile, dev, tuple(evaluations)))
            except OSError as error:
                raise InputError(f"{out} can't be written: {error.strerror}", where=f"--out {out}") from error
    if not evaluations:
        raise InputError("no training made a dev evaluation", where="--along", hint="lower eval_every")
    if form != "json":
        click.echo(format_grids(evaluation_grids(evaluations, spec.profile, dev)), nl=False)
        return
    blocks: dict[str, list[Any]] = {
        "evaluations": evaluations,
        "mechanism": evaluation_relations(evaluations, spec.profile, dev),
        "within": within_relations(evaluations),
    }
    print_json({name: list(map(asdict, rows)) for name, rows in blocks.items()})


def _parse_quantities(names: str) -> tuple[str, ...]:
    """Parse ``--probes``, restricted to probes with a quantity to correlate with the score."""
    known = tuple(dict.fromkeys(quantity.probe for quantity in QUANTITIES))
    wanted = known if names.strip() == "all" else parse_probes(names, print_stderr)
    if other := set(wanted) - set(known):
        what = f"{', '.join(sorted(other))} along a training"
        raise InputError(what, where="--probes", expected=f"of {', '.join(known)}")
    return wanted


def _read_evaluations(
    out: Path | None, profile: str, dev: str, data: ProbeData, wanted: tuple[str, ...], *, strict: bool
) -> list[ProbedEvaluation]:
    """Read the evaluations of an existing file; raises InputError for other settings."""
    if out is None or not out.exists():
        return []
    kept = read_training_probes(out)
    probes = [evaluation.probes for evaluation in kept.evaluations]
    names = {*wanted, "version", "data"}
    same = all(facts["data"] == data.facts and set(facts) == names for facts in probes)
    if not same or (kept.profile, kept.dev) != (profile, dev):
        what = f"{out} has other probes, of profile {kept.profile} with dev set {kept.dev}"
        expected = f"{', '.join(wanted)} on {data.suite}, profile {profile}, dev set {dev}"
        raise InputError(what, where=f"--out {out}", expected=expected, hint="give another file")
    golds = {facts["alignment"]["gold"] for facts in probes if "alignment" in facts}
    if any(gold.startswith("above") != strict for gold in golds):
        what = f"{out} has the alignment of pairs whose gold score is {', '.join(sorted(golds))}"
        expected = "the same pairs, with --strict or without it as before"
        raise InputError(what, where=f"--out {out}", expected=expected, hint="give another file")
    return list(kept.evaluations)


def check_probed_plan(plan: Plan) -> None:
    """Raise InputError for a plan of several processes, of compiled steps, or a cell that lacks stages."""
    if plan.spec.ranks > 1:
        raise InputError("trainings are probed in one process", where=f"--ranks {plan.spec.ranks}")
    if plan.spec.compiled != "none":
        raise InputError("trainings are probed uncompiled", where=f"--compile {plan.spec.compiled}")
    for job in plan.jobs:
        if not job.cell.stages:
            raise InputError(
                f"'{job.cell.method}' trains nothing itself",
                where="--along",
                expected="methods with training stages of their own",
                hint="name the methods that it builds on" if job.cell.members else None,
            )


def probe_trainings(
    plan: Plan,
    data: ProbeData,
    names: Sequence[str],
    options: ProbeOptions,
    done: Sequence[ProbedEvaluation] = (),
) -> Iterator[list[ProbedEvaluation]]:
    """Train every cell's own stages again and yield its dev evaluations with their probes; drops the stages.

    Members' stages come from the cache, which trains missing ones. A stage that several cells share is
    evaluated once, for the first. Stages of the evaluations in ``done`` are skipped. Another number of dev
    evaluations than in a stage's dev curve raises BenchError.
    """
    from bench.nn.device import torch_threads

    probed = partial(probe_evaluations, data=data, names=names, options=options)
    cells = {(job.cell.method, job.cell.seed): job.cell for job in plan.jobs}
    known = {evaluation.key for evaluation in done}
    with (
        tempfile.TemporaryDirectory(prefix="bench-probe-") as scratch,
        torch_threads(plan.spec.threads, needs_torch=True),
    ):
        for cell in cells.values():
            if {stage.key for stage in cell.stages} <= known:
                continue
            with progress_bar(cell.describe(), None) as advance:
                evaluations = _ProbingBuilder(cell, plan, Path(scratch), probed, advance).evaluate_stages()
            yield [evaluation for evaluation in evaluations if evaluation.key not in known]


class _ProbingBuilder(EncoderBuilder):
    """Trains a cell's own stages in a scratch folder and probes them."""

    def __init__(
        self, cell: Cell, plan: Plan, scratch: Path, probed: Callable[..., StageContext], progress: Progress
    ) -> None:
        cache = StageCache(plan.spec.results / ".stages")
        super().__init__(cell, plan.spec.device, plan.training, cache, progress)
        self.cache = StageCache(scratch)  # only of its own stages: its members have the other one
        self._probed = probed
        self._logs: dict[str, EvaluationLog] = {}

    def context(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> StageContext:
        """Return a context whose dev evaluations measure the probes too."""
        log = self._logs[stage.spec.role] = []
        return self._probed(super().context(stage, inputs, out), log=log)

    def evaluate_stages(self) -> list[ProbedEvaluation]:
        """Train; return every dev evaluation of the new stages."""
        self.folders()
        keys = tuple(stage.key for stage in self.cell.all_stages)
        evaluations = []
        for stage in self.cell.stages:
            role, log = stage.spec.role, self._logs.get(stage.spec.role, [])
            curve = self.cache.facts(stage).get("dev_curve", []) if role in self._logs else []
            if len(curve) != len(log):
                raise BenchError(
                    f"stage '{role}' of {self.cell.describe()} made {len(log)} dev evaluations, but its "
                    f"dev curve has {len(curve)}"
                )
            for (step, _), (score, probes) in zip(curve, log, strict=True):
                cell = self.cell.method, self.cell.seed
                evaluations.append(ProbedEvaluation(*cell, role, int(step), score, probes, keys, stage.key))
        return evaluations
