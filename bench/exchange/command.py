"""The commands ``bench bundle``, ``merge`` and ``pack``."""

from __future__ import annotations

import shlex
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bench.cli import completion
from bench.cli.card_sections import format_card
from bench.cli.commands import bench_command
from bench.cli.modes import check_mode, require_parameter
from bench.cli.options import (
    PATH,
    NumberRange,
    data_option,
    make_spec,
    require_option,
    results_option,
    seeds_option,
    spec_options,
)
from bench.cli.plan_notes import print_plan_notes
from bench.cli.signals import finish_command
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import BenchError, InputError, NotComparableError, printable

_folder_option = partial(strict_option, type=PATH, metavar="FOLDER", panel=Panel.MAIN)


@bench_command()
@click.argument("campaign", required=False, shell_complete=completion.campaign)
@strict_option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    panel=Panel.MAIN,
    help="The bundle, such as submissions/NAME.zip.",
)
@strict_option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py",
    panel=Panel.MAIN,
    help="Add the source of a method that was run with --plugin, without running it. Repeatable.",
)
@strict_option(
    "--by",
    metavar="TEXT",
    panel=Panel.MAIN,
    help="Sender, such as a name or an organisation, kept by the records.",
)
@strict_option(
    "--extract",
    type=PATH,
    metavar="FILE",
    panel=Panel.MAIN,
    help="Unpack this bundle into --into instead, to report, verify and repeat its runs.",
)
@_folder_option("--into", help="With --extract: a folder that is new or empty.")
@results_option
@data_option()
def bundle_command(
    campaign: str | None,
    out: Path | None,
    plugins: tuple[str, ...],
    by: str | None,
    extract: Path | None,
    into: Path | None,
    results: Path,
    data_dir: Path | None,
) -> None:
    """Put a campaign into one file, or unpack one.

    The bundle holds the records with their predictions, the source of plug-in methods, the profile, the
    versions of all installed packages, the report and the output of bench verify. Any finding of bench
    verify stops it (exit code 1). Equal campaigns give equal bytes. bench merge adds it to a folder.

    With --extract, the folder gets results/ with the campaign, and plugins/ with the source of its plug-in
    methods, whose cards are printed. That code runs only with --plugin of other commands. Check the records
    with bench verify.
    """
    check_mode("--extract", ("into",), ("extract",), active=extract is not None)
    if extract is not None:
        _extract_bundle(extract, require_parameter("into", "--into"))
        return
    name: str = require_parameter("campaign", "CAMPAIGN or --extract FILE")
    target: Path = require_parameter("out", "--out")
    from bench.config.plugins import read_plugin
    from bench.exchange.campaign_bundle import make_bundle
    from bench.records.filesystem import write_atomically
    from bench.records.store import ResultStore
    from bench.registry import discover
    from bench.verify.findings import verification_text

    discover()
    sources = [read_plugin(text, results) for text in plugins]
    with progress_bar("records", None) as advance:
        verified, payload = make_bundle(ResultStore(results, name), data_dir, sources, advance, by)
    click.echo(verification_text(verified))
    if payload is None:
        raise BenchError(f"{name} is not bundled: see the findings above", where="bench bundle")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, payload)
    except OSError as error:
        raise InputError(f"{target} can't be written: {error.strerror}", where="--out") from error
    click.echo(f"{target}: {len(payload):,} bytes, sha256 {sha256(payload).hexdigest()}")


@bench_command()
@click.argument("bundles", type=PATH, nargs=-1, required=True, metavar="BUNDLE|FOLDER...")
@_folder_option("--into", required=True, help="Results folder that gets the records.")
@strict_option(
    "--campaign",
    metavar="NAME",
    shell_complete=completion.campaign,
    help="Campaign that gets the records; default: the bundle's name.",
)
@data_option()
@strict_option(
    "--rerun",
    "count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="First repeat N random cells of methods that are installed here.",
)
@strict_option("--choose", type=click.IntRange(0), metavar="SEED", help="Make --rerun's choice repeatable.")
@require_option("Add records only if all are at least this.")
@strict_option(
    "--run-plugin",
    "run_plugins",
    multiple=True,
    metavar="NAME.py",
    help="For --rerun: also cells of this plug-in of the bundle. RUNS ITS CODE: read it first. Repeatable.",
)
def merge_command(bundles: tuple[Path, ...], into: Path, data_dir: Path | None, **settings: Any) -> None:
    """Verify bundles and add their records to a results folder.

    A FOLDER of your own records, such as that of a shard, works too. Several are added one by one, each
    checked as a whole first. Existing records stay as they are; lost predictions are restored. No code of a
    bundle runs unless --run-plugin names it. Exit codes: 0 added, 1 verification found something, 2 bad
    input, 3 other content under the same name, or records or drawn cells that are not repeatable here.
    """
    from bench.exchange.bundle_merge import MergeSettings, merge_bundle
    from bench.registry import discover
    from bench.verify.findings import verification_text

    discover()
    settings |= {"data": data_dir, "rerun": settings.pop("count")}
    for bundle in bundles:
        with progress_bar("records", None) as advance:
            how = MergeSettings(
                **settings, say=lambda line: click.echo(printable(line), err=True), progress=advance
            )
            merged = merge_bundle(bundle, into, how)
        click.echo(verification_text(merged.verified))
        if merged.verified.findings:
            raise BenchError("nothing was added: see the findings above", where=str(bundle))
        if merged.shortfall:
            what = f"{merged.shortfall}; nothing was added"
            raise NotComparableError(what, where=str(bundle), hint=merged.hint)
        for note in merged.notes:
            click.echo(printable(f"note: {note}"))
        if merged.by:
            click.echo(f"submitted by {merged.by}: the sender's word")
        count = len(merged.added)
        present = f", {merged.present:,} were there already" if merged.present else ""
        click.echo(f"{into / merged.campaign}: {count:,} record{'s' * (count != 1)} added{present}")


