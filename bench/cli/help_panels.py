"""Panels of options in the help of a command: daily ones first, rare ones with ``--help-all``.

An option states its panel where it is defined: ``strict_option(..., panel=Panel.DATA, rare=True)``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import click

from bench.cli.strict_options import Panel, StrictOption

SMALL = 11
"""Most options of a command whose help lists all of them without panels."""
WIDEST_NAME = 24
"""Characters of an option with its value that leave its help on the same line."""
_ALL = "bench.cli.help_panels.all"


def show_all(ctx: click.Context) -> None:
    """Make the help of the command show rare options too."""
    ctx.meta[_ALL] = True


def group_options(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options in the help by the titles of their panels, in the order of :class:`Panel`."""
    options = [option for option in command.get_params(ctx) if isinstance(option, click.Option)]
    own = [option for option in options if option in command.params]
    hidden = set(_find_hidden_options(command, ctx))
    shown = [option for option in options if option not in hidden]
    if not shows_all(ctx):  # the line on hidden options names it
        shown = [option for option in shown if option.opts != ["--help-all"]]
    if len(own) <= SMALL:
        return {Panel.MAIN.value: shown}
    panels: dict[str, list[click.Option]] = {panel.value: [] for panel in Panel}
    for option in shown:
        panels[_panel_of(option).value].append(option)
    return {title: members for title, members in panels.items() if members}


def describe_hidden_options(command: click.Command, ctx: click.Context) -> str:
    """Return the line on options that the help leaves out, "" for none."""
    if count := len(_find_hidden_options(command, ctx)):
        return f"{count} more options: {ctx.command_path} --help-all"
    return ""


def format_examples(examples: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the examples, if there are any: a title, then one a line.

    >>> list(format_examples(("bench report",)))
    ['Example:', '  bench report']
    """
    if examples:
        yield "Example:" if len(examples) == 1 else "Examples:"
    yield from (f"  {example}" for example in examples)


def is_styled() -> bool:
    """Return whether stdout is a terminal that shows styles."""
    return (
        sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    )


def _panel_of(option: click.Option) -> Panel:
    return (isinstance(option, StrictOption) and option.panel) or Panel.MAIN


def _find_hidden_options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    own = [option for option in command.params if isinstance(option, StrictOption)]
    if len(own) <= SMALL or shows_all(ctx):
        return []
    return [option for option in own if option.rare]


def shows_all(ctx: click.Context) -> bool:
    """Return whether rare options are shown too."""
    return bool(ctx.meta.get(_ALL))
