"""Marks that keep a row out of the ranking: labels and paraphrases it learned from, by its methods' cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.method_card import SUPERVISED, Method, OptionValue
from bench.records.record import RunRecord, is_supervised
from bench.registry import METHODS, own_methods
from bench.stages import TrainedMethod, is_paired


@dataclass(frozen=True)
class _Part:
    """A method of a record, or one that it builds on: name, version, options, and prefix of its stages."""

    name: str
    version: int | None
    options: Mapping[str, OptionValue]
    prefix: str = ""


def find_mark_faults(record: RunRecord) -> Iterator[str]:
    """Yield contradictions between a finished record's marks and the cards of its methods.

    Methods of plug-ins count where their plug-in is loaded; of others only the record says anything.
    """
    own = own_methods()
    parts = list(_collect_parts(record))
    names = {part.name for part in parts}
    known = names & set(METHODS.names())
    learned = [name for name in sorted(known) if METHODS.get(name).card.kind == SUPERVISED]
    if learned and not is_supervised(record):
        yield f"it doesn't say that it learned from labels, and {learned[0]} does"
    if is_supervised(record) and names <= own.keys() and not learned:
        yield f"it says that it learned from labels, and {record.name} doesn't"
    if record.name in own and own[record.name].card.takes_methods and len(parts) == 1:
        yield f"{record.name} builds on other methods, and it names none"
    yield from _find_stage_faults(record, parts, own)


def _find_stage_faults(record: RunRecord, parts: Sequence[_Part], own: Mapping[str, Method]) -> Iterator[str]:
    """Yield stages that no card has, and stages whose use of paraphrases the cards contradict."""
    stages = record.training.get("stages", {})
    hidden: list[str] = []
    invented: list[str] = []
    planned = [_planned_texts(own.get(part.name), part) for part in parts]
    for texts in planned:
        for role, text in texts.items():
            paired = bool(stages.get(role, {}).get("text", {}).get("paired"))
            if role in stages and paired != is_paired(text):
                (invented if paired else hidden).append(role)
    if all(part.name in own for part in parts) and not is_supervised(record):
        labelled = _labelled_stages(frozenset(own)) - {role for texts in planned for role in texts}
        if foreign := [role for role in stages if role.rpartition("/")[2] in labelled]:
            yield f"its stage {foreign[0]} learns from labels, and is of no method that it names"
    if hidden:
        yield f"it doesn't say that {', '.join(hidden)} learned from pairs of paraphrases, and the card does"
    if invented:
        yield f"it says that {', '.join(invented)} learned from pairs of paraphrases, and the card doesn't"


@cache
def _labelled_stages(names: frozenset[str]) -> frozenset[str]:
    """Return the roles of the stages that only supervised ones of these methods have."""
    roles: dict[bool, set[str]] = {True: set(), False: set()}
    for name in names:
        method = METHODS.get(name)
        part = _Part(method.card.name, method.card.version, {})
        roles[method.card.kind == SUPERVISED].update(_planned_texts(method, part))
    return frozenset(roles[True] - roles[False])


def _collect_parts(record: RunRecord) -> Iterator[_Part]:
    """Yield the record's method and those that it builds on, at any depth."""
    yield _Part(record.name, record.version, record.options)
    waiting = [("", record.training.get("members", {}))]
    while waiting:
        above, members = waiting.pop()
        for role, block in members.items():
            prefix = f"{above}{role}/"
            yield _Part(_method_name(block["method"]), block.get("version"), block["options"], prefix)
            waiting.append((prefix, block.get("members", {})))


def _method_name(text: str) -> str:
    """Return the registered name in a member's id, such as "simcse[lr=0.001]" or "ensemble:a+b"."""
    head = text.partition("[")[0].partition(":")[0]
    return head.rpartition("=")[2].strip()


def _planned_texts(method: Method | None, part: _Part) -> dict[str, str]:
    """Return the name of each stage's training text for a part's options, {} where they are unknown."""
    if not isinstance(method, TrainedMethod) or part.version != method.card.version:
        return {}
    options: dict[str, Any] = {option.name: option.default for option in method.card.options}
    try:
        specs = method.stages(options | dict(part.options))
    except Exception:  # options that no run accepts, which verification names
        return {}
    return {f"{part.prefix}{spec.role}": spec.text for spec in specs}
