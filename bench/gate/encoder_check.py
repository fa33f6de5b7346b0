"""``bench check --encoder``: run an encoder like a reference's record of its name, and judge both."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np

from bench.comparison.item_bootstrap import SEED, CampaignRun, RefusedError, draw_items
from bench.config import profiles
from bench.config.method_ids import misplaced_hint, parse_method, quoting_hint
from bench.config.run_spec import METHOD_NAME, MethodRequest, RunSpec
from bench.data.data_source import DEFAULT_SEED
from bench.data.mteb_names import suite_label
from bench.errors import BenchError, InputError, suggest_name
from bench.execution.runner import run_plan
from bench.gate.drops import cell_key
from bench.gate.item_judge import COMPARED, ItemPair, judge_items
from bench.gate.kept_encoders import CAMPAIGN
from bench.gate.reference import check_reference_records, load_gate_records
from bench.gate.verdict import AVERAGE, CellVerdict, Gate, Key, Question, Status
from bench.nn.lora_settings import CONFIG
from bench.plan.plan import Plan, make_plan
from bench.records.filesystem import check_new_campaign, check_new_name, safe_name
from bench.records.fingerprint import find_fact_differences, specification_fields
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import discover

DRAWS = 2_000
"""Draws of the items; beyond their reach, intervals are normal."""
_FORM = "a model folder, hf:PATH[:POOLING], st:PATH or vectors:FILE"
_KINDS = {"st": ("modules.json",), "exported": ("bench.json", "twin.json"), "hf": ("config.json", CONFIG)}
"""Methods that read a bare folder, by their files; the first match counts."""

_BY_KEY = attrgetter("key")
Cell = tuple[str, str]
"""Profile and suite."""


def _run_quietly(plan: Plan) -> object:
    return run_plan(plan, on_outcome=lambda _: None)


def judge_encoder(
    store: ResultStore,
    text: str,
    name: str,
    *,
    scratch: Path,
    profile: str | None = None,
    suites: Sequence[str] = (),
    data: Path | None = None,
    tolerance: float = 0.005,
    level: float = 0.95,
    strict: bool = False,
    update: bool = False,
    workers: int = 1,
    draws: int = DRAWS,
    execute: Callable[[Plan], object] = _run_quietly,
) -> tuple[Gate, ResultStore, list[RunRecord]]:
    """Run an encoder as the reference's records of its name were run, and judge both by the items.

    Results go to the scratch folder. With ``update``, missing and different cells are run as well. Returns
    the gate, the campaign of the new records, and these.
    """
    request = parse_encoder_request(text, name)
    then = _load_named_records(store, name, profile, suites)
    request = _read_as_reference(request, then)
    absent = _find_absent_cells(then, profile, suites)
    if absent and not update:
        raise _missing_record_error(store, text, name, absent)
    _check_absent(store, name, absent)
    new_store = ResultStore(scratch / "results", CAMPAIGN)
    plans = _plan_cells(request, then, absent, data, scratch / "results", workers)
    changed = _find_changed_cells(plans, then)
    if changed and not update:
        return Gate(tuple(sorted(changed, key=_BY_KEY)), tolerance, level, strict=strict), new_store, []
    for plan in plans:
        execute(plan)
    new = load_gate_records(new_store)
    now = _index_by_cell(new)
    draw = partial(_draw_pair, store, new_store, scratch / "items", data, draws)
    pairs = [draw(record, now.get(cell)) for cell, record in then.items()]
    gate = judge_items(pairs, tolerance=tolerance, level=level, strict=strict)
    first = [_judge_new_suite((cell[0], name, cell[1]), now.get(cell)) for cell in absent]
    return replace(gate, cells=tuple(sorted((*gate.cells, *first), key=_BY_KEY))), new_store, new


def parse_encoder_request(text: str, name: str) -> MethodRequest:
    """Return the request of ``--encoder`` and ``--name``, with the name as its alias.

    A folder with a modules.json is sentence-transformers' (``st:``), one with a bench.json or twin.json of
    ``bench export`` is ``exported:``, any other ``hf:``; a file has word vectors.
    """
    if not METHOD_NAME.fullmatch(name):
        raise InputError(f"{name!a} is not a name", where="--name", expected="letters, digits, _ . + -")
    if name in discover().names():
        raise InputError(f"'{name}' is a registered method", where="--name", expected="another name")
    if not text or not text.isprintable():
        raise InputError(f"{text!a} is not an encoder", where="--encoder", expected=_FORM)
    request = replace(_parse_encoder(text), text=text, alias=name)
    if request.name not in discover().names():
        raise InputError(f"'{text}' is an unknown encoder", where="--encoder", expected=_FORM)
    if not discover().get(request.name).card.deterministic:
        raise InputError(
            f"'{request.name}' is trained, a seed at a time",
            where=f"--encoder {text}",
            expected=_FORM,
            hint="bench check trains a reference's methods again",
        )
    return request


def _parse_encoder(text: str) -> MethodRequest:
    path = Path(text).expanduser()
    if path.is_file():
        return MethodRequest(text, "vectors", text)
    if path.is_dir():
        return MethodRequest(text, next((kind for kind in _KINDS if _can_read(kind, path)), "hf"), text)
    try:
        request = parse_method(text, "--encoder")
    except InputError as error:
        hint = error.hint or quoting_hint(text) or misplaced_hint(text)
        what = f"'{text}' is not an encoder"
        raise InputError(what, where="--encoder", expected=_FORM, hint=hint) from error
    if request.alias is not None:
        raise InputError(f"'{text}' has a name of its own", where="--encoder", expected="--name NAME")
    return request


def _read_as_reference(request: MethodRequest, then: Mapping[Cell, RunRecord]) -> MethodRequest:
    """Read a bare folder like the reference's, by the same method and with the same pooling."""
    folder, kinds = Path(request.text).expanduser(), set()
    for record in then.values():
        kinds.add((record.name, tuple((option, str(value)) for option, value in record.options.items())))
    if not folder.is_dir() or len(kinds) != 1:
        return request
    ((name, options),) = kinds
    return replace(request, name=name, options=options) if _can_read(name, folder) else request


