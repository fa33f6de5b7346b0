"""Help of commands: options in panels, daily ones first, rare ones with ``--help-all``; the example alone.

An option states its panel where it is defined: ``strict_option(..., panel=Panel.DATA, rare=True)``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from bench.cli.modes import given_parameters
from bench.cli.strict_options import Panel, StrictOption

SMALL = 11
"""Most options of a command whose help lists all of them without panels."""
WIDEST_NAME = 24
"""Characters of an option with its value that leave its help on the same line."""
_ALL = "bench.cli.help_panels.all"


class HelpPanels(click.Command):
    """Help in panels, plain in a pipe and drawn by rich-click on a terminal; examples where input lacks."""

    examples: tuple[str, ...] = ()
    _all_option: click.Option | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` after ``--help``."""
        if self._all_option is None:  # one object, as click compares them
            self._all_option = click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_whole_help,
                help="Show every option and exit.",
            )
        return [*super().get_params(ctx), self._all_option]

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, styled on a terminal."""
        if is_styled():
            from bench.cli.rich_help import render_help

            return render_help(self, ctx)
        return super().get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each panel of options, and how many more there are."""
        for title, options in group_options(self, ctx).items():
            records = [record for option in options if (record := option.get_help_record(ctx))]
            with formatter.section(title):
                formatter.write_dl(records, col_max=WIDEST_NAME)
        if line := describe_hidden_options(self, ctx):
            formatter.write_paragraph()
            formatter.write_text(line)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            formatter.write("\n" + "\n".join(format_examples(self.examples)) + "\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; without any argument, what is missing comes with the command's examples."""
        alone = not args
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            raise add_examples_if(error, self, alone=alone) from error


class BenchCommand(HelpPanels):
    """A command of bench."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what is missing comes with its examples where nothing was given."""
        try:
            return super().invoke(ctx)
        except click.MissingParameter as error:
            raise add_examples_if(error, self, alone=not given_parameters(ctx)) from error


class BenchGroup(HelpPanels, click.Group):
    """A group of commands, listed by subject if ``sections`` has subjects."""

    command_class = BenchCommand

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sections: dict[str, list[click.Command]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of commands for each section."""
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for title, commands in self.list_sections().items():
            with formatter.section(title):
                formatter.write_dl([(f"{c.name:{width}}", c.get_short_help_str(limit)) for c in commands])

    def list_sections(self) -> Mapping[str, list[click.Command]]:
        """Return the commands by the titles of their sections."""
        return self.sections or {"Commands": [self.commands[name] for name in sorted(self.commands)]}


class MissingInputError(click.UsageError):
    """A command was typed alone, and needs more; its message has examples on further lines."""

    def __init__(self, message: str, examples: tuple[str, ...], ctx: click.Context | None) -> None:
        super().__init__(message, ctx)
        self.examples = examples


def bench_command(name: str | None = None) -> Callable[[Callable[..., Any]], BenchCommand]:
    """Return the decorator that makes a function a command of bench."""
    return click.command(name, cls=BenchCommand)


def bench_group(name: str | None = None) -> Callable[[Callable[..., Any]], BenchGroup]:
    """Return the decorator that makes a function a group of commands."""
    return click.group(name, cls=BenchGroup)


def add_examples_if(error: click.UsageError, command: HelpPanels, *, alone: bool) -> click.UsageError:
    """Return the error, with the command's examples if the command was typed ``alone``."""
    if not (alone and command.examples):
        return error
    return MissingInputError(error.format_message(), command.examples, error.ctx)


def group_options(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options in the help by the titles of their panels, in the order of :class:`Panel`."""
    options = [option for option in command.get_params(ctx) if isinstance(option, click.Option)]
    own = [option for option in options if option in command.params]
    hidden = set(_find_hidden_options(command, ctx))
    shown = [option for option in options if option not in hidden]
    if not _shows_all(ctx):  # the line on hidden options names it
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


def format_examples(examples: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of the examples: a title, then one a line.

    >>> list(format_examples(("bench report",)))
    ['Example:', '  bench report']
    """
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
    if len(own) <= SMALL or _shows_all(ctx):
        return []
    return [option for option in own if option.rare]


def _shows_all(ctx: click.Context) -> bool:
    return bool(ctx.meta.get(_ALL))


def _print_whole_help(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
