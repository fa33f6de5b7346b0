"""Running what :mod:`bench.gradient` measures: the sampled angles, and a training that is watched."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.plan.plan import Plan
from bench.records.campaign_manifest import seal_campaign_files
from bench.records.filesystem import create_folder_atomically, hold_output, write_atomically
from bench.records.record import safe_name
from bench.reports.campaign import GRADIENT
from bench.stages import planned_steps
from bench.training.encoder_options import OWN_POOLING

SAMPLED, HARDEST, MEASURED = "gradient-grid.csv", "gradient-hardest.csv", "gradient.json"
CLS = "cls"
_POOLINGS = ("pooling", "pooler", "train_pooling")  # options of the states that are trained or evaluated
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""From an activity and its number of sentences to the function that counts each batch."""


def sampled_files(out: Path) -> list[Path]:
    """Return the files of sampled angles in a folder."""
    return [out / SAMPLED, out / HARDEST]


def write_sampled(out: Path, seed: int) -> list[Path]:
    """Write the figures of sampled angles (2, 3, 4 and 10) into a folder; return the files.

    Raises InputError if another process writes them.
    """
    with hold_output(out / SAMPLED, _lock_of(out / SAMPLED)):
        return _write_sampled_files(out, seed)


def _write_sampled_files(out: Path, seed: int) -> list[Path]:
    from bench.gradient import sampled_angles as probe

    rows, columns = probe.positive_means(), probe.negative_means()
    grids = {f"gd_{name}": grid for name, grid in probe.dissipation_grid(seed=seed).items()}
    for sampled, kind in ((True, "sampled"), (False, "at_means")):
        ratios = probe.ratio_grid(sampled=sampled, seed=seed)
        grids |= {f"ratio_{name}_{kind}": grid for name, grid in ratios.items()}
    grids |= {f"shaded_{name}": probe.shade_cells(name).astype(float) for name in ("arccon", "met")}
    paper = probe.sampled_hardest_share(seed=seed)
    released = probe.sampled_hardest_share(positive=0.5, least_dissipation=probe.DISSIPATED, seed=seed)
    table, shares = [], []
    for i, p in enumerate(rows):
        for j, n in enumerate(columns):
            table.append((p, n, *(grid[i, j] for grid in grids.values())))
    for t, tau in enumerate(probe.TAUS):
        shares += [(n, tau, paper[t, j], released[t, j]) for j, n in enumerate(columns)]
    _write_grid_table(out / SAMPLED, ("mu_pos", "mu_neg", *grids), table)
    _write_grid_table(out / HARDEST, ("mu_neg", "tau", "share", "share_released"), shares)
    _seal_measurements(out, sampled_files(out))
    return sampled_files(out)


def _seal_measurements(out: Path, files: Iterable[Path]) -> None:
    """Seal written files in the campaign's manifest, if the folder is that of a campaign's gradients."""
    root = out.parent
    if out.name == GRADIENT and any(root.glob("*/*/*/*.json")):
        seal_campaign_files(root, [file.relative_to(root).as_posix() for file in files])


def _write_grid_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    stream = StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"{value:.6g}" for value in row])
    write_atomically(path, stream.getvalue().encode())


def check_watched_plan(plan: Plan) -> None:
    """Raise InputError unless a plan is one training of [CLS] in one stage, here and in float32."""
    spec = plan.spec
    for option, given, needed in (
        ("--ranks", spec.ranks, 1),
        ("--train-precision", spec.train_precision, "fp32"),
        ("--compile", spec.compiled, "none"),
    ):
        if given != needed:
            where = f"{option} {given}"
            raise InputError(
                "a measured training can't have this", where=where, expected=f"{option} {needed}"
            )
    cell = plan.jobs[0].cell
    if len(plan.ids) != 1 or len(cell.stages) != 1 or cell.members or cell.model is None:
        raise InputError(
            f"'{spec.methods[0].text}' can't be measured",
            expected="one method that trains one transformer in one stage",
        )
    options = dict(cell.options)
    other = [
        f"{name}={options[name]}" for name in _POOLINGS if options.get(name, CLS) not in (CLS, OWN_POOLING)
    ]
    other += ["a prompt"] if "template" in options else []
    if other:
        message = f"'{spec.methods[0].text}' has {' and '.join(other)}"
        expected = "a method that trains and evaluates [CLS], without a prompt"
        raise InputError(message, expected=expected)


