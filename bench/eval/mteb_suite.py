"""Suites that mteb measures, those from local files too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.encoder import Encoder, PairScorer
from bench.eval.measure import Measure, Measured, Setting
from bench.eval.mteb_tasks import MtebTask, load_mteb_suite
from bench.records.record import safe_name


class MtebSuite(Measure[MtebTask]):
    """What mteb makes of an encoder.

    mteb asks for vectors itself, in its own order, and keeps each finished task in the campaign's folder. A
    record of it has no predictions. Its data are always the reference: data sets are pinned by their
    revision, and local files are their own. mteb's version is in the record, but not in the key.
    """

    encodes_once = False

    @property
    def notes(self) -> tuple[str, ...]:
        """How mteb averages, and the suite's own note, if it has one."""
        average = "Measured by mteb: a task's value is the mean over its subsets and splits."
        return (average, *super().notes)

    def load(self, data: Path | None, *, accept_data: bool, world_seed: int) -> list[MtebTask]:
        """Look the tasks up; see :func:`bench.eval.mteb_tasks.load_mteb_suite`."""
        return load_mteb_suite(self.name, data)

    def sentences(self, tasks: Sequence[MtebTask]) -> Iterator[str]:
        """Yield nothing: the data are loaded by mteb, when it measures."""
        return iter(())

    def measure(self, encoder: Encoder | PairScorer, tasks: Sequence[MtebTask], setting: Setting) -> Measured:
        """Measure the tasks that aren't finished yet; see :func:`bench.eval.mteb_run.evaluate`."""
        from bench.eval.mteb_run import evaluate

        return evaluate(
            encoder,
            tasks,
            name=f"bench/{safe_name(setting.model.replace(' ', '-'))}",
            folder=setting.folder / "mteb",
            identity=setting.identity,
            force=setting.force,
            progress=setting.progress,
        )