def _extract_bundle(bundle: Path, into: Path) -> None:
    """Unpack a bundle; print the cards of its methods and the commands that read it."""
    from bench.exchange.campaign_bundle import RESULTS, unpack_bundle

    try:
        unpacked = unpack_bundle(bundle, into, finish_command)
    except OSError as error:
        raise InputError(f"{into} can't be written: {error.strerror}", where="--into") from error
    results = into / RESULTS
    for file, (cards, whole) in unpacked.cards.items():
        click.echo(f"plug-in {printable(str(into / 'plugins' / file))}, not run. Its source says:")
        for line in (line for card in cards for line in format_card(card)):
            click.echo(f"  {printable(line)}")
        if not whole:
            click.echo("  (it has cards that only its code can make: read it)")
    for what, named in unpacked.needs:
        click.echo(f"to repeat its cells takes {printable(what)}, which isn't in it: {named}")
    if unpacked.by:
        click.echo(f"submitted by {unpacked.by}: the sender's word")
    click.echo(f"{results / unpacked.campaign}: not verified yet")
    click.echo(f"tables:  bench report --results {shlex.quote(str(results))} --campaign {unpacked.campaign}")
    click.echo(f"verify:  bench verify {shlex.quote(str(results / unpacked.campaign))}")


_OWN, _FILES = {"out", "weights", "limit"}, {"backbone", "data_dir", "corpus", "pairs", "copies", "plugins"}
_LEFT_OUT = {*_OWN, *_FILES, "results"}
"""Options of ``bench pack`` only, and those that name files, which have other places in the folder."""


@bench_command()
@strict_option(
    "--methods",
    required=True,
    shell_complete=completion.methods_or_all,
    panel=Panel.MAIN,
    help="As for bench run, except methods that bring a model.",
)
@seeds_option("1-5")
@spec_options
@strict_option("--probes", metavar="all|NAME,...", panel=Panel.EVALUATION, help="Probes that the run adds.")
@_folder_option("--out", required=True, help="The folder: a new one.")
@strict_option(
    "--weights",
    type=click.Choice(["fp16", "same"]),
    default="fp16",
    panel=Panel.OUTPUT,
    help="Round models to float16, which changes the hash in the records, or keep them.",
)
@strict_option(
    "--limit",
    type=NumberRange(0, min_open=True),
    metavar="MB",
    panel=Panel.OUTPUT,
    help="Exit code 1 if the folder is larger.",
)
def pack_command(out: Path, weights: str, limit: float | None, **options: Any) -> None:
    """Make a folder that runs without network or pip.

    The machine needs Python and torch. The folder holds the code, the data of the named suites, the training
    text, the models, and run.sh with the command. Its records name the commit that it was made from.
    """
    from bench.exchange.offline_package import pack_run
    from bench.plan.plan import check_folder_names, make_plan

    if str(options["profile"]).endswith(".toml"):
        what, where = "a profile of your own can't be packed", f"--profile {options['profile']}"
        expected = "one that comes with bench, and --set for what yours changes"
        raise InputError(what, where=where, expected=expected)
    plan = make_plan(make_spec(options))
    print_plan_notes(plan)
    check_folder_names(plan)
    packed = pack_run(plan, ["run", *_collect_arguments()], out, half=weights == "fp16")
    for line in packed.models:
        click.echo(line)
    size = packed.bytes / 1e6
    click.echo(f"{out}: {size:,.1f} MB in {packed.files:,} files; run it with: sh {out / 'run.sh'}")
    if limit is not None and size > limit:
        raise BenchError(f"{size:,.1f} MB", where=str(out), expected=f"at most {limit:g} MB")


def _collect_arguments() -> list[str]:
    """Return the given command-line arguments of the run, without those that name files."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if not given or name in _LEFT_OUT or not isinstance(option, click.Option):
            continue
        for value in context.params[name] if option.multiple else [context.params[name]]:
            words += [option.opts[0]] if option.is_flag else [option.opts[0], str(value)]
    return words
