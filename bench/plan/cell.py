"""A cell: one method with its options, model and seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.card import MethodCard, OptionValue
from bench.nn.folder import ModelFolder
from bench.records.store import Place
from bench.request.plugins import plugin_facts
from bench.stages import ARITHMETIC, Stage


@dataclass(frozen=True)
class Cell:
    """One method with its options, model and seed: what is built once and evaluated on the suites.

    Args:
        profile: Profile's name in results.
        method: Method id.
        card: The method's card.
        options: Value of every option.
        model: Backbone, or the model that it brings.
        seed: None for a deterministic method.
        stages: Its own training stages.
        notes: What every table has to say of it.
        members: The cell of each other method it builds on, by role.
        copy: Number of this copy among equal members of an ensemble ("2", inside another copy "2.2"), "" for
            the first: it has its own random streams.
        auxiliaries: Each model it needs in training beside the backbone, by the option that names it.
        plugin: sha256 of the file that the method was loaded from, "" for one from a package.
        ranks: Processes that train each of its stages together; dropout, and so the result, depends on it.
        train_precision: Arithmetic of its transformers in training, see
            :func:`bench.train.precision.training_at`.
    """

    profile: str
    method: str
    card: MethodCard
    options: tuple[tuple[str, OptionValue], ...]
    model: ModelFolder | None
    seed: int | None
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    members: tuple[tuple[str, Cell], ...] = ()
    copy: str = ""
    auxiliaries: tuple[tuple[str, ModelFolder], ...] = ()
    plugin: str = ""
    ranks: int = 1
    train_precision: str = "fp32"

    @property
    def trains(self) -> bool:
        """True if it or a member of it has training stages."""
        return bool(self.all_stages)

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """Its members' stages and its own, each once."""
        stages = [stage for _, member in self.members for stage in member.all_stages]
        return tuple({stage.key: stage for stage in (*stages, *self.stages)}.values())

    @property
    def _training(self) -> list[Cell]:
        """Itself, if it has training stages of its own, and its members' that have, at any depth."""
        own = [self] if self.stages else []
        return [*own, *(cell for _, member in self.members for cell in member._training)]

    @property
    def most_ranks(self) -> int:
        """Processes that train its stages, or a member's, together; 1 where nothing trains."""
        return max((cell.ranks for cell in self._training), default=1)

    @property
    def lowest_precision(self) -> str:
        """The training precision of its stages, or a member's, that isn't fp32; fp32 where there is none."""
        found = (cell.train_precision for cell in self._training)
        return next((precision for precision in found if precision != "fp32"), "fp32")

    @property
    def member_names(self) -> set[str]:
        """Names of all methods that it builds on, at any depth."""
        return {name for _, member in self.members for name in (member.card.name, *member.member_names)}

    def identity(self) -> dict[str, object]:
        """What determines its encoder, for keys."""
        facts: dict[str, object] = {
            "method": self.card.name,
            "version": self.card.version,
            "options": self.card.keyed(dict(self.options)),
            "model": self.model.sha256 if self.model else None,
            "seed": self.seed,
            "stages": [stage.key for stage in self.stages],
        }
        if self.auxiliaries:
            facts["auxiliaries"] = {option: folder.sha256 for option, folder in self.auxiliaries}
        if self.plugin:
            facts["plugin"] = self.plugin
        if self.ranks > 1 and self.stages:
            facts["ranks"] = self.ranks
        if self.train_precision != "fp32" and self.stages:
            facts["train_precision"] = self.train_precision
        if self.stages:
            facts["numerics"] = ARITHMETIC
        if self.members:
            facts["members"] = {role: member.identity() for role, member in self.members}
        return facts

    def family(self) -> dict[str, object]:
        """The same without the seed."""
        facts = {name: value for name, value in self.identity().items() if name not in ("seed", "stages")}
        if self.members:
            facts["members"] = {role: member.family() for role, member in self.members}
        return facts

    def place(self, suite: str) -> Place:
        """Where the cell's record for a suite belongs."""
        return Place(self.profile, self.method, self.seed, suite)

    def describe(self) -> str:
        """For messages: method id and seed."""
        return self.method if self.seed is None else f"{self.method} seed {self.seed}"


def auxiliary_facts(cell: Cell) -> dict[str, dict[str, str]]:
    """Name and hash of each auxiliary model, for records."""
    return {option: {"name": folder.name, "sha256": folder.sha256} for option, folder in cell.auxiliaries}


def plugins_of(cell: Cell) -> dict[str, dict[str, Any]]:
    """Where its method and those it builds on came from, by method, of those that aren't bench's own."""
    found = {name: plugin_facts(name) for name in sorted({cell.card.name, *cell.member_names})}
    return {name: facts for name, facts in found.items() if facts is not None}
