"""`bench rerun`: repeat a record and compare every digit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.cli.options import PATH, data_option, load_plugin_options, plugin_option, text_column_option
from bench.cli.strict_options import strict_option
from bench.errors import printable


@click.command()
@click.argument("record", type=PATH)
@data_option()
@strict_option("--model", help="Model folder or file instead of the profile's.")
@strict_option("--corpus", type=PATH, help="Training text instead of the profile's.")
@text_column_option
@strict_option("--pairs", type=PATH, help="Labelled pairs instead of the profile's.")
@strict_option(
    "--copy", "copies", multiple=True, metavar="NAME=FILE", help="As given to bench run. Repeatable."
)
@plugin_option
def rerun_command(
    record: Path, data_dir: Path | None, copies: Sequence[str], plugins: Sequence[str], **given: Any
) -> None:
    """Repeat a record, training included, and compare every digit.

    Prints equal, or the differing digits (exit code 1). Other versions or another CPU can change digits; a
    difference of these is printed too.
    """
    from bench.config.method_ids import parse_copies
    from bench.execution.repetition import rerun_record
    from bench.records.fingerprint import machine_warnings
    from bench.records.store import read_record

    then = read_record(record)
    load_plugin_options(plugins)
    differences, now = rerun_record(then, data=data_dir, copies=parse_copies(copies), **given)
    if not differences:
        click.echo("equal: every score is the same to the last digit")
        return
    for difference in differences:
        click.echo(printable(f"{difference.name}: then {difference.then!r}, now {difference.now!r}"))
    if other := machine_warnings([then], [now]):
        click.echo(f"not on equal versions and CPU, which may change digits: {printable('; '.join(other))}")
    sys.exit(1)
