"""A job, one cell on one suite, with the record that it is going to leave."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.config.spec import RunSpec
from bench.data.local_tasks import LocalTask
from bench.data.mini.world import World
from bench.data.mteb_names import FILES, suite_label
from bench.data.suites import MINI_SUITES, accepted, pair_task
from bench.data.training import TrainingData
from bench.eval.suite import SuiteTask, measure_of
from bench.plan.cell import Cell
from bench.plan.keys import expected_record
from bench.records.environment import rounding
from bench.records.fingerprint import key_of
from bench.records.record import Place, RunRecord
from bench.stages import PAIRS, is_paired


@dataclass(frozen=True)
class Job:
    """One cell on one suite.

    Args:
        cell: The cell.
        record: The record that it is going to leave, as far as it is known now.
        source: What loads the suite where its name in records doesn't: a ``local:`` file.
    """

    cell: Cell
    record: RunRecord
    source: str = ""

    @property
    def suite(self) -> str:
        """Name of the suite in records."""
        return self.record.suite

    @property
    def key(self) -> str:
        """The key of everything that determines the scores."""
        return self.record.key

    @property
    def place(self) -> Place:
        """Where the record belongs."""
        return self.cell.place(self.suite)


def make_job(
    cell: Cell,
    name: str,
    tasks: list[SuiteTask],
    spec: RunSpec,
    training: TrainingData | None,
    world_seed: int,
) -> Job:
    """Return the job of a cell on the suite of that name."""
    measure = measure_of(name)
    suite = suite_label(name)
    settings = {"version": measure.version, "precision": spec.precision}
    record = replace(
        expected_record(cell, spec, training),
        suite=suite,
        tasks={
            task.id: {
                measure.counted: task.items,
                "sha256": task.sha256,
                "reference": measure.is_reference(task),
                **_pairs(task, name),
            }
            for task in tasks
        },
        evaluation=settings | measure.settings(spec.transfer_solver),
        notes=(
            *cell.notes,
            *measure.notes,
            *_text_notes(cell, training),
            *_dev_notes(cell, training),
            *_paired_notes(cell, training),
            *_supervision_notes(cell, training),
            *_weight_notes(cell),
        ),
        world=_world(cell, suite, training, world_seed),
    )
    return Job(cell, replace(record, key=key_of(record)), "" if name == suite else name)


def _pairs(task: SuiteTask, suite: str) -> dict[str, str]:
    """Fingerprint of the pairs alone of a file of the user's own: a dev set of them has the same."""
    local: LocalTask | None = getattr(task, "local", None)
    if local is None or local.type != "sts" or not suite.startswith(FILES):
        return {}
    return {"pairs_sha256": pair_task(local.name, local.table("file")).sha256}


def _text_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """What must be said of the training text."""
    return training.notes(cell.texts) if training is not None and cell.trains else ()


def _dev_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where the dev set isn't the reference version of its name."""
    if training is None or not cell.trains or not accepted(training.dev):
        return ()
    return (f"Dev set {training.dev.id} differs from the reference version ({training.dev.sha256[:12]}).",)


def _supervision_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where a method or one that it builds on learned from labels."""
    if not cell.supervised:
        return ()
    pairs = training.texts[PAIRS].name if training is not None and PAIRS in cell.texts else ""
    learned = f"its training learned from the labelled pairs {pairs}" if pairs else "it learned from labels"
    return (f"{cell.method} is supervised: {learned}.",)


def _paired_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where a method or its teacher learned from pairs of the mini world's grammar."""
    if training is None or training.corpus.world is None:
        return ()
    if not any(is_paired(stage.spec.text) for stage in cell.all_stages):
        return ()
    return (f"{cell.method}: the grammar's own paraphrases are positives in its training: not ranked here.",)


def _weight_notes(cell: Cell) -> tuple[str, ...]:
    """What must be said of a model whose weights `bench pack` rounded."""
    found = rounding(cell.model.path) if cell.model else {}
    if not found or cell.model is None:
        return ()
    return (f"Weights of {cell.model.name} are rounded to {found['weights']}, from {found['sha256'][:12]}.",)


def _world(cell: Cell, suite: str, training: TrainingData | None, seed: int) -> dict[str, int] | None:
    """Name the made-up world where the suite, the training text or the dev set comes from it."""
    world = World(seed).facts
    trained = training is not None and cell.trains and training.text_of(cell.texts).world == world
    return world if suite in MINI_SUITES or trained else None
