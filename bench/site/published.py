"""What four papers print beside what the campaigns here measured, and where the papers contradict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.comparison.select import grouped
from bench.data.published import PAPERS, Figure, figures, lines
from bench.errors import printable
from bench.render.grid import number
from bench.render.names import printed_name
from bench.site.entry import Entry

SUITES = {"sts7": "Seven STS tasks", "transfer7": "Seven transfer tasks"}
"""Suites of which papers and campaigns both have figures."""


@dataclass(frozen=True)
class Beside:
    """A method's printed averages on a backbone, and ours.

    Args:
        method: Registered name, as the tables of the papers are kept.
        shown: As papers print it.
        backbone: Of the printed figures.
        printed: Source and figure.
        ours: Campaign, row, mean and deviation over its seeds.
    """

    method: str
    shown: str
    backbone: str
    printed: tuple[tuple[str, str], ...]
    ours: tuple[tuple[str, str, str], ...]


def beside(entries: Sequence[Entry], suite: str) -> list[Beside]:
    """Return every method that papers print on a suite, the best printed first."""
    printed = grouped(
        (line for line in lines(suite) if "avg" in line.figures),
        lambda line: (line.first.method, line.first.backbone),
    )
    found = []
    for (method, backbone), there in printed.items():
        shown = tuple((line.first.source, line.figures["avg"].text) for line in there)
        found.append(
            Beside(method, printed_name(method), backbone, shown, tuple(_ours(entries, method, suite)))
        )
    return sorted(
        found, key=lambda one: (one.backbone, -max(float(text) for _, text in one.printed), one.method)
    )


def _ours(entries: Sequence[Entry], method: str, suite: str) -> list[tuple[str, str, str]]:
    found = []
    for entry in entries:
        for line in entry.lines:
            if line.name == method and line.suite == suite and line.mean is not None:
                spread = "" if line.sd is None else f"±{100 * line.sd:.2f}"
                found.append((entry.campaign, printable(line.method), f"{number(line.mean)}{spread}"))
    return found


def misprints() -> list[tuple[str, str, str, str, str, str]]:
    """Return what is known to be wrong or doubtful: source, backbone, method, task, printed, what."""
    return [
        (f.source, f.backbone, printed_name(f.method), f.task, f.text, what)
        for f in figures()
        for what in f.misprints
    ]


def disagreements() -> list[tuple[str, str, str, str]]:
    """Return what two papers print of one method, backbone, task and metric, where it is not the same.

    Returns:
        Backbone and method, section and task, and each side's source with its figure.
    """
    found = []
    same = grouped(figures(), lambda f: (f.section, f.backbone, f.method, f.setting, f.task, f.metric))
    for (section, backbone, method, *_), there in same.items():
        papers: dict[str, Figure] = {}
        for figure in there:
            papers.setdefault(figure.paper, figure)
        if len({figure.text for figure in papers.values()}) > 1:
            who = f"{printed_name(method)}, {backbone}" if backbone else printed_name(method)
            sides = [f"{figure.source}: {figure.text}" for figure in papers.values()]
            found.append((who, f"{section}, {there[0].task}", sides[0], sides[1]))
    return found


def papers() -> list[str]:
    """Return the names of the papers."""
    return list(PAPERS.values())
