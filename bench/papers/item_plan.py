"""What has to run for an item in a profile, and what is there of it; runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.spec import MethodRequest, RunSpec
from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import Backbone
from bench.errors import InputError
from bench.gradient.run import MEASURED, SAMPLED
from bench.nn.model_folder import ModelFolder, resolve_folder
from bench.papers import flops as scale
from bench.papers.item_cells import ItemCell, cell_methods, lay_out_cells
from bench.papers.paper_items import Item
from bench.plan.backbones import backbone_shape, profile_backbone
from bench.plan.cells import make_cells
from bench.records.record import RecordPlace as Kept
from bench.records.record import safe_name, sum_training_seconds
from bench.records.store import ResultStore
from bench.registry import discover
from bench.reports.campaign import GRADIENT

PAPERS_BACKBONE = Backbone(layers=12, pooler=True)
"""BERT-base and RoBERTa-base, also where their folders aren't here."""


@dataclass(frozen=True)
class ItemPlan:
    """An item in a profile.

    Args:
        item: The item.
        spec: What is run for it; without methods where nothing is.
        places: Its cells.
        stand_ins: Suite that is measured in another's place, by suite.
        impossible: Why this backbone can't have a method, by its text.
        label: The profile's name in results, with another backbone's hash.
    """

    item: Item
    spec: RunSpec
    places: tuple[ItemCell, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are run, as in ``--methods``."""
        return tuple(request.text for request in self.spec.methods)


def plan_item(item: Item, spec: RunSpec, profile: str) -> ItemPlan:
    """Return what has to run for an item.

    Args:
        item: The item.
        spec: How and where; its methods, suites, probes and profile are replaced.
        profile: The profile.

    Raises:
        InputError: an unknown profile.
        DataError: the item's own data contradict each other.
    """
    known = profiles.load_profile(profile)
    folder = (
        resolve_folder(spec.backbone, where="--backbone")
        if spec.backbone
        else _profile_folder(known, spec.data)
    )
    backbone = Backbone(*backbone_shape(known, folder)) if folder else PAPERS_BACKBONE
    label = f"{known.name}@{folder.sha256[:8]}" if folder and spec.backbone else known.name
    found = () if item.settings or item.nothing else lay_out_cells(item, profile, backbone)
    wanted = cell_methods(found) if item.runs else ()
    impossible = {text: why for text in wanted if (why := _why_impossible(text, backbone))}
    suites = tuple(dict.fromkeys(known.stand_ins.get(suite, suite) for suite in item.suites))
    requests = tuple(request for text in wanted if text not in impossible for request in parse_methods(text))
    own = replace(spec, methods=requests, suites=suites, probes=item.probes, profile=profile)
    return ItemPlan(item, own, found, known.stand_ins, impossible, label)


def _profile_folder(profile: profiles.Profile, data: Path | None) -> ModelFolder | None:
    """A profile's backbone; None where its folder isn't here."""
    try:
        return profile_backbone(profile, data)
    except InputError:
        return None


def _why_impossible(method: str, backbone: Backbone) -> str:
    """Why a backbone of so many layers can't have a method's options, or ""."""
    options = dict(pair for request in parse_methods(method) for pair in request.options)
    layers = f"the backbone has {backbone.layers} layers"
    caels = int(options.get("caels", 0))
    if caels and backbone.layers % caels:
        return layers
    if int(options.get("drop_norms", 0)) > backbone.layers:
        return layers
    return "the backbone has no pooler" if options.get("pooling") == "pooler" and not backbone.pooler else ""


def item_method_ids(made: ItemPlan) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Return the method id in results, and the seeds, of each method by its text."""
    return {request.text: _method_id(made, request) for request in made.spec.methods}


def _method_id(made: ItemPlan, request: MethodRequest) -> tuple[str, tuple[int | None, ...]]:
    profile = profiles.load_profile(made.spec.profile)
    card = discover().get(request.name, where=request.text).card
    cells = make_cells(request, card, made.spec, profile, profile.name, None, 0, lambda load: None)
    return cells[0].method, tuple(cell.seed for cell in cells)


def count_finished(made: ItemPlan) -> tuple[int, int]:
    """Return how many cells (or watched trainings) of an item are finished, and how many there are."""
    store = ResultStore(made.spec.results, made.spec.campaign)
    if made.item.gradient:
        files = list(_watched_files(made))
        return sum(file.exists() for file in files), len(files)
    wanted = [
        Kept(made.label, method, seed, suite)
        for method, seeds in item_method_ids(made).values()
        for seed in seeds
        for suite in made.spec.suites
    ]
    return sum(_is_finished(store, place) for place in wanted), len(wanted)


def gradient_folder(made: ItemPlan) -> Path:
    """Return where ``bench gradient`` for an item writes, and the report reads."""
    return made.spec.results / made.spec.campaign / GRADIENT


def watched_folder(made: ItemPlan, method: str, seed: int | None) -> Path:
    """Return the folder of one watched training, by the method's id."""
    return gradient_folder(made) / safe_name(f"{made.label}-{method}-seed-{seed}")


def _watched_files(made: ItemPlan) -> Iterator[Path]:
    for text in made.item.gradient:
        if not text:
            yield gradient_folder(made) / SAMPLED
            continue
        method, seeds = _method_id(made, parse_methods(text)[0])
        yield from (watched_folder(made, method, seed) / MEASURED for seed in seeds)


def missing_runs(made: ItemPlan) -> list[tuple[str, str, int | None]]:
    """Return text, id and seed of what lacks a finished record on a suite."""
    store = ResultStore(made.spec.results, made.spec.campaign)
    return [
        (text, method, seed)
        for text, (method, seeds) in item_method_ids(made).items()
        for seed in seeds
        if not all(_is_finished(store, Kept(made.label, method, seed, suite)) for suite in made.spec.suites)
    ]


def _is_finished(store: ResultStore, place: Kept) -> bool:
    record = store.read(place) if store.path(place).exists() else None
    return record is not None and record.status == "ok"


def gpu_hours(made: Iterable[ItemPlan]) -> float:
    """Hours of one H200 for what is missing, each stage of a seed once; see :mod:`bench.papers.flops`."""
    stages = {
        (each.spec.profile, seed, stage)
        for each in made
        for text, _, seed in missing_runs(each)
        for stage in scale.method_stages(text, each.spec.profile)
    }
    return sum(stage.operations for _, _, stage in stages) / scale.SUSTAINED / 3600


def cpu_seconds(made: ItemPlan) -> tuple[float, int]:
    """Return what is missing takes by records of the same profile here, and how many none tells of."""
    known = _seconds_by_method(made.spec.results, made.label)
    each = [known.get(method, known.get(method.partition("[")[0])) for _, method, _ in missing_runs(made)]
    return sum(filter(None, each)), each.count(None)


def _seconds_by_method(results: Path, profile: str) -> dict[str, float]:
    """CPU seconds of a seed of each method, training included, by the records of all campaigns."""
    found: dict[str, list[float]] = {}
    for folder in sorted(results.iterdir()) if results.is_dir() else ():
        for record in ResultStore(results, folder.name).records() if (folder / profile).is_dir() else ():
            if record.profile == profile and record.status == "ok":
                # a stage that another cell trained isn't in the cell's own time
                took = max(record.timing.get("cpu_seconds", 0.0), sum_training_seconds(record))
                found.setdefault(record.method, []).append(took)
    return {method: fmean(values) for method, values in found.items()}


def item_manifest(made: ItemPlan, ids: Mapping[str, str]) -> Manifest | None:
    """Return the grid of an item that is a sweep, for its figures; None for another.

    Args:
        made: The item in a profile.
        ids: Method id of each method that has records, by its text.
    """
    if not made.item.sweep:
        return None
    points = tuple(
        (dict(place.row)["row"], dict(place.column)["column"], ids[method])
        for place in made.places
        for method in place.methods
        if method in ids
    )
    return Manifest(made.item.sweep, made.label, made.spec.suites, made.spec.seeds, points)