def check_same_stage(plan: Plan, file: Path) -> None:
    """Raise InputError for an existing measurement of another text, backbone, version or option."""
    try:
        measured = json.loads(file.read_text(encoding="utf-8")).get("stage")
    except (OSError, ValueError, AttributeError):
        measured = None
    if measured != plan.jobs[0].cell.stages[0].key:
        raise InputError(
            "this was measured under another specification",
            where=str(file),
            hint="name another --campaign, or move the folder away",
        )


def measurement_folder(plan: Plan, out: Path) -> Path:
    """Return the folder of a plan's training below another."""
    cell = plan.jobs[0].cell
    return out / f"{safe_name(cell.method)}-seed-{cell.seed}"


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def measure_training(plan: Plan, final: Path, most: int, progress: Progress) -> Path:
    """Train one method and write the measurement into a new folder; return the file.

    "after" is the selected checkpoint, as it is evaluated. The folder gets its name when it is complete, and
    holds no weights: a campaign's records are searched beside it. Raises InputError if another process
    measures it, or has done so.
    """
    with hold_output(final, _lock_of(final)):
        if final.exists():
            raise InputError("the folder already exists", where=str(final), expected="a new one")
        with create_folder_atomically(final) as folder:
            measured = _measure(plan, folder, most, progress)
            for path in folder.iterdir():  # weights and curves of the training
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            text = json.dumps(measured, indent=1, allow_nan=False) + "\n"
            (folder / MEASURED).write_text(text, encoding="utf-8")
        _seal_measurements(final.parent, [final / MEASURED])
    return final / MEASURED


def _measure(plan: Plan, folder: Path, most: int, progress: Progress) -> dict[str, Any]:
    """Train one method in a folder and return its measurement."""
    from bench.execution.encoder_builder import EncoderBuilder
    from bench.execution.stage_cache import StageCache
    from bench.gradient.held_out import watch_training
    from bench.gradient.real_embeddings import dropout_views, embedding_figures
    from bench.nn.backbone import TransformerEncoder
    from bench.nn.device import torch_threads
    from bench.nn.dropout import set_dropout

    cell = plan.jobs[0].cell
    if cell.model is None or cell.seed is None:
        raise ValueError("a cell that trains has a model and a seed")
    model, seed, dropout = cell.model.path, cell.seed, float(dict(cell.options)["dropout"])

    def figures(source: Path, sentences: Sequence[str]) -> dict[str, Any]:
        encoder = TransformerEncoder(source, device=plan.spec.device)
        set_dropout(encoder.model, dropout)
        return embedding_figures(*dropout_views(encoder, sentences, seed))

    stage = cell.stages[0]
    config = dict(stage.spec.config)
    count = len(plan.training.texts[stage.spec.text].sentences) if plan.training else 0
    total = planned_steps(config, count * 9 // 10) * int(config["batch_size"])  # about a tenth is held out
    with torch_threads(plan.spec.threads, needs_torch=True), progress("training", total) as advance:
        cache = StageCache(plan.spec.results / ".stages")
        builder = EncoderBuilder(cell, plan.spec.device, plan.training, cache, advance)
        given = builder.context(stage, {}, folder)
        facts, held, snapshots = watch_training(stage.spec.train, given, most=most)
        return {
            "method": cell.method,
            "seed": seed,
            "stage": stage.key,
            "sentences": len(held),
            "dev_curve": facts["dev_curve"],
            "steps": [asdict(shot) for shot in snapshots],
            "before": figures(model, held),
            "after": figures(folder / "selected", held),
        }
