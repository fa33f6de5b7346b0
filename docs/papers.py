"""The items of ``bench reproduce`` as markdown, for docs/reproduce.md."""

from __future__ import annotations

from collections.abc import Iterator

from bench.data.published import PAPERS
from bench.papers.items import Item, items
from bench.papers.settings import settings
from bench.papers.work import Work, gpu_hours, work
from bench.request.parse import parse_seeds
from bench.request.spec import RunSpec


def table() -> str:
    """All items: what each shows, what runs for it, and what differs from the paper."""
    return "\n".join(line for paper in PAPERS for line in _paper(paper))


def _paper(paper: str) -> Iterator[str]:
    yield f"## {PAPERS[paper]}\n"
    for item in items().values():
        if item.paper == paper:
            yield from _item(item)


def _item(item: Item) -> Iterator[str]:
    yield f"### {_text(item.title)}\n"
    if item.nothing:
        yield f"Nothing to compute: {_text(item.nothing)}\n"
        return
    yield f"```sh\nbench reproduce {item.id} --data data --device cuda\n```\n"
    if item.says:
        yield f"The paper: {_text(item.says)}\n"
    yield f"{_runs(item)}\n"
    yield from (f"Another value here: {line}\n" for line in _differing(item))
    if item.note:
        yield f"{_text(item.note)}\n"


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
    named = list(dict.fromkeys(method for each in made for method in each.methods))
    shown = ", ".join(f"`{method}`" for method in named[:40])
    more = f" and {len(named) - 40} more" if len(named) > 40 else ""
    probes = f", probes {', '.join(item.probes)}" if item.probes else ""
    hours = gpu_hours(made)
    cost = f" About {hours:,.0f} H200 hours, by arithmetic." if hours >= 0.5 else ""
    where = f"on {' and '.join(item.backbones)}; suites {', '.join(item.suites)}{probes}"
    return f"Seeds {item.seeds or '1'} {where}: {shown}{more}.{cost}{beside}"


def _works(item: Item) -> list[Work]:
    return [work(item, RunSpec((), parse_seeds(item.seeds or "1"), name), name) for name in item.backbones]


def _differing(item: Item) -> Iterator[str]:
    if item.settings:
        for setting in settings(item):
            if not setting.equal:
                figure = setting.figure
                named = _text(f"{figure.method} {figure.metric} ({figure.backbone})")
                yield f"{named} is {figure.text} in print and {setting.ours} here, as {setting.differs}"


def _text(text: str) -> str:
    """Plain text in markdown: nothing in it is markup."""
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#|"})
