"""Find items that contradict printed figures, registry or profiles, for ``bench reproduce --check``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from bench.config import profiles
from bench.config.sweeps import SWEEPS
from bench.data.published_tables import SICK, PublishedFigure, load_figures
from bench.data.suites import SUITES
from bench.errors import BenchError
from bench.method_card import OptionValue
from bench.papers.item_cells import (
    ItemCell,
    cell_label,
    compare_hyperparameters,
    lay_out_cells,
    match_figure,
    parse_quantity,
)
from bench.papers.item_plan import PAPERS_BACKBONE
from bench.papers.paper_compute import base_methods, resolve_options
from bench.papers.paper_items import Item, load_items
from bench.probes import PROBES
from bench.registry import discover
from bench.reports.sections import SECTIONS
from bench.stages import SICK as SICK_TEXT
from bench.stages import TrainedMethod, copy_name

_HELPERS = ("uc", "teacher1", "teacher2")
"""Roles of checkpoints that the papers took over: of a union, RankCSE's teachers."""
_TERMS = ("nce", "icnce", "ictn")


def check_papers() -> list[str]:
    """Return a line for every contradiction."""
    lines: list[str] = []
    placed: set[PublishedFigure] = set()
    for item in load_items().values():
        lines += check_item(item)
        placed.update(item.figures)
    for figure in load_figures():
        if figure not in placed:
            lines.append(f"{figure.source}: {_figure_name(figure)} is missing from all items")
    return lines


def check_item(item: Item) -> list[str]:
    """Return a line for every contradiction of one item."""
    computed = bool(item.runs or item.figures or item.formula or item.gradient)
    if item.nothing and computed:
        return [f"{item.id}: 'nothing' is given for an item that computes something"]
    if not item.nothing and not computed:
        return [f"{item.id}: nothing is run; 'nothing' has to give the reason"]
    if item.nothing:
        return []
    checks = [partial(_check_names, item), partial(_check_hyperparameters, item)]
    if not item.settings:
        known = filter(set(profiles.profile_names()).__contains__, item.backbones)
        checks += [partial(_check_cells, item, profile) for profile in known]
    lines: list[str] = []
    for check in checks:
        try:
            lines += list(check())
        except BenchError as error:
            lines.append(str(error))
    return list(dict.fromkeys(f"{item.id}: {line}" for line in lines))


def _check_names(item: Item) -> Iterator[str]:
    """Unknown names."""
    figures = [figure for figure in load_figures() if figure.paper == item.paper]
    kinds: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("profile", item.backbones, profiles.profile_names()),
        ("suite", item.suites, SUITES.names()),
        ("probe", item.probes, PROBES),
        ("section of the report", (d.partition("/")[0] for d in item.draws), [s.name for s in SECTIONS]),
        ("sweep", filter(None, (item.sweep, item.formula)), SWEEPS),
        ("section of figures", item.sections, {figure.section for figure in figures}),
        ("table", item.tables, {figure.table for figure in figures}),
    )
    for kind, names, known in kinds:
        yield from (f"no {kind} '{name}'" for name in names if name not in set(known))
    for method in filter(None, (*item.methods.values(), *item.gradient)):
        for profile in set(item.backbones).intersection(profiles.profile_names()):
            resolve_options(method, profile)


def _check_hyperparameters(item: Item) -> Iterator[str]:
    """Unexplained differences of options from the paper's values, and explanations of equal values."""
    for setting in compare_hyperparameters(item) if item.settings else ():
        values = f"{_figure_name(setting.figure)} is {setting.figure.text}, here {setting.ours}"
        if not setting.equal and not setting.differs:
            yield f"{values} ({setting.option}), without an explanation"
        if setting.equal and setting.differs:
            yield f"{values}: explained as different, but equal"


