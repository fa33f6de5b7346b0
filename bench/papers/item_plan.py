"""Plan an item in a profile, and list finished cells and the cost of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.run_spec import MethodRequest, RunSpec
from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import Backbone
from bench.data.published_tables import PAPERS
from bench.errors import InputError
from bench.eval.recomputation import ScoreChecker, open_checker
from bench.gradient.run import MEASURED, SAMPLED
from bench.nn.model_folder import resolve_folder
from bench.papers import paper_compute
from bench.papers.item_cells import ItemCell, cell_methods, lay_out_cells
from bench.papers.paper_items import Item
from bench.plan.backbones import backbone_shape, profile_backbone
from bench.plan.cell_expansion import make_cells
from bench.plan.profile_costs import SUSTAINED
from bench.records.record import RecordPlace, safe_name, sum_training_seconds
from bench.records.store import ResultStore
from bench.registry import discover
from bench.render.grid import DASH, Grid, Value, column_widths, plain_text
from bench.reports.campaign import GRADIENT

PAPERS_BACKBONE = Backbone(layers=12, pooler=True)
"""BERT-base and RoBERTa-base, also where their folders are missing."""
_HEADER = ("item", "profiles", "printed", "done", "to do costs", "shows")
_NOTES = (
    "GPU h: hours of one H200 for bert-base and roberta-base, by arithmetic (docs: Scale), every stage of a "
    "seed once, without evaluation. CPU s, of other profiles: by records of the method in the results "
    "folder, with what methods share counted each time; unknown: no record tells.",
)


@dataclass(frozen=True)
class ItemPlan:
    """An item in a profile.

    Args:
        spec: Its runs; their methods are empty for an item that is only printed.
        stand_ins: Suite that is measured in another's place, by suite.
        impossible: Why this backbone excludes a method, by its text.
        label: The profile's name in results, with another backbone's hash.
    """

    item: Item
    spec: RunSpec
    places: tuple[ItemCell, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def store(self) -> ResultStore:
        """The campaign of its records."""
        return ResultStore(self.spec.results, self.spec.campaign)


def plan_item(item: Item, spec: RunSpec, profile: str) -> ItemPlan:
    """Return the plan of an item, with its own methods, suites and probes in a spec.

    Raises InputError for an unknown profile, DataError for an item whose data contradict each other.
    """
    known = profiles.load_profile(profile)
    folder = resolve_folder(spec.backbone, where="--backbone") if spec.backbone else None
    if folder is None:
        with suppress(InputError):  # a missing folder
            folder = profile_backbone(known, spec.data)
    backbone = Backbone(*backbone_shape(known, folder)) if folder else PAPERS_BACKBONE
    label = f"{known.name}@{folder.sha256[:8]}" if folder and spec.backbone else known.name
    places = () if item.settings or item.nothing else lay_out_cells(item, profile, backbone)
    requests: list[MethodRequest] = []
    impossible: dict[str, str] = {}
    for text in cell_methods(places) if item.runs else ():
        if why := _why_impossible(text, backbone):
            impossible[text] = why
        else:
            requests += parse_methods(text)
    suites = tuple(dict.fromkeys(known.stand_ins.get(suite, suite) for suite in item.suites))
    own = replace(spec, methods=tuple(requests), suites=suites, probes=item.probes, profile=profile)
    return ItemPlan(item, own, places, known.stand_ins, impossible, label)


def _why_impossible(method: str, backbone: Backbone) -> str:
    """Why a backbone lacks the layers or pooler of a method's options, or ""."""
    options = dict(pair for request in parse_methods(method) for pair in request.options)
    caels = int(options.get("caels", 0))
    if (caels and backbone.layers % caels) or int(options.get("drop_norms", 0)) > backbone.layers:
        return f"the backbone has {backbone.layers} layers"
    if options.get("pooling") == "pooler" and not backbone.pooler:
        return "the backbone has no pooler"
    return ""


def item_method_ids(work: ItemPlan) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Return the method id in results, and the seeds, of each method by its text."""
    return {request.text: _method_id(work, request) for request in work.spec.methods}


def _method_id(work: ItemPlan, request: MethodRequest) -> tuple[str, tuple[int | None, ...]]:
    profile = profiles.load_profile(work.spec.profile)
    card = discover().get(request.name, where=request.text).card
    cells = make_cells(request, card, work.spec, profile, profile.name, None, 0, lambda load: None)
    return cells[0].method, tuple(cell.seed for cell in cells)


def count_finished(work: ItemPlan) -> tuple[int, int]:
    """Return how many cells (or watched trainings) of an item are finished, and how many there are."""
    if work.item.gradient:
        finished = [file.exists() for file in _watched_files(work)]
    else:
        finished, checker = [], open_checker(work.store, work.spec.data)
        for method, seeds in item_method_ids(work).values():
            for seed, suite in product(seeds, work.spec.suites):
                finished.append(_is_finished(work, checker, method, seed, suite))
        checker.memory.save()
    return sum(finished), len(finished)


def gradient_folder(work: ItemPlan) -> Path:
    """Return the folder of ``bench gradient`` for an item, which the report reads."""
    root: Path = work.store.root
    return root / GRADIENT


def watched_folder(work: ItemPlan, method: str, seed: int | None) -> Path:
    """Return the folder of one watched training, by the method's id."""
    return gradient_folder(work) / safe_name(f"{work.label}-{method}-seed-{seed}")


