"""``bench verify RECORD.json --rerun``: repeat a record and compare every digit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.cli.options import load_plugin_options
from bench.errors import printable


def repeat_record(
    path: Path, data: Path | None, plugins: Sequence[str], copies: Sequence[str], **given: Any
) -> None:
    """Repeat a record, training included; print equal, or the differing digits and exit with 1.

    Args:
        path: File of the record.
        data: Folder of evaluation data.
        plugins: Values of ``--plugin``.
        copies: Values of ``--copy``.
        given: Model, corpus with its column, and pairs in place of the profile's.
    """
    from bench.config.method_ids import parse_copies
    from bench.execution.repetition import rerun_record
    from bench.records.fingerprint import machine_warnings
    from bench.records.store import read_record

    then = read_record(path)
    load_plugin_options(plugins)
    differences, now = rerun_record(then, data=data, copies=parse_copies(copies), **given)
    if not differences:
        click.echo("equal: every score is the same to the last digit")
        return
    for difference in differences:
        click.echo(printable(f"{difference.name}: then {difference.then!r}, now {difference.now!r}"))
    if other := machine_warnings([then], [now]):
        click.echo(f"not on equal versions and CPU, which may change digits: {printable('; '.join(other))}")
    sys.exit(1)
