"""``bench export --layout``: the scores of a campaign for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import print_stderr
from bench.cli.signals import finish_command
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from bench.exchange.record_choice import ChosenRecords

MTEB, CSV, ITEMS = LAYOUTS = ("mteb", "csv", "items")


def write_scores(layout: str, out: Path, *, methods: str | None, options: Mapping[str, Any]) -> None:
    """Write the records that options choose, and list on stderr what the layout can't hold.

    Args:
        layout: One of :data:`LAYOUTS`.
        out: A new or empty folder for mteb's layout, a new file for the others.
        methods: Only these rows, comma-separated.
        options: "results", "campaign", "profile", "suites" and "data_dir" of the command.
    """
    from bench.exchange.record_choice import choose_records
    from bench.exchange.score_files import check_table_target
    from bench.nn.encoder_folder import check_target
    from bench.records.store import ResultStore
    from bench.registry import discover

    discover()
    (check_target if layout == MTEB else check_table_target)(out)
    with progress_bar("records", None) as advance:
        chosen = choose_records(
            ResultStore(options["results"], options["campaign"]),
            options["data_dir"],
            profile=options["profile"],
            suites=options["suites"],
            methods=methods,
            one_suite=layout != MTEB,
            progress=advance,
        )
    try:
        written = _write(layout, out, chosen, options["data_dir"])
    except OSError as error:
        raise InputError(f"{out} can't be written: {error.strerror}", where="--out") from error
    finally:
        for line in chosen.left_out.lines():
            print_stderr(printable(line))
    for note in chosen.notes:
        print_stderr(printable(f"note: {note}"))
    click.echo(printable(written))


def _write(layout: str, out: Path, chosen: ChosenRecords, data: Path | None) -> str:
    """Write a layout; return the line that says what was written."""
    from bench.exchange.score_files import ITEMS as ITEM_COLUMNS
    from bench.exchange.score_files import SCORES, item_rows, score_rows, write_table

    if layout == CSV:
        count = write_table(out, SCORES, score_rows(chosen), finish_command)
        return f"{out}: {_count(count, 'score')}"
    if layout == ITEMS:
        count = write_table(out, ITEM_COLUMNS, item_rows(chosen, data), finish_command)
        return f"{out}: {_count(count, 'item')}"
    from bench.exchange.mteb_layout import collect_models, write_models

    models = collect_models(chosen, data)
    count = write_models(models, out, finish_command)
    names = {name for name, _ in models}
    of_models = _count(len(names), "model")
    if len(models) > len(names):
        of_models += f" in {len(models):,} revisions"
    return f"{out}: {_count(count, 'result')} of {of_models}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
