"""How long a method trains that is shown as many sentences as another: the option ``match``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bench.card import SUPERVISED, OptionValue
from bench.errors import InputError
from bench.plan.cell import Cell
from bench.plan.keys import keyed_stages
from bench.records.facts import digest
from bench.registry import METHODS
from bench.stages import ComposedMethod, TrainedMethod, planned_steps

MATCHED = ("steps", "eval_every")
"""Options that ``match`` sets; ``eval_every`` only where the user doesn't."""


def check_match(match: str, given: Collection[str], matching: Collection[str], where: str) -> None:
    """Raise InputError for a method that can't be matched, or beside options that say how long to train.

    Args:
        match: Its name.
        given: Options that the user gave.
        matching: Methods whose length is being found.
        where: The place of the option, for the error.
    """
    if beside := sorted({"steps", "epochs"} & set(given)):
        raise InputError(
            f"{' and '.join(beside)} beside match={match}, which says itself how long to train",
            where=where,
            expected="one of them (--set holds for every row of a method, brackets for one)",
        )
    if match in matching:
        raise InputError(f"'{match}' is matched to itself", where=where)
    other = METHODS.get(match, where=f"match={match}")
    if not isinstance(other, TrainedMethod | ComposedMethod):
        raise _trains_nothing(match)


def matched_length(match: str, other: Cell, options: Mapping[str, OptionValue], size: int) -> dict[str, int]:
    """Steps that show a method as many sentences as another's stages see, and as many dev evaluations.

    Args:
        match: The other method's name.
        other: Its cell with its members, whose stages count too, each once.
        options: The method's own options.
        size: Sentences of the training text.

    Raises:
        InputError: the other method trains nothing, or on labelled pairs.
    """
    other = _with_planned_stages(other)
    if other.card.kind == SUPERVISED or other.supervised:
        raise InputError(f"'{match}' learns from pairs, not from the training text", where=f"match={match}")
    configs = [dict(stage.spec.config) for stage in other.all_stages]
    if not any(config["steps"] or config["epochs"] for config in configs):
        raise _trains_nothing(match)
    sentences = sum(planned_steps(config, size) * int(config["batch_size"]) for config in configs)
    steps = -(-sentences // int(options["batch_size"]))
    evaluations = max(1, planned_steps(options, size) // int(options["eval_every"]))
    return {"steps": steps, "eval_every": max(1, steps // evaluations)}


def _with_planned_stages(cell: Cell) -> Cell:
    """The cell and its members with their stages, keyed by what is known without models and texts."""
    members = tuple((role, _with_planned_stages(member)) for role, member in cell.members)
    method = METHODS.get(cell.card.name)
    specs = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
    keys = {role: digest([member.card.name, member.options, member.copy]) for role, member in members}
    texts = {spec.text: spec.text for spec in specs}
    return replace(cell, members=members, stages=keyed_stages(specs, 0, {}, texts, keys, cell.copy))


def _trains_nothing(match: str) -> InputError:
    return InputError(f"'{match}' doesn't train, so there is no budget to match", where=f"match={match}")
