"""What ``bench reproduce --check`` finds: items that contradict printed figures, registry or profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from bench.card import OptionValue
from bench.config import profiles
from bench.config.sweeps import SWEEPS
from bench.data.published_tables import SICK, PublishedFigure, load_figures
from bench.data.suites import SUITES
from bench.errors import BenchError
from bench.papers.flops import base_methods, resolve_options
from bench.papers.hyperparameters import compare_hyperparameters
from bench.papers.item_cells import ItemCell, cell_label, lay_out_cells, match_figure, parse_quantity
from bench.papers.item_plan import PAPERS_BACKBONE
from bench.papers.paper_items import Item, load_items
from bench.probes import PROBES
from bench.registry import discover
from bench.reports.sections import SECTIONS
from bench.stages import SICK as SICK_TEXT
from bench.stages import TrainedMethod, copy_name

_HELPERS = ("uc", "teacher1", "teacher2")
"""Roles of checkpoints that the papers took as they were: of a union, RankCSE's teachers."""
_TERMS = ("nce", "icnce", "ictn")


def check_papers() -> list[str]:
    """Return a line for everything that is wrong; none where all holds."""
    found = [line for item in load_items().values() for line in check_item(item)]
    shown = {figure for item in load_items().values() for figure in item.figures}
    lost = [figure for figure in load_figures() if figure not in shown]
    return [*found, *(f"{figure.source}: {_figure_name(figure)} stands in no item" for figure in lost)]


def check_item(item: Item) -> list[str]:
    """Return a line for everything that is wrong with one item."""
    if item.nothing:
        empty = not (item.runs or item.figures or item.formula or item.gradient)
        return [] if empty else [f"{item.id}: it has something to compute, and says that it hasn't"]
    if not (item.runs or item.figures or item.formula or item.gradient):
        return [f"{item.id}: nothing is run, and it doesn't say why"]
    checks: list[Callable[[], Iterable[str]]] = [
        partial(_check_names, item),
        partial(_check_hyperparameters, item),
    ]
    if not item.settings:
        known = [profile for profile in item.backbones if profile in profiles.profile_names()]
        checks += [partial(_check_cells, item, profile) for profile in known]
    return list(dict.fromkeys(f"{item.id}: {line}" for check in checks for line in _run_check(check)))


def _run_check(check: Callable[[], Iterable[str]]) -> list[str]:
    """What a check says, its error where it can't be made."""
    try:
        return list(check())
    except BenchError as error:
        return [str(error)]


def _check_names(item: Item) -> Iterator[str]:
    """Names that are none."""
    known: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("profile", item.backbones, profiles.profile_names()),
        ("suite", item.suites, SUITES.names()),
        ("probe", item.probes, PROBES),
        ("section of the report", (d.partition("/")[0] for d in item.draws), [s.name for s in SECTIONS]),
        ("sweep", filter(None, (item.sweep, item.formula)), SWEEPS),
        ("section of figures", item.sections, {f.section for f in load_figures() if f.paper == item.paper}),
        ("table", item.tables, {figure.table for figure in load_figures() if figure.paper == item.paper}),
    )
    for kind, names, there in known:
        yield from (f"no {kind} '{name}'" for name in names if name not in set(there))
    for method in filter(None, (*item.methods.values(), *item.gradient)):
        for profile in set(item.backbones).intersection(profiles.profile_names()):
            resolve_options(method, profile)


def _check_hyperparameters(item: Item) -> Iterator[str]:
    """Options with another value than the paper's that no line explains, and lines that explain nothing."""
    if not item.settings:
        return
    for setting in compare_hyperparameters(item):
        named = f"{_figure_name(setting.figure)} is {setting.figure.text}, here {setting.ours}"
        if not setting.equal and not setting.differs:
            yield f"{named} ({setting.option}), and nothing says why"
        if setting.equal and setting.differs:
            yield f"{named}: the difference that is explained isn't there"


