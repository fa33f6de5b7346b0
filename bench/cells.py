"""From a request to cells: a method with its options and model, once a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.card import MethodCard, OptionValue
from bench.errors import InputError
from bench.nn.folder import ModelFolder, resolve, resolve_file
from bench.plugins import file_hash, plugin_facts
from bench.profiles import Profile
from bench.profiles import names as profile_names
from bench.registry import METHODS
from bench.spec import MethodRequest, Override, RunSpec, parse_methods, quoted
from bench.stages import ComposedMethod, Stage, TrainedMethod, planned_steps
from bench.store import Place

BACKBONE = "backbone"
"""Name of the profile's backbone where an option names a model."""


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
        numerics: What a training step follows, see :mod:`bench.numerics`; 1 where nothing is drawn.
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
    numerics: int = 1

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
    def latest_numerics(self) -> int:
        """The numerics of its stages or its members', the latest of all; 1 where nothing trains."""
        return max((cell.numerics for cell in self._training), default=1)

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
        if self.numerics > 1 and self.stages:
            facts["numerics"] = self.numerics
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


def make_cells(
    request: MethodRequest,
    card: MethodCard,
    spec: RunSpec,
    profile: Profile,
    label: str,
    backbone: ModelFolder | None,
    corpus_size: int,
    find: Callable[[Callable[[], ModelFolder]], ModelFolder | None] = lambda load: load(),
) -> list[Cell]:
    """Return the request's cells, one a seed.

    Args:
        request: The entry of ``--methods``.
        card: Its method's card.
        spec: The specification, for seeds and overrides.
        profile: Its profile, for options.
        label: The profile's name in results.
        backbone: The profile's backbone or the one that was named.
        corpus_size: Sentences of the training text, 0 where no method trains.
        find: Calls what finds an auxiliary model, and may keep its error: the cells then lack the model.

    Raises:
        InputError: an unknown option or a value that is none, a model folder that is none.
    """
    path, short = _argument(request, card)
    base = profile_options(card, profile)
    options = dict(base)
    if short and short[0] in dict(request.options):
        raise InputError(
            f"{short[0]} is given twice", where=f"--methods {request.text}", expected="one value"
        )
    given = [(short[0], short[1], f"--methods {request.text}")] if short else []
    given += [(name, value, f"--methods {request.text}") for name, value in request.options]
    given += [
        _checked_stage(override, card)
        for override in spec.overrides
        if override.method in (card.name, request.alias)
    ]
    for name, value, where in given:
        options[name] = card.option(name, where).parse(value, where)
    model = None
    if path is not None:
        resolved = resolve_file if card.takes_file else resolve
        model = resolved(path, where=f"--methods {request.text}")
    if card.needs_backbone:
        model = backbone
    auxiliaries = _auxiliaries(card, options, backbone, find)
    options |= {name: folder.name for name, folder in auxiliaries if options[name] != BACKBONE}
    changed = [
        f"{name}={quoted(str(value))}" for name, value in sorted(options.items()) if value != base[name]
    ]
    if match := options.pop("match", ""):  # said by the steps that it gives, so no part of the identity
        options |= _matched_length(str(match), options, spec, profile, corpus_size)
    stem = f"{model.name.split('/')[-1]}-{model.sha256[:8]}" if card.takes_path and model else card.name
    if short and card.takes_methods:
        stem, changed = (
            f"{stem}:{short[1]}",
            [text for text in changed if not text.startswith(f"{short[0]}=")],
        )
    identity = request.alias or (f"{stem}[{','.join(changed)}]" if changed else stem)
    if request.alias and request.alias in METHODS.names():
        raise InputError(
            f"the alias '{request.alias}' is the name of a registered method",
            where=f"--methods {request.text}",
            expected="another name",
        )
    seeds: tuple[int | None, ...] = (None,) if card.deterministic else spec.seeds
    frozen = tuple(sorted(options.items()))
    notes = (profile.note,) if profile.note and card.needs_backbone and spec.backbone is None else ()
    first = Cell(label, identity, card, frozen, model, None, notes=notes, auxiliaries=auxiliaries)
    first = replace(first, plugin=file_hash(card.name))
    if not card.deterministic:
        precision, numerics = spec.train_precision, spec.numerics
        first = replace(first, ranks=spec.ranks, train_precision=precision, numerics=numerics)
    return [replace(first, seed=seed) for seed in seeds]


