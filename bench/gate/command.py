"""``bench check``: the gate, and scores over its verdicts."""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.modes import check_mode
from bench.cli.options import (
    PATH,
    NumberRange,
    campaign_option,
    check_device,
    data_option,
    details_option,
    level_option,
    load_plugin_options,
    plugin_option,
    write_file,
)
from bench.cli.strict_options import Panel, strict_option
from bench.errors import InputError, NotComparableError
from bench.gate.verdict import BAD, Gate, Status, cell_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.plan.plan import Plan
    from bench.records.record import RunRecord
    from bench.records.store import ResultStore

_FILE = click.Path(path_type=Path, dir_okay=False)
_FORMATS = ("text", "markdown", "html", "json", "csv")
_OF_HISTORY = ("history", "methods", "form")


class _Judgement(NamedTuple):
    """A verdict, with the new records and their plans."""

    gate: Gate
    source: ResultStore
    new: list[RunRecord]
    planned: list[Plan]


@bench_command()
@strict_option(
    "--reference",
    default="results/reference",
    metavar="DIR|REV[:DIR]",
    panel=Panel.MAIN,
    help="Campaign folder of the reference, or a git revision that has one.",
)
@strict_option(
    "--results",
    type=PATH,
    panel=Panel.MAIN,
    help="Compare the records there instead of repeating the reference's own cells.",
)
@campaign_option
@strict_option(
    "--encoder",
    metavar="PATH",
    panel=Panel.SOURCE,
    help="Compare an encoder with the reference's of that --name.",
)
@strict_option(
    "--name", panel=Panel.SOURCE, help="With --encoder: its id in the reference, whatever its weights."
)
@strict_option(
    "--suite",
    "suites",
    shell_complete=completion.suites,
    panel=Panel.SOURCE,
    rare=True,
    help="With --encoder: only these suites; of a new name, its suites.",
)
@strict_option(
    "--profile",
    shell_complete=completion.profile,
    panel=Panel.SOURCE,
    rare=True,
    help="With --encoder: only records of this profile; of a new name, its profile.",
)
@strict_option(
    "--methods",
    shell_complete=completion.recorded_methods,
    panel=Panel.SOURCE,
    help="Only these methods of the reference, comma-separated ids as in its report; with --history also "
    "'average', over the cells.",
)
@strict_option("--seeds", panel=Panel.SOURCE, help="Only these seeds, such as 1-5 or 1,3,7-9.")
@strict_option(
    "--strict", is_flag=True, panel=Panel.TESTS, help="Changed numbers fail where equal ones are due."
)
@strict_option(
    "--allow-versions",
    is_flag=True,
    panel=Panel.TESTS,
    rare=True,
    help="With --strict: pass on other versions, where only averages of trained cells are compared.",
)
@strict_option(
    "--tolerance",
    type=NumberRange(0, 100),
    default=0.5,
    metavar="POINTS",
    panel=Panel.TESTS,
    help="Points that an average may fall by.",
)
@level_option("Of the intervals, together.")
@plugin_option
@strict_option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    panel=Panel.OUTPUT,
    help="What goes to stdout; csv with --history.",
)
@details_option
@strict_option("--html", type=_FILE, metavar="FILE", panel=Panel.OUTPUT, help="Write a page.")
@strict_option(
    "--junit", type=_FILE, metavar="FILE", panel=Panel.OUTPUT, help="Write JUnit XML, a test case a cell."
)
@strict_option(
    "--json", type=_FILE, metavar="FILE", panel=Panel.OUTPUT, help="Write the verdict with all figures."
)
@strict_option(
    "--summary",
    type=_FILE,
    metavar="FILE",
    envvar="GITHUB_STEP_SUMMARY",
    show_envvar=True,
    panel=Panel.OUTPUT,
    rare=True,
    help="Append markdown.",
)
@strict_option(
    "--history",
    type=PATH,
    metavar="FOLDER",
    panel=Panel.OUTPUT,
    help="Only print the scores of earlier builds, from the files of --json in this folder.",
)
@strict_option(
    "--update",
    is_flag=True,
    panel=Panel.UPDATE,
    help="Show the difference, then make the new records the reference.",
)
@strict_option(
    "--why",
    metavar="TEXT",
    panel=Panel.UPDATE,
    help="With --update: the reason, kept in the reference's CHANGES.md.",
)
@strict_option(
    "--keep-encoders",
    "keep",
    is_flag=True,
    panel=Panel.UPDATE,
    rare=True,
    help="With --update: keep the first seed's encoder of every trained method too, to be computed again.",
)
@strict_option("--yes", is_flag=True, panel=Panel.UPDATE, help="Don't ask before --update.")
@data_option()
@strict_option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    envvar="BENCH_WORKERS",
    metavar="N",
    panel=Panel.MAIN,
    help="Cells side by side.",
)
def check_command(plugins: tuple[str, ...], **options: Any) -> None:
    """Compare today's code or weights with a reference.

    It fails for a significant drop. It asks, in order: do the reference's predictions get the same scores, do
    its deterministic cells and kept encoders give the same similarities, do its seeds, trained again, score
    as before? Values that are known without the program are computed too. Cells run in a temporary folder.
    --results compares existing records, --encoder an encoder.

    Exit codes: 0 passed; 1 an average fell by more than the tolerance and its seeds or items show it, scores
    of stored predictions changed, a known value is wrong, with --strict any number that was due to be equal
    or a trained cell of other versions, or a cell failed or is missing; 2 bad input; 3 other data or
    specifications.

    --history FOLDER runs nothing: it prints the scores of the builds whose verdicts (--json) are in FOLDER,
    at any depth, in the order of their dates, with the limits of the gate. html is one file with a chart a
    cell; csv and json have scores in the metric's unit, other formats in points.
    """
    history = options.pop("history")
    check_mode("--history", (), _OF_HISTORY, active=history is not None)
    if history is not None:
        _print_history(history, options["methods"], options["form"])
        return
    _check_options(options)
    from bench.config.method_ids import parse_seeds
    from bench.gate.known_values import add_known_values
    from bench.gate.reference import open_reference

    seeds = None if options["seeds"] is None else parse_seeds(options["seeds"])
    options["loaded"] = load_plugin_options(plugins)
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        options["scratch"] = Path(folder)
        # the first encoder of a reference makes it
        is_new = bool(options["update"] and options["encoder"] is not None)
        reference = open_reference(options["reference"], options["scratch"], new=is_new)
        if options["encoder"] is None:
            judged = _judge_records(reference, seeds, options)
        else:
            judged = _judge_encoder(reference, options)
        gate = add_known_values(replace(judged.gate, build=_describe_build()))
        judged = judged._replace(gate=gate)
        _print_verdict(gate, options)
        if options["update"] and gate.wrong_values:
            click.echo("nothing was updated: the program gets known values wrong", err=True)
        elif options["update"] and _update_reference(reference, judged, options):
            return
    _exit_with_verdict(judged.gate)


