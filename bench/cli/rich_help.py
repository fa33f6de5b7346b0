"""The help of a command on a terminal, drawn by rich-click; loaded only there, for its time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click
from rich.text import Text
from rich_click.rich_help_configuration import RichHelpConfiguration
from rich_click.rich_help_formatter import RichHelpFormatter
from rich_click.rich_help_rendering import get_rich_help_text, get_rich_usage
from rich_click.rich_panel import RichCommandPanel, RichOptionPanel

from bench.cli.help_panels import describe_hidden_options, format_examples, group_options

if TYPE_CHECKING:
    from rich.table import Table

THEME = "default-slim"
"""A heading a panel, without boxes, as in the help of uv and gh."""
WIDEST = 110
_WIDEST_NAME = 27  # of an option with its value; longer ones are folded


class _OptionPanel(RichOptionPanel):
    """Options with the texts of click's plain help, which keep the brackets of a value's form."""

    def get_table(self, command: Any, ctx: Any, formatter: RichHelpFormatter) -> Table:
        """Return the table: a row an option."""
        styles = formatter.config
        table = self._get_base_table(box=None, padding=styles.style_options_table_padding, pad_edge=True)
        table.add_column(max_width=_WIDEST_NAME, overflow="fold")
        table.add_column()
        for option in self.get_objects(command, ctx):
            name, text = option.get_help_record(ctx) or ("", "")
            table.add_row(
                formatter.highlighter(Text(_fold_name(name))), Text(text, style=styles.style_option_help)
            )
        return table


def _fold_name(name: str, width: int = _WIDEST_NAME) -> str:
    """Return an option with its value on lines of a width, broken at blanks and after "|".

    >>> _fold_name("--format [text|markdown|html]", 16).splitlines()
    ['--format [text|', 'markdown|html]']
    """
    lines = [""]
    for part in re.findall(r"[^ |]+\|?| ", name):
        if len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def render_help(
    command: click.Command,
    ctx: click.Context,
    sections: Mapping[str, Sequence[click.Command]],
    examples: Sequence[str],
    width: int | None = None,
) -> str:
    """Return the help of a command with styles.

    Args:
        command: The command.
        ctx: Its context.
        sections: Commands of a group by the titles of their sections.
        examples: Command lines at the end.
        width: Characters of a line, at most ``WIDEST``; default: the terminal's.
    """
    config = RichHelpConfiguration(theme=THEME, max_width=WIDEST, text_markup="ansi")
    formatter = RichHelpFormatter(config=config, width=width)
    drawn, context = cast(Any, command), cast(Any, ctx)  # both are read only for click's own attributes
    get_rich_usage(formatter, ctx.command_path, " ".join(command.collect_usage_pieces(ctx)))
    get_rich_help_text(drawn, context, formatter)
    for title, commands in sections.items():
        panel = RichCommandPanel(title, [str(each.name) for each in commands])
        formatter.write(panel.render(drawn, context, formatter))
    for title, options in group_options(command, ctx).items():
        names = [option.opts[-1] for option in options]
        formatter.write(_OptionPanel(title, names).render(drawn, context, formatter))
    lines = list(format_examples(examples))
    if hint := describe_hidden_options(command, ctx):
        lines[:0] = [hint, ""]
    for line in lines:
        formatter.write(f" {line}", highlight=False, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in formatter.getvalue().splitlines())
