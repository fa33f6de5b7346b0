"""What methods need of their backbones, checked from the folders' files before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from bench.card import (
    DROPOUT,
    EMBEDDINGS,
    FIRST_TOKEN,
    LAYERS,
    MASK_TOKEN,
    MASKED_LM,
    MLM_HEAD,
    NEEDS,
    OWN_NORMS,
    POOLER,
    POOLER_LAYER,
    POSITIONS,
    MethodCard,
    Need,
    OptionValue,
)
from bench.errors import InputError
from bench.nn.folder import ModelFolder
from bench.nn.folder_facts import FolderFacts, folder_facts
from bench.plan.cell import Cell

_POOLINGS = {"cls": FIRST_TOKEN, "pooler": POOLER, "mask": MASK_TOKEN}


def check_backbones(cells: Iterable[Cell]) -> None:
    """Refuse methods whose backbone lacks what they need, as far as its files say so.

    What they don't say is found when the model is loaded, before its first step.

    Raises:
        InputError: the first such method, with what would work.
    """
    for cell in dict.fromkeys(cells):
        for each in _with_members(cell):
            if lack := next(lacks(each), None):
                raise lack


def lacks(cell: Cell) -> Iterator[InputError]:
    """Yield what a cell's models lack, its members' aside."""
    models = {"": cell.model, **dict(cell.auxiliaries)}
    options = dict(cell.options)
    for need in needs_of(cell.card, options):
        model = models.get(need.of)
        if model is None or not (model.path / "config.json").is_file():
            continue  # made on first use, or of another kind of folder
        if not fulfils(_facts(model), need.what, options):
            yield _refusal(cell, need, model)


def needs_of(card: MethodCard, options: Mapping[str, OptionValue]) -> list[Need]:
    """Return what a method needs with these options, of its backbone and of the models that options name."""
    found = [need for need in (*card.needs, *_by_pooling(card)) if need.holds(options)]
    made = any(need.what == POOLER_LAYER for need in found)  # such a method trains a pooler of its own
    return [need for need in found if not (made and need.what == POOLER)]


def _by_pooling(card: MethodCard) -> Iterator[Need]:
    """What the option ``pooling`` of any method needs; avg does without, where the method has it."""
    has_avg = any(option.name == "pooling" and "avg" in option.choices for option in card.options)
    for pooling, what in _POOLINGS.items():
        yield Need(what, "pooling", (pooling,), instead="pooling=avg" if has_avg else "")


def fulfils(facts: FolderFacts, what: str, options: Mapping[str, OptionValue]) -> bool:
    """Return whether a folder has what is needed, or doesn't say that it hasn't.

    Args:
        facts: Of the folder.
        what: One of :data:`bench.card.NEEDS`.
        options: The method's, for how many layers it changes.
    """
    known = {
        FIRST_TOKEN: facts.first_token is not False and facts.causal is not True,
        LAYERS: facts.layered,
        OWN_NORMS: facts.own_layers and int(options.get("drop_norms", 0)) <= (facts.layers or 2**31),
        EMBEDDINGS: facts.embeddings,
        POSITIONS: facts.position_ids,
        POOLER: facts.pooler,
        POOLER_LAYER: facts.pooler_layer,
        MASK_TOKEN: facts.mask_token,
        MASKED_LM: facts.masked_lm,
        MLM_HEAD: facts.mlm_head,
        DROPOUT: facts.drops is not False or not _asks_for_dropout(options),
    }
    return known[what] is not False


def _asks_for_dropout(options: Mapping[str, OptionValue]) -> bool:
    return any(bool(value) for name, value in options.items() if name.split(".")[-1] == "dropout")


def _refusal(cell: Cell, need: Need, model: ModelFolder) -> InputError:
    facts, path = _facts(model), model.path
    kind = f" ({facts.kind})" if facts.kind else ""
    named = f"{cell.card.name}.{need.of}: {model.name}" if need.of else f"the backbone {model.name}"
    if cell.card.takes_path:
        return InputError(
            f"{cell.describe()} needs {NEEDS[need.what]}, which {model.name}{kind} hasn't got",
            where="--methods",
            expected=f"another pooling, as in {cell.card.name}:PATH:avg or {cell.card.name}:PATH:last",
            hint=f"bench show hf:{path} says what is read of it",
        )
    return InputError(
        f"{cell.describe()} needs {NEEDS[need.what]}, which {named}{kind} hasn't got",
        where="--methods" if need.of else "--backbone",
        expected=f"another model, or {cell.card.name}[{need.instead}]" if need.instead else "another model",
        hint=f"bench show hf:{path} lists the methods that can train on it",
    )


def _with_members(cell: Cell) -> Iterator[Cell]:
    yield cell
    for _, member in cell.members:
        yield from _with_members(member)


@cache
def _facts(model: ModelFolder) -> FolderFacts:
    """Read a model's folder once: its hash says which one it is."""
    return folder_facts(model.path)
