"""``bench gradient``: the gradient paradigm's figures, by sampled angles and on held-out sentences."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import PATH, check_device, make_spec, spec_options
from bench.cli.progress import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.plan.plan import Plan


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--out", type=PATH, required=True, help="Folder to write.")
@click.option("--seed", type=click.IntRange(0), default=1)
@click.option(
    "--most",
    type=click.IntRange(128),
    default=2560,
    help="Measure this many of the held-out sentences at most.",
)
@click.option("--figures", type=PATH, help="Then draw all that lies in --out into DIR: PDF, PNG and SVG.")
@spec_options
def gradient(
    methods: tuple[str, ...], out: Path, seed: int, most: int, figures: Path | None, **options: Any
) -> None:
    """Write what the gradient paradigm's figures draw.

    Without METHOD those of sampled angles (2, 3, 4 and 10), as CSV. Each METHOD, one that trains one
    transformer, is trained on nine tenths of the text and measured on the rest, before, at every dev
    evaluation and at the end (5, 7, 8 and 9), as JSON. Runs of one folder have figures together.
    """
    if len(set(methods)) < len(methods):
        raise InputError("a method is named twice", where="bench gradient")
    try:
        out.mkdir(parents=True, exist_ok=True)
        cells = [_cell(method, out, seed, options) for method in methods]  # all checked before one trains
        for plan, folder in cells:
            _measured(plan, folder, most)
        if not methods:
            _sampled(out, seed)
    except OSError as error:
        raise InputError(f"the figures can't be written: {error.strerror}", where=f"--out {out}") from error
    if figures is not None:
        from bench.reports.figures.draw import draw
        from bench.reports.figures.of_files import gradient_figures

        for path in draw(gradient_figures(out), figures):
            click.echo(f"figure: {path}", err=True)


def _sampled(out: Path, seed: int) -> None:
    from bench.gradient import angles as probe

    rows, columns = probe.positive_means(), probe.negative_means()
    grids = {f"gd_{name}": grid for name, grid in probe.dissipation_grid(seed=seed).items()}
    for sampled, kind in ((True, "sampled"), (False, "at_means")):
        ratios = probe.ratio_grid(sampled=sampled, seed=seed)
        grids |= {f"ratio_{name}_{kind}": grid for name, grid in ratios.items()}
    grids |= {f"shaded_{name}": probe.shaded(name).astype(float) for name in ("arccon", "met")}
    _table(
        out / "gradient-grid.csv",
        ("mu_pos", "mu_neg", *grids),
        (
            (p, n, *(grid[i, j] for grid in grids.values()))
            for i, p in enumerate(rows)
            for j, n in enumerate(columns)
        ),
    )
    paper = probe.hardest_share(seed=seed)
    released = probe.hardest_share(positive=0.5, least_dissipation=probe.DISSIPATED, seed=seed)
    _table(
        out / "gradient-hardest.csv",
        ("mu_neg", "tau", "share", "share_released"),
        (
            (n, tau, paper[t, j], released[t, j])
            for t, tau in enumerate(probe.TAUS)
            for j, n in enumerate(columns)
        ),
    )


def _table(path: Path, header: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{value:.6g}" for value in row] for row in rows)
    click.echo(path)


def _cell(method: str, out: Path, seed: int, options: dict[str, Any]) -> tuple[Plan, Path]:
    """The plan of one method's training, and its folder; raises InputError where it can't be watched."""
    from bench.plan.plan import make_plan
    from bench.records.record import safe_name

    plan = make_plan(make_spec({**options, "methods": method, "seeds": str(seed)}))
    check_device(plan.spec.device)
    if plan.spec.ranks > 1:
        raise InputError("this training is watched in one process", where=f"--ranks {plan.spec.ranks}")
    if plan.spec.train_precision != "fp32":
        raise InputError(
            "this training is watched in fp32", where=f"--train-precision {plan.spec.train_precision}"
        )
    if plan.spec.compiled != "none":
        raise InputError("this training is watched uncompiled", where=f"--compile {plan.spec.compiled}")
    cell = plan.jobs[0].cell
    if len(plan.ids) != 1 or len(cell.stages) != 1 or cell.members or cell.model is None:
        raise InputError(
            f"'{method}' can't be measured", expected="one method that trains one transformer in one stage"
        )
    folder = out / f"{safe_name(cell.method)}-seed-{seed}"
    if folder.exists():
        raise InputError("the folder already exists", where=str(folder), expected="a new one")
    return plan, folder


def _measured(plan: Plan, folder: Path, most: int) -> None:
    """Train one method and write what was measured."""
    from dataclasses import asdict

    from bench.gradient.training import watch_training
    from bench.gradient.views import dropout_views, embedding_figures
    from bench.nn.backbone import TransformerEncoder
    from bench.nn.threads import torch_threads
    from bench.run.builder import Builder
    from bench.run.stage_cache import StageCache
    from bench.train.sentence_encoder import set_dropout

    cell = plan.jobs[0].cell
    if cell.model is None or cell.seed is None:
        raise ValueError("a cell that trains has a model and a seed")
    model, seed, dropout = cell.model.path, cell.seed, float(dict(cell.options)["dropout"])
    folder.mkdir()

    def figures(source: Path, sentences: Sequence[str]) -> dict[str, Any]:
        encoder = TransformerEncoder(source, device=plan.spec.device)
        set_dropout(encoder.model, dropout)
        return embedding_figures(*dropout_views(encoder, sentences, seed))

    stage, total = cell.stages[0], _sentences(plan)
    with torch_threads(plan.spec.threads, needs_torch=True), progress_bar("training", total) as advance:
        cache = StageCache(plan.spec.results / ".stages")
        builder = Builder(cell, plan.spec.device, plan.training, cache, advance)
        facts, held, found = watch_training(stage.spec.train, builder.context(stage, {}, folder), most=most)
        measured = {
            "method": cell.method,
            "seed": seed,
            "sentences": len(held),
            "dev_curve": facts["dev_curve"],
            "steps": [asdict(shot) for shot in found],
            "before": figures(model, held),
            "after": figures(folder / "selected", held),
        }
    path = folder / "gradient.json"
    path.write_text(json.dumps(measured, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    click.echo(path)


def _sentences(plan: Plan) -> int:
    """Sentences that the training will see, about."""
    from bench.stages import planned_steps

    stage = plan.jobs[0].cell.stages[0]
    config = dict(stage.spec.config)
    count = len(plan.training.texts[stage.spec.text].sentences) if plan.training else 0
    return planned_steps(config, count * 9 // 10) * int(config["batch_size"])