def _check_options(options: dict[str, Any]) -> None:
    """Raise InputError for contradictory options, before anything is read."""
    if options["form"] == "csv":
        raise InputError("csv is for --history", where="bench check --format", expected="json")
    if (options["encoder"] is None) != (options["name"] is None):
        raise InputError("--encoder and --name go together", where="bench check")
    together = (
        (options["encoder"] is not None, ("results", "methods", "seeds", "keep"), "is not for --encoder"),
        (options["encoder"] is None, ("suites", "profile"), "is for --encoder"),
        (options["results"] is not None, ("keep",), "is for cells that are trained again, not for --results"),
        (not options["update"], ("why", "keep", "yes"), "is for --update"),
        (not options["strict"], ("allow_versions",), "is for --strict"),
        (options["update"], ("seeds",), "is not for --update: a cell's seeds are replaced together"),
    )
    flags = {"keep": "--keep-encoders", "suites": "--suite", "allow_versions": "--allow-versions"}
    for asked, names, what in together:
        for name in (name for name in names if asked and options[name]):
            raise InputError(f"{flags.get(name, f'--{name}')} {what}", where="bench check")
    given = click.get_current_context().get_parameter_source("campaign")
    if options["results"] is None and given is not ParameterSource.DEFAULT:
        raise InputError("--campaign is for --results", where="bench check", expected="--results DIR as well")
    if not options["update"]:
        return
    if not (options["why"] or "").strip():
        what = "the reference keeps the reason for every change"
        raise InputError(what, where="--update", expected="--why TEXT")
    is_new = options["encoder"] is not None and ":" not in options["reference"]
    if not is_new and not Path(options["reference"]).is_dir():
        raise InputError("a git revision can't be updated", where="--update", expected="--reference DIR")
    if not options["yes"] and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask on", where="--update", expected="--yes")


