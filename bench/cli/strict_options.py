"""Options given once, with their panel in the help, and ``--config``: options from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from bench.errors import InputError, not_one_of

LISTS = ("methods", "seeds", "suite", "probes")
"""Options whose value is a comma-separated list; a file may give an array."""

F = TypeVar("F", bound=Callable[..., Any])


class Panel(Enum):
    """Panels of options in the help of a command, in their order, by their titles."""

    MAIN = "Options"
    SOURCE = "What is checked"
    ROWS = "Rows and columns"
    TESTS = "Tests"
    ITEMS = "Items (--show-items)"
    VECTORS = "Vectors (--vectors)"
    LAYOUT = "Results for other tools (--layout)"
    REPEAT = "One record (RECORD.json --rerun)"
    DATA = "Data and models"
    MODEL = "Model"
    TRAINING = "Training"
    EVALUATION = "Evaluation"
    PLANNING = "Plan and cost"
    SEALING = "Sealed plan (--plan)"
    DEVICES = "Devices and processes"
    OUTPUT = "Output"
    LATEX = "LaTeX"
    UPDATE = "New reference (--update)"


class StrictOption(click.Option):
    """An option that may be given once, where click silently keeps the last value.

    A ``multiple`` one extends the list of ``--config``, which click silently drops. ``panel`` is its place in
    the help of a command with many options; a ``rare`` one is shown there only by ``--help-all``.
    """

    def __init__(self, *args: Any, panel: Panel | None = None, rare: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.panel, self.rare = panel, rare

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep every value."""
        if self.has_one_value:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)
        else:
            super().add_to_parser(parser, ctx)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the value; fails as click does."""
        given = opts.get(self.name or "", []) if self.has_one_value else []
        if len(given) > 1:
            raise click.BadOptionUsage(self.opts[0], f"{self.opts[0]} is given {len(given)} times", ctx)
        opts = {**opts, self.name or "": given[0]} if given else opts
        if self.multiple and (words := opts.get(self.name or "")):
            file_words = (ctx.default_map or {}).get(self.name or "", ())
            opts = {**opts, self.name or "": merge_entries(file_words, words)}
        return super().handle_parse_result(ctx, opts, args)

    @property
    def has_one_value(self) -> bool:
        """False for a flag, and for an option that may be repeated."""
        return not (self.is_flag or self.multiple or self.count)


def merge_entries(first: Sequence[str], winning: Sequence[str]) -> list[str]:
    """Return the entries of two lists; an entry of the second replaces those of the first with its NAME=.

    Duplicates within one list stay, for the command to refuse.

    >>> merge_entries(["a.b=1", "a.c=1", "x.py"], ["a.b = 2", "x.py", "y.py"])
    ['a.c=1', 'a.b = 2', 'x.py', 'y.py']
    """
    replaced = set(map(_entry_name, winning))
    return [entry for entry in first if _entry_name(entry) not in replaced] + list(winning)


def _entry_name(entry: str) -> str:
    """Return the part of an entry before "=", with blanks removed."""
    return "".join(entry.partition("=")[0].split())


def strict_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return ``click.option`` with a :class:`StrictOption`."""
    return click.option(*names, cls=StrictOption, **settings)


def _read_config_file(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Make a file's values the defaults of the command; raises InputError."""
    if path is None:
        return
    where = f"--config {path}"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:  # such as text that is not UTF-8 or not TOML
        raise InputError(f"it is not TOML: {error}", where=where) from error
    options: dict[str, click.Option] = {}  # by their long names
    for option in context.command.params:
        if isinstance(option, click.Option) and option.name != "config":
            options |= {name.removeprefix("--"): option for name in option.opts if name.startswith("--")}
    defaults = dict(context.default_map or {})
    for name, value in values.items():
        if name not in options:
            what = f"{context.info_name} has no option '{name}'"
            raise not_one_of(what, name, sorted(options), where=where)
        defaults[str(options[name].name)] = _check_value(name, value, options[name], where)
    context.default_map = defaults


def _check_value(name: str, value: Any, option: click.Option, where: str) -> Any:
    """Return a value as click takes it; raises InputError for another type."""
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


config_option = strict_option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_read_config_file,
    metavar="FILE.toml",
    panel=Panel.MAIN,
    help="Options from a file; the command line wins.",
)
