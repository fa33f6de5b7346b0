"""``bench conformance``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import write_file
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.conformance.check_run import Finding
    from bench.render.grid import Grid

_WHERE = "bench conformance"


@bench_command()
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
    help="Write the findings to a file.",
)
def conformance_command(asked: tuple[str, ...], json_file: Path | None) -> None:
    """Check that methods meet bench's requirements.

    Give a file, whose code this runs, an installed package, a method such as simcse or hf:DIR, or all. The
    checks run in profile mini with two training steps. Exit codes: 0 passed, 1 a check failed, 2 bad input.
    """
    from bench.cli.terminal import format_grids
    from bench.conformance.check_run import FAILED, check_method, load_methods

    findings: list[Finding] = []
    try:
        methods = list(dict.fromkeys(method for name in asked for method in load_methods(name)))
        with (
            tempfile.TemporaryDirectory(prefix="bench-conformance-") as folder,
            progress_bar("check", len(methods)) as advance,
        ):
            for method in methods:
                findings += check_method(method, Path(folder))
                advance(1)
    except InputError as error:  # name this command in place of an option of bench run
        option, _, value = (error.where or "").partition(" ")
        if option not in ("--plugin", "--methods"):
            raise
        where = f"{_WHERE} {value}".rstrip()
        raise InputError(error.what, where=where, expected=error.expected, hint=error.hint) from error
    click.echo(format_grids(conformance_grids(findings)), nl=False)
    failed = list(dict.fromkeys(finding.method for finding in findings if finding.verdict == FAILED))
    verdict = f"FAILED, {len(failed)} of " if failed else "PASSED, "
    verdict += f"{len(methods)} method{'s' * (len(methods) != 1)}"
    click.echo("\n" + printable(f"{verdict}: {', '.join(failed)}" if failed else verdict))
    if json_file is not None:
        data = {"passed": not failed, "failed": sorted(failed), "findings": list(map(asdict, findings))}
        write_file(json_file, json.dumps(data, indent=2, sort_keys=True) + "\n", "--json")
    sys.exit(int(bool(failed)))


def conformance_grids(all_findings: Sequence[Finding]) -> list[Grid]:
    """Return a summary of several methods, and all checks of a single method and of each failed one."""
    from bench.conformance.check_run import FAILED, NO_CASE, PASSED
    from bench.render.grid import Grid

    by_method: dict[str, list[Finding]] = {}
    for finding in all_findings:
        by_method.setdefault(finding.method, []).append(finding)
    details, rows = [], []
    for method, findings in by_method.items():
        counts = Counter(finding.verdict for finding in findings)
        rows.append((printable(method), *(str(counts[verdict]) for verdict in (PASSED, FAILED, NO_CASE))))
        if len(by_method) == 1 or counts[FAILED]:
            lines = tuple((f.check, f.verdict.replace(FAILED, FAILED.upper())) for f in findings)
            notes = tuple(printable(f"{f.check}: {f.reason}") for f in findings if f.reason)
            details.append(Grid(printable(method), ("check", "verdict"), lines, notes))
    if len(rows) == 1:
        return details
    return [Grid("Conformance", ("method", "passed", "failed", "no case"), tuple(rows), ()), *details]
