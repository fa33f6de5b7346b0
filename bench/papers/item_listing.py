"""The list of all items: what is done of each, what is missing, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.data.published_tables import PAPERS
from bench.papers.item_plan import ItemPlan, count_finished, cpu_seconds, gpu_hours
from bench.papers.paper_items import Item
from bench.render.grid import DASH, Grid, Value, plain_text

_HEADER = ("item", "profiles", "printed", "done", "to do costs", "shows")


def list_items(items: Sequence[Item], works: Mapping[str, Sequence[ItemPlan]]) -> Grid:
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
        rows += [_item_row(item, works[item.id]) for item in own]
    return Grid("Tables and figures of the papers", _HEADER, tuple(rows), _NOTES, tuple(groups))


_NOTES = (
    "GPU h: hours of one H200 for bert-base and roberta-base, by arithmetic (docs: Scale), every stage of a "
    "seed once, without evaluation. CPU s, of other profiles: by records of the method in the results "
    "folder, with what methods share counted each time; unknown: no record tells.",
)


def format_listing(grid: Grid) -> str:
    """Return the table for a terminal or a file: words begin below each other."""
    cells = [grid.header, *(tuple(map(plain_text, row)) for row in grid.rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(grid.header))]
    shown = []
    for heading, row in [(None, grid.header), *grid.lines]:
        shown += [f"\n{heading}"] if heading else []
        shown.append(
            "  ".join(plain_text(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return "\n".join([*shown, "", *grid.notes]) + "\n"


def _item_row(item: Item, works: Sequence[ItemPlan]) -> tuple[Value, ...]:
    printed = str(len(item.figures)) if item.figures else DASH
    profiles = ", ".join(work.spec.profile for work in works) or DASH
    if item.nothing:
        return item.id, DASH, DASH, DASH, "nothing to compute", item.title
    if not item.runs and not item.gradient:
        what = "a formula" if item.formula else "options of the profiles"
        return item.id, profiles, printed, DASH, what, item.title
    counts = [count_finished(work) for work in works]
    finished, planned = (sum(count[i] for count in counts) for i in (0, 1))
    cost = DASH if finished == planned else "bench gradient" if item.gradient else _cost_text(works)
    return item.id, profiles, printed, f"{finished} of {planned}", cost, item.title


def _cost_text(works: Sequence[ItemPlan]) -> str:
    """What the cells to do take."""
    papers = [work for work in works if work.spec.profile in work.item.backbones]
    others = [work for work in works if work.spec.profile not in work.item.backbones]
    told = [f"{gpu_hours(papers):,.0f} GPU h"] if papers else []
    if others:
        found = [cpu_seconds(work) for work in others]
        seconds, unknown = sum(each for each, _ in found), sum(count for _, count in found)
        more = f", {unknown} cells unknown" if unknown else ""
        told.append(f"{seconds:,.0f} CPU s{more}")
    return ", ".join(told)
