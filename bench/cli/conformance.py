"""``bench check --plugin``: whether methods keep to what every method has to."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from bench.cli.files import write_file
from bench.cli.options import progress_bar
from bench.conformance.suite import FAILED, NO_CASE, PASSED, Finding, check_method, methods_of
from bench.reports.formats.render import text
from bench.reports.grid import Grid
from bench.reports.tables.gate import printable


def conformance(plugins: Sequence[str], json_file: Path | None) -> None:
    """Check the methods, print a table of each, and exit with 1 if a check failed.

    Args:
        plugins: Files, packages, methods, or "all".
        json_file: Where to write the findings, None for nowhere.

    Raises:
        InputError: nothing of that name, a plug-in that can't be loaded, or a file that can't be written.
    """
    methods = list(dict.fromkeys(method for plugin in plugins for method in methods_of(plugin)))
    found = _run(methods)
    click.echo(text(grids(found)), nl=False)
    failed = [finding for finding in found if finding.verdict == FAILED]
    bad = dict.fromkeys(finding.method for finding in failed)
    click.echo(f"\n{_sentence(methods, list(bad))}")
    if json_file is not None:
        write_file(json_file, _as_json(found), "--json")
    sys.exit(int(bool(failed)))


def _run(methods: Sequence[str]) -> list[Finding]:
    """Run all checks on all methods, with a bar on stderr."""
    found: list[Finding] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-conformance-") as folder,
        progress_bar("check", len(methods)) as advance,
    ):
        for method in methods:
            found += check_method(method, Path(folder))
            advance(1)
    return found


def grids(found: Sequence[Finding]) -> list[Grid]:
    """A table of every check for a single method and for each one that failed, a row for every other."""
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


def _sentence(methods: Sequence[str], bad: Sequence[str]) -> str:
    """The verdict in one line."""
    count = f"{len(methods)} method{'s' * (len(methods) != 1)}"
    if bad:
        return printable(f"FAILED, {len(bad)} of {count}: {', '.join(bad)}")
    return f"PASSED, {count}"


def _as_json(found: Sequence[Finding]) -> str:
    """All findings; text as ASCII."""
    bad = sorted({finding.method for finding in found if finding.verdict == FAILED})
    data = {"passed": not bad, "failed": bad, "findings": [asdict(finding) for finding in found]}
    return json.dumps(data, indent=2, sort_keys=True) + "\n"
