"""``bench watch``."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import results_option
from bench.cli.strict_options import strict_option
from bench.errors import printable


@bench_command()
@results_option
@strict_option(
    "--campaign", shell_complete=completion.campaign, help="Only this one; default all below --results."
)
@strict_option("--once", is_flag=True, help="Print the running cells once and exit.")
def watch_command(results: Path, campaign: str | None, once: bool) -> None:
    """Show running cells and their progress.

    It works in any terminal that sees the results folder, and shows the columns of `bench run`: stage, step,
    loss, last dev score, sentences a second, ETA. Cells of killed processes are listed as stopped. Where no
    lock shows whether a run lives, the age of its last news is printed. It exits when all cells have ended,
    or by Ctrl-C.
    """
    from rich.console import Console

    from bench.cli.terminal import LOOK_EVERY, format_runs, open_display
    from bench.execution.monitor import RunMonitor, find_run_folders
    from bench.records.campaign_lookup import check_campaign_options

    runs: dict[Path, RunMonitor] = {}

    def look() -> dict[str, RunMonitor]:
        for path in find_run_folders(results, campaign):
            runs.setdefault(path, RunMonitor(path)).look()
        for path in [path for path in runs if not path.is_dir()]:
            del runs[path]
        return {f"{printable(path.parent.parent.name)}: ": run for path, run in runs.items()}

    shown = look()
    console = Console()
    if once or not console.is_terminal:
        for line in format_runs(shown):
            click.echo(line)
    if not once:
        with suppress(KeyboardInterrupt), open_display(console) as show:
            while any(run.may_run for run in shown.values()):
                show(shown)
                time.sleep(LOOK_EVERY)
                shown = look()
    states = {run.state for run in shown.values()}
    if states <= {"gone", "unknown"}:
        check_campaign_options(results, campaign)
        where = results if campaign is None else results / campaign
        missing = "" if where.is_dir() else " (there is no such folder)"
        nothing = "nothing is seen to run" if "unknown" in states else "nothing runs"
        click.echo(f"{nothing} below {printable(str(where))}{missing}")
