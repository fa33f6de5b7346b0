"""``bench verify``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench.cli.options import format_option, load_plugin_options, write_file
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("target", type=click.Path(path_type=Path), default=Path("results"), metavar="[FOLDER|RECORD]")
@strict_option("--data", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA.")
@strict_option(
    "--rerun",
    "count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Train N cells again, chosen at random.",
)
@strict_option("--choose", type=click.IntRange(0), metavar="SEED", help="Make --rerun's choice repeatable.")
@strict_option(
    "--seal",
    is_flag=True,
    help="Seal records of an older bench in which nothing is wrong, in the present schema, and files of "
    "other commands beside the records, in the campaign's manifest.",
)
@format_option("text", "json")
@strict_option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML, a test case a record.")
@strict_option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py|PACKAGE",
    help="A file whose hash is compared with that of the records' method, or an installed package; its code "
    "runs with --rerun alone. Repeatable.",
)
def verify_command(
    target: Path,
    data: Path | None,
    count: int,
    choose: int | None,
    seal: bool,
    form: str,
    junit: Path | None,
    plugins: tuple[str, ...],
) -> None:
    """Check every record below FOLDER.

    It checks seal, key, place, predictions, scores, averages, data and copies. Scores are computed again from
    predictions and gold scores: verified. Only training again finds a record that was made up as a whole:
    --rerun N; repeatable are those that it can show here. Exit codes: 0 nothing wrong, 1 findings, 2 bad
    input, 3 fewer than N cells were repeatable here.
    """
    from bench.config.plugins import read_plugin
    from bench.registry import discover
    from bench.verify.findings import verification_json, verification_junit, verification_text
    from bench.verify.record_checks import VerifySettings, verify_records
    from bench.verify.record_paths import find_record_files

    discover()
    given = [read_plugin(text, target) for text in plugins]  # their code runs only with --rerun
    sources = {plugin.name: plugin.source for plugin in given if plugin.path}
    files = sum(map(len, find_record_files(target)[0].values()))
    with progress_bar("records", files) as advance:
        verified, sound = verify_records(target, VerifySettings(data, seal, sources, advance))
    if count:
        load_plugin_options(plugins)
        from bench.verify.rerun_sample import repeat_sample

        repeat_sample(verified, sound, count, data, lambda line: click.echo(line, err=True), choose)
    if junit is not None:
        write_file(junit, verification_junit(verified), "--junit")
    click.echo(verification_json(verified).rstrip("\n") if form == "json" else verification_text(verified))
    sys.exit(verified.exit_code)