def auxiliary_facts(cell: Cell) -> dict[str, dict[str, str]]:
    """Name and hash of each auxiliary model, for records."""
    return {option: {"name": folder.name, "sha256": folder.sha256} for option, folder in cell.auxiliaries}


def plugins_of(cell: Cell) -> dict[str, dict[str, Any]]:
    """Where its method and those it builds on came from, by method, of those that aren't bench's own."""
    found = {name: plugin_facts(name) for name in sorted({cell.card.name, *cell.member_names})}
    return {name: facts for name, facts in found.items() if facts is not None}


def _auxiliaries(
    card: MethodCard,
    options: Mapping[str, OptionValue],
    backbone: ModelFolder | None,
    find: Callable[[Callable[[], ModelFolder]], ModelFolder | None],
) -> tuple[tuple[str, ModelFolder], ...]:
    """Find the models that options name; raises what ``find`` lets through."""
    found = []
    for name in card.auxiliaries:
        reference = str(options[card.option(name, f"the models of {card.name}").name])
        if reference == BACKBONE:
            folder = backbone
        else:
            folder = find(partial(_auxiliary, reference, f"{card.name}.{name}"))
        if folder is not None:
            found.append((name, folder))
    return tuple(found)


def _auxiliary(reference: str, where: str) -> ModelFolder:
    """Find a model that an option names; raises InputError."""
    hint = f"make it with: bench pretrain --profile {reference} --out {reference}"
    made_here = reference in profile_names() and not Path(reference).is_dir()
    try:
        return resolve(reference, where=where)
    except InputError as error:
        raise InputError(error.what, where=error.where, hint=hint if made_here else error.hint) from error


def profile_options(card: MethodCard, profile: Profile) -> dict[str, OptionValue]:
    """Value of every option of a method in a profile; a stage's options stand in a table of its name."""
    options = {option.name: option.default for option in card.options}
    for name, value in _flat(profile.methods.get(card.name, {})):
        options[name] = card.option(name, f"profile {profile.name}").parse(
            value, f"profile {profile.name}: {name}"
        )
    return options


