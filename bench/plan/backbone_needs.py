"""What methods need of their backbones, checked from the folders' files before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from bench.card import (
    DROPOUT,
    EMBEDDINGS,
    FIRST_TOKEN,
    IDS_ALONE,
    LAYERS,
    MASK_TOKEN,
    MASKED_LM,
    MLM_HEAD,
    NEEDS,
    OWN_NORMS,
    PADDING,
    POOLER,
    POOLER_LAYER,
    POSITIONS,
    MethodCard,
    Need,
    OptionValue,
)
from bench.config.parse import parse_method
from bench.data.training import TrainingData
from bench.errors import InputError
from bench.nn.folder import ModelFolder
from bench.nn.folder_facts import FolderFacts, folder_facts
from bench.nn.whole_folder import check_whole
from bench.plan.cell import Cell
from bench.registry import METHODS
from bench.stages import TrainedMethod

_TRAINED = (Need(IDS_ALONE), Need(PADDING))
"""What a transformer needs to be trained at all."""
_POOLINGS = {"cls": FIRST_TOKEN, "pooler": POOLER, "mask": MASK_TOKEN}


def check_backbones(cells: Iterable[Cell], training: TrainingData | None = None) -> None:
    """Refuse methods whose backbone lacks what they need, as far as its files say so.

    What they don't say is found when the model is loaded, before its first step.

    Args:
        cells: The cells that are to run.
        training: Their texts, for sentences that are longer than a backbone can read.

    Raises:
        InputError: a folder that isn't whole, a sentence that is too long, or all such methods.
    """
    refused = {}
    asked = list(dict.fromkeys(cells))
    for model in dict.fromkeys(
        model for cell in asked for part in _with_members(cell) for model in _models(part)
    ):
        check_whole(model.path)
    for cell in asked:
        check = getattr(METHODS.get(cell.card.name), "check_folder", None)
        if check is not None and cell.model is not None:
            check(cell.model.path)
    for cell in asked:
        if training is not None:
            _check_lengths(cell, training)
        if cell.method not in refused and (found := list(lacks(cell))):
            refused[cell.method] = found
    if refused:
        raise _refusal(list(refused.values()))


def _check_lengths(cell: Cell, training: TrainingData) -> None:
    """Refuse sentences that some stage reads whole and the backbone has no positions for.

    Words are counted, of which every one is a token at least, so what is refused would surely fail.
    """
    for _, owner, stage in cell.named_stages:
        if owner.model is None or not (owner.model.path / "config.json").is_file():
            continue
        length, most = dict(stage.spec.config).get("max_length"), _facts(owner.model).positions
        if not isinstance(length, int) or most is None or length <= most:
            continue
        sentences = training.texts[stage.spec.text].sentences
        long = next((n for n, text in enumerate(sentences, 1) if len(text.split()) + 2 > most), None)
        if long is not None:
            raise InputError(
                f"{cell.describe()} trains on up to {length} tokens of a sentence, {owner.model.name} has "
                f"positions for {most}, and sentence {long} of the text is longer",
                where="--backbone",
                hint=f"give max_length={most}, such as --set {cell.card.name}.max_length={most}",
            )


@dataclass(frozen=True)
class Lack:
    """What a model lacks that a method needs.

    Args:
        cell: What was asked for.
        part: It, or a member of it, which has the need.
        need: The need.
        model: The model.
    """

    cell: Cell
    part: Cell
    need: Need
    model: ModelFolder


def lacks(cell: Cell) -> Iterator[Lack]:
    """Yield what a cell's models lack, and its members'."""
    for part in _with_members(cell):
        options = dict(part.options)
        for need in needs_of(part.card, options):
            if model := _lacking(part, need, options):
                yield Lack(cell, part, need, model)


def _lacking(part: Cell, need: Need, options: Mapping[str, OptionValue]) -> ModelFolder | None:
    """The model that lacks what is needed, if any."""
    models = {"": part.model, **dict(part.auxiliaries)}
    model = models.get(need.of)
    if model is None or not (model.path / "config.json").is_file():
        return None  # made on first use, or of another kind of folder
    return None if fulfils(_facts(model), need.what, options) else model


def needs_of(card: MethodCard, options: Mapping[str, OptionValue]) -> list[Need]:
    """Return what a method needs with these options, of its backbone and of the models that options name."""
    by_pooling = _by_pooling(card) if options.get("pooler", "cls") == "cls" else ()  # else its pooler reads
    found = [
        need
        for need in (*(_TRAINED if _trains(card) else ()), *card.needs, *by_pooling)
        if need.holds(options)
    ]
    made = any(need.what == POOLER_LAYER for need in found)  # such a method trains a pooler of its own
    return [need for need in found if not (made and need.what == POOLER)]


def _trains(card: MethodCard) -> bool:
    """True if the method trains a transformer."""
    return any(option.name.split(".")[-1] == "dropout" for option in card.options)


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
        PADDING: facts.masks_padding,
        IDS_ALONE: facts.reads_ids,
        DROPOUT: facts.drops is not False or not _asks_for_dropout(options),
    }
    return known[what] is not False


def _asks_for_dropout(options: Mapping[str, OptionValue]) -> bool:
    return any(bool(value) for name, value in options.items() if name.split(".")[-1] == "dropout")


def _refusal(refused: Sequence[Sequence[Lack]]) -> InputError:
    """One error for all methods that are refused: the first in full, of the others what they need."""
    first = refused[0][0]
    cell, part, need, model = first.cell, first.part, first.need, first.model
    facts = _facts(model)
    kind = f" ({facts.kind})" if facts.kind else ""
    where = "--methods" if need.of or cell.card.takes_path else "--backbone"
    if cell.card.takes_path:
        named, expected = (
            model.name,
            f"another pooling, as in {cell.card.name}:PATH:avg or {cell.card.name}:PATH:last",
        )
        hint = f"bench show hf:{model.path} says what is read of it"
    else:
        named = f"{part.card.name}.{need.of}: {model.name}" if need.of else f"the backbone {model.name}"
        expected = " or ".join(["another model", *dict.fromkeys(filter(None, map(_way_out, refused)))])
        hint = f"bench show hf:{model.path} lists the methods that can train on it"
    through = "" if part is cell else f", by its {part.card.name},"
    others = "".join(f"; {lack.cell.describe()} {NEEDS[lack.need.what]}" for lack, *_ in refused[1:])
    return InputError(
        f"{cell.describe()}{through} needs {NEEDS[need.what]}, which {named}{kind} hasn't got{others}",
        where=where,
        expected=expected,
        hint=hint,
    )


def _way_out(found: Sequence[Lack]) -> str:
    """Options, as they are typed, with which a method lacks nothing; "" where there are none."""
    cell = found[0].cell
    asked = parse_method(cell.method, "--methods", recorded=True)
    aliased, brackets, others = asked.name != cell.card.name, cell.method, []
    for part in dict.fromkeys(lack.part for lack in found):
        options = options_without(part.card, dict(part.options), partial(_lacking, part))
        if options is None:
            return ""
        texts = {name: str(value).lower() for name, value in options.items()}
        if part is cell and not aliased:
            given = dict(asked.options) | texts
            start = cell.method[: cell.method.index("[")] if asked.options else cell.method
            brackets = f"{start}[{','.join(f'{name}={text}' for name, text in given.items())}]"
        else:
            row = asked.name if part is cell else part.card.name
            others += [f"--set {row}.{name}={text}" for name, text in texts.items()]
    return " ".join([brackets, *others])


def options_without(
    card: MethodCard,
    options: Mapping[str, OptionValue],
    lacking: Callable[[Need, Mapping[str, OptionValue]], object],
) -> dict[str, OptionValue] | None:
    """Return the options to change so that a method needs nothing that is lacking; None where none do.

    Args:
        card: The method's.
        options: All of its options.
        lacking: Of a need and the options, true where a model lacks it.
    """
    now, changed = dict(options), dict[str, OptionValue]()
    while need := next((need for need in needs_of(card, now) if lacking(need, now)), None):
        name, _, text = need.instead.partition("=")
        if not name or name in changed:
            return None
        now[name] = changed[name] = card.option(name, card.name).parse(text, name)
    method = METHODS.get(card.name)
    try:
        if isinstance(method, TrainedMethod):
            method.stages(now)
    except InputError:
        return None
    return changed


def _with_members(cell: Cell) -> Iterator[Cell]:
    yield cell
    for _, member in cell.members:
        yield from _with_members(member)


def _models(part: Cell) -> Iterator[ModelFolder]:
    """A cell's folders in transformers' format that are there."""
    for model in (part.model, *(model for _, model in part.auxiliaries)):
        if model is not None and (model.path / "config.json").is_file():
            yield model


@cache
def _facts(model: ModelFolder) -> FolderFacts:
    """Read a model's folder once: its hash says which one it is."""
    return folder_facts(model.path)
