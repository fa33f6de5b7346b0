"""``bench history``."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.options import PATH, format_option
from bench.cli.strict_option import strict_option


@click.command()
@click.argument("folder", type=PATH, metavar="FOLDER")
@strict_option(
    "--methods", help="Only these, comma-separated ids as in the table; 'average' is that over the cells."
)
@format_option("text", "markdown", "html", "csv", "json")
def history_command(folder: Path, methods: str | None, form: str) -> None:
    """Print scores over builds, with the limits of the gate, from the verdicts that a folder keeps.

    FOLDER has files of `bench check --json`, at any depth. Builds stand in the order of their dates. html is
    one file with a chart a cell; csv and json have scores in the metric's unit, other formats in points.
    """
    from bench.config.method_ids import split_outside_brackets
    from bench.gate.history_page import render_history
    from bench.gate.verdict_history import read_history

    found = read_history(folder)
    chosen = None if methods is None else split_outside_brackets(methods)
    click.echo(render_history(found, found.lines(chosen), form), nl=False)
