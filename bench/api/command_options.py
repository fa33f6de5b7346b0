"""Python arguments as the options of a command, with the command's checks and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

from bench.errors import InputError, suggest_name

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
            near = suggest_name(name, options)
            what = f"there is no option '{name}'" + (f" ({near})" if near else "")
            raise InputError(what, where=where, hint=f"bench {command.name} --help-all lists them")
        if value is not None:
            arguments += _format_option(options[name], name, value, where)
    try:
        context = command.make_context(where, [*arguments, "--", *words], help_option_names=["-h", "--help"])
    except click.ClickException as error:
        raise InputError(error.format_message(), where=where) from error
    return context.params


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
    """Return the words of one option on a command line."""
    (long,) = [text for text in option.opts if text.startswith("--")][:1]
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r}", where=where, expected="True or False")
        return [long] if value else []
    if option.multiple:
        return [f"{long}={text}" for text in list_entries(value)]
    value = format_list(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        raise InputError(f"{name}={value!r}", where=where, expected="a text, a number or a path")
    return [f"{long}={value}"]


def format_list(value: Any) -> Any:
    """Return the entries of a list with commas between them; another value stays.

    >>> format_list(range(1, 4)), format_list("1-3"), format_list(7)
    ('1,2,3', '1-3', 7)
    """
    if isinstance(value, Iterable) and not isinstance(value, str | Path):
        return ",".join(map(str, value))
    return value


def list_entries(value: Any) -> list[str]:
    """Return the entries of a repeatable option: of a text, a sequence, or a dictionary.

    >>> list_entries({"simcse.lr": 1e-5}), list_entries("method.py")
    (['simcse.lr=1e-05'], ['method.py'])
    """
    if isinstance(value, Mapping):
        return [f"{name}={entry}" for name, entry in value.items()]
    if isinstance(value, str | Path):
        return [str(value)]
    return list(map(str, value))
