"""The list of all items: what is done of each, what is missing, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.data.published import PAPERS
from bench.papers.items import Item
from bench.papers.work import Work, cpu_seconds, done, gpu_hours
from bench.reports.grid import DASH, Grid, Value

_HEADER = ("item", "profiles", "printed figures", "cells done", "to do costs")


def listing(items: Sequence[Item], works: Mapping[str, Sequence[Work]]) -> Grid:
    """Return a table of all items, by paper.

    Args:
        items: The items.
        works: Each item in every profile in which it is run, by its id.
    """
    rows: list[tuple[Value, ...]] = []
    groups = []
    for paper, name in PAPERS.items():
        own = [item for item in items if item.paper == paper]
        groups.append((len(rows), name))
        rows += [_row(item, works[item.id]) for item in own]
    return Grid("Tables and figures of the papers", _HEADER, tuple(rows), _NOTES, tuple(groups))


_NOTES = (
    "Costs: GPU h, hours of one H200 for bert-base and roberta-base, by arithmetic (docs: Scale), every stage "
    "of a seed once, evaluation left out; CPU s, of other profiles: by records of the method in the "
    "results folder, with what methods share counted each time.",
)


def _row(item: Item, works: Sequence[Work]) -> tuple[Value, ...]:
    printed = str(len(item.figures)) if item.figures else DASH
    profiles = ", ".join(work.spec.profile for work in works) or DASH
    name = f"{item.id}  {item.title}"
    if item.nothing:
        return name, DASH, DASH, DASH, "nothing to compute"
    if not item.runs:
        return name, profiles, printed, DASH, _without_cells(item)
    counts = [done(work) for work in works]
    finished, planned = (sum(count[i] for count in counts) for i in (0, 1))
    cost = DASH if finished == planned else _cost(works)
    return name, profiles, printed, f"{finished} of {planned}", cost


def _without_cells(item: Item) -> str:
    if item.gradient:
        return "bench gradient"
    return "a formula" if item.formula else "options of the profiles"


def _cost(works: Sequence[Work]) -> str:
    """What the cells to do take."""
    papers = [work for work in works if work.spec.profile in work.item.backbones]
    others = [work for work in works if work.spec.profile not in work.item.backbones]
    told = [f"{gpu_hours(papers):,.0f} GPU h"] if papers else []
    if others:
        found = [cpu_seconds(work) for work in others]
        seconds, unknown = sum(each for each, _ in found), sum(count for _, count in found)
        told.append(
            f"{seconds:,.0f} CPU s" + (f" and {unknown} cells that no record tells of" if unknown else "")
        )
    return ", ".join(told)
