"""What four papers print beside what the campaigns here measured, and where the papers contradict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.comparison.selection import group_by
from bench.data.published_tables import PAPERS, PublishedFigure, load_figures, published_rows
from bench.errors import printable
from bench.render.grid import format_score
from bench.render.names import printed_name
from bench.site.campaign_entry import CampaignEntry

SUITES = {"sts7": "Seven STS tasks", "transfer7": "Seven transfer tasks"}
"""Suites of which papers and campaigns both have figures."""


@dataclass(frozen=True)
class PublishedComparison:
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


def compare_published(entries: Sequence[CampaignEntry], suite: str) -> list[PublishedComparison]:
    """Return every method that papers print on a suite, the best printed first."""
    printed = group_by(
        (line for line in published_rows(suite) if "avg" in line.figures),
        lambda line: (line.first.method, line.first.backbone),
    )
    found = []
    for (method, backbone), there in printed.items():
        shown = tuple((line.first.source, line.figures["avg"].text) for line in there)
        found.append(
            PublishedComparison(
                method,
                printed_name(method),
                backbone,
                shown,
                tuple(_find_campaign_rows(entries, method, suite)),
            )
        )
    return sorted(
        found, key=lambda one: (one.backbone, -max(float(text) for _, text in one.printed), one.method)
    )


def _find_campaign_rows(
    entries: Sequence[CampaignEntry], method: str, suite: str
) -> list[tuple[str, str, str]]:
    found = []
    for entry in entries:
        for line in entry.lines:
            if line.name == method and line.suite == suite and line.mean is not None:
                spread = "" if line.sd is None else f"±{100 * line.sd:.2f}"
                found.append((entry.campaign, printable(line.method), f"{format_score(line.mean)}{spread}"))
    return found


def list_misprints() -> list[tuple[str, str, str, str, str, str]]:
    """Return what is known to be wrong or doubtful: source, backbone, method, task, printed, what."""
    return [
        (f.source, f.backbone, printed_name(f.method), f.task, f.text, what)
        for f in load_figures()
        for what in f.misprints
    ]


def list_disagreements() -> list[tuple[str, str, str, str]]:
    """Return what two papers print of one method, backbone, task and metric, where it is not the same.

    Returns:
        Backbone and method, section and task, and each side's source with its figure.
    """
    found = []
    same = group_by(load_figures(), lambda f: (f.section, f.backbone, f.method, f.setting, f.task, f.metric))
    for (section, backbone, method, *_), there in same.items():
        papers: dict[str, PublishedFigure] = {}
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
