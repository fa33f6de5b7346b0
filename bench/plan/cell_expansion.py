"""From requests to cells: a method with its options and model for each seed, its members; checks of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.config import method_ids, profiles
from bench.config.profiles import Profile, zero_steps
from bench.config.run_spec import MethodRequest, Override, RunSpec
from bench.data.training_data import TrainingData
from bench.errors import InputError, not_one_of
from bench.method_card import MethodCard, OptionValue, format_value
from bench.nn.model_folder import ModelFolder, resolve_file, resolve_folder
from bench.plan.cell import Cell
from bench.plan.job import check_match, compute_matching_length
from bench.plan.untuned_rates import note_untuned_rate
from bench.records.filesystem import model_stem
from bench.registry import METHODS, discover
from bench.stages import ComposedMethod, TrainedMethod, copy_name

BACKBONE = "backbone"  # name of the profile's backbone where an option names a model
_MOST = 3  # methods that a refusal names
FindModel = Callable[[Callable[[], ModelFolder]], ModelFolder | None]
"""Calls a function that finds a model; it may keep the error and return None."""


def find_method_cards(requests: Sequence[MethodRequest]) -> list[MethodCard]:
    """Return the card of each method; raises InputError for an unknown one, which may be part of a path."""
    methods, cards = discover(), []
    for index, request in enumerate(requests):
        try:
            cards.append(methods.get(request.name, where="--methods").card)
        except InputError as error:
            if index:
                error.hint = _path_hint(requests[index - 1], request) or error.hint
            raise
    return cards


def _path_hint(before: MethodRequest, request: MethodRequest) -> str | None:
    """Return a hint if an unknown method is the rest of a path before the comma."""
    text, card = f"{before.text},{request.text}", METHODS.get(before.name).card
    if not card.takes_path or before.in_quotes:
        return None
    if unquoted := method_ids.find_unquoted_path(text):
        return unquoted.error.hint
    try:
        path, _ = method_ids.split_argument(before, card)
        _resolve_path(card, path or "", where=before.text)
    except InputError:
        return method_ids.quoting_hint(text)
    return None


def add_members(cell: Cell, make: Callable[[MethodRequest], list[Cell]], above: tuple[str, ...] = ()) -> Cell:
    """Return the cell with the cells, of the same seed, of the methods that it builds on."""
    # ``above`` are names of the methods that build on this one; InputError is raised for a method among them.
    method = METHODS.get(cell.card.name)
    if not isinstance(method, ComposedMethod):
        return cell
    members: list[tuple[str, Cell]] = []
    named: dict[str, Cell] = {}
    for role, text in method.members(dict(cell.options)).items():
        request = method_ids.parse_method(text, f"{cell.card.name}: {role}")
        if request.name in (*above, cell.card.name):
            raise InputError(f"{cell.card.name} builds on itself", where=f"{role}={text}")
        member = next(member for member in make(request) if member.seed in (cell.seed, None))
        number = 1 + sum(other.card.name == request.name for _, other in members)
        copy = ".".join(filter(None, (cell.copy, str(number) if number > 1 else "")))
        named[text] = add_members(replace(member, copy=copy), make, (*above, cell.card.name))
        members.append((role, named[text]))
    return _replace_member_paths(replace(cell, members=tuple(members)), named)


def _replace_member_paths(cell: Cell, named: Mapping[str, Cell]) -> Cell:
    """Replace members' paths by their ids, to keep paths out of ids, options and keys."""
    for text in sorted(named, key=len, reverse=True):  # a path may be the beginning of another
        member = named[text]
        if any(part.card.takes_path for part in member.walk()):
            row = member.method
            if len(cell.members) > 1:  # "+" separates the members of a sum
                row = "_".join(method_ids.split_outside_brackets(row, "+"))
            options = dict(cell.options)
            for name, value in cell.options:
                if isinstance(value, str):
                    options[name] = value.replace(text, row)
            cell = replace(cell, method=cell.method.replace(text, row), options=tuple(options.items()))
    return cell


