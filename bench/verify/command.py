"""``bench verify``: the records of a folder, or one record made again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bench.cli.commands import bench_command
from bench.cli.modes import check_mode
from bench.cli.options import combine_options, data_option, format_option, load_plugin_options, write_file
from bench.cli.repetition import repeat_record
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

_FILE = click.Path(path_type=Path, dir_okay=False)
_PATH = click.Path(path_type=Path)
_ALONE = -1
"""Value of ``--rerun`` without a number."""
_OWN = ("model", "corpus", "text_column", "pairs", "copies")
_SHARED = ("target", "count", "data_dir", "plugins")
_RERUN = "RECORD.json --rerun"


class _CellCount(click.IntRange):
    """A number of cells; a file after ``--rerun`` is pointed to its place."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fails as click does."""
        if value == _ALONE:
            return _ALONE
        if isinstance(value, str) and not value.removeprefix("-").isdecimal():
            what = f"{value!r} is not a number of cells; for one record: bench verify RECORD.json --rerun"
            self.fail(what, param, ctx)
        return super().convert(value, param, ctx)


_rerun_options = combine_options(
    strict_option("--model", panel=Panel.REPEAT, help="Model folder or file instead of the profile's."),
    strict_option("--corpus", type=_PATH, panel=Panel.REPEAT, help="Training text instead of the profile's."),
    strict_option("--text-column", metavar="NAME", panel=Panel.REPEAT, help="Column of --corpus."),
    strict_option("--pairs", type=_PATH, panel=Panel.REPEAT, help="Labelled pairs instead of the profile's."),
    strict_option(
        "--copy",
        "copies",
        multiple=True,
        metavar="NAME=FILE",
        panel=Panel.REPEAT,
        help="As given to bench run. Repeatable.",
    ),
)


@bench_command()
@click.argument("target", type=_PATH, default=Path("results"), metavar="[FOLDER|RECORD]")
@data_option("Evaluation data; default BENCH_DATA.")
@strict_option(
    "--rerun",
    "count",
    type=_CellCount(0),
    is_flag=False,
    flag_value=_ALONE,
    default=0,
    show_default=False,
    metavar="[N]",
    panel=Panel.MAIN,
    help="With FOLDER: train N cells again, chosen at random. With RECORD and no N: repeat that record and "
    "compare every digit.",
)
@strict_option(
    "--choose",
    type=click.IntRange(0),
    metavar="SEED",
    panel=Panel.MAIN,
    help="Make the choice of --rerun N repeatable.",
)
@strict_option(
    "--seal",
    is_flag=True,
    panel=Panel.MAIN,
    help="Seal records of an older bench in which nothing is wrong, in the present schema, and files of "
    "other commands beside the records, in the campaign's manifest.",
)
@format_option("text", "json")
@strict_option(
    "--junit", type=_FILE, metavar="FILE", panel=Panel.MAIN, help="Write JUnit XML, a test case a record."
)
@strict_option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    panel=Panel.MAIN,
    help="A file whose hash is compared with that of the records' method, or an installed package; its code "
    "runs with --rerun alone. Repeatable.",
)
@_rerun_options
def verify_command(
    target: Path,
    data_dir: Path | None,
    count: int,
    choose: int | None,
    seal: bool,
    form: str,
    junit: Path | None,
    plugins: tuple[str, ...],
    **given: Any,
) -> None:
    """Check every record below FOLDER, or repeat one RECORD.

    It checks seal, key, place, predictions, scores, averages, data and copies. Scores are computed again from
    predictions and gold scores: verified. Only training again finds a record that was made up as a whole:
    --rerun N; repeatable are those that it can show here. Exit codes: 0 nothing wrong, 1 findings, 2 bad
    input, 3 fewer than N cells were repeatable here.

    RECORD.json --rerun repeats one record, training included, with the options below. It prints equal, or the
    differing digits (exit code 1). Other versions or another CPU can change digits; a difference of these is
    printed too.
    """
    check_mode(_RERUN, _OWN, _SHARED, active=count == _ALONE)
    if count == _ALONE:
        if target.is_dir():
            what, hint = "a folder has many records", f"bench verify {_RERUN} repeats one"
            raise InputError(what, where=f"bench verify {target} --rerun", expected="--rerun N", hint=hint)
        repeat_record(target, data_dir, plugins, **given)
        return
    from bench.config.plugins import read_plugin
    from bench.registry import discover
    from bench.verify.findings import verification_json, verification_junit, verification_text
    from bench.verify.record_checks import VerifySettings, verify_records
    from bench.verify.record_paths import find_record_files

    discover()
    read = [read_plugin(text, target) for text in plugins]  # their code runs only with --rerun
    texts = {plugin.name: plugin.source for plugin in read if plugin.path}
    files = sum(map(len, find_record_files(target)[0].values()))
    with progress_bar("records", files) as advance:
        verified, sound = verify_records(target, VerifySettings(data_dir, seal, texts, advance))
    if count:
        load_plugin_options(plugins)
        from bench.verify.rerun_sample import repeat_sample

        repeat_sample(verified, sound, count, data_dir, lambda line: click.echo(line, err=True), choose)
    if junit is not None:
        write_file(junit, verification_junit(verified), "--junit")
    click.echo(verification_json(verified).rstrip("\n") if form == "json" else verification_text(verified))
    sys.exit(verified.exit_code)
