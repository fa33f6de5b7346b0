"""Repeated training of methods' own stages, with probes at every dev evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from bench.encoder import Progress
from bench.errors import BenchError, InputError
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.stage_cache import StageCache
from bench.plan.cell import Cell
from bench.plan.plan import Plan
from bench.probes.interface import ProbeData, ProbeOptions
from bench.stages import Stage, StageContext
from bench.training_probes.evaluations import EvaluationLog, ProbedEvaluation, probe_evaluations

Bar = Callable[[str, None], AbstractContextManager[Progress]]
"""Makes a progress bar with a title."""


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
    bar: Bar,
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
            with bar(cell.describe(), None) as advance:
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
