"""``bench unpack``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from bench.cli.options import PATH
from bench.cli.show import format_card
from bench.cli.strict_option import strict_option
from bench.errors import InputError, printable


@click.command()
@click.argument("bundle", type=PATH)
@strict_option("--into", type=PATH, required=True, metavar="FOLDER", help="A folder that is new or empty.")
def unpack_command(bundle: Path, into: Path) -> None:
    """Lay out a BUNDLE, to report, verify and repeat what is in it.

    FOLDER gets results/, where the campaign is, and plugins/, the source of its plug-in methods, whose cards
    are printed. None of that code is run: --plugin of other commands does so. Whether the records are sound
    is for bench verify to say.
    """
    from bench.exchange.bundle_folder import RESULTS
    from bench.exchange.bundle_folder import unpack_bundle as lay_out

    try:
        found = lay_out(bundle, into)
    except OSError as error:
        raise InputError(f"{into} can't be written: {error.strerror}", where="--into") from error
    results = into / RESULTS
    for file, (cards, whole) in found.cards.items():
        click.echo(f"plug-in {printable(str(into / 'plugins' / file))}, not run. Its source says:")
        for line in (line for card in cards for line in format_card(card)):
            click.echo(f"  {printable(line)}")
        if not whole:
            click.echo("  (it has cards that only its code can make: read it)")
    for what, named in found.needs:
        click.echo(f"to repeat its cells takes {printable(what)}, which isn't in it: {named}")
    if found.by:
        click.echo(f"submitted by {found.by}: the sender's word")
    click.echo(f"{results / found.campaign}: not verified yet")
    click.echo(f"tables:  bench report --results {shlex.quote(str(results))} --campaign {found.campaign}")
    click.echo(f"verify:  bench verify {shlex.quote(str(results / found.campaign))}")
