"""Encoders that a reference keeps next to their records, for the gate to compute again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.config.run_spec import MethodRequest
from bench.encoder import PairScorer
from bench.errors import CellFailedError, InputError
from bench.execution.runner import run_plan
from bench.plan.job import Job
from bench.plan.plan import Plan, make_plan
from bench.records.filesystem import create_folder_atomically
from bench.records.record import EXTERNAL, RecordPlace, RunRecord
from bench.records.store import ResultStore

CAMPAIGN = "check"
"""Campaign of the gate's own cells, in a temporary folder."""
METHOD, ENDING = "exported", ".kept"
"""A kept encoder's record has method ``exported``; its id is its method's with the ending."""
_FOLDER = "encoder"


def find_encoder_folder(store: ResultStore, place: RecordPlace) -> Path:
    """Return the folder of a record's weights, next to it."""
    return store.root / place.folder / _FOLDER


def has_encoder(store: ResultStore, record: RunRecord) -> bool:
    """True if a reference keeps the encoder of a record next to it."""
    return record.name in EXTERNAL and find_encoder_folder(store, record.place).is_dir()


def find_missing_encoders(store: ResultStore, records: Sequence[RunRecord]) -> list[str]:
    """Return the trained methods of these records whose encoder the reference lacks."""
    names = {record.method for record in store.records()}
    trained = dict.fromkeys(r.method for r in records if r.training.get("stages") and r.seed is not None)
    return [method for method in trained if method + ENDING not in names]


def export_halved(plan: Plan, job: Job, out: Path) -> None:
    """Write the encoder of a plan's finished job with weights of two bytes, as ``exported:`` reads it."""
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.stage_cache import StageCache
    from bench.nn.encoder_folder import export_encoder

    cache = StageCache(plan.spec.results / ".stages")
    encoder = EncoderBuilder(job.cell, plan.spec.device, plan.training, cache).encoder()
    if isinstance(encoder, PairScorer):
        raise InputError(f"{job.cell.method} has no vectors", where="--keep-encoders")
    export_encoder(encoder, out, card="")
    (out / "README.md").unlink()  # the record describes it
    for file in out.rglob("*.safetensors"):
        _halve_weights(file)


def _halve_weights(file: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    floats = {name: w.half() if w.dtype == torch.float32 else w for name, w in weights.items()}
    save_file({name: w.contiguous() for name, w in floats.items()}, file, metadata={"format": "pt"})


def keep_encoders(
    store: ResultStore, planned: Sequence[Plan], methods: Sequence[str], scratch: Path
) -> Iterator[str]:
    """Keep the first seed's encoder of trained methods in a reference, with its record; yield a line each."""
    for method in methods:
        plan, job = _first_job(planned, method)
        weights = scratch / "kept" / method / _FOLDER
        export_halved(plan, job, weights)
        alias = method + ENDING
        request = MethodRequest(alias, METHOD, str(weights), (), alias)
        suites = tuple(dict.fromkeys(j.source or j.suite for j in plan.jobs if j.cell.method == method))
        spec = replace(plan.spec, methods=(request,), seeds=(0,), suites=suites, campaign=f"{CAMPAIGN}-kept")
        spec = replace(
            spec, overrides=(), corpus=None, pairs=None, copies=(), dev=None, workers=1, plugins=()
        )
        kept = make_plan(spec)
        for outcome in run_plan(kept, on_outcome=lambda _: None):
            if outcome.record is None or outcome.record.status != "ok":
                why = outcome.record.reason if outcome.record else "no record"
                raise CellFailedError(f"the encoder of {method} can't be kept: {why}")
            _write_encoder(store, kept.store, outcome.record, weights)
        size = sum(file.stat().st_size for file in weights.rglob("*") if file.is_file())
        yield f"kept the encoder of {job.cell.describe()} as {alias}, {size / 1e6:.1f} MB"


def _first_job(planned: Sequence[Plan], method: str) -> tuple[Plan, Job]:
    jobs = [(plan, job) for plan in planned for job in plan.jobs if job.cell.method == method]
    if not jobs:
        what = f"{method} was not trained by this command"
        raise InputError(what, where="--keep-encoders", hint="leave out --results to train the cells again")
    return min(jobs, key=lambda pair: pair[1].cell.seed or 0)


def _write_encoder(store: ResultStore, source: ResultStore, record: RunRecord, weights: Path) -> None:
    """Put a record and its encoder into a reference, the weights first."""
    target = find_encoder_folder(store, record.place)
    predictions = source.predictions(record) if record.predictions else None
    with store.claim(record.place, wait=True):
        if not target.is_dir():
            with create_folder_atomically(target) as folder:
                shutil.copytree(weights, folder, dirs_exist_ok=True)
        store.write(record.place, record, predictions)
