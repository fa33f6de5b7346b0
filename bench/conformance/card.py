"""Conformance of what a method says of itself: its card, its options, its stages, its keys."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bench.card import Option, OptionValue
from bench.conformance.subject import Subject
from bench.errors import InputError
from bench.plan.plan import Plan
from bench.records.record import safe_name
from bench.request.parse import METHOD_NAME
from bench.stages import StageSpec, TrainedMethod

KINDS = ("baseline", "method", "external")
_UNKNOWN = "no_such_option"


def complete_card(subject: Subject, seed: int) -> str | None:
    """What is missing on the card."""
    card = subject.card
    texts = (card.name, card.kind, card.summary, card.paper, card.code, *card.equations, *card.deviations)
    wrong = (
        (not card.summary.strip(), "no summary"),
        (any("\n" in text for text in texts), "a text of several lines"),
        (card.kind not in KINDS, f"kind '{card.kind}'"),
        (type(card.version) is not int or card.version < 1, f"version {card.version!r}"),
        (not any(line.strip() for line in card.equations), "no equations"),
    )
    return next((seen for bad, seen in wrong if bad), None)


def safe_path(subject: Subject, seed: int) -> str | None:
    """A name that can't be asked for, or whose folder of results would have another name."""
    name = subject.card.name
    if not METHOD_NAME.fullmatch(name):
        return f"the name {name!r}"
    return f"the folder '{safe_name(name)}' for it" if safe_name(name) != name else None


def sound_options(subject: Subject, seed: int) -> str | None:
    """An option that is there twice, has no help, or a default that isn't one of its own values."""
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


def refused_options(subject: Subject, seed: int) -> str | None:
    """An option that nobody declared is taken, or a text where a number belongs."""
    try:
        subject.card.option(_UNKNOWN, "here")
    except InputError:
        pass
    else:
        return f"option '{_UNKNOWN}' is taken"
    for option in subject.card.options:
        if type(option.default) in (int, float, bool) and _takes(option, "two"):
            return f"{option.name}=two is taken"
    return None


def _takes(option: Option, text: str) -> bool:
    try:
        option.parse(text, option.name)
    except InputError:
        return False
    return True


def sound_stages(subject: Subject, seed: int) -> str | None:
    """A stage that is not as StageSpec says, for the defaults and for every choice of every option."""
    method = subject.method
    if not isinstance(method, TrainedMethod):
        return None
    for changed in ((), *_choices(subject.card.options)):
        options = MappingProxyType(dict(subject.cell(seed).options) | dict(changed))
        said = "".join(f" with {name}={value}" for name, value in changed)
        try:
            first, again = method.stages(options), method.stages(options)
        except InputError:
            continue  # a choice that doesn't go with the others' values
        seen = _unsound(first) or _unequal(first, again)
        if seen:
            return seen + said
    return None


def _choices(options: Sequence[Option]) -> list[tuple[tuple[str, OptionValue], ...]]:
    values: list[tuple[str, OptionValue]] = []
    for option in options:
        values += [(option.name, choice) for choice in option.choices]
        values += [(option.name, not option.default)] if type(option.default) is bool else []
    return [(value,) for value in values]


def _unsound(stages: Sequence[StageSpec]) -> str | None:
    roles: list[str] = []
    for stage in stages:
        if stage.role in roles:
            return f"two stages '{stage.role}'"
        own_inputs = [role for role in stage.inputs if role in {other.role for other in stages}]
        if not set(own_inputs) <= set(roles):
            return f"stage '{stage.role}' before what it builds on"
        if type(stage.version) is not int:
            return f"version {stage.version!r} of stage '{stage.role}'"
        for name, value in stage.config:
            if not isinstance(value, str | int | float | bool):
                return f"{name}={value!r} in the config of stage '{stage.role}'"
        roles.append(stage.role)
    return None


def _unequal(first: Sequence[StageSpec], again: Sequence[StageSpec]) -> str | None:
    facts = [
        [(s.role, s.kind, s.version, s.config, s.inputs, s.text) for s in stages] for stages in (first, again)
    ]
    return None if facts[0] == facts[1] else "other stages from the same options, asked for once more"


def equal_keys(subject: Subject, seed: int) -> str | None:
    """Keys that differ between two plans of the same settings."""
    first, again = _keys(subject.planned), _keys(subject.plan())
    names = [name for name, key in first.items() if again.get(name) != key]
    return f"another key of {names[0]} in a second plan" if names else None


def _keys(plan: Plan) -> Mapping[str, str]:
    keys = {f"the cell {job.cell.describe()}": job.key for job in plan.jobs}
    for job in plan.jobs:
        stages = job.cell.all_stages
        keys |= {
            f"stage {number} of {job.cell.describe()}": s.key for number, s in enumerate(stages, start=1)
        }
    return keys


def portable_stages(subject: Subject, seed: int) -> str | None:
    """A training function that another process can't find."""
    for stage in subject.cell(seed).all_stages:
        try:
            pickle.dumps(stage.spec.train)
        except Exception as error:  # pickle's errors are of many kinds
            return f"of stage '{stage.spec.role}': {error}"
    return None


def complete_facts(subject: Subject, seed: int) -> str | None:
    """What is missing among the facts that training left for the record."""
    subject.build(seed)
    for stage in subject.cell(seed).all_stages:
        facts = subject.cache().facts(stage)
        for name, kinds in _FACTS.items():
            if name not in facts:
                return f"stage '{stage.spec.role}' leaves no {name}"
            if not isinstance(facts[name], kinds):
                return f"stage '{stage.spec.role}' leaves {name} {json.dumps(facts[name])}"
    return None


_FACTS = {
    "steps": int,
    "sentences_seen": int,
    "dev_curve": list,
    "selected_step": int,
    "selected_dev": float | int | None,
    "cpu_seconds": float | int,
}
