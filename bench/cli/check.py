"""``bench check``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bench.cli.files import write_file
from bench.cli.options import PATH, NumberRange, campaign_option, check_device, data_option, level_option
from bench.errors import InputError, NotComparableError
from bench.gate.verdict import CellVerdict, Gate, Status, cell_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.records.record import RunRecord
    from bench.records.store import ResultStore


_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--reference",
    default="results/reference",
    metavar="DIR|REV[:DIR]",
    help="Campaign folder of the reference, or a git revision that has one.",
)
@click.option(
    "--results", type=PATH, help="Compare the records there instead of repeating the reference's own cells."
)
@campaign_option
@click.option("--methods", help="Only these methods of the reference, comma-separated ids as in its report.")
@click.option("--seeds", help="Only these seeds, such as 1-5 or 1,3,7-9.")
@click.option(
    "--tolerance", type=NumberRange(0, 100), default=0.5, help="Points that an average may fall by."
)
@level_option("Of the intervals, together.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE|METHOD|all",
    help="Check instead that methods keep to what every method has to; a file's code is run. Repeatable.",
)
@click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML, a test case a cell.")
@click.option("--json", type=_FILE, metavar="FILE", help="Write the verdict with all figures.")
@click.option(
    "--summary",
    type=_FILE,
    metavar="FILE",
    envvar="GITHUB_STEP_SUMMARY",
    show_envvar=True,
    help="Append markdown.",
)
@click.option("--update", is_flag=True, help="Show the difference, then make the new records the reference.")
@click.option("--yes", is_flag=True, help="Don't ask before --update.")
@data_option()
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, envvar="BENCH_WORKERS", help="Cells side by side."
)
@click.pass_context
def check(context: click.Context, /, plugins: tuple[str, ...], **options: Any) -> None:
    """Compare new records with a reference; fail only where a drop is real.

    Without --results it repeats the reference's own cells in a temporary folder. Exit codes: 0 passed, 1 an
    average fell by more than the tolerance and its seeds show it, or a cell failed or is missing,
    2 bad input, 3 other specifications or data.

    With --plugin it runs the conformance checks on the methods of a file or an installed package, on a method
    by its name (such as mine, or hf:DIR), or on all that are registered: in profile mini, with two training
    steps. Of the other options it takes --json. Exit codes: 0 passed, 1 a check failed, 2 bad input.
    """
    if plugins:
        from bench.cli.conformance import conformance

        given = [
            name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
        named = [flags[name] for name in given if name != "json"]
        if named:
            raise InputError(
                "it compares records", where=f"--plugin {plugins[0]} {named[0]}", expected="--json"
            )
        conformance(plugins, options["json"])
        return
    from bench.request.parse import parse_seeds
    from bench.run.reference import check_whole, load, open_reference

    seeds = None if options["seeds"] is None else parse_seeds(options["seeds"])
    if options["update"] and not Path(options["reference"]).is_dir():
        raise InputError("a git revision can't be updated", where="--update", expected="--reference DIR")
    if options["update"] and not options["yes"] and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask on", where="--update", expected="--yes")
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        scratch = Path(folder)
        reference = open_reference(options["reference"], scratch)
        then = load(reference, options["methods"], seeds)
        check_whole(then, options["reference"])
        _believe(reference, then, options["data_dir"])
        gate, source, new = _judged(then, seeds, scratch, options)
        _show(gate, options)
        if options["update"] and _update(gate, reference, source, new, ask=not options["yes"]):
            return
    _leave(gate)


def _believe(store: ResultStore, records: Sequence[RunRecord], data: Path | None) -> None:
    """Refuse records whose scores aren't what their predictions give; say where that can't be told."""
    from bench.eval.rescore import check_scores

    for line in check_scores(store, records, data):
        click.echo(f"warning: {line}", err=True)


def _judged(
    then: Sequence[RunRecord], seeds: Sequence[int] | None, scratch: Path, options: dict[str, Any]
) -> tuple[Gate, ResultStore, list[RunRecord]]:
    """Find or make the new records, and judge them."""
    from bench.cli.run import execute
    from bench.gate.judge import judge
    from bench.records.store import ResultStore
    from bench.reports.grid import SCALE
    from bench.run.reference import CAMPAIGN, changed, load, plans

    tolerance, level = options["tolerance"] / SCALE, options["level"]
    if options["results"] is not None:
        store = ResultStore(options["results"], options["campaign"])
        new = load(store, None, seeds)
        _believe(store, new, options["data_dir"])
        if options["methods"] is not None:
            new = [record for record in new if record.method in {r.method for r in then}]
        return judge(then, new, tolerance=tolerance, level=level), store, new
    store = ResultStore(scratch / "results", CAMPAIGN)
    planned = plans(then, options["data_dir"], scratch / "results", options["workers"])
    differing = sorted(changed(planned, then).items())
    if differing and not options["update"]:  # then nothing runs
        refused = (CellVerdict(key, Status.DIFFERENT, (), (), reasons=why) for key, why in differing)
        return Gate(tuple(refused), tolerance, level), store, []
    for plan in planned:
        check_device(plan.spec.device)
    for plan in planned:
        execute(plan)
    new = load(store)
    return judge(then, new, tolerance=tolerance, level=level, repeated=True), store, new


def _show(gate: Gate, options: dict[str, Any]) -> None:
    """Print the verdict and write the files that are asked for."""
    from bench.reports.formats.junit import junit
    from bench.reports.formats.render import text
    from bench.reports.tables.gate import as_json, as_markdown, grid, printable, sentence

    for line in gate.warnings:
        click.echo(f"warning: {printable(line)}", err=True)
    click.echo(text([grid(gate)]))
    click.echo(sentence(gate))
    for option, content in (("junit", junit), ("json", as_json), ("summary", as_markdown)):
        if options[option] is not None:
            write_file(options[option], content(gate), f"--{option}", append=option == "summary")


def _update(
    gate: Gate, reference: ResultStore, source: ResultStore, new: Sequence[RunRecord], *, ask: bool
) -> bool:
    """Replace the reference's cells that aren't equal, or all where versions or hardware differ.

    Returns:
        False if nothing was replaced.
    """
    from bench.run.reference import update

    cells = gate.cells if gate.warnings else [cell for cell in gate.cells if cell.status != Status.EQUAL]
    if not cells:
        click.echo("nothing to update")
        return False
    if ask and not click.confirm(f"replace {len(cells)} cell(s) of {reference.root}?", err=True):
        click.echo("nothing was changed")
        return False
    update(reference, source, new, cells)
    click.echo(f"updated {len(cells)} cell(s) of the reference")
    return True


def _leave(gate: Gate) -> None:
    """Exit as the verdict says; differences of specification or data stand on stderr, a line each."""
    from bench.reports.tables.gate import printable

    different = gate.having(Status.DIFFERENT)
    for cell in different:
        for reason in cell.reasons:
            click.echo(f"not comparable: {printable(f'{cell_name(cell.key)}: {reason}')}", err=True)
    if different:
        raise NotComparableError(
            f"{len(different)} cell(s) have another specification or other data than the reference",
            hint="bench check --update takes them as the new reference",
        )
    sys.exit(gate.exit_code)
