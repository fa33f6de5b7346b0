"""The card of a method: its identity, sources and options; and the interface of methods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.encoder import Encoder, PairScorer
from bench.errors import InputError, not_one_of
from bench.schema import (
    Block,
    ListOf,
    Maybe,
    find_fault,
    is_boolean,
    is_label,
    is_number,
    is_option_value,
    is_text,
    is_whole_number,
)

NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
"""Form of the names of methods, aliases and options."""
ALL_METHODS = "all"
OptionValue = str | int | float | bool
SUPERVISED = "supervised"
"""Kind of a method that learns from labels; its rows are listed below the unsupervised ones."""


def format_value(value: OptionValue) -> str:
    """Return a value as ``--set`` and profiles take it.

    >>> format_value(True), format_value(3e-5), format_value("")
    ('true', '3e-05', '""')
    """
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


@dataclass(frozen=True)
class Option:
    """One named setting of a method.

    Args:
        name: Name used in ``--set METHOD.NAME=VALUE``.
        default: Value unless the profile or the user sets another; its type is the option's type.
        help: One line.
        choices: Allowed values, or empty for any value of the type.
        minimum: Smallest allowed number, None for no bound.
        maximum: Largest allowed number, None for no bound.
        below: Exclusive upper bound, None for no bound.
    """

    name: str
    default: OptionValue
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    below: float | None = None

    def parse(self, text: OptionValue, where: str) -> OptionValue:
        """Convert a value from the command line or a profile; raises InputError naming ``where``."""
        kind = type(self.default)
        value: OptionValue
        try:
            value = {"true": True, "false": False}[str(text).lower()] if kind is bool else kind(text)
            if not is_option_value(value) or (
                kind is int and isinstance(text, float) and not text.is_integer()
            ):
                raise ValueError
        except (ValueError, KeyError, OverflowError):
            names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
            raise InputError(f"'{text}' is not a value for it", where=where, expected=names[kind]) from None
        if isinstance(value, int | float):
            self._check_bounds(value, where)
        if self.choices and value not in self.choices:
            raise not_one_of(f"'{value}' is not a value for it", str(value), self.choices, where=where)
        return value

    def _check_bounds(self, value: float, where: str) -> None:
        size, expected = "large", ""
        if self.minimum is not None and value < self.minimum:
            size, expected = "small", f"at least {self.minimum:g}"
        elif self.maximum is not None and value > self.maximum:
            expected = f"at most {self.maximum:g}"
        elif self.below is not None and value >= self.below:
            expected = f"less than {self.below:g}"
        if expected:
            raise InputError(f"{value} is too {size} for {self.name}", where=where, expected=expected)


FIRST_TOKEN, LAYERS, OWN_NORMS = "first token", "layers", "layer norms"
DECODING = "decoding layers"
EMBEDDINGS, POSITIONS = "embeddings", "position ids"
POOLER, POOLER_LAYER, MASK_TOKEN = "pooler", "pooler layer", "mask token"
MASKED_LM, MLM_HEAD, MLM_TRANSFORM = "masked LM", "masked-LM head", "masked-LM transform"
DROPOUT, CAUSAL, BOTH_WAYS = "dropout", "causal", "both ways"
PADDING, IDS_ALONE, ONE_WIDTH = "padding", "ids alone", "one width"
NEEDS = {
    FIRST_TOKEN: "a first token that sees the whole sentence",
    LAYERS: "transformer layers that can be called one by one",
    DECODING: "layers of BERT's form, which can decode too",
    OWN_NORMS: "layers with norms of their own, as many as are asked for",
    EMBEDDINGS: "embeddings that can be frozen apart",
    POSITIONS: "states that depend on position ids",
    POOLER: "a pretrained pooler",
    POOLER_LAYER: "a pooler of one dense layer, as BERT and RoBERTa have",
    MASKED_LM: "a masked language model with its head",
    MLM_HEAD: "a masked-LM head of a known kind",
    MLM_TRANSFORM: "a masked-LM head of more than one linear layer",
    MASK_TOKEN: "a mask token",
    DROPOUT: "dropout in its layers",
    CAUSAL: "a causal decoder, such as GPT-2 or Llama",
    BOTH_WAYS: "attention that can be made bidirectional in every layer",
    PADDING: "states that masked padding doesn't change",
    IDS_ALONE: "states of each token from token ids alone",
    ONE_WIDTH: "a last state as wide as those of the other layers",
}
"""Requirements that a method may have for a transformer, in words."""
FAMILIES = {
    "untrained": "no training of an encoder",
    "contrastive": "views of a sentence against other sentences",
    "non-contrastive": "views of a sentence alike, without negatives",
    "denoising": "a damaged sentence, restored with the help of its vector",
    "prompts": "the state of a mask token in a template",
    "ensembles": "sums of several encoders' vectors",
    "distilled": "one model that learned another's vectors",
    "decoders": "causal language models as encoders",
    "supervised": "training on labelled pairs",
    "any-encoder": "models and files that you name, and any method's vectors made smaller",
}
"""Families of methods in the order of `bench list methods`, in words."""


@dataclass(frozen=True)
class Need:
    """A requirement of a method for its backbone, or for a model that an option names.

    Args:
        what: One of NEEDS.
        option: Option on which the need depends, "" for none.
        values: Values of the option that create the need.
        unless: Invert that: these values remove the need.
        of: Option that names the model, "" for the backbone.
        instead: Setting without the need, such as "denoising=false", or "".
    """

    what: str
    option: str = ""
    values: tuple[OptionValue, ...] = ()
    unless: bool = False
    of: str = ""
    instead: str = ""

    def holds(self, options: Mapping[str, OptionValue]) -> bool:
        """Return whether a method with these options has the need."""
        return not self.option or (options.get(self.option) in self.values) != self.unless


TRAINED, FROZEN, AVERAGE = "trained", "frozen", "average"
"""States of an encoder in training: with gradients, constant, or the moving average of another one."""


@dataclass(frozen=True)
class HeldEncoder:
    """An encoder of the backbone's size that training holds: only its memory depends on this, no key.

    Args:
        state: TRAINED, FROZEN or AVERAGE.
        views: Rows of a sentence of which it keeps activations for the backward pass, at the card's defaults.
        returned: Whether the result has it, so that dev evaluations encode with it.
        when: Options that must have these values for it, all of them.
        unless: Options that remove it with these values, any of them.
    """

    state: str = TRAINED
    views: float = 2.0
    returned: bool = False
    when: tuple[tuple[str, OptionValue], ...] = ()
    unless: tuple[tuple[str, OptionValue], ...] = ()

    def holds(self, options: Mapping[str, OptionValue]) -> bool:
        """Return whether a training with these options has it.

        >>> HeldEncoder(when=(("tied", False),)).holds({"tied": True})
        False
        """
        removed = any(name in options and options[name] == value for name, value in self.unless)
        return not removed and all(name in options and options[name] == value for name, value in self.when)


ONE_ENCODER = (HeldEncoder(returned=True),)


@dataclass(frozen=True)
class MethodCard:
    """Identity, sources and options of a method.

    Args: name: Registered name, the field's standard term. kind: "baseline", "method", "external" or
    "supervised" (it learns from labelled pairs). summary: One line. printed: Name as the papers print it,
    such as "SimCSE"; "" for the registered one. family: One of FAMILIES, the one in which a reader looks for
    it; "" for a plug-in's own. adds: What it adds to SimCSE, in words for a reader who knows only SimCSE.
    instead: What stands in SimCSE's place, for a method that isn't built on it. cites: Its sources, its own
    paper first: keys of ``bench/data/sources.bib``, or whole BibTeX entries. tags: Its components, as short
    terms of the field. passes: Cost of a training step of the stage of its name per sentence, in forward
    passes of the backbone (a backward pass is 2); 0 if unknown. version: Raised whenever the method's numbers
    change; part of every cell's key. paper: Citation of the paper, or "". code: Reference implementation that
    was read, or "". equations: The computation, one line each. options: Settings with defaults. deviations:
    Differences from the paper or the released code, one line each. deterministic: True without a seed: the
    method runs once. needs_backbone: True if it starts from the profile's backbone. takes_path: True for
    ``NAME:PATH`` methods, which bring their own model folder. takes_file: True if that model is a file of
    word vectors. named_rows: True if the names of its rows begin with its own, because other methods read the
    same folders. short_option: Option that may follow the name after a colon (``untrained:avg``).
    takes_methods: True for ``NAME:METHODS``: the short option names other methods, or a checkpoint.
    published_names: Names of this method in published tables, with their options. known_as: Names in the
    field for some of its options, with their form in ``--methods``. padding_matters: True if its loss depends
    on padding. scores_pairs: True for a scorer of pairs without vectors, which mteb can't measure.
    auxiliaries: Options that name a further model for training: a folder, a hub name in the local cache, or
    "backbone". The model's hash is part of all keys. needs: Requirements for a backbone besides states of
    every token; those of ``pooling`` are built in. encoders: Those that its training holds, the first one its
    own; teachers, which are other methods, come on top.
    """

    name: str
    kind: str
    summary: str
    version: int
    printed: str = ""
    family: str = ""
    adds: str = ""
    instead: str = ""
    cites: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    passes: float = 0.0
    paper: str = ""
    code: str = ""
    equations: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    deviations: tuple[str, ...] = ()
    deterministic: bool = False
    needs_backbone: bool = True
    takes_path: bool = False
    takes_file: bool = False
    named_rows: bool = False
    short_option: str | None = None
    takes_methods: bool = False
    published_names: tuple[tuple[str, str], ...] = ()
    known_as: tuple[tuple[str, str], ...] = ()
    padding_matters: bool = False
    scores_pairs: bool = False
    auxiliaries: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    encoders: tuple[HeldEncoder, ...] = ONE_ENCODER

    @property
    def stands_alone(self) -> bool:
        """Return whether ``--methods`` accepts its bare name, without a path or other methods."""
        member = self.defaults.get(self.short_option or "")
        return not self.takes_path and (not self.takes_methods or bool(member))

    @property
    def needs_decoder(self) -> bool:
        """Return whether it works on causal decoders alone, which profiles of encoders lack."""
        return any(need.what == CAUSAL for need in self.needs)

    @property
    def defaults(self) -> dict[str, OptionValue]:
        """Default of each option by name."""
        return {option.name: option.default for option in self.options}

    def option(self, name: str, where: str) -> Option:
        """Return the option called ``name``; raises InputError with all options."""
        for option in self.options:
            if option.name == name:
                return option
        names = [option.name for option in self.options]
        raise not_one_of(f"{self.name} has no option '{name}'", name, names, where=where)


@dataclass(frozen=True)
class BuildContext:
    """Inputs for building an encoder.

    Args:
        options: Value of every option of the card.
        seed: The cell's seed, None for a deterministic method.
        model: Folder of the backbone (or of the external model), None without one.
        device: "cpu", "cuda" or "mps".
        stages: Folder of each finished stage, by role (see :mod:`bench.stages`).
        checkpoint: "selected" (by the dev set) or "last".
        members: Encoders of the methods that it builds on, by role.
    """

    options: Mapping[str, OptionValue]
    seed: int | None
    model: Path | None
    device: str
    stages: Mapping[str, Path] = field(default_factory=dict)
    checkpoint: str = "selected"
    members: Mapping[str, Encoder] = field(default_factory=dict)


class Method(Protocol):
    """A registered method: a card and a function from a context to an encoder."""

    card: MethodCard

    def build(self, context: BuildContext) -> Encoder | PairScorer:
        """Return the encoder (or pair scorer) to evaluate."""
        ...


_OPTION = Block(
    {
        "name": is_label,
        "default": is_option_value,
        "help": is_text,
        "choices": ListOf(is_text),
        "minimum": Maybe(is_number),
        "maximum": Maybe(is_number),
        "below": Maybe(is_number),
    }
)
_TEXTS = dict.fromkeys(("what", "option", "of", "instead"), is_text)
_NEED = Block({**_TEXTS, "values": ListOf(is_option_value), "unless": is_boolean})
_SETTING = ListOf(ListOf(is_option_value, least=2))
_ENCODER = Block(
    {
        "state": is_text,
        "views": is_number,
        "returned": is_boolean,
        **dict.fromkeys(("when", "unless"), _SETTING),
    }
)
_CARD = Block(
    {
        **dict.fromkeys(("kind", "summary", "printed", "family", "adds", "instead"), is_text),
        **dict.fromkeys(("paper", "code"), is_text),
        **dict.fromkeys(("tags", "equations", "deviations", "auxiliaries", "cites"), ListOf(is_text)),
        "passes": is_number,
        **dict.fromkeys(("deterministic", "needs_backbone", "takes_path", "takes_file"), is_boolean),
        **dict.fromkeys(("named_rows", "takes_methods", "padding_matters", "scores_pairs"), is_boolean),
        "name": is_label,
        "version": is_whole_number,
        "options": ListOf(_OPTION),
        "short_option": Maybe(is_text),
        **dict.fromkeys(("published_names", "known_as"), ListOf(ListOf(is_text, least=2))),
        "needs": ListOf(_NEED),
        "encoders": ListOf(_ENCODER, least=1),
    }
)


def check_card(method: object) -> None:
    """Raise InputError unless a method has a card with valid fields, and ``build``."""
    card, name = getattr(method, "card", None), type(method).__name__
    if not isinstance(card, MethodCard) or not callable(getattr(method, "build", None)):
        raise InputError(f"{name} is not a method", expected="a card, a MethodCard, and build(context)")
    if place := find_fault(_convert_to_json(card), _CARD):
        raise InputError(
            f"'{place}' on the card of {name} is missing or of another type",
            expected="the type that bench.method_card documents",
        )
    check_name(card, name)
    if card.family and card.family not in FAMILIES:
        raise not_one_of(f"the card of {name} has the family '{card.family}'", card.family, FAMILIES)
    if card.adds and card.instead:
        raise InputError(f"the card of {name} has both adds and instead", expected="one of them, or none")
    for need in card.needs:
        if need.what not in NEEDS:
            raise not_one_of(f"the card of {name} needs '{need.what}'", need.what, NEEDS)
    for held in card.encoders:
        if held.state not in (TRAINED, FROZEN, AVERAGE):
            raise not_one_of(
                f"the card of {name} holds an encoder in the state '{held.state}'",
                held.state,
                (TRAINED, FROZEN, AVERAGE),
            )


def check_name(card: MethodCard, kind: str) -> None:
    """Raise InputError unless ``--methods`` can name the card of the class ``kind``."""
    if card.name == ALL_METHODS or not re.fullmatch(NAME, card.name):
        raise InputError(
            f"the card of {kind} has the name {card.name!r}",
            expected="a letter or digit, then letters, digits, _ . + -; and not 'all'",
        )


def _convert_to_json(value: Any) -> Any:
    """Return a card, an option or a tuple of them as mappings and lists."""
    if isinstance(value, MethodCard | Option | Need | HeldEncoder):
        return {name: _convert_to_json(entry) for name, entry in vars(value).items()}
    return [_convert_to_json(entry) for entry in value] if isinstance(value, tuple | list) else value
