"""``--config``: a command's options from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from bench.cli import single
from bench.errors import InputError, not_one_of

LISTS = ("methods", "seeds", "suite", "probes")
"""Options whose value is a list with commas: an array in the file too."""


def _read(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Make a file's values the defaults of the command that is being read; raises InputError."""
    if path is None:
        return
    where = f"--config {path}"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:  # such as text that is not UTF-8 or not TOML
        raise InputError(f"it is not TOML: {error}", where=where) from error
    options = _options(context.command)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in options:
            what = f"{context.info_name} has no option '{name}'"
            raise not_one_of(what, name, sorted(options), where=where)
        found[str(options[name].name)] = _checked(name, value, options[name], where)
    context.default_map = {**(context.default_map or {}), **found}


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their long names without dashes, but --config itself."""
    own = [option for option in command.params if isinstance(option, click.Option)]
    named = {name.removeprefix("--"): option for option in own for name in option.opts if name[:2] == "--"}
    return {name: option for name, option in named.items() if name != "config"}


def _checked(name: str, value: Any, option: click.Option, where: str) -> Any:
    """Return a value as click takes it; raises InputError for one of another type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    expected, fits = "a text in quotes", isinstance(value, str)
    if option.is_flag:
        expected, fits = "true or false", isinstance(value, bool)
    elif option.multiple:
        fits = isinstance(value, list) and all(isinstance(part, str) for part in value)
        expected = "an array of texts"
    elif isinstance(option.type, click.IntRange) or option.type is click.INT:
        expected, fits = "a whole number", isinstance(value, int) and number
    elif isinstance(option.type, click.FloatRange):
        expected, fits = "a number", number
    elif name in LISTS:
        parts = value if isinstance(value, list) else [value]
        plain = all(isinstance(part, str | int) and not isinstance(part, bool) for part in parts)
        expected, fits = "a text, or an array of texts or numbers", bool(parts) and plain
        value = ",".join(map(str, parts)) if fits else value
    if not fits:
        shown = "a table" if isinstance(value, dict) else repr(value)
        raise InputError(f"{shown} is not a value for '{name}'", where=where, expected=expected)
    return value


config_option = single.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_read,
    metavar="FILE.toml",
    help="Options by their long names from a file; what stands on the command line wins, in a list only "
    "over the entry of the same name. Paths in it start at the current folder, as on the command line.",
)