def _can_read(kind: str, folder: Path) -> bool:
    return any((folder / file).is_file() for file in _KINDS.get(kind, ()))


def _load_named_records(
    store: ResultStore, name: str, profile: str | None, suites: Sequence[str]
) -> dict[Cell, RunRecord]:
    """Return the reference's records of a name by profile and suite; {} without a reference."""
    if not store.root.is_dir() or not any(store.root.glob("*/*/*/*.json")):
        return {}
    labels = {suite_label(suite) for suite in suites}
    records = []
    for record in load_gate_records(store):
        is_wanted = profile in (None, record.profile) and (not labels or record.suite in labels)
        if record.method == name and is_wanted:
            records.append(record)
    check_reference_records(records, store.campaign)
    for record in records:
        if record.seed is not None or "@" in record.profile:
            what = "seeds" if record.seed is not None else "a backbone"
            raise InputError(
                f"the reference's '{name}' has {what}: it is not an encoder's record",
                where=f"--name {name}",
                expected="a record of bench check --encoder PATH --name NAME --update",
            )
    return _index_by_cell(records)


def _index_by_cell(records: Sequence[RunRecord]) -> dict[Cell, RunRecord]:
    return {(record.profile, record.suite): record for record in records}


def _find_absent_cells(
    then: Mapping[Cell, RunRecord], profile: str | None, suites: Sequence[str]
) -> dict[Cell, str]:
    """Return the wanted cells that the reference lacks, with the suite as written."""
    places = dict.fromkeys(place for place, _ in then) or [profile or profiles.DEFAULT]
    wanted = suites or (() if then else profiles.load_profile(profile or profiles.DEFAULT).suites)
    cells = {(place, suite_label(suite)): suite for place in places for suite in wanted}
    return {cell: suite for cell, suite in cells.items() if cell not in then}


def _check_absent(store: ResultStore, name: str, absent: Mapping[Cell, str]) -> None:
    """Raise InputError for a new name that is not portable."""
    if absent:
        check_new_campaign(store.root.parent, store.campaign, where="--reference")
    for place in dict.fromkeys(place for place, _ in absent):
        folder, where = store.root / safe_name(place), f"--name {name}"
        check_new_name(folder, safe_name(name), where=where, hint=f"type --name {name.rstrip('.')}-1")


def _missing_record_error(store: ResultStore, text: str, name: str, absent: Mapping[Cell, str]) -> InputError:
    records = store.records() if store.root.is_dir() else []
    known = {record.method for record in records}
    near = suggest_name(name, sorted(known - {name}))
    asked = ",".join(dict.fromkeys(absent.values()))
    (place, _), *_ = absent
    profile = "" if place == profiles.DEFAULT else f" --profile {place}"
    return InputError(
        f"the reference has no record of '{name}' on {asked}" + (f" ({near})" if near else ""),
        where=f"--name {name}",
        hint=f"bench check --encoder {shlex.quote(text)} --name {name}{profile} --suite {shlex.quote(asked)} "
        "--update --why TEXT makes it",
    )


