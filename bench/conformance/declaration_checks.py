"""Conformance of a method's declarations: card, options, stages, keys."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from bench.conformance.check_registry import register_check
from bench.conformance.subject import Subject
from bench.errors import InputError
from bench.method_card import SUPERVISED, Option, OptionValue, format_value
from bench.plan.plan import Plan
from bench.records.filesystem import find_name_fault, safe_name
from bench.stages import StageSpec, TrainedMethod

KINDS = ("baseline", "method", "external", SUPERVISED)
_UNKNOWN = "no_such_option"


@register_check("card")
def check_card_fields(subject: Subject) -> str | None:
    """A complete card: kind baseline, method, external, supervised, a one-line summary, a version, equations.

    Advice: fill in the method's MethodCard.
    """
    card = subject.card
    texts = (card.name, card.kind, card.summary, card.adds, card.instead, card.paper, card.code)
    if not card.summary.strip():
        return "no summary"
    if "\n" in "".join((*texts, *card.equations, *card.deviations)):
        return "a text of several lines"
    if card.kind not in KINDS:
        return f"kind '{card.kind}'"
    if type(card.version) is not int or card.version < 1:
        return f"version {card.version!r}"
    return None if "".join(card.equations).strip() else "no equations"


@register_check("path")
def check_folder_name(subject: Subject) -> str | None:
    """A portable name of letters, digits, _ . + - that begins with a letter or digit, at most 80.

    Advice: it names a folder of records: choose another.
    """
    name = subject.card.name
    return f"the folder '{safe_name(name)}' for it" if safe_name(name) != name else find_name_fault(name)


@register_check("options")
def check_option_defaults(subject: Subject) -> str | None:
    """Options with a name of their own, a help line and a default that is one of their values.

    Advice: correct the Option on the card.
    """
    card, names = subject.card, [option.name for option in subject.card.options]
    for option in card.options:
        if names.count(option.name) > 1:
            return f"two options '{option.name}'"
        if not option.help.strip():
            return f"no help for '{option.name}'"
        try:
            if option.parse(option.default, option.name) != option.default:
                return f"'{option.name}' reads its default {option.default!r} as another value"
        except InputError as error:
            return f"the default of {error}"
    for name in (*card.auxiliaries, *filter(None, (card.short_option,))):
        if name not in names:
            return f"the card names an option '{name}' that isn't among its options"
    return None


@register_check("refused options")
def check_option_errors(subject: Subject) -> str | None:
    """An unknown option, and a text for a number, to be refused.

    Advice: leave that to MethodCard.option and Option.parse.
    """
    try:
        subject.card.option(_UNKNOWN, "here")
    except InputError:
        pass
    else:
        return f"option '{_UNKNOWN}' is taken"
    for option in subject.card.options:
        if type(option.default) in (int, float, bool):
            try:
                option.parse("two", option.name)
            except InputError:
                continue
            return f"{option.name}=two is taken"
    return None


@register_check("keys")
def check_key_stability(subject: Subject) -> str | None:
    """Equal keys for equal settings. Advice: take no time, path or random value into a stage's config."""
    first, again = _collect_keys(subject.planned), _collect_keys(subject.plan())
    names = [name for name, key in first.items() if again.get(name) != key]
    return f"another key of {names[0]} in a second plan" if names else None


def _collect_keys(plan: Plan) -> Mapping[str, str]:
    keys = {f"the cell {job.cell.describe()}": job.key for job in plan.jobs}
    for job in plan.jobs:
        for number, stage in enumerate(job.cell.all_stages, start=1):
            keys[f"stage {number} of {job.cell.describe()}"] = stage.key
    return keys


@register_check("stages", "train")
def check_stages(subject: Subject) -> str | None:
    """Stages with roles of their own, after their inputs, plain values as config, the same if asked again.

    Advice: make stages() a function of its options alone.
    """
    method = subject.method
    assert isinstance(method, TrainedMethod)  # noqa: S101 - the check is of no other
    for changed in ({}, *_list_choices(subject.card.options)):
        options = MappingProxyType(dict(subject.cell().options) | changed)
        try:
            first, again = method.stages(options), method.stages(options)
        except InputError:
            continue  # a choice that doesn't go with the others' values
        seen = _find_stage_fault(first)
        if not seen and _stage_facts(first) != _stage_facts(again):
            seen = "other stages from the same options, asked for once more"
        if seen:
            return seen + "".join(f" with {name}={format_value(value)}" for name, value in changed.items())
    return None


def _list_choices(options: Sequence[Option]) -> Iterator[dict[str, OptionValue]]:
    for option in options:
        if type(option.default) is bool:
            yield {option.name: not option.default}
        for choice in option.choices:
            yield {option.name: choice}


def _find_stage_fault(stages: Sequence[StageSpec]) -> str | None:
    roles: list[str] = []
    for stage in stages:
        if stage.role in roles:
            return f"two stages '{stage.role}'"
        if any(other.role in stage.inputs and other.role not in roles for other in stages):
            return f"stage '{stage.role}' before what it builds on"
        if type(stage.version) is not int:
            return f"version {stage.version!r} of stage '{stage.role}'"
        for name, value in stage.config:
            if not isinstance(value, str | int | float | bool):
                return f"{name}={value!r} in the config of stage '{stage.role}'"
        roles.append(stage.role)
    return None


def _stage_facts(stages: Sequence[StageSpec]) -> list[dict[str, object]]:
    return [vars(stage) | {"train": None} for stage in stages]


@register_check("workers", "train")
def check_stage_pickling(subject: Subject) -> str | None:
    """Training functions that a worker process finds by their name.

    Advice: train with a function at the top of the module, not a lambda or an inner one.
    """
    for stage in subject.cell().all_stages:
        try:
            pickle.dumps(stage.spec.train)
        except Exception as error:  # pickle's errors are of many kinds
            return f"of stage '{stage.spec.role}': {error}"
    return None
