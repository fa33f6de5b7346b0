"""Published figures of four papers next to the campaigns' results, and disagreements between papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedFigure, load_figures, published_rows
from bench.errors import printable
from bench.render.grid import format_score
from bench.render.names import printed_name
from bench.site.campaign_entry import CampaignEntry

SUITES = {"sts7": "Seven STS tasks", "transfer7": "Seven transfer tasks"}
"""Suites with published figures."""


@dataclass(frozen=True)
class PublishedComparison:
    """A method's printed averages on a backbone (source, figure), and ours (campaign, row, mean and sd)."""

    method: str
    shown: str
    backbone: str
    printed: tuple[tuple[str, str], ...]
    ours: tuple[tuple[str, str, str], ...]


def compare_published(entries: Sequence[CampaignEntry], suite: str) -> list[PublishedComparison]:
    """Return every method with a published average on a suite, the best first."""
    ours: dict[str, list[tuple[str, str, str]]] = {}
    for entry in entries:
        for line in entry.lines:
            if line.suite == suite and line.mean is not None:
                spread = "" if line.sd is None else f"±{100 * line.sd:.2f}"
                row = (entry.campaign, printable(line.method), f"{format_score(line.mean)}{spread}")
                ours.setdefault(line.name, []).append(row)
    rows = [row for row in published_rows(suite) if "avg" in row.figures]
    comparisons = []
    groups = group_by(rows, lambda row: (row.first.method, row.first.backbone))
    for (method, backbone), same in groups.items():
        printed = tuple((row.first.source, row.figures["avg"].text) for row in same)
        campaigns = tuple(ours.get(method, ()))
        comparisons.append(PublishedComparison(method, printed_name(method), backbone, printed, campaigns))

    def order(comparison: PublishedComparison) -> tuple[str, float, str]:
        best = max(float(text) for _, text in comparison.printed)
        return comparison.backbone, -best, comparison.method

    return sorted(comparisons, key=order)


def list_misprints() -> list[tuple[str, str, str, str, str, str]]:
    """Return known misprints: source, backbone, method, task, printed figure, explanation."""
    rows = []
    for f in load_figures():
        rows += [(f.source, f.backbone, printed_name(f.method), f.task, f.text, note) for note in f.misprints]
    return rows


def list_disagreements() -> list[tuple[str, str, str, str]]:
    """Return differing figures of two papers: method and backbone, section and task, and both figures."""
    rows = []
    same = group_by(load_figures(), lambda f: (f.section, f.backbone, f.method, f.setting, f.task, f.metric))
    for (section, backbone, method, *_, task, _), figures in same.items():
        papers: dict[str, PublishedFigure] = {}
        for figure in figures:
            papers.setdefault(figure.paper, figure)
        if len({figure.text for figure in papers.values()}) > 1:
            name = f"{printed_name(method)}, {backbone}" if backbone else printed_name(method)
            first, second, *_ = (f"{figure.source}: {figure.text}" for figure in papers.values())
            rows.append((name, f"{section}, {task}", first, second))
    return rows