def _check_cells(item: Item, profile: str) -> Iterator[str]:
    """Cells whose method, quantity, text or options are not what the figure's setting says."""
    found = lay_out_cells(item, profile, PAPERS_BACKBONE)
    if not found and not (item.formula or item.gradient):
        yield f"no cell for {profile}"
    seen: dict[tuple[str, str], str] = {}
    for place in found:
        told = _figure_name(place.figure) if place.figure else place.quantity
        if (
            other := seen.setdefault((cell_label(item, place.row), cell_label(item, place.column)), told)
        ) is not told:
            yield f"one cell for both {other} and {told}"
        if place.methods:
            shown = parse_quantity(place.quantity, f"bench/papers: {item.id}")
            if shown.suite and shown.suite not in item.suites:
                yield f"'{place.quantity}' is of a suite that it doesn't run"
            if shown.kind == "probe" and shown.name.partition("/")[0] not in item.probes:
                yield f"'{place.quantity}' is of a probe that it doesn't measure"
        yield from _check_setting(item, place, profile)


def _check_setting(item: Item, place: ItemCell, profile: str) -> Iterator[str]:
    """What a figure's setting says, and the method that stands beside it doesn't do."""
    if len(place.methods) != 1:
        return
    method, figure = place.methods[0], place.figure
    setting = dict(figure.setting) if figure else {}
    wanted = setting.get("data") or _stated_text(item, place)
    if wanted is not None and (told := _text_mismatch(method, profile, wanted)):
        yield f"{method} trains {told}; the paper's is {wanted}"
    options = resolve_options(method, profile)
    steps = ("gd", "r") if method.startswith("m_mhs") else ("gd", "w", "r")  # mhs has no step w
    checks: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("pooling", lambda said: options.get("pooling", "cls") in (said, {"cls": "mask"}.get(said))),
        ("cael", lambda said: options.get("caels") == int({"none": "0"}.get(said, said))),
        ("loss", lambda said: _active_options(options, _TERMS) == _loss_terms(said.replace("ictm", "ictn"))),
        ("terms", lambda said: _active_options(options, steps) == _loss_terms(said) & set(steps)),
    )
    for key, holds in checks:
        if key in setting and not holds(setting[key]):
            yield f"{method} isn't what {figure and _figure_name(figure)} is of"


def _active_options(options: Mapping[str, OptionValue], names: Iterable[str]) -> set[str]:
    return {name for name in names if options.get(name) is True}


def _loss_terms(said: str) -> set[str]:
    return set(said.split("+")) - {"none", "original"}


def _stated_text(item: Item, place: ItemCell) -> str | None:
    """The training text that the item says its methods have."""
    if place.figure is not None:
        return match_figure(item.texts, place.figure)
    label = dict(place.row).get("method", "")
    return item.texts.get(label, item.texts.get("*"))


def _text_mismatch(method: str, profile: str, wanted: str) -> str:
    """What a method trains on where that isn't the wanted text, else ""."""
    texts = set(_training_texts(method, profile))
    if not texts:
        return ""
    if {text.endswith(SICK_TEXT) for text in texts} != {SICK in wanted}:
        return f"on {', '.join(sorted(texts))}"
    copies = {copy_name(text) for text in texts} - {""}
    if wanted.endswith("+2rtt") and len(copies) != 2:
        return f"on {len(copies)} translated copies"
    return ""


def _training_texts(method: str, profile: str) -> Iterator[str]:
    """Texts of a method's own stages and of what it is made of; what only helps it has its paper's."""
    found = discover().get(method.partition("[")[0].partition(":")[0])
    if isinstance(found, TrainedMethod) and found.card.needs_backbone:
        yield from (stage.text for stage in found.stages(resolve_options(method, profile)))
    for role, member in base_methods(method, profile).items():
        if role not in _HELPERS:
            yield from _training_texts(member, profile)


def _figure_name(figure: PublishedFigure) -> str:
    setting = ", ".join("=".join(pair) for pair in figure.setting)
    told = (figure.table, figure.backbone, figure.method, setting, figure.task, figure.metric)
    return " ".join(filter(None, told))
