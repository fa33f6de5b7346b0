"""``bench watch``."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import click

from bench.cli import completion
from bench.cli.options import results_option
from bench.cli.strict_option import strict_option
from bench.errors import printable


@click.command()
@results_option
@strict_option(
    "--campaign",
    shell_complete=completion.campaign,
    help="Only this one; default all below --results.",
)
@strict_option("--once", is_flag=True, help="Print what runs now, and leave.")
def watch_command(results: Path, campaign: str | None, once: bool) -> None:
    """Show the cells that run, from any terminal that sees the results folder.

    What `bench run` shows of itself: stage, step, loss, last dev score, sentences a second, time left. Cells
    whose process was killed are named as stopped. Ends when nothing runs any more; Ctrl-C ends it too.
    """
    from rich.console import Console

    from bench.cli.terminal import LOOK_EVERY, format_runs, open_display
    from bench.execution.monitor import RunMonitor, find_run_folders

    runs: dict[Path, RunMonitor] = {}

    def look() -> dict[str, RunMonitor]:
        for path in find_run_folders(results, campaign):
            runs.setdefault(path, RunMonitor(path)).look()
        for path in [path for path in runs if not path.is_dir()]:
            del runs[path]
        return {f"{printable(path.parent.parent.name)}: ": run for path, run in runs.items()}

    found = look()
    console = Console()
    if once or not console.is_terminal:
        for line in format_runs(found):
            click.echo(line)
    if not once:
        with suppress(KeyboardInterrupt), open_display(console) as show:
            while any(run.alive for run in found.values()):
                show(found)
                time.sleep(LOOK_EVERY)
                found = look()
    if not any(run.alive for run in found.values()):
        where = results if campaign is None else results / campaign
        missing = "" if where.is_dir() else " (there is no such folder)"
        click.echo(f"nothing runs below {printable(str(where))}{missing}")
