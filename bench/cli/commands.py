"""Commands and groups of bench: their help in panels, and their examples where input is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from bench.cli.help_panels import (
    WIDEST_NAME,
    describe_hidden_options,
    format_examples,
    group_options,
    is_styled,
    show_all,
)
from bench.cli.modes import given_parameters


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

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return ``-h, --help``, whoever asks first: click keeps the option of the first context."""
        ctx.help_option_names = ["-h", "--help"]
        return super().get_help_option(ctx)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, styled on a terminal."""
        if is_styled():
            from bench.cli.rich_help import render_help

            return render_help(self, ctx, self.list_sections(), self.examples)
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

    def list_sections(self) -> Mapping[str, list[click.Command]]:
        """Return the commands of a group by the titles of their sections."""
        return {}

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


class MissingInputError(click.MissingParameter):
    """A command was typed alone, and needs more; ``examples`` are printed on further lines."""

    def __init__(self, error: click.MissingParameter, examples: tuple[str, ...]) -> None:
        given = (error.ctx, error.param, error.param_hint, error.param_type)
        super().__init__(error.message, *given)
        self.examples = examples


def bench_command(name: str | None = None) -> Callable[[Callable[..., Any]], BenchCommand]:
    """Return the decorator that makes a function a command of bench."""
    return click.command(name, cls=BenchCommand)


def bench_group(name: str | None = None) -> Callable[[Callable[..., Any]], BenchGroup]:
    """Return the decorator that makes a function a group of commands."""
    return click.group(name, cls=BenchGroup)


def add_examples_if(
    error: click.MissingParameter, command: HelpPanels, *, alone: bool
) -> click.MissingParameter:
    """Return the error, with the command's examples if the command was typed ``alone``."""
    return MissingInputError(error, command.examples) if alone else error


def _print_whole_help(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        show_all(ctx)
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
