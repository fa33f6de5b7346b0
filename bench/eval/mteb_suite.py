"""Suites that mteb measures, those from local files too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench.encoder import Encoder, PairScorer
from bench.eval.measure import Measured, Setting, own_note
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.records.record import safe_name


@dataclass(frozen=True)
class MtebSuite:
    """What mteb makes of an encoder; a :class:`bench.eval.measure.Measure`.

    mteb asks for vectors itself, in its own order, and keeps each finished task in the campaign's folder. A
    record of it has no predictions.
    """

    name: str
    version: ClassVar[int] = 1
    counted: ClassVar[str] = "pairs"
    needs_torch: ClassVar[bool] = True
    encodes_once: ClassVar[bool] = False
    scores_last: ClassVar[bool] = False

    @property
    def notes(self) -> tuple[str, ...]:
        """How mteb averages, and the suite's own note, if it has one."""
        average = "Measured by mteb: a task's value is the mean over its subsets and splits."
        return (average, *own_note(self.name))

    def load(self, data: Path | None, *, accept_data: bool, world_seed: int) -> list[MtebTask]:
        """Look the tasks up; see :func:`bench.eval.mteb_tasks.load_mteb_suite`."""
        return load_mteb_suite(self.name, data)

    def settings(self, solver: str) -> dict[str, Any]:
        """Nothing: mteb's version is in the record, but not in the key."""
        return {}

    def is_reference(self, task: MtebTask) -> bool:
        """True: data sets are pinned by their revision, and local files are their own reference."""
        return True

    def sentences(self, tasks: Sequence[MtebTask]) -> Iterator[str]:
        """Yield nothing: the data are loaded by mteb, when it measures."""
        yield from ()

    def measure(self, encoder: Encoder | PairScorer, tasks: Sequence[MtebTask], setting: Setting) -> Measured:
        """Measure the tasks that aren't finished yet; see :func:`bench.eval.mteb_run.evaluate`."""
        from bench.eval.mteb_run import evaluate

        run = evaluate(
            encoder,
            tasks,
            name=f"bench/{safe_name(setting.model.replace(' ', '-'))}",
            folder=setting.folder / "mteb",
            identity=setting.identity,
            force=setting.force,
            progress=setting.progress,
        )
        return Measured(run.scores, facts={"mteb": run.facts})