def drop_idle_seeds(cells: list[Cell]) -> list[Cell]:
    """Replace cells whose encoder is equal for all seeds, such as sums of deterministic ones, by one."""
    kept: dict[tuple[str, int | None], Cell] = {}
    for cell in cells:
        method = METHODS.get(cell.card.name)
        stages = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
        draws = any(stage.seeded for stage in stages)
        build_draws = getattr(method, "build_draws", False)
        untrained = isinstance(method, TrainedMethod) and not stages and not build_draws
        if cell.members and not draws and all(member.seed is None for _, member in cell.members):
            untrained = True
        if untrained:
            cell = replace(cell, seed=None)
        kept[cell.method, cell.seed] = cell
    return list(kept.values())


def check_duplicate_names(requested: Iterable[Sequence[Cell]]) -> None:
    """Raise InputError if the cells of two requests have one name, which tables need to be unique."""
    names = Counter[str]()
    for cells in requested:
        names.update({cell.method for cell in cells})
    for method in (method for method, count in names.items() if count > 1):
        what, hint = f"'{method}' is asked for twice", "give one of them another name: NAME=METHOD"
        raise InputError(what, where="--methods", expected="each name once", hint=hint)


def make_cells(
    request: MethodRequest,
    card: MethodCard,
    spec: RunSpec,
    profile: Profile,
    label: str,
    backbone: ModelFolder | None,
    corpus_size: int,
    find: FindModel = lambda load: load(),
    matching: tuple[str, ...] = (),
) -> list[Cell]:
    """Return the request's cells, one per seed; raises InputError for a wrong option, model or ``match``."""
    # ``label`` is the profile's name in results, ``corpus_size`` the sentences of the training text or 0.
    # Cells lack models that ``find`` misses. ``matching`` are methods whose length is computed.
    path, short = method_ids.split_argument(request, card)
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
    if match := str(options.pop("match", "")):  # the options it sets are in the identity already
        check_match(match, given, matching, f"--methods {request.text}")
        other = make_bare_cell(MethodRequest(match, match), spec, profile, corpus_size, (*matching, match))
        length = compute_matching_length(match, other, options, corpus_size)
        options |= {name: value for name, value in length.items() if name not in given}
    notes: list[str] = []
    if spec.backbone is None:
        notes += [profile.note] if profile.note and card.needs_backbone else []
        notes += note_untuned_rate(identity, card, options, base, profile)
    sorted_options = tuple(sorted(options.items()))
    cell = Cell(
        label, identity, card, sorted_options, model, None, notes=tuple(notes), auxiliaries=auxiliaries
    )
    if card.deterministic:
        return [cell]
    cell = replace(cell, ranks=spec.ranks, train_precision=spec.train_precision, compiled=spec.compiled)
    return [replace(cell, seed=seed) for seed in spec.seeds]


def _resolve_path(card: MethodCard, path: str, where: str) -> ModelFolder:
    return resolve_file(path, where=where) if card.takes_file else resolve_folder(path, where=where)


def _find_brought_model(path: str, request: MethodRequest, card: MethodCard) -> ModelFolder:
    """Find the model that a method brings; raises InputError, with a hint where quotes are wrong."""
    try:
        return _resolve_path(card, path, where=f"--methods {request.text}")
    except InputError as error:
        if request.in_quotes:
            error.hint = error.hint or method_ids.misquoted_hint(request.text, path)
        elif dict(request.options).keys() - card.defaults.keys():
            error.hint = error.hint or method_ids.quoting_hint(request.text)
        raise


def make_bare_cell(
    request: MethodRequest, spec: RunSpec, profile: Profile, corpus_size: int, matching: tuple[str, ...] = ()
) -> Cell:
    """Return the request's first cell with its members, but bare of models; see :func:`make_cells`."""

    def make(asked: MethodRequest) -> list[Cell]:
        card, name = METHODS.get(asked.name, where=asked.text).card, profile.name
        return make_cells(asked, card, spec, profile, name, None, corpus_size, lambda _load: None, matching)

    return add_members(make(request)[0], make)


def parse_options(
    request: MethodRequest, card: MethodCard, short: tuple[str, str] | None
) -> dict[str, OptionValue]:
    """Return the options of a method's text: after a colon, and in brackets; raises InputError."""
    where = f"--methods {request.text}"
    if short and short[0] in dict(request.options):
        raise InputError(f"{short[0]} is given twice", where=where, expected="one value")
    options = {}
    for name, text in filter(None, (short, *request.options)):
        try:
            option = card.option(name, where)
        except InputError as error:
            if card.takes_path:
                error.hint = method_ids.quoting_hint(request.text) or error.hint
            raise
        options[name] = option.parse(text, where)
    return options