def _watched_files(work: ItemPlan) -> Iterator[Path]:
    for text in work.item.gradient:
        if not text:
            yield gradient_folder(work) / SAMPLED
            continue
        method, seeds = _method_id(work, parse_methods(text)[0])
        yield from (watched_folder(work, method, seed) / MEASURED for seed in seeds)


def missing_runs(work: ItemPlan) -> list[tuple[str, str, int | None]]:
    """Return text, id and seed of runs that lack a finished record on a suite."""
    missing, checker = [], open_checker(work.store, work.spec.data)
    for text, (method, seeds) in item_method_ids(work).items():
        for seed in seeds:
            if not all(_is_finished(work, checker, method, seed, suite) for suite in work.spec.suites):
                missing.append((text, method, seed))
    checker.memory.save()
    return missing


def _is_finished(work: ItemPlan, checker: ScoreChecker, method: str, seed: int | None, suite: str) -> bool:
    """Return whether a cell has a record with scores that its predictions don't contradict."""
    record = work.store.read(RecordPlace(work.label, method, seed, suite))
    if record is None or record.status != "ok":
        return False
    return checker.check(work.store, record).error is None


def gpu_hours(works: Iterable[ItemPlan]) -> float:
    """Return one H200's hours for missing runs, each stage of a seed once."""
    stages = set()
    for work in works:
        for text, _, seed in missing_runs(work):
            for stage in paper_compute.method_stages(text, work.spec.profile):
                stages.add((work.spec.profile, seed, stage))
    return sum(stage.operations for _, _, stage in stages) / SUSTAINED / 3600


def cpu_seconds(work: ItemPlan) -> tuple[float, int]:
    """Return the seconds of missing runs by records of their profile, and the number of unknown runs."""
    known = _seconds_by_method(work.spec.results, work.label)
    seconds = [known.get(method, known.get(method.partition("[")[0])) for _, method, _ in missing_runs(work)]
    return sum(filter(None, seconds)), seconds.count(None)


def _seconds_by_method(results: Path, profile: str) -> dict[str, float]:
    """CPU seconds of a seed of each method, training included, by the records of all campaigns."""
    seconds: dict[str, list[float]] = {}
    for folder in sorted(results.iterdir()) if results.is_dir() else ():
        for record in ResultStore(results, folder.name).records() if (folder / profile).is_dir() else ():
            if record.profile == profile and record.status == "ok":
                # a stage that another cell trained isn't in the cell's own time
                took = max(record.timing.get("cpu_seconds", 0.0), sum_training_seconds(record))
                seconds.setdefault(record.method, []).append(took)
    return {method: fmean(values) for method, values in seconds.items()}


def item_manifest(work: ItemPlan, ids: Mapping[str, str]) -> Manifest | None:
    """Return the grid of a sweep item, if it is one, of methods that have ``ids`` by their texts."""
    if not work.item.sweep:
        return None
    points = []
    for place in work.places:
        row, column = dict(place.row)["row"], dict(place.column)["column"]
        points += [(row, column, ids[method]) for method in place.methods if method in ids]
    return Manifest(work.item.sweep, work.label, work.spec.suites, work.spec.seeds, tuple(points))


def list_items(works: Mapping[Item, Sequence[ItemPlan]]) -> Grid:
    """Return a table of items, each with its plans in all profiles, by paper."""
    rows: list[tuple[Value, ...]] = []
    groups = []
    for paper, name in PAPERS.items():
        groups.append((len(rows), name))
        rows += [_item_row(item, plans) for item, plans in works.items() if item.paper == paper]
    return Grid("Tables and figures of the papers", _HEADER, tuple(rows), _NOTES, tuple(groups))


def format_listing(grid: Grid) -> str:
    """Return the table as text with aligned words."""
    widths = column_widths(grid)
    lines = []
    for heading, row in [(None, grid.header), *grid.lines]:
        if heading:
            lines.append(f"\n{heading}")
        words = (plain_text(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(words).rstrip())
    return "\n".join([*lines, "", *grid.notes]) + "\n"


def _item_row(item: Item, works: Sequence[ItemPlan]) -> tuple[Value, ...]:
    printed = str(len(item.figures) or DASH)
    names = ", ".join(work.spec.profile for work in works) or DASH
    if item.nothing:
        return item.id, DASH, DASH, DASH, "nothing to compute", item.title
    if not item.runs and not item.gradient:
        source = "a formula" if item.formula else "options of the profiles"
        return item.id, names, printed, DASH, source, item.title
    finished, planned = map(sum, zip(*map(count_finished, works), strict=True))
    if finished == planned:
        return item.id, names, printed, f"{finished} of {planned}", DASH, item.title
    cost = "bench gradient" if item.gradient else _cost_text(works)
    return item.id, names, printed, f"{finished} of {planned}", cost, item.title


def _cost_text(works: Sequence[ItemPlan]) -> str:
    """The cost of cells to run."""
    papers = [work for work in works if work.spec.profile in work.item.backbones]
    costs = [f"{gpu_hours(papers):,.0f} GPU h"] if papers else []
    seconds = [cpu_seconds(work) for work in works if work.spec.profile not in work.item.backbones]
    if seconds:
        known, unknown = map(sum, zip(*seconds, strict=True))
        unknown_text = f", {unknown} cells unknown" if unknown else ""
        costs.append(f"{known:,.0f} CPU s{unknown_text}")
    return ", ".join(costs)
