"""``bench export``: one trained encoder as a folder that anybody can load, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli_options import check_device, loaded_plugins, make_spec, progress_bar, spec_options
from bench.errors import DataError, InputError

if TYPE_CHECKING:
    from bench.builder import Builder
    from bench.cells import Cell
    from bench.encoder import Encoder
    from bench.jobs import Job
    from bench.plan import Plan
    from bench.record import RunRecord
    from bench.spec import RunSpec

_WHERE = "bench export"

checkpoint_option = click.option(
    "--checkpoint",
    type=click.Choice(["selected", "last"]),
    default="selected",
    show_default=True,
    help="Selected on the dev set, or the last.",
)


@click.command()
@click.argument("method")
@click.option("--seed", type=click.IntRange(0), help="Which seed's encoder; not for a deterministic method.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@checkpoint_option
@spec_options
def export(method: str, seed: int | None, out: Path, checkpoint: str, **options: Any) -> None:
    """Write METHOD's encoder as a folder for transformers, sentence-transformers or bench.load.

    Give the options of the `bench run` that trained it: its finished stages are then used as they are.
    """
    from bench.plan import make_plan
    from bench.runner import torch_threads

    spec = one_method(method, seed, options, _WHERE)
    if spec.methods[0].name == "st":
        raise InputError(
            f"'{method}' is a sentence-transformers folder already", where=_WHERE, hint="copy it"
        )
    plan = make_plan(spec)
    cell = plan.jobs[0].cell
    check_device(plan.spec.device)
    with torch_threads(plan.spec.threads, needs_torch=True):
        from bench.nn.export import check_target, export_encoder

        check_target(out)
        builder, encoder = finished_encoder(plan, checkpoint, _WHERE)
        export_encoder(encoder, out, _card(plan, builder, checkpoint))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    click.echo(f"{out}: {cell.describe()}, {encoder.dim} dimensions, {size / 1e6:.1f} MB")


def one_method(text: str, seed: int | None, options: dict[str, Any], where: str) -> RunSpec:
    """Check method and seed before anything is read; the specification of that one encoder.

    Raises:
        InputError: several methods, an unknown one, or no seed.
    """
    from bench.registry import discover
    from bench.spec import parse_methods

    methods = parse_methods(text)
    if len(methods) != 1:
        raise InputError(f"'{text}' names {len(methods)} methods", where=where, expected="one method")
    loaded_plugins(options["plugins"], options["results"])
    card = discover().get(methods[0].name, where=where).card
    if seed is None and not card.deterministic:
        raise InputError(f"'{text}' has an encoder a seed", where=where, expected="--seed N")
    return make_spec({**options, "methods": text, "seeds": (seed or 0,)})


def finished_encoder(plan: Plan, checkpoint: str, where: str) -> tuple[Builder, Encoder]:
    """The encoder of a plan of one method and seed, and what built it; stages not at hand are trained first.

    Raises:
        InputError: a method without vectors.
    """
    from bench.builder import Builder
    from bench.encoder import PairScorer
    from bench.stages import StageCache, planned_steps

    cell, cache = plan.jobs[0].cell, StageCache(plan.spec.results / ".stages")
    missing = [stage for stage in cell.all_stages if cache.find(stage) is None]
    if missing:
        names = ", ".join(stage.spec.role for stage in missing)
        click.echo(f"{cell.describe()} is trained first, stage {names}: not in {cache.root}", err=True)
    sentences = len(plan.training.corpus.sentences) if plan.training else 0
    configs = [dict(stage.spec.config) for stage in missing]
    total = sum(planned_steps(config, sentences) * int(config["batch_size"]) for config in configs)
    with progress_bar("train", total) as advance:
        builder = Builder(cell, plan.spec.device, plan.training, cache, advance)
        encoder = builder.encoder(checkpoint)
    if isinstance(encoder, PairScorer):
        raise InputError(
            f"'{cell.method}' compares two sentences directly: it has no vectors to {where.split()[-1]}",
            where=where,
        )
    return builder, encoder


def _card(plan: Plan, builder: Builder, checkpoint: str) -> str:
    """The model card: what the method says of itself, how this encoder was made, what its records say."""
    cell, card = builder.cell, builder.cell.card
    records = [(job, record) for job in plan.jobs if (record := _finished(plan, job)) is not None]
    if not records:
        place = f"{cell.describe()} in campaign {plan.store.campaign}"
        click.echo(f"no finished record of {place}: the card holds no scores", err=True)
    rows = [("Paper", card.paper), ("Code", card.code)]
    rows += [("Computes", line) for line in card.equations]
    rows += [("Deviation", line) for line in card.deviations]
    rows += [(f"Option {name}", str(value)) for name, value in cell.options]
    parts = [
        f"# {inert(cell.describe())}\n\n{inert(card.name)}: {inert(card.summary)}\n",
        _section("Method", rows),
        _section("Encoder", _encoder_rows(cell, builder, checkpoint)),
    ]
    metric = "spearman_last" if checkpoint == "last" and cell.stages else "spearman"
    for job, record in records:
        parts.append(_scores(job, record, metric))
    notes = dict.fromkeys(note for _, record in records for note in record.notes) or dict.fromkeys(cell.notes)
    if notes:
        parts.append(_section("Notes", [("Note", note) for note in notes]))
    if cell.model is not None:
        licence = "The weights were made from the model named above, whose licence holds for them: check it."
        parts.append(f"## Licence\n\n{licence}\n")
    return "\n".join(parts)


def _encoder_rows(cell: Cell, builder: Builder, checkpoint: str) -> list[tuple[str, str]]:
    """How the encoder was made."""
    import bench

    rows = [("Made by", f"cse-bench {bench.__version__}, method version {cell.card.version}")]
    rows.append(("Profile", cell.profile))
    if cell.model is not None:
        rows.append(("Model it starts from", f"{cell.model.name}, sha256 {cell.model.sha256}"))
    if cell.seed is not None:
        rows.append(("Seed", str(cell.seed)))
    facts = builder.facts()
    if not facts:
        return rows
    corpus, dev = facts["corpus"], facts["dev"]
    rows.append(
        ("Training text", f"{corpus['name']}, {corpus['sentences']:,} sentences, sha256 {corpus['sha256']}")
    )
    rows.append(("Dev set", f"{dev['task']}, sha256 {dev['sha256']}"))
    for role, stage in facts["stages"].items():
        text = f"{stage['steps']} steps, {stage['sentences_seen']:,} sentences, best at step "
        text += str(stage["selected_step"])
        if stage.get("selected_dev") is not None:
            text += f" with dev Spearman x 100 of {100 * stage['selected_dev']:.2f}"
        rows.append((f"Stage {role}", text))
    rows.append(("Checkpoint", checkpoint))
    return rows


def _finished(plan: Plan, job: Job) -> RunRecord | None:
    """Return the finished record of exactly this job, if there is one."""
    try:
        record = plan.store.read(job.place)
    except DataError:  # damaged, or of a newer bench: nothing to quote
        return None
    whole = record is not None and record.status == "ok" and plan.store.is_whole(job.place, record)
    return record if record is not None and whole and record.key == job.key else None


def _scores(job: Job, record: RunRecord, metric: str) -> str:
    from bench.record import ALL

    rows = []
    for score in record.scores:
        if (score.subset, score.metric) == (ALL, metric):
            own = record.tasks.get(score.task, {}).get("reference", True)
            rows.append((score.task, f"{100 * score.value:.2f}{'' if own else ' (other data)'}"))
    head = f"Spearman x 100 over all pairs of a task; record {record.key[:12]}.\n\n"
    return f"## Scores on {inert(job.suite)}\n\n{head}" + _lines(rows)


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    return f"## {title}\n\n{_lines(rows)}"


def _lines(rows: list[tuple[str, str]]) -> str:
    return "".join(f"- {inert(name)}: {inert(text)}\n" for name, text in rows if text != "")


def inert(text: str) -> str:
    """Make any text inert in markdown, its characters that can't be printed left out."""
    from bench.reports.render import markdown_escape

    printable = "".join(char for char in text if char.isprintable() or char.isspace())
    return markdown_escape(printable)