def _check_cells(item: Item, profile: str) -> Iterator[str]:
    """Cells whose method, quantity, text or options contradict the figure's setting."""
    cells = lay_out_cells(item, profile, PAPERS_BACKBONE)
    if not cells and not (item.formula or item.gradient):
        yield f"no cell for {profile}"
    contents: dict[tuple[str, str], str] = {}
    for cell in cells:
        content = _figure_name(cell.figure) if cell.figure else cell.quantity
        place = cell_label(item, cell.row), cell_label(item, cell.column)
        if (other := contents.setdefault(place, content)) is not content:
            yield f"one cell for both {other} and {content}"
        if cell.methods:
            quantity = parse_quantity(cell.quantity, f"bench/papers: {item.id}")
            if quantity.suite and quantity.suite not in item.suites:
                yield f"the item lacks the suite of '{cell.quantity}'"
            if quantity.kind == "probe" and quantity.name.partition("/")[0] not in item.probes:
                yield f"the item lacks the probe of '{cell.quantity}'"
        if len(cell.methods) == 1:
            yield from _check_setting(item, cell, profile)


def _check_setting(item: Item, cell: ItemCell, profile: str) -> Iterator[str]:
    """Differences of a cell's one method from the setting of its figure."""
    method, figure = cell.methods[0], cell.figure
    setting = dict(figure.setting) if figure else {}
    text = setting.get("data") or _stated_text(item, cell)
    if text is not None and (trained := _text_mismatch(method, profile, text)):
        yield f"{method} trains {trained}; the paper's is {text}"
    options = resolve_options(method, profile)
    steps = ("gd", "r") if method.startswith("m_mhs") else ("gd", "w", "r")  # mhs has no step w
    checks: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("pooling", lambda value: options.get("pooling", "cls") in (value, {"cls": "mask"}.get(value))),
        ("cael", lambda value: options.get("caels") == int({"none": "0"}.get(value, value))),
        ("loss", lambda value: _active_options(options, _TERMS) == _loss_terms(value)),
        ("terms", lambda value: _active_options(options, steps) == _loss_terms(value) & set(steps)),
    )
    for key, holds in checks:
        if key in setting and not holds(setting[key]):
            yield f"{method} has another {key} than {figure and _figure_name(figure)}"


def _active_options(options: Mapping[str, OptionValue], names: Iterable[str]) -> set[str]:
    return {name for name in names if options.get(name) is True}


def _loss_terms(text: str) -> set[str]:
    return set(text.replace("ictm", "ictn").split("+")) - {"none", "original"}


def _stated_text(item: Item, cell: ItemCell) -> str | None:
    """The training text that the item states for a cell's method."""
    if cell.figure is not None:
        return match_figure(item.texts, cell.figure)
    return item.texts.get(dict(cell.row).get("method", ""), item.texts.get("*"))


def _text_mismatch(method: str, profile: str, wanted: str) -> str:
    """The text a method trains on if that contradicts the wanted one, else ""."""
    texts = set(_training_texts(method, profile))
    if not texts:
        return ""
    if {text.endswith(SICK_TEXT) for text in texts} != {SICK in wanted}:
        return f"on {', '.join(sorted(texts))}"
    copies = set(map(copy_name, texts)) - {""}
    if wanted.endswith("+2rtt") and len(copies) != 2:
        return f"on {len(copies)} translated copies"
    return ""


def _training_texts(method: str, profile: str) -> Iterator[str]:
    """Texts of the stages of a method and of its members; helpers keep their own paper's."""
    registered = discover().get(method.partition("[")[0].partition(":")[0])
    if isinstance(registered, TrainedMethod) and registered.card.needs_backbone:
        yield from (stage.text for stage in registered.stages(resolve_options(method, profile)))
    for role, member in base_methods(method, profile).items():
        if role not in _HELPERS:
            yield from _training_texts(member, profile)


def _figure_name(figure: PublishedFigure) -> str:
    setting = ", ".join(map("=".join, figure.setting))
    parts = (figure.table, figure.backbone, figure.method, setting, figure.task, figure.metric)
    return " ".join(filter(None, parts))
