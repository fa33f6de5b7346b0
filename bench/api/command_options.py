"""Python arguments as the options of a command, with the command's checks and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

import click

from bench.errors import InputError, suggest_name
from bench.registry import discover

Paths = str | Path
Texts = str | Sequence[str]


class TrainingOptions(TypedDict, total=False):
    """Further options of a training, called like those of ``bench run``: ``bench run --help`` explains each.

    Names are the long options with underscores. ``set`` and ``copy`` take a dictionary, such as
    ``{"simcse.lr": 1e-5}``, or a list of texts.
    """

    profile: str
    data: Paths
    accept_data: bool
    backbone: Paths
    set: Mapping[str, object] | Texts
    plugin: Texts
    corpus: Paths
    text_column: str
    copy: Mapping[str, Paths] | Texts
    pairs: Paths
    dev: str
    world_seed: int
    device: str
    threads: int
    ranks: int
    train_precision: str
    compile: str


class EncoderOptions(TrainingOptions, total=False):
    """Further options of ``bench.train``."""

    suite: Texts
    transfer_solver: str
    precision: str
    results: Paths
    campaign: str
    checkpoint: str
    adapter: bool


class TuneOptions(TrainingOptions, total=False):
    """Further options of ``bench.tune``."""

    first: Sequence[object]
    workers: int
    executor: str
    ray_address: str
    per_gpu: int
    results: Paths


class RunOptions(TrainingOptions, total=False):
    """Further options of ``bench.run``."""

    suite: Texts
    transfer_solver: str
    precision: str
    results: Paths
    workers: int
    executor: str
    ray_address: str
    per_gpu: int
    config: Paths
    probes: Texts
    dims: str
    quantize: str
    precision_effect: bool
    keep_vectors: bool
    deadline: float
    shard: str
    log: Texts
    force: bool
    plan: bool
    baseline: str
    family: str
    margin: float


def parse_options(
    command: click.Command, values: Mapping[str, Any], where: str, words: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the parameters of a command for arguments by its long options' names.

    None stands for an option that isn't given; ``words`` are the command's arguments. Raises InputError with
    the command's words.
    """
    options = options_by_name(command)
    arguments = []
    for name, value in values.items():
        if name not in options:
            raise _unknown_option_error(command, name, value, options, where)
        if value is not None:
            arguments += _format_option(options[name], name, value, where)
    try:
        context = command.make_context(where, [*arguments, "--", *words])
    except click.ClickException as error:
        message = error.format_message()
    else:
        return context.params
    raise InputError(message, where=where)  # without click's own chain


def _unknown_option_error(
    command: click.Command, name: str, value: object, options: Mapping[str, Any], where: str
) -> InputError:
    """Return the error for an option that a command lacks; options of methods are given by ``set``."""
    if any(option.name == name for _, method in discover() for option in method.card.options):
        what = f"'{name}' is an option of methods"
        return InputError(what, where=where, hint=f'give it as set={{"METHOD.{name}": {value!r}}}')
    near = suggest_name(name, options)
    what = f"there is no option '{name}'" + (f" ({near})" if near else "")
    return InputError(what, where=where, hint=f"bench {command.name} --help-all lists them")


def refuse_options(given: Iterable[str], refused: Sequence[str], where: str, command: str) -> None:
    """Raise InputError for an option that only the command has."""
    for name in given:
        if name in refused:
            raise InputError(
                f"'{name}' is an option of the command only", where=where, hint=f"type {command}"
            )


def options_by_name(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their long names with underscores."""
    options: dict[str, click.Option] = {}
    for option in command.params:
        if isinstance(option, click.Option):
            names = [name.removeprefix("--") for name in option.opts if name.startswith("--")]
            options |= {name.replace("-", "_"): option for name in names}
    return options


def _format_option(option: click.Option, name: str, value: Any, where: str) -> list[str]:
    """Return the words of one option on a command line; raises InputError for a value of another type."""
    (long,) = [text for text in option.opts if text.startswith("--")][:1]
    if option.is_flag:
        value = _to_plain(value)
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r}", where=where, expected="True or False")
        return [long] if value else []
    if option.multiple:
        return [f"{long}={text}" for text in list_entries(value, name, where)]
    if isinstance(option.type, click.Path):
        return [f"{long}={format_value(value, name, where)}"]
    return [f"{long}={format_list(value, name, where)}"]


def name_of_method(entry: Any) -> str:
    """Return a name, or that on the card of a class; raises InputError for another value."""
    name = entry if isinstance(entry, str) else getattr(getattr(entry, "card", None), "name", None)
    if not isinstance(name, str):
        expected = "a name such as 'simcse', or a class of a method"
        raise InputError(f"{entry!r} is no method", where="methods", expected=expected)
    return name


def format_list(value: Any, name: str, where: str) -> str:
    """Return a value as text, the entries of a list with commas between them; raises as format_value.

    >>> [format_list(value, "seeds", "bench.run") for value in (range(1, 4), "1-3", 7)]
    ['1,2,3', '1-3', '7']
    """
    if not _is_list(value):
        return format_value(value, name, where)
    return ",".join(format_value(entry, name, where) for entry in value)


def list_entries(value: Any, name: str, where: str) -> list[str]:
    """Return the entries of a repeatable option: of a text, a list, or a dictionary; raises as format_value.

    >>> list_entries({"simcse.lr": 1e-5}, "set", "bench.run"), list_entries("a.py", "plugin", "bench.run")
    (['simcse.lr=1e-05'], ['a.py'])
    """
    if isinstance(value, Mapping):
        entries = []
        for key, entry in value.items():
            text = str(entry) if isinstance(entry, bool) else format_value(entry, name, where)
            entries.append(f"{format_value(key, name, where)}={text}")
        return entries
    return [format_value(entry, name, where) for entry in (value if _is_list(value) else [value])]


def format_value(value: Any, name: str, where: str) -> str:
    """Return a text, a number or a path as an option's text; raises InputError for another value."""
    value = _to_plain(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | PathLike):
        raise InputError(f"{name}={value!r}", where=where, expected="a text, a number or a path")
    text = str(value)
    if "\0" in text:
        raise InputError(f"{name}={text!r} has a null character", where=where)
    return text


def check_path(value: Any, name: str, where: str) -> Path:
    """Return a path; raises InputError for another value."""
    if not isinstance(value, str | PathLike):
        raise InputError(f"{name}={value!r}", where=where, expected="a text or a path")
    return Path(format_value(value, name, where))


def _is_list(value: Any) -> bool:
    """Return whether a value is an iterable of entries: no text, bytes or dictionary."""
    other = isinstance(value, str | bytes | bytearray | PathLike | Mapping)
    return isinstance(value, Iterable) and not other and getattr(value, "ndim", 1) == 1


def _to_plain(value: Any) -> Any:
    """Return a number of numpy as Python's; another value stays."""
    is_scalar = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    return value.item() if is_scalar else value