def _plan_cells(
    request: MethodRequest,
    then: Mapping[Cell, RunRecord],
    absent: Mapping[Cell, str],
    data: Path | None,
    results: Path,
    workers: int,
) -> list[Plan]:
    """Plan every suite like its record; a new one like the others of its name, or by default."""
    like, groups = next(iter(then.values()), None), dict[RunSpec, list[str]]()
    for profile, suite in (*then, *absent):
        record, name = then.get((profile, suite), like), absent.get((profile, suite), suite)
        spec = _build_spec(request, profile, record, data, results, workers)
        groups.setdefault(spec, []).append(name)
    try:
        return [make_plan(replace(spec, suites=tuple(suites))) for spec, suites in groups.items()]
    except InputError as error:
        where = error.where
        if where is not None and where.startswith("--methods"):
            where = f"--encoder{where.removeprefix('--methods')}"
        raise type(error)(error.what, where=where, expected=error.expected, hint=error.hint) from error


def _build_spec(
    request: MethodRequest,
    profile: str,
    like: RunRecord | None,
    data: Path | None,
    results: Path,
    workers: int,
) -> RunSpec:
    spec = RunSpec((request,), (0,), profile, data=data, results=results, campaign=CAMPAIGN, workers=workers)
    if like is None:
        return spec
    world = like.world["seed"] if like.world else DEFAULT_SEED
    return replace(
        spec,
        world_seed=None if world == DEFAULT_SEED else world,  # only suites of a world accept one
        accept_data=not all(facts.get("reference", True) for facts in like.tasks.values()),
        **specification_fields(like),
    )


def _find_changed_cells(plans: Sequence[Plan], then: Mapping[Cell, RunRecord]) -> list[CellVerdict]:
    """Return cells whose specification has changed, but for the weights, before anything runs."""
    cells = []
    for job in (job for plan in plans for job in plan.jobs):
        record = then.get((job.place.profile, job.suite))
        if record is not None and (lines := find_fact_differences(record, job.record, COMPARED)):
            key, why = cell_key(record), tuple(map(str, lines))
            cells.append(CellVerdict(key, Status.DIFFERENT, (), (), reasons=why, question=Question.ITEMS))
    return cells


def _judge_new_suite(key: Key, record: RunRecord | None) -> CellVerdict:
    """Return the verdict on a suite that the reference lacks."""
    average = None if record is None else record.score(AVERAGE)
    scores = "" if average is None else f", it scores {100 * average:.2f}"
    status, reason = Status.NEW, f"the reference has no record of it yet{scores}"
    if record is None:
        status, reason = Status.MISSING, "there is no record of it"
    elif record.status != "ok":
        status, reason = Status.FAILED, f"the run: {record.reason}"
    return CellVerdict(key, status, (), (), reasons=(reason,), question=Question.ITEMS)


def _draw_pair(
    store: ResultStore,
    new_store: ResultStore,
    folder: Path,
    data: Path | None,
    draws: int,
    then: RunRecord,
    now: RunRecord | None,
) -> ItemPair:
    """Draw the items of both, with a copy of the record so that the reference stays unchanged."""
    if now is None or now.status != "ok" or find_fact_differences(then, now, COMPARED):
        return ItemPair(then, now)
    moved = None
    if then.predictions and now.predictions and then.metric == "spearman":  # others have no similarities
        was, is_now = store.predictions(then), new_store.predictions(now)
        moved = max(float(np.abs(was[task] - is_now[task]).max()) for task in was)
    runs = [CampaignRun(_copy_record(store, then, folder), then), CampaignRun(new_store, now)]
    try:
        one, other = draw_items(runs, data, draws=draws, seed=SEED)
    except RefusedError as error:
        path = str(store.path(then.place))
        raise RefusedError(error.what, where=path, expected=error.expected, hint=error.hint) from error
    except BenchError as error:
        return ItemPair(then, now, why=error.what, moved=moved)
    return ItemPair(then, now, (one.values, other.values), moved=moved, units=one.summary)


def _copy_record(store: ResultStore, record: RunRecord, folder: Path) -> ResultStore:
    copy = ResultStore(folder, "reference")
    source, target = store.path(record.place), copy.path(record.place)
    target.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".json", ".npz") if record.predictions is not None else (".json",):
        shutil.copyfile(source.with_suffix(suffix), target.with_suffix(suffix))
    return copy
