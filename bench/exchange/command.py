"""``bench bundle``, ``merge``, ``unpack`` and ``pack``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bench.cli import completion
from bench.cli.options import (
    PATH,
    NumberRange,
    data_option,
    make_spec,
    results_option,
    seeds_option,
    spec_options,
)
from bench.cli.show import format_card
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError, printable


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


_OWN = {"out", "weights", "limit"}
_FILES = {"backbone", "data_dir", "corpus", "pairs", "copies", "plugins", "results"}
"""Options that name files, which have other places in the folder."""


@click.command()
@strict_option(
    "--methods",
    required=True,
    shell_complete=completion.methods_or_all,
    help="As for bench run, but for those that bring a model.",
)
@seeds_option("1-5")
@spec_options
@strict_option("--probes", metavar="all|NAME,...", help="Probes that the run adds.")
@strict_option("--out", type=PATH, required=True, metavar="FOLDER", help="The folder: a new one.")
@strict_option(
    "--weights",
    type=click.Choice(["fp16", "same"]),
    default="fp16",
    help="Models with float16 weights, whose hash then differs and stands in the records, or as they are.",
)
@strict_option(
    "--limit",
    type=NumberRange(0, min_open=True),
    metavar="MB",
    help="Exit code 1 where the folder is larger.",
)
def pack_command(out: Path, weights: str, limit: float | None, **options: Any) -> None:
    """Make one FOLDER that runs on a machine without network or pip, but with Python and torch.

    It holds the code, the data of the named suites, the training text, the models, and run.sh with the
    command. Records that it makes name the commit it was made from.
    """
    from bench.exchange.offline_package import pack_run as write
    from bench.plan.plan import check_folder_names, make_plan

    if str(options["profile"]).endswith(".toml"):
        raise InputError(
            "a profile of your own is not packed",
            where=f"--profile {options['profile']}",
            expected="one that comes with bench, and --set for what yours changes",
        )
    plan = make_plan(make_spec(options))
    check_folder_names(plan)
    found = write(plan, ["run", *_collect_arguments()], out, half=weights == "fp16")
    for line in found.models:
        click.echo(line)
    size = found.bytes / 1e6
    click.echo(f"{out}: {size:,.1f} MB in {found.files:,} files; run it with: sh {out / 'run.sh'}")
    if limit is not None and size > limit:
        raise BenchError(f"{size:,.1f} MB", where=str(out), expected=f"at most {limit:g} MB")


def _collect_arguments() -> list[str]:
    """What was given on the command line for the run, without what names files."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        if name in _OWN | _FILES or not isinstance(option, click.Option):
            continue
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            values = context.params[name] if option.multiple else [context.params[name]]
            for value in values:
                words += [option.opts[0]] if option.is_flag else [option.opts[0], str(value)]
    return words
