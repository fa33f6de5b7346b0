"""From a request to cells: a method with its options and model, once a seed; cells of its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.card import MethodCard, Option, OptionValue
from bench.config.method_ids import (
    misquoted_hint,
    parse_method,
    quote_value,
    quoting_hint,
    split_argument,
    split_outside_brackets,
    split_path,
)
from bench.config.profiles import Profile, zero_steps
from bench.config.profiles import profile_names as profile_names
from bench.config.spec import MethodRequest, Override, RunSpec
from bench.errors import InputError
from bench.nn.model_folder import ModelFolder, resolve_file, resolve_folder
from bench.plan.cell import Cell
from bench.plan.job import check_match, compute_matching_length
from bench.records.filesystem import model_stem
from bench.registry import METHODS
from bench.stages import ComposedMethod, TrainedMethod


def add_members(cell: Cell, make: Callable[[MethodRequest], list[Cell]], above: tuple[str, ...] = ()) -> Cell:
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
        request = parse_method(text, f"{cell.card.name}: {role}")
        if request.name in (*above, cell.card.name):
            raise InputError(f"{cell.card.name} builds on itself", where=f"{role}={text}")
        found = [member for member in make(request) if member.seed in (cell.seed, None)]
        number = 1 + sum(member.card.name == request.name for _, member in members)
        copy = ".".join(filter(None, (cell.copy, str(number) if number > 1 else "")))
        members.append((role, add_members(replace(found[0], copy=copy), make, (*above, cell.card.name))))
        named[text] = members[-1][1]
    return _replace_member_paths(replace(cell, members=tuple(members)), named)


def _replace_member_paths(cell: Cell, named: Mapping[str, Cell]) -> Cell:
    """Name members from this machine by their ids, so that no path enters an id, an option or a key."""
    for text in sorted(named, key=len, reverse=True):  # one path may begin another
        member = named[text]
        if member.card.takes_path or any(METHODS.get(name).card.takes_path for name in member.member_names):
            row = member.method
            if len(cell.members) > 1:  # a "+" stands between the members of a sum
                row = "_".join(split_outside_brackets(row, "+"))
            options = [
                (name, value.replace(text, row) if isinstance(value, str) else value)
                for name, value in cell.options
            ]
            cell = replace(cell, method=cell.method.replace(text, row), options=tuple(options))
    return cell


def drop_idle_seeds(cells: list[Cell]) -> list[Cell]:
    """Return one cell without seed in place of cells that no seed enters.

    Those are sums of deterministic methods, and what is made of one without drawing anything.
    """
    kept: dict[tuple[str, int | None], Cell] = {}
    for cell in cells:
        method = METHODS.get(cell.card.name)
        own = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
        draws = any(stage.seeded for stage in own)
        idle = cell.members and not draws and all(member.seed is None for _, member in cell.members)
        cell = replace(cell, seed=None) if idle else cell
        kept[cell.method, cell.seed] = cell
    return list(kept.values())


def check_duplicate_names(requested: Iterable[Sequence[Cell]]) -> None:
    """Raise InputError if the cells of two requests have one name: no table could tell them apart."""
    names = Counter(name for cells in requested for name in {cell.method for cell in cells})
    for method, count in names.items():
        if count > 1:
            raise InputError(
                f"'{method}' is asked for twice",
                where="--methods",
                expected="each name once",
                hint="give one of them another name: NAME=METHOD",
            )


BACKBONE = "backbone"
"""Name of the profile's backbone where an option names a model."""


