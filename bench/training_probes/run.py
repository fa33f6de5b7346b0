"""Training methods' own stages anew, and probing them at every dev evaluation."""

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
from bench.probes.interface import ProbeOptions
from bench.probes.probe_data import ProbeData
from bench.stages import Stage, StageContext
from bench.training_probes.evaluations import EvaluationLog, ProbedEvaluation, probe_evaluations

Bar = Callable[[str, None], AbstractContextManager[Progress]]
"""From what is done to what is told of each batch."""


def check_probed_plan(plan: Plan) -> None:
    """Raise InputError for a plan of several processes, of compiled steps, or with a cell without stages."""
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
    """Train every cell's own stages anew and yield its dev evaluations with their probes; keeps no stage.

    Members' stages come from the cache, trained there first where they are missing. A stage that several
    cells have is evaluated once, for the first.

    Args:
        plan: The plan, see :func:`check_along`.
        data: The sentences to probe.
        names: Of :data:`bench.probes.PROBES`.
        options: How.
        bar: Shows the finished sentences of a cell.
        done: Evaluations that are there: their stages have no others.

    Raises:
        BenchError: what training raises, or a stage that says of more or fewer dev evaluations than it made.
    """
    from bench.nn.device import torch_threads

    probed = partial(probe_evaluations, data=data, names=names, options=options)
    cells = {(job.cell.method, job.cell.seed): job.cell for job in plan.jobs}
    there = {one.key for one in done}
    with (
        tempfile.TemporaryDirectory(prefix="bench-probe-") as scratch,
        torch_threads(plan.spec.threads, needs_torch=True),
    ):
        for cell in cells.values():
            if {stage.key for stage in cell.stages} <= there:
                continue
            with bar(cell.describe(), None) as advance:
                found = _ProbingBuilder(cell, plan, Path(scratch), probed, advance).evaluated()
            yield [one for one in found if one.key not in there]


class _ProbingBuilder(EncoderBuilder):
    """Trains a cell's own stages anew and probes them.

    Args:
        cell: The cell.
        plan: The plan that it is of.
        scratch: Folder of the stages trained anew; a stage that is there already isn't trained again.
        probed: From a stage's context and what gets the evaluations to the context that probes.
        progress: Called with finished sentences.
    """

    def __init__(
        self,
        cell: Cell,
        plan: Plan,
        scratch: Path,
        probed: Callable[..., StageContext],
        progress: Progress,
    ) -> None:
        cache = StageCache(plan.spec.results / ".stages")
        super().__init__(cell, plan.spec.device, plan.training, cache, progress)
        self.cache = StageCache(scratch)  # its own stages alone: its members have the other one
        self._probed = probed
        self._found: dict[str, EvaluationLog] = {}

    def context(self, stage: Stage, inputs: Mapping[str, Path], out: Path) -> StageContext:
        """See :meth:`Builder.context`; dev evaluations measure the probes too."""
        found = self._found[stage.spec.role] = []
        return self._probed(super().context(stage, inputs, out), found=found)

    def evaluated(self) -> list[ProbedEvaluation]:
        """Train; return every dev evaluation of the stages that weren't there yet."""
        self.folders()
        keys = tuple(stage.key for stage in self.cell.all_stages)
        points = []
        for stage in self.cell.stages:
            role, found = stage.spec.role, self._found.get(stage.spec.role, [])
            curve = self.cache.facts(stage).get("dev_curve", []) if role in self._found else []
            if len(curve) != len(found):
                raise BenchError(
                    f"stage '{role}' of {self.cell.describe()} made {len(found)} dev evaluations, but its "
                    f"dev curve has {len(curve)}"
                )
            points += [
                ProbedEvaluation(
                    self.cell.method, self.cell.seed, role, int(step), score, probes, keys, stage.key
                )
                for (step, _), (score, probes) in zip(curve, found, strict=True)
            ]
        return points
