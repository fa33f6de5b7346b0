"""``bench merge``."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli import completion
from bench.cli.options import PATH, data_option
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, printable


@click.command()
@click.argument("bundles", type=PATH, nargs=-1, required=True, metavar="BUNDLE|FOLDER...")
@strict_option(
    "--into", type=PATH, required=True, metavar="FOLDER", help="Results folder that gets the records."
)
@strict_option(
    "--campaign",
    metavar="NAME",
    shell_complete=completion.campaign,
    help="Campaign that gets them, instead of the bundle's own.",
)
@data_option()
@strict_option(
    "--rerun",
    "count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Before that, train N cells of methods that are installed here again, chosen at random.",
)
@strict_option("--choose", type=click.IntRange(0), metavar="SEED", help="Make --rerun's choice repeatable.")
@strict_option(
    "--run-plugin",
    "run_plugins",
    multiple=True,
    metavar="NAME.py",
    help="For --rerun: also cells of this plug-in of the bundle. RUNS ITS CODE: read it first. Repeatable.",
)
def merge_command(
    bundles: tuple[Path, ...],
    into: Path,
    campaign: str | None,
    data_dir: Path | None,
    count: int,
    choose: int | None,
    run_plugins: tuple[str, ...],
) -> None:
    """Verify a BUNDLE, whoever made it, and add its records to a results folder.

    A FOLDER of your own records, such as that of a shard, is taken alike; several are added one by one.
    Everything of one is checked before anything of it is added; records that are there already stay as they
    are, and get back predictions that they lost. No code of a bundle runs unless --run-plugin names it. Exit
    codes: 0 added, 1 verification found something, 2 bad input, 3 something else is there already.
    """
    from bench.exchange.bundle_merge import MergeSettings
    from bench.exchange.bundle_merge import merge_bundle as merge_bundle
    from bench.registry import discover
    from bench.verify.verification_formats import verification_text

    discover()

    def say(line: str) -> None:
        click.echo(printable(line), err=True)

    for bundle in bundles:
        with progress_bar("records", None) as advance:
            settings = MergeSettings(campaign, data_dir, count, choose, run_plugins, say, advance)
            merged = merge_bundle(bundle, into, settings)
        click.echo(verification_text(merged.verified))
        if merged.verified.findings:
            raise BenchError("nothing was added: see what is wrong above", where=str(bundle))
        for note in merged.notes:
            click.echo(printable(f"note: {note}"))
        if merged.by:
            click.echo(f"submitted by {merged.by}: the sender's word")
        there = f", {merged.present:,} were there already" if merged.present else ""
        click.echo(f"{into / merged.campaign}: {len(merged.added):,} records added{there}")
