"""The items of ``bench reproduce`` as markdown, for reproduce.md."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from bench.config.method_ids import parse_seeds
from bench.config.run_spec import RunSpec
from bench.data.published_tables import PAPERS
from bench.papers.item_cells import compare_hyperparameters
from bench.papers.item_plan import ItemPlan, gpu_hours, plan_item
from bench.papers.paper_items import Item, load_items

NO_RESULTS = Path("no-results")
"""Where nothing is done yet."""


def sections() -> str:
    """All items, paper by paper: what runs for each, what differs."""
    return "\n".join(line for paper in PAPERS for line in _paper(paper))


def _paper(paper: str) -> Iterator[str]:
    yield f"## {PAPERS[paper]}\n"
    for item in load_items().values():
        if item.paper == paper:
            yield from _item(item)


def _item(item: Item) -> Iterator[str]:
    yield f"### {_text(item.title)}\n"
    if item.nothing:
        yield _paragraph(f"Nothing to compute. {_text(item.nothing)}")
        return
    yield f"```sh\nbench reproduce {item.id} --data data --device cuda\n```\n"
    if item.says:
        yield _paragraph(f"The paper: {_text(item.says)}")
    yield _paragraph(_runs(item))
    yield from (_paragraph(line) for line in _differing(item))
    if item.note:
        yield _paragraph(_text(item.note))


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _runs(item: Item) -> str:
    """What is measured, on what, and what that takes."""
    beside = f" {len(item.figures)} printed figures stand beside." if item.figures else ""
    if item.settings:
        return f"Options of the profiles {' and '.join(item.backbones)}, nothing runs.{beside}"
    if item.formula:
        return f"The surface of a formula, as `bench sweep {item.formula}` prints it."
    if item.gradient and not item.runs:
        named = [f"`{method}`" for method in item.gradient if method]
        return f"`bench gradient` of {', '.join(named)}." if named else "Sampled angles, by `bench gradient`."
    made = _works(item)
    named = list(dict.fromkeys(request.text for each in made for request in each.spec.methods))
    shown = ", ".join(f"`{method}`" for method in named[:40])
    more = f" and {len(named) - 40} more" if len(named) > 40 else ""
    probes = f", probes {', '.join(item.probes)}" if item.probes else ""
    hours = gpu_hours(made)
    cost = f" About {hours:,.0f} H200 hours, by arithmetic." if hours >= 0.5 else ""
    where = f"on {' and '.join(item.backbones)}; suites {', '.join(item.suites)}{probes}"
    seeds = f"Seeds {item.seeds}" if item.seeds else "Seed 1"
    return f"{seeds} {where}: {shown}{more}.{cost}{beside}"


def _works(item: Item) -> list[ItemPlan]:
    return [
        plan_item(item, RunSpec((), parse_seeds(item.seeds or "1"), name, results=NO_RESULTS), name)
        for name in item.backbones
    ]


def _differing(item: Item) -> Iterator[str]:
    if item.settings:
        for setting in compare_hyperparameters(item):
            if not setting.equal:
                figure = setting.figure
                named = _text(f"{figure.method} {figure.metric} ({figure.backbone})")
                why = _text(setting.differs)
                yield f"Another value: {named} is {figure.text} in print, {setting.ours} here; {why}."


def _text(text: str) -> str:
    """Plain text in markdown: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text)