def collect_user_options(
    request: MethodRequest, card: MethodCard, spec: RunSpec, short: tuple[str, str] | None
) -> dict[str, OptionValue]:
    """Return options of the user: after a colon, in brackets, by ``--set`` (the last wins)."""
    # Raises InputError, also for a --set that contradicts the method's own text, which names the row.
    of_text = parse_options(request, card, short)
    given = dict(of_text)
    rows = product((card.name, request.alias), spec.overrides)  # the row's own come last and win
    for override in (override for name, override in rows if override.method == name):
        place = f"--set {override.text}"
        name = _override_option(override, card, place)
        value = card.option(name, place).parse(override.value, place)
        if name in of_text and of_text[name] != value and not override.forced:
            what = f"'{request.text}' says that its {name} is {format_value(of_text[name])}"
            hint = f"give {name} by --set only, or in brackets only, to each {card.name} that has its own"
            raise InputError(what, where=place, expected="one value", hint=hint)
        given[name] = value
    return given


def _override_option(override: Override, card: MethodCard, where: str) -> str:
    """Return the option that an override sets; raises InputError for an unknown stage."""
    if override.stage is None:
        return override.option
    stages = sorted({name.split(".")[0] for name in card.defaults if "." in name})
    if override.stage not in stages:
        expected = f"one of {', '.join(stages)}" if stages else f"{card.name}.OPTION=VALUE"
        raise InputError(f"{card.name} has no stage '{override.stage}'", where=where, expected=expected)
    return f"{override.stage}.{override.option}"


def _method_id(
    request: MethodRequest,
    card: MethodCard,
    model: ModelFolder | None,
    short: tuple[str, str] | None,
    changed: Mapping[str, OptionValue],
) -> str:
    """Return the row's name: the alias, or the method's with the options that differ from the profile."""
    other = METHODS.called(request.alias or "")
    if other and (other == request.alias or other != card.name):
        what = f"the alias '{request.alias}' is the name of a registered method"
        raise InputError(what, where=f"--methods {request.text}", expected="another name")
    if request.alias:
        return request.alias
    stem = card.name
    if model and card.takes_path:
        stem = model_stem(model.name, model.sha256)
    if model and card.named_rows:
        stem = f"{card.name}-{stem}"
    texts = {name: f"{name}={method_ids.quote_value(str(value))}" for name, value in changed.items()}
    if short and card.takes_methods:
        stem = f"{stem}:{short[1]}"
        texts.pop(short[0], None)
    return f"{stem}[{','.join(texts.values())}]" if texts else stem


def _find_auxiliaries(
    card: MethodCard, options: Mapping[str, OptionValue], backbone: ModelFolder | None, find: FindModel
) -> tuple[tuple[str, ModelFolder], ...]:
    """Find the models that options name; raises the errors that ``find`` lets through."""
    auxiliaries = []
    for name in card.auxiliaries:
        reference = str(options[card.option(name, f"the models of {card.name}").name])
        if reference.startswith('"') and not method_ids.split_path(reference)[1]:
            reference = method_ids.split_path(reference)[0]
        if reference == BACKBONE:
            folder = backbone
        else:
            folder = find(partial(_find_auxiliary, reference, f"{card.name}.{name}"))
        if folder is not None:
            auxiliaries.append((name, folder))
    return tuple(auxiliaries)


def _find_auxiliary(reference: str, where: str) -> ModelFolder:
    try:
        return resolve_folder(reference, where=where)
    except InputError as error:
        if reference in profiles.profile_names() and not Path(reference).is_dir():
            error.hint = f"make it with: bench pretrain --profile {reference} --out {reference}"
        raise


def profile_options(
    card: MethodCard, profile: Profile, given: Mapping[str, OptionValue] = MappingProxyType({})
) -> dict[str, OptionValue]:
    """Return the value of every option in a profile: card, budget at the ``given`` batch sizes, its table."""
    return card.defaults | budget_options(card, profile, given) | _read_method_table(card, profile)


