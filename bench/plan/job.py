"""A job, one cell on one suite: its data, and the key of everything that determines its scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.data.mini.world import make_world
from bench.data.mteb_names import suite_label
from bench.data.suites import MINI_SUITES, TRANSFER_SUITES, is_reference, suite_notes
from bench.data.tasks import LabelledTask
from bench.data.training import TrainingData
from bench.eval.mteb_tasks import MtebTask
from bench.eval.suite import EVALUATION, TRANSFER_EVALUATION, SuiteTask
from bench.plan.cell import Cell
from bench.plan.keys import digest
from bench.records.store import Place
from bench.request.spec import RunSpec
from bench.stages import TRAIN, copy_name, is_paired


@dataclass(frozen=True)
class Job:
    """One cell on one suite, with the key of everything that determines its scores."""

    cell: Cell
    suite: str
    tasks: tuple[tuple[str, int, str, bool], ...]
    key: str
    family: str
    notes: tuple[str, ...] = ()
    world: dict[str, int] | None = None
    source: str = ""
    """What loads the suite where its name in records doesn't: a ``local:`` file."""

    @property
    def place(self) -> Place:
        """Where the record belongs."""
        return self.cell.place(self.suite)


def make_job(
    cell: Cell, name: str, tasks: list[SuiteTask], spec: RunSpec, training: TrainingData | None
) -> Job:
    """Return the job of a cell on the suite of that name."""
    suite = suite_label(name)
    facts = tuple(
        (task.id, _items(task), task.sha256, isinstance(task, MtebTask) or is_reference(task))
        for task in tasks
    )
    setting: dict[str, object] = {
        "evaluation": EVALUATION,
        "suite": suite,
        "tasks": [[task_id, sha256] for task_id, _, sha256, _ in facts],
        "device": spec.device,
        "threads": spec.threads,
    }
    if suite in TRANSFER_SUITES:
        setting["transfer"] = {"version": TRANSFER_EVALUATION, "solver": spec.transfer_solver}
    if spec.precision != "fp32":
        setting["precision"] = spec.precision
    family = setting | cell.family()
    if cell.trains and training:
        family |= {"corpus": training.corpus.sha256, "dev": training.dev.sha256}
        given = spec.copies or (training.corpus.world is None and _learns_from_copies(cell))
        if given and (copies := copies_of(cell, training)):
            family["copies"] = copies
    notes = (*cell.notes, *suite_notes(suite), *_paired_notes(cell, training))
    key = digest(setting | cell.identity())
    return Job(cell, suite, facts, key, digest(family), notes, source="" if name == suite else name)


def _learns_from_copies(cell: Cell) -> bool:
    return any(copy_name(stage.spec.text) for stage in cell.all_stages)


def _items(task: SuiteTask) -> int:
    return task.items if isinstance(task, LabelledTask) else task.pairs


def _paired_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where a method or its teacher learned from pairs of the mini world's grammar."""
    if training is None or training.corpus.world is None:
        return ()
    if not any(is_paired(stage.spec.text) for stage in cell.all_stages):
        return ()
    return (f"{cell.method}: the grammar's own paraphrases are positives in its training: not ranked here.",)


def copies_of(cell: Cell, training: TrainingData) -> dict[str, str]:
    """Fingerprint of the translated copy that each stage trains on, by the stage's name in the record."""
    copies = {
        f"{role}/{name}": sha256
        for role, member in cell.members
        for name, sha256 in copies_of(member, training).items()
    }
    own = {stage.spec.role: stage.spec.text for stage in cell.stages if stage.spec.text != TRAIN}
    return copies | {role: training.texts[text].sha256 for role, text in own.items()}


def with_world(job: Job, training: TrainingData | None, seed: int) -> Job:
    """Name the mini world where the suite, the training text or the dev set comes from it."""
    trained = training is not None and job.cell.trains
    world = make_world(seed).facts
    if job.suite in MINI_SUITES or (trained and training is not None and training.corpus.world == world):
        return replace(job, world=world)
    return job