def _judge_records(
    reference: ResultStore, seeds: Sequence[int] | None, options: dict[str, Any]
) -> _Judgement:
    """Judge existing records, or the reference's own cells, repeated."""
    from bench.cli.run import execute_plan
    from bench.eval.rescoring import load_sound_predictions
    from bench.gate.kept_encoders import CAMPAIGN, has_encoder
    from bench.gate.recompute import GateQuestions, rescore_records
    from bench.gate.reference import (
        check_reference_records,
        load_gate_records,
        plan_reference,
        select_repeatable_records,
    )
    from bench.records.store import ResultStore
    from bench.render.grid import SCALE

    then = load_gate_records(reference, options["methods"], seeds)
    check_reference_records(then, options["reference"])
    data = options["data_dir"]
    asked = GateQuestions(
        *(reference, data, options["tolerance"] / SCALE, options["level"], options["strict"]),
        all=options["update"],
        allow_versions=options["allow_versions"],
        run=execute_plan,
    )
    if options["results"] is not None:
        source = ResultStore(options["results"], options["campaign"])
        new = load_gate_records(source, None, seeds, may_lack=True)
        rescored = rescore_records(source, [record for record in new if record.status == "ok"], data)
        for record in rescored.wrong:
            load_sound_predictions(source, record, data)  # raises the error
        for line in rescored.unasked:
            click.echo(f"warning: {line}", err=True)
        if options["methods"] is not None:
            methods = {record.method for record in then}
            new = [record for record in new if record.method in methods]
        present = {record.method for record in new}
        then = [record for record in then if record.method in present or not has_encoder(reference, record)]
        first = rescore_records(reference, then, data)
        return _Judgement(asked.judge(then, source, new, first, repeated=False), source, new, [])
    results = options["scratch"] / "results"
    then, others = select_repeatable_records(reference, then)
    planned = plan_reference(reference, then, data, results, options["workers"], options["loaded"])
    for plan in planned:
        check_device(plan.spec.device)
    source = ResultStore(results, CAMPAIGN)
    gate, new = asked.repeat(then, planned, source)
    gate = replace(gate, warnings=(*others, *gate.warnings))
    return _Judgement(gate, source, new, planned)


def _judge_encoder(reference: ResultStore, options: dict[str, Any]) -> _Judgement:
    """Judge an encoder against the reference's record of its name, item by item."""
    from bench.cli.run import execute_plan
    from bench.data.mteb_names import split_suites
    from bench.data.suites import SUITES
    from bench.gate.encoder_check import judge_encoder
    from bench.render.grid import SCALE

    def run(plan: Plan) -> None:
        check_device(plan.spec.device)
        execute_plan(plan)

    suites = options["suites"]
    gate, source, new = judge_encoder(
        reference,
        options["encoder"],
        options["name"],
        suites=() if suites is None else split_suites(suites, SUITES.names()),
        data=options["data_dir"],
        tolerance=options["tolerance"] / SCALE,
        execute=run,
        **{name: options[name] for name in ("scratch", "profile", "level", "strict", "update", "workers")},
    )
    return _Judgement(gate, source, new, [])