def _read_method_table(card: MethodCard, profile: Profile) -> dict[str, OptionValue]:
    where, table = f"profile {profile.name}", dict[str, OptionValue]()
    for name, value in flatten_table(profile.methods.get(card.name, {})):
        table[name] = card.option(name, where).parse(value, f"{where}: {name}")
    return table


def budget_options(
    card: MethodCard, profile: Profile, given: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options that the profile's budget sets; a method's own table may replace them."""
    budget = profile.budget
    if budget is None or (card.name in profile.methods and not budget.equal):
        return {}
    terms, table = budget.terms(card), _read_method_table(card, profile)
    return terms | budget.options(card, card.defaults | terms | table | dict(given))


def flatten_table(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values of a table, with TABLE.NAME for an inner one."""
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{key}", inner) for key, inner in flatten_table(value)]
        else:
            rows.append((name, value))
    return rows


def check_overrides(spec: RunSpec, cells: Sequence[Cell]) -> None:
    """Raise InputError for an override of methods other than rows, their members and their ``match``."""
    known = set[str]().union(*(cell.member_names for cell in cells))
    options = [(override.option, override.value) for override in spec.overrides]
    for request in spec.methods:
        known |= {request.name, request.alias or request.name}
        options += request.options
    for match in {value for name, value in options if name == "match" and value}:
        other = make_bare_cell(MethodRequest(match, match), spec, profiles.load_profile(spec.profile), 0)
        known |= {match, *other.member_names}
    for override in spec.overrides:
        if override.method not in known:
            what, where = f"no method '{override.method}' in --methods", f"--set {override.text}"
            raise not_one_of(what, override.method, sorted(known), where=where)


def check_copies(spec: RunSpec, cells: Sequence[Cell]) -> None:
    """Raise InputError for a ``--copy`` that all stages ignore, if there are any."""
    if not any(cell.all_stages for cell in cells):
        return
    used = {copy_name(stage.spec.text) for cell in cells for stage in cell.all_stages}
    for name, path in spec.copies:
        if name not in used:
            names = ", ".join(sorted(used - {""}))
            what = f"no stage here trains on a translated copy '{name}'"
            expected = f"one of {names}" if names else None
            raise InputError(what, where=f"--copy {name}={path}", expected=expected)


ShortText = tuple[str, int, int]
"""A training text of less than a batch: its unit, their number, the batch size."""


def find_short_texts(
    cells: Sequence[Cell], training: TrainingData | None
) -> dict[ShortText, dict[str, Cell]]:
    """Return the stages whose text is shorter than one batch, by name with their cell."""
    short: dict[ShortText, dict[str, Cell]] = {}
    for cell in cells:
        for role, _, stage in cell.named_stages:
            size = dict(stage.spec.config).get("batch_size")
            text = training and training.texts[stage.spec.text]
            if text and isinstance(size, int) and len(text.sentences) < size:
                name = cell.method if role == cell.card.name else f"{cell.method} ({role})"
                unit = "pair" if text.partners else "sentence"
                short.setdefault((unit, len(text.sentences), size), {})[name] = cell
    return short


def describe_short_text(text: ShortText) -> str:
    """Return how much a text has, and how much a batch needs."""
    unit, count, size = text
    return f"the training text has {count:,} {unit}{'s' * (count != 1)}, less than a batch of {size:,}"


def check_batches(spec: RunSpec, cells: Sequence[Cell], training: TrainingData | None) -> None:
    """Raise InputError for stages whose text is shorter than one batch."""
    short = find_short_texts(cells, training)
    if not short:
        return
    faults = []
    for text, names in short.items():
        methods = ", ".join(list(names)[:_MOST])
        if len(names) > _MOST:
            methods += f" and {len(names) - _MOST} more"
        faults.append(f"{describe_short_text(text)} of {methods}")
    unit, most, _ = min(short, key=lambda text: text[1])
    option, given = ("--pairs", spec.pairs) if unit == "pair" else ("--corpus", spec.corpus)
    where = f"{option} {given}" if given else f"profile {spec.profile}"
    hint = f"give a longer text, or smaller batches, as with --set METHOD.batch_size={most}"
    raise InputError("; ".join(faults), where=where, hint=hint)
