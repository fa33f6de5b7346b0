"""Profiles: one TOML file each, with the backbone and every method's hyperparameters for it."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from bench.config.run_spec import METHOD_NAME
from bench.errors import DataError, InputError, suggest_name, unknown_name
from bench.method_card import MethodCard, OptionValue
from bench.records.environment import packed_backbone
from bench.schema import (
    Block,
    ListOf,
    MapOf,
    OneOf,
    accept_any,
    find_fault,
    is_count,
    is_label,
    is_number,
    is_option_value,
)

DEFAULT = "mini"
SUFFIX = ".toml"


def _is_option(value: Any) -> bool:
    """Check for an option's value, or a stage's table of them."""
    table = isinstance(value, dict) and find_fault(value, MapOf(_is_option)) is None
    return table or is_option_value(value)


def _is_positive(value: Any) -> bool:
    return is_count(value) and value > 0


def _closed(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Block:
    return Block(required, optional or {}, closed=True)


_HUB = _closed({"name": is_label, "hub": is_label}, {"access": is_label})
_MADE = _closed({"weights": is_label, "loss": ListOf(ListOf(is_number)), "masked_accuracy": is_number})
_PACKAGED = _closed({"name": is_label, "package": is_label, "folder": is_label}, {"extra": is_label})
_PRETRAINED = _closed(
    {"name": is_label, "profile": is_label, "steps": _is_positive, "from": is_label, "text": is_label},
    {"made": _MADE},
)
_CORPUS_FILES = _closed(
    {"file": is_label},
    {
        "sick": is_label,
        "pairs": is_label,
        "copies": MapOf(is_label),
        "exclude_lines": ListOf(is_count, least=2),
    },
)
_BUDGETS = (
    _closed(
        {amount: _is_positive, "evaluate_every": _is_positive},
        {"equal": MapOf(lambda value: _is_positive(value) or is_label(value))},
    )
    for amount in ("sentences", "epochs")
)
_PROFILE = _closed(
    {
        "summary": is_label,
        "suites": ListOf(is_label),
        "backbone": OneOf((_HUB, _PACKAGED, _PRETRAINED)),
        "corpus": OneOf((_closed({"world": is_label}), _closed({"embedded": is_label}), _CORPUS_FILES)),
        "dev": is_label,
    },
    {
        "title": is_label,
        "note": is_label,
        "budget": OneOf(tuple(_BUDGETS)),
        "methods": MapOf(MapOf(_is_option)),
        "pretrain": MapOf(is_option_value),
        "tuning": ListOf(MapOf(accept_any)),
        "stand_ins": MapOf(is_label),
        "architecture": MapOf(is_option_value),
        "rates": MapOf(is_label),
    },
)


@dataclass(frozen=True)
class Profile:
    """A setting in which methods are compared.

    ``backbone`` holds "name", and "package" and "folder" (perhaps "extra"), or "hub" (perhaps "access": what
    its download asks for), or what ``bench pretrain`` makes it of: "profile", "steps", the sha256 of that
    profile's backbone ("from") and "text".
    "made" is then the outcome for the committed records: sha256 of "weights", [step, "loss"] rows and
    "masked_accuracy".

    ``corpus`` holds "world" for the mini world's text, "embedded" for another of the program's own (see
    :mod:`bench.data.cased.texts`). Otherwise it holds "file" and perhaps "sick" (SICK's
    unlabelled sentences), "pairs" (labelled pairs or triplets) and "copies" (file of each round-trip
    translated copy), all below the data folder, and "exclude_lines" (first and last, from 1).
    """

    name: str  # stem of the file name
    summary: str
    suites: tuple[str, ...]  # default of ``--suite``
    backbone: dict[str, Any]
    corpus: dict[str, Any]
    dev: str  # suite of one task on which checkpoints are selected
    note: str  # stands under every table of this profile
    methods: dict[str, dict[str, Any]]  # options that differ from the card's; a table a stage
    pretrain: dict[str, Any]  # sizes and rates of its own backbone (see bench.training.pretraining)
    tuning: tuple[dict[str, Any], ...]  # from ``bench tune``: method, option, seed, [value, dev score] rows
    budget: Budget | None = None  # of methods that lack a table here, or on equal terms of all
    title: str = ""  # the backbone in a paper's table
    stand_ins: Mapping[str, str] = field(default_factory=dict)  # replacements of suites that lack data
    architecture: Mapping[str, Any] = field(default_factory=dict)  # the backbone's config.json, its sizes
    rates: Mapping[str, str] | None = None  # sources of methods' rates, others are untuned; None: not stated


def profile_names() -> list[str]:
    """Return the names of all profiles that bench ships."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def load_profile(name: str) -> Profile:
    """Read a shipped profile by its name, or the user's ``FILE.toml``; raises InputError and DataError."""
    if name.endswith(SUFFIX):
        return _read_user_profile(Path(name))
    if name not in profile_names():
        raise unknown_name("profile", name, profile_names(), where="--profile")
    file = resources.files(__name__).joinpath(f"{name}{SUFFIX}")
    try:
        return _parse_profile(name, file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a profile: {error}", where=f"bench/config/profiles/{name}.toml") from error


def load_shipped_profile(name: str) -> Profile:
    """Read the profile that a record names; raises InputError for a user's file, which records lack."""
    if name not in profile_names():
        what, expected = f"it was run with a profile from a file, '{name}'", ", ".join(profile_names())
        hint = "such records can be reported, compared and verified, not repeated, bundled or checked"
        raise InputError(what, where=f"profile {name}", expected=f"one of {expected}", hint=hint)
    return load_profile(name)


def _read_user_profile(path: Path) -> Profile:
    where, name = f"--profile {path}", path.name.removesuffix(SUFFIX)
    taken = name in profile_names()
    if taken or not METHOD_NAME.fullmatch(name):
        what = f"'{name}' is a shipped profile" if taken else f"'{name}' can't name a profile"
        raise InputError(what, where=where, expected="another file name of letters, digits, _ . + -")
    try:
        return _parse_profile(name, path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        near = suggest_name(path.name, (file.name for file in path.parent.glob(f"*{SUFFIX}")))
        raise InputError(f"can't be read: {error.strerror}", where=where, hint=near) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a profile: {error}", where=where) from error


@cache  # `bench papers` asks hundreds of times
def _parse_profile(name: str, text: str) -> Profile:
    """Return the profile of a TOML text; raises ValueError or RecursionError."""
    data = tomllib.loads(text)
    if place := find_fault(data, _PROFILE):
        raise ValueError(f"'{place}' is missing, unknown or of another type")
    budget = Budget(**data.pop("budget")) if "budget" in data else None
    suites, tuning = tuple(data.pop("suites")), tuple(data.pop("tuning", ()))
    absent: dict[str, Any] = {"note": "", "methods": {}, "pretrain": {}}
    return Profile(name=name, suites=suites, tuning=tuning, budget=budget, **absent | data)


def makes_backbone(profile: Profile) -> bool:
    """True if ``bench pretrain`` makes the profile's backbone of another profile's."""
    return "profile" in profile.backbone


def backbone_reference(profile: Profile) -> str:
    """Return the folder or hub name of a profile's backbone, "" for one made here; raises InputError."""
    if (folder := packed_backbone(profile.name)) is not None:
        return folder
    source = profile.backbone
    if makes_backbone(profile):
        return ""
    if "hub" in source:
        return str(source["hub"])
    try:
        package = importlib.util.find_spec(source["package"])
    except (ImportError, ValueError):
        package = None
    if package is None or package.origin is None:
        install = f"pip install 'cse-bench[{source['extra']}]', or " if "extra" in source else ""
        what = f"the backbone of profile '{profile.name}', {source['name']}, is not installed"
        raise InputError(what, hint=f"{install}name a folder with --backbone")
    return str(Path(package.origin).parent / source["folder"])


@dataclass(frozen=True)
class Budget:
    """How much text a training stage reads, and how often it is evaluated on the dev set.

    ``equal`` sets options of each training stage of every method, such as {"batch_size": 64, "text":
    "train"}. The budget then holds for all methods: equal terms.
    """

    evaluate_every: int  # sentences, at least 1
    sentences: int = 0  # 0 where ``epochs`` are given
    epochs: int = 0
    equal: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The budget in words."""
        passes = f"{self.epochs} pass{'es' * (self.epochs > 1)} over the training text"
        amount = f"{self.sentences:,} sentences" if self.sentences else passes
        equal = "".join(f", {name} {value}" for name, value in self.equal.items())
        return f"{amount} a training stage, a dev evaluation every {self.evaluate_every:,}{equal}"

    def terms(self, card: MethodCard) -> dict[str, OptionValue]:
        """Return the values of a method's options on equal terms."""
        terms: dict[str, OptionValue] = {}
        pairs = product(_stage_prefixes(card), self.equal.items())
        trained = {f"{stage}{name}": value for stage, (name, value) in pairs}
        for option in card.options:
            if (name := option.name) in trained:
                terms[name] = option.parse(trained[name], f"the profile's equal terms: {name}")
        return terms

    def options(self, card: MethodCard, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """Return the values of a method's options; each stage with steps gets the whole budget."""
        values: dict[str, OptionValue] = {}
        for stage in _stage_prefixes(card):
            size = options.get(f"{stage}batch_size", options.get("batch_size"))
            if not _is_whole_number(size):
                continue
            batch_size = max(1, int(size or 1))
            if f"{stage}eval_every" in options:
                values[f"{stage}eval_every"] = max(1, self.evaluate_every // batch_size)
            if self.sentences:
                values[f"{stage}steps"] = -(-self.sentences // batch_size)
            elif f"{stage}epochs" in options:
                values |= {f"{stage}steps": 0, f"{stage}epochs": self.epochs}
        return values


def zero_steps(given: Collection[str], options: Collection[str]) -> dict[str, OptionValue]:
    """Return steps of 0 for each stage whose ``epochs`` are given without ``steps``, so that they count."""
    steps = {name: f"{name.removesuffix('epochs')}steps" for name in given if name.split(".")[-1] == "epochs"}
    return {name: 0 for name in steps.values() if name in options and name not in given}


def _stage_prefixes(card: MethodCard) -> Iterator[str]:
    """Yield the prefix of every stage with steps, "" for the method itself."""
    for option in card.options:
        prefix, _, name = option.name.rpartition(".")
        if name == "steps" and _is_whole_number(option.default):
            yield f"{prefix}." if prefix else ""


def _is_whole_number(value: OptionValue | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