def _flat(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        rows += (
            [(f"{name}.{key}", v) for key, v in _flat(value)] if isinstance(value, dict) else [(name, value)]
        )
    return rows


def _matched_length(
    match: str,
    options: Mapping[str, OptionValue],
    spec: RunSpec,
    profile: Profile,
    corpus_size: int,
) -> dict[str, OptionValue]:
    """Steps that show a method as many sentences as all stages of another see, and as many dev evaluations.

    Raises:
        InputError: no such method, or one that doesn't train.
    """
    where = f"match={match}"
    other = METHODS.get(match, where=where)
    if not isinstance(other, TrainedMethod):
        raise InputError(f"'{other.card.name}' doesn't train, so there is no budget to match", where=where)
    theirs = profile_options(other.card, profile)
    for override in spec.overrides:
        if override.method == other.card.name:
            name, value, place = _checked_stage(override, other.card)
            theirs[name] = other.card.option(name, place).parse(value, place)
    sentences = sum(
        planned_steps(dict(stage.config), corpus_size) * int(dict(stage.config)["batch_size"])
        for stage in other.stages(theirs)
    )
    steps = -(-sentences // int(options["batch_size"]))
    evaluations = max(1, planned_steps(options, corpus_size) // int(options["eval_every"]))
    return {"steps": steps, "eval_every": max(1, steps // evaluations)}


def _argument(request: MethodRequest, card: MethodCard) -> tuple[str | None, tuple[str, str] | None]:
    """Split NAME:ARGUMENT into a model path and the short option (name, value)."""
    argument, where = request.argument, f"--methods {request.text}"
    if card.takes_path:
        if argument is None:
            raise InputError(f"'{card.name}' needs a model", where=where, expected=f"{card.name}:PATH")
        path, colon, last = argument.rpartition(":")
        if colon and card.short_option and last in card.option(card.short_option, where).choices:
            return path, (card.short_option, last)
        return argument, None
    if argument is None:
        return None, None
    if card.short_option is None:
        raise InputError(f"'{card.name}' takes nothing after a colon", where=where, expected=card.name)
    return None, (card.short_option, argument)


def _checked_stage(override: Override, card: MethodCard) -> tuple[str, str, str]:
    where = f"--set {override.text}"
    if override.stage is None:
        return override.option, override.value, where
    stages = sorted({option.name.split(".")[0] for option in card.options if "." in option.name})
    if override.stage not in stages:
        raise InputError(
            f"{card.name} has no stage '{override.stage}'",
            where=where,
            expected=f"one of {', '.join(stages)}" if stages else f"{card.name}.OPTION=VALUE",
        )
    return f"{override.stage}.{override.option}", override.value, where


def with_members(
    cell: Cell, make: Callable[[MethodRequest], list[Cell]], above: tuple[str, ...] = ()
) -> Cell:
    """Return the cell with the cells of the methods that it builds on, of the same seed.

    Args:
        cell: The cell.
        make: From a request to its cells, stages included where they have no members.
        above: Names of the methods that build on this one.

    Raises:
        InputError: a method that builds on itself.
    """
    method = METHODS.get(cell.card.name)
    if not isinstance(method, ComposedMethod):
        return cell
    members: list[tuple[str, Cell]] = []
    named: dict[str, Cell] = {}
    for role, text in method.members(dict(cell.options)).items():
        (request,) = parse_methods(text)
        if request.name in (*above, cell.card.name):
            raise InputError(f"{cell.card.name} builds on itself", where=f"{role}={text}")
        found = [member for member in make(request) if member.seed in (cell.seed, None)]
        number = 1 + sum(member.card.name == request.name for _, member in members)
        copy = ".".join(filter(None, (cell.copy, str(number) if number > 1 else "")))
        members.append((role, with_members(replace(found[0], copy=copy), make, (*above, cell.card.name))))
        named[text] = members[-1][1]
    return _without_paths(replace(cell, members=tuple(members)), named)


def _without_paths(cell: Cell, named: Mapping[str, Cell]) -> Cell:
    """Name members from this machine by their ids, so that no path enters an id, an option or a key."""
    for text in sorted(named, key=len, reverse=True):  # one path may begin another
        member = named[text]
        if member.card.takes_path or any(METHODS.get(name).card.takes_path for name in member.member_names):
            options = [
                (name, value.replace(text, member.method) if isinstance(value, str) else value)
                for name, value in cell.options
            ]
            cell = replace(cell, method=cell.method.replace(text, member.method), options=tuple(options))
    return cell


def without_idle_seeds(cells: list[Cell]) -> list[Cell]:
    """Return one cell without seed in place of cells that no seed enters: sums of deterministic methods."""
    kept: dict[tuple[str, int | None], Cell] = {}
    for cell in cells:
        trains = isinstance(METHODS.get(cell.card.name), TrainedMethod)
        idle = cell.members and not trains and all(member.seed is None for _, member in cell.members)
        cell = replace(cell, seed=None) if idle else cell
        kept[cell.method, cell.seed] = cell
    return list(kept.values())


def refuse_twins(cells: list[Cell]) -> None:
    """Raise InputError if two cells would stand at one place."""
    seen: set[tuple[str, int | None]] = set()
    for cell in cells:
        if (cell.method, cell.seed) in seen:
            raise InputError(
                f"'{cell.method}' is asked for twice",
                where="--methods",
                expected="each method once",
                hint="give one of them a name: NAME=METHOD",
            )
        seen.add((cell.method, cell.seed))