def _describe_build() -> dict[str, str]:
    """Return date, version and commit, for the history."""
    from bench.records.environment import run_git
    from bench.version import __version__

    commit = run_git("rev-parse", "HEAD")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": date, "bench": __version__} | ({"commit": commit} if commit else {})


def _print_verdict(gate: Gate, options: dict[str, Any]) -> None:
    """Print the verdict and write its files."""
    from bench.cli.terminal import get_screen
    from bench.gate.verdict_page import page
    from bench.gate.verdict_tables import (
        format_gate_json,
        format_gate_markdown,
        format_gate_text,
        format_junit,
        replace_unprintable,
    )

    for line in gate.warnings:
        click.echo(f"warning: {replace_unprintable(line)}", err=True)
    formats = {
        **{"html": page, "junit": format_junit, "json": format_gate_json, "summary": format_gate_markdown},
        "markdown": format_gate_markdown,
    }
    if options["form"] == "text":
        click.echo(format_gate_text(gate, get_screen(), details=options["details"]), nl=False)
    else:
        click.echo(formats[options["form"]](gate), nl=False)
    for option in ("html", "junit", "json", "summary"):
        if options[option] is not None:
            content = formats[option](gate)
            write_file(options[option], content, f"--{option}", append=option == "summary")


def _update_reference(reference: ResultStore, judged: _Judgement, options: dict[str, Any]) -> bool:
    """Replace the reference's changed cells, or all for other versions or hardware; False without any."""
    from bench.gate.kept_encoders import find_missing_encoders, keep_encoders
    from bench.gate.reference import append_change_note, update_reference
    from bench.records.fingerprint import machine_warnings

    def say(line: str) -> None:
        click.echo(line, err=options["form"] != "text")  # stdout is a document otherwise

    old = reference.records() if reference.root.is_dir() else []
    cells = judged.gate.cells
    if not machine_warnings(old, judged.new):
        cells = tuple(cell for cell in cells if cell.status != Status.EQUAL)
    missing = find_missing_encoders(reference, judged.new) if options["keep"] else []
    if not cells and not missing:
        say("nothing to update")
        return False
    question = f"replace {len(cells)} cell(s) of {reference.root}"
    question += f" and keep encoders of {', '.join(missing)}?" if missing else "?"
    if not options["yes"] and not click.confirm(question, err=True):
        say("nothing was changed")
        return False
    changes = update_reference(reference, judged.source, judged.new, cells)
    if cells:
        say(f"updated {len(cells)} cell(s) of the reference")
    try:
        for line in keep_encoders(reference, judged.planned, missing, options["scratch"]):
            say(line)
            changes.append(line)
    finally:  # replaced cells keep their reason if an encoder cannot be kept
        if changes:
            append_change_note(reference, options["why"], changes)
    return True


def _exit_with_verdict(gate: Gate) -> None:
    """Exit with the verdict's code; other specifications and data are printed on stderr, a line each."""
    from bench.gate.verdict_tables import replace_unprintable

    different = gate.having(Status.DIFFERENT)
    for cell in different:
        for reason in cell.reasons:
            click.echo(f"not comparable: {replace_unprintable(f'{cell_name(cell.key)}: {reason}')}", err=True)
    if different:
        methods = ""
        if gate.having(*BAD):  # failed cells are not updated
            names = shlex.quote(",".join(dict.fromkeys(cell.key[1] for cell in different)))
            methods = f" --methods {replace_unprintable(names)}"
        raise NotComparableError(
            f"{len(different)} cell(s) have another specification or other data than the reference",
            hint=f"the same command with --update --why TEXT{methods} takes them as the new reference",
        )
    sys.exit(gate.exit_code)


def _print_history(folder: Path, methods: str | None, form: str) -> None:
    """Print the scores of builds from their verdicts, with the limits of the gate."""
    from bench.config.method_ids import split_outside_brackets
    from bench.gate.history_page import render_history
    from bench.gate.verdict_history import read_history

    history = read_history(folder)
    chosen = None if methods is None else split_outside_brackets(methods)
    click.echo(render_history(history, history.lines(chosen), form), nl=False)