def make_cells(
    request: MethodRequest,
    card: MethodCard,
    spec: RunSpec,
    profile: Profile,
    label: str,
    backbone: ModelFolder | None,
    corpus_size: int,
    find: Callable[[Callable[[], ModelFolder]], ModelFolder | None] = lambda load: load(),
    matching: tuple[str, ...] = (),
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
        matching: Methods whose length is being found for a ``match``.

    Raises:
        InputError: an unknown option or a value that is none, a model folder that is none, a ``match`` that
            can't be.
    """
    path, short = split_argument(request, card)
    given = collect_user_options(request, card, spec, short)
    base = profile_options(card, profile, given)
    options = base | zero_steps(given, base) | given
    model = backbone if card.needs_backbone else None
    if path is not None:
        model = _find_brought_model(path, request, card)
    auxiliaries = _find_auxiliaries(card, options, backbone, find)
    options |= {name: folder.name for name, folder in auxiliaries if options[name] != BACKBONE}
    changed = {name: value for name, value in sorted(options.items()) if value != base[name]}
    identity = _method_id(request, card, model, short, changed)
    if match := str(options.pop("match", "")):  # what it gives says it, so it isn't part of the identity
        check_match(match, given, matching, f"--methods {request.text}")
        other = make_bare_cell(MethodRequest(match, match), spec, profile, corpus_size, (*matching, match))
        length = compute_matching_length(match, other, options, corpus_size)
        options |= {name: value for name, value in length.items() if name not in given}
    noted = profile.note and card.needs_backbone and spec.backbone is None
    first = Cell(
        label,
        identity,
        card,
        tuple(sorted(options.items())),
        model,
        None,
        notes=(profile.note,) if noted else (),
        auxiliaries=auxiliaries,
    )
    if card.deterministic:
        return [first]
    first = replace(first, ranks=spec.ranks, train_precision=spec.train_precision, compiled=spec.compiled)
    return [replace(first, seed=seed) for seed in spec.seeds]


def _find_brought_model(path: str, request: MethodRequest, card: MethodCard) -> ModelFolder:
    """Find the model that a method brings; raises InputError, with what to type where quotes are wrong."""
    find, where = resolve_file if card.takes_file else resolve_folder, f"--methods {request.text}"
    try:
        return find(path, where=where)
    except InputError as error:
        known = {option.name for option in card.options}
        if request.in_quotes:
            error.hint = error.hint or misquoted_hint(request.text, path)
        elif any(name not in known for name, _ in request.options):
            error.hint = error.hint or quoting_hint(request.text)
        raise


def make_bare_cell(
    request: MethodRequest, spec: RunSpec, profile: Profile, corpus_size: int, matching: tuple[str, ...] = ()
) -> Cell:
    """Return the request's first cell with its members, without the models that they start from.

    See :func:`make_cells`.
    """

    def make(asked: MethodRequest) -> list[Cell]:
        card, name = METHODS.get(asked.name, where=asked.text).card, profile.name
        return make_cells(asked, card, spec, profile, name, None, corpus_size, lambda _load: None, matching)

    return add_members(make(request)[0], make)


def collect_user_options(
    request: MethodRequest, card: MethodCard, spec: RunSpec, short: tuple[str, str] | None
) -> dict[str, OptionValue]:
    """Options that the user gave: after a colon, in brackets, by ``--set``, whose last one wins.

    Raises:
        InputError: an option that it hasn't, a value that is none, or one by ``--set`` that isn't what the
            method's own text says: that text names the row, or the member in it.
    """
    where = f"--methods {request.text}"
    if short and short[0] in dict(request.options):
        raise InputError(f"{short[0]} is given twice", where=where, expected="one value")
    typed = (*((short,) if short else ()), *request.options)
    said = {name: _find_option(card, name, request).parse(value, where) for name, value in typed}
    given = dict(said)
    of_all, of_row = (
        [one for one in spec.overrides if one.method == name] for name in (card.name, request.alias)
    )
    for override in (*of_all, *of_row):  # what one row is given holds against what all of its method are
        name, text, place = _resolve_override(override, card)
        value = card.option(name, place).parse(text, place)
        if name in said and said[name] != value and not override.forced:
            raise InputError(
                f"'{request.text}' says that its {name} is {said[name]}",
                where=place,
                expected="one value",
                hint=f"give {name} by --set only, or in brackets only, to each {card.name} that has its own",
            )
        given[name] = value
    return given


def _find_option(card: MethodCard, name: str, request: MethodRequest) -> Option:
    """Return an option that was typed; raises InputError, which says how a path with brackets is typed."""
    where = f"--methods {request.text}"
    try:
        return card.option(name, where)
    except InputError as error:
        hint = (quoting_hint(request.text) if card.takes_path else None) or error.hint
        raise InputError(error.what, where=where, expected=error.expected, hint=hint) from error


def _method_id(
    request: MethodRequest,
    card: MethodCard,
    model: ModelFolder | None,
    short: tuple[str, str] | None,
    changed: Mapping[str, OptionValue],
) -> str:
    """The row's name in every table: the alias, or the name with what differs from the profile."""
    other = METHODS.called(request.alias or "")
    if other and (other == request.alias or other != card.name):
        raise InputError(
            f"the alias '{request.alias}' is the name of a registered method",
            where=f"--methods {request.text}",
            expected="another name",
        )
    if request.alias:
        return request.alias
    stem = model_stem(model.name, model.sha256) if card.takes_path and model else card.name
    stem = f"{card.name}-{stem}" if card.named_rows and model else stem
    of_methods = short if card.takes_methods else None
    if of_methods:
        stem = f"{stem}:{of_methods[1]}"
    texts = [
        f"{name}={quote_value(str(value))}"
        for name, value in changed.items()
        if not of_methods or name != of_methods[0]
    ]
    return f"{stem}[{','.join(texts)}]" if texts else stem


def _find_auxiliaries(
    card: MethodCard,
    options: Mapping[str, OptionValue],
    backbone: ModelFolder | None,
    find: Callable[[Callable[[], ModelFolder]], ModelFolder | None],
) -> tuple[tuple[str, ModelFolder], ...]:
    """Find the models that options name; raises what ``find`` lets through."""
    found = []
    for name in card.auxiliaries:
        reference = str(options[card.option(name, f"the models of {card.name}").name])
        if reference.startswith('"') and not split_path(reference)[1]:
            reference = split_path(reference)[0]
        if reference == BACKBONE:
            folder = backbone
        else:
            folder = find(partial(_find_auxiliary, reference, f"{card.name}.{name}"))
        if folder is not None:
            found.append((name, folder))
    return tuple(found)


def _find_auxiliary(reference: str, where: str) -> ModelFolder:
    """Find a model that an option names; raises InputError."""
    hint = f"make it with: bench pretrain --profile {reference} --out {reference}"
    made_here = reference in profile_names() and not Path(reference).is_dir()
    try:
        return resolve_folder(reference, where=where)
    except InputError as error:
        raise InputError(error.what, where=error.where, hint=hint if made_here else error.hint) from error


def profile_options(
    card: MethodCard, profile: Profile, given: Mapping[str, OptionValue] = MappingProxyType({})
) -> dict[str, OptionValue]:
    """Value of every option of a method in a profile; a stage's options stand in a table of its name.

    A method without a table trains as long as the profile's budget says, at the batch sizes among what the
    user gave; where the budget is one of equal terms, every method does, but for what its table says.
    """
    options = {option.name: option.default for option in card.options}
    return options | budget_options(card, profile, given) | _read_method_table(card, profile)


def _read_method_table(card: MethodCard, profile: Profile) -> dict[str, OptionValue]:
    """What the profile's table of a method says."""
    where = f"profile {profile.name}"
    return {
        name: card.option(name, where).parse(value, f"{where}: {name}")
        for name, value in flatten_table(profile.methods.get(card.name, {}))
    }


def budget_options(
    card: MethodCard, profile: Profile, given: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """What the profile's budget gives to a method's options; a table of its own may overrule it."""
    budget = profile.budget
    if budget is None or (card.name in profile.methods and not budget.equal):
        return {}
    terms = budget.terms(card)
    options = (
        {option.name: option.default for option in card.options} | terms | _read_method_table(card, profile)
    )
    return terms | budget.options(card, options | dict(given))


def flatten_table(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of a table, those of an inner one as TABLE.NAME."""
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        inner = [(f"{name}.{key}", v) for key, v in flatten_table(value)] if isinstance(value, dict) else None
        rows += [(name, value)] if inner is None else inner
    return rows


def _resolve_override(override: Override, card: MethodCard) -> tuple[str, str, str]:
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
