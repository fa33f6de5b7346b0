"""A cell: one method with its options, model and seed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from bench.config.plugins import plugin_facts
from bench.method_card import SUPERVISED, MethodCard, OptionValue
from bench.nn.model_folder import ModelFolder
from bench.records.record import RecordPlace
from bench.registry import METHODS
from bench.stages import PAIRS, Stage


@dataclass(frozen=True)
class Cell:
    """One method with its options, model and seed, built once and evaluated on the suites.

    ``copy`` is the number of this copy among equal members of an ensemble ("2", inside another copy "2.2"),
    "" for the first; each copy has its own random streams. ``ranks`` processes train each of its stages
    together; they change dropout, and so the result.
    """

    profile: str  # its name in results
    method: str
    card: MethodCard
    options: tuple[tuple[str, OptionValue], ...]
    model: ModelFolder | None  # its backbone, or the model that it brings
    seed: int | None  # None for a deterministic method
    stages: tuple[Stage, ...] = ()  # its own, without its members'
    notes: tuple[str, ...] = ()
    members: tuple[tuple[str, Cell], ...] = ()  # methods that it builds on, by role
    copy: str = ""
    auxiliaries: tuple[tuple[str, ModelFolder], ...] = ()  # by the option that names them
    ranks: int = 1
    train_precision: str = "fp32"
    compiled: str = "none"

    @property
    def needs(self) -> frozenset[str]:
        """Needs of its method for the backbone, with these options."""
        options = dict(self.options)
        return frozenset(need.what for need in self.card.needs if need.holds(options) and not need.of)

    @property
    def models(self) -> tuple[ModelFolder, ...]:
        """Its own model and auxiliaries."""
        auxiliaries = (folder for _, folder in self.auxiliaries)
        return tuple(filter(None, (self.model, *auxiliaries)))

    def walk(self) -> Iterator[Cell]:
        """Yield the cell and its members at any depth."""
        yield self
        for _, member in self.members:
            yield from member.walk()

    @property
    def lacks_vectors(self) -> bool:
        """True if its method, by its card or these options, scores pairs without vectors."""
        by_options = getattr(METHODS.get(self.card.name), "scores_pairs", None)
        return self.card.scores_pairs or (by_options is not None and by_options(dict(self.options)))

    @property
    def trains(self) -> bool:
        """True if it or a member has training stages."""
        return bool(self.all_stages)

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """Stages of its members and its own, each once."""
        return tuple({stage.key: stage for _, _, stage in self.named_stages}.values())

    @property
    def final_stages(self) -> tuple[Stage, ...]:
        """Its own last stages: the parts of its encoder."""
        used = {role for stage in self.stages for role in stage.spec.inputs}
        return tuple(stage for stage in self.stages if stage.spec.role not in used)

    @property
    def texts(self) -> set[str]:
        """Names of the training texts of all stages."""
        return {stage.spec.text for stage in self.all_stages}

    @property
    def supervised(self) -> bool:
        """True if its card says so, if it learns from labelled pairs, or if a member is supervised."""
        of_members = any(member.supervised for _, member in self.members)
        return of_members or self.card.kind == SUPERVISED or any(s.spec.text == PAIRS for s in self.stages)

    @property
    def named_stages(self) -> Iterator[tuple[str, Cell, Stage]]:
        """Each stage by name, with its cell: ROLE for its own, MEMBER/ROLE for a member's."""
        for role, member in self.members:
            yield from ((f"{role}/{name}", owner, stage) for name, owner, stage in member.named_stages)
        yield from ((stage.spec.role, self, stage) for stage in self.stages)

    @property
    def member_names(self) -> set[str]:
        """Names of all methods that it builds on, at any depth."""
        return {part.card.name for _, member in self.members for part in member.walk()}

    def place(self, suite: str) -> RecordPlace:
        """Return the place of the cell's record for a suite."""
        return RecordPlace(self.profile, self.method, self.seed, suite)

    def describe(self) -> str:
        """Return method id and seed for messages."""
        return self.method if self.seed is None else f"{self.method} seed {self.seed}"


def collect_cell_plugins(cell: Cell, whole_files: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the origin of plug-in methods by name: its own, and those it builds on.

    ``whole_files`` are those that their whole file identifies.
    """
    names = {name for name in (cell.card.name, *cell.member_names) if not METHODS.is_own(name)}
    plugins = {name: plugin_facts(name, name in whole_files) for name in sorted(names)}
    return {name: facts for name, facts in plugins.items() if facts is not None}
