"""``bench conformance``: whether methods keep to what every method has to."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli import completion
from bench.cli.output_file import write_file
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.conformance.check_run import Finding
    from bench.render.grid import Grid

_WHERE = "bench conformance"


@click.command()
@click.argument(
    "asked",
    nargs=-1,
    required=True,
    metavar="FILE.py|PACKAGE|METHOD|all...",
    shell_complete=completion.method_or_path,
)
@strict_option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the findings.",
)
def conformance_command(asked: tuple[str, ...], json_file: Path | None) -> None:
    """Check that methods keep to what every method has to.

    The methods of a file, whose code this runs, or of an installed package; one method by its name, such as
    simcse or hf:DIR; or all that are registered. In profile mini, with two training steps.

    Exit codes: 0 passed, 1 a check failed, 2 bad input.
    """
    from bench.cli.terminal import format_grids
    from bench.conformance.check_run import FAILED, load_methods

    with _rename_option_errors():
        methods = list(dict.fromkeys(method for each in asked for method in load_methods(each)))
        found = _check_methods(methods)
    click.echo(format_grids(conformance_grids(found)), nl=False)
    failed = [finding for finding in found if finding.verdict == FAILED]
    bad = dict.fromkeys(finding.method for finding in failed)
    click.echo(f"\n{_format_verdict(methods, list(bad))}")
    if json_file is not None:
        write_file(json_file, _findings_json(found), "--json")
    sys.exit(int(bool(failed)))


@contextmanager
def _rename_option_errors() -> Iterator[None]:
    """Let an error name this command, where it names the option of another that takes the same."""
    try:
        yield
    except InputError as error:
        option, _, value = (error.where or "").partition(" ")
        if option not in ("--plugin", "--methods"):
            raise
        where = f"{_WHERE} {value}".rstrip()
        raise InputError(error.what, where=where, expected=error.expected, hint=error.hint) from error


def _check_methods(methods: Sequence[str]) -> list[Finding]:
    """Run all checks on all methods, with a bar on stderr."""
    from bench.conformance.check_run import check_method

    found: list[Finding] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-conformance-") as folder,
        progress_bar("check", len(methods)) as advance,
    ):
        for method in methods:
            found += check_method(method, Path(folder))
            advance(1)
    return found


def conformance_grids(found: Sequence[Finding]) -> list[Grid]:
    """A table of every check for a single method and for each one that failed, a row for every other."""
    from bench.conformance.check_run import FAILED, NO_CASE, PASSED
    from bench.render.grid import Grid

    by_method: dict[str, list[Finding]] = {}
    for finding in found:
        by_method.setdefault(finding.method, []).append(finding)
    whole, rows = [], []
    for method, findings in by_method.items():
        counts = Counter(finding.verdict for finding in findings)
        if len(by_method) > 1:
            rows.append((printable(method), *(str(counts[verdict]) for verdict in (PASSED, FAILED, NO_CASE))))
        if len(by_method) == 1 or counts[FAILED]:
            lines = tuple(
                (f.check, f.verdict.upper() if f.verdict == FAILED else f.verdict) for f in findings
            )
            notes = tuple(printable(f"{f.check}: {f.reason}") for f in findings if f.reason)
            whole.append(Grid(printable(method), ("check", "verdict"), lines, notes))
    summary = (
        [Grid("Conformance", ("method", "passed", "failed", "no case"), tuple(rows), ())] if rows else []
    )
    return [*summary, *whole]


def _format_verdict(methods: Sequence[str], bad: Sequence[str]) -> str:
    """The verdict in one line."""
    count = f"{len(methods)} method{'s' * (len(methods) != 1)}"
    if bad:
        return printable(f"FAILED, {len(bad)} of {count}: {', '.join(bad)}")
    return f"PASSED, {count}"


def _findings_json(found: Sequence[Finding]) -> str:
    """All findings; text as ASCII."""
    from bench.conformance.check_run import FAILED

    bad = sorted({finding.method for finding in found if finding.verdict == FAILED})
    data = {"passed": not bad, "failed": bad, "findings": [asdict(finding) for finding in found]}
    return json.dumps(data, indent=2, sort_keys=True) + "\n"
