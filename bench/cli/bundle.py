"""``bench bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli import completion
from bench.cli.options import data_option, results_option
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError


@click.command()
@click.argument("campaign", shell_complete=completion.campaign)
@strict_option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The bundle, such as submissions/NAME.zip.",
)
@strict_option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py",
    help="File of a method that was run with --plugin; its source goes along, and is not run. Repeatable.",
)
@strict_option(
    "--by",
    metavar="TEXT",
    help="Who sends it, such as a name or an organisation; merged records keep it.",
)
@results_option
@data_option()
def bundle_command(
    campaign: str, out: Path, plugins: tuple[str, ...], by: str | None, results: Path, data_dir: Path | None
) -> None:
    """Put a CAMPAIGN into one file that others can verify and merge.

    It holds the records with their predictions, the source of plug-in methods, the profile, the versions of
    what is installed, the report, and what bench verify said: nothing is written where that finds anything
    (exit code 1). Equal campaigns give equal bytes.
    """
    from hashlib import sha256

    from bench.config.plugins import read_plugin
    from bench.exchange.bundle_contents import make_bundle as make_bundle
    from bench.records.filesystem import write_atomically
    from bench.records.store import ResultStore
    from bench.registry import discover
    from bench.verify.verification_formats import verification_text

    discover()
    store = ResultStore(results, campaign)
    sources = [read_plugin(text, results) for text in plugins]
    with progress_bar("records", None) as advance:
        verified, payload = make_bundle(store, data_dir, sources, advance, by)
    click.echo(verification_text(verified))
    if payload is None:
        raise BenchError(f"{campaign} is not bundled: see what is wrong above", where="bench bundle")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, payload)
    except OSError as error:
        raise InputError(f"{out} can't be written: {error.strerror}", where="--out") from error
    click.echo(f"{out}: {len(payload):,} bytes, sha256 {sha256(payload).hexdigest()}")
