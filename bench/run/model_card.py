"""The model card of an exported encoder."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bench.plan.cell import Cell
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import ALL, RunRecord
from bench.reports.formats.render import markdown_escape
from bench.run.builder import Builder
from bench.run.probing import finished_record
from bench.version import __version__


def find_records(plan: Plan) -> list[tuple[Job, RunRecord]]:
    """Return the finished jobs of a plan with their records; say on stderr where there are none."""
    records = [(job, record) for job in plan.jobs if (record := finished_record(plan, job)) is not None]
    if not records:
        place = f"{plan.jobs[0].cell.describe()} in campaign {plan.store.campaign}"
        click.echo(f"no finished record of {place}: the card holds no scores", err=True)
    return records


def model_card(builder: Builder, records: Sequence[tuple[Job, RunRecord]], checkpoint: str) -> str:
    """Return the model card: what the method is, how this encoder was made, what its records say."""
    cell, card = builder.cell, builder.cell.card
    rows = [("Paper", card.paper), ("Code", card.code)]
    rows += [("Computes", line) for line in card.equations]
    rows += [("Deviation", line) for line in card.deviations]
    rows += [(f"Option {name}", str(value)) for name, value in cell.options]
    parts = [
        f"# {inert(cell.describe())}\n\n{inert(card.name)}: {inert(card.summary)}\n",
        _section("Method", rows),
        _section("Encoder", _encoder_rows(cell, builder, checkpoint)),
    ]
    last = "_last" if checkpoint == "last" and cell.stages else ""
    parts += [_scores(job, record, f"{record.metric}{last}") for job, record in records]
    notes = dict.fromkeys(note for _, record in records for note in record.notes) or dict.fromkeys(cell.notes)
    if notes:
        parts.append(_section("Notes", [("Note", note) for note in notes]))
    if cell.model is not None:
        licence = "The weights were made from the model named above, whose licence holds for them: check it."
        parts.append(f"## Licence\n\n{licence}\n")
    return "\n".join(parts)


def _encoder_rows(cell: Cell, builder: Builder, checkpoint: str) -> list[tuple[str, str]]:
    """How the encoder was made."""
    rows = [("Made by", f"cse-bench {__version__}, method version {cell.card.version}")]
    rows.append(("Profile", cell.profile))
    if cell.model is not None:
        rows.append(("Model it starts from", f"{cell.model.name}, sha256 {cell.model.sha256}"))
    if cell.seed is not None:
        rows.append(("Seed", str(cell.seed)))
    facts = builder.facts()
    if "corpus" not in facts:  # nothing in it was trained here
        return rows
    corpus, dev = facts["corpus"], facts["dev"]
    (unit,) = {"sentences", "pairs"} & corpus.keys()
    rows.append(("Training text", f"{corpus['name']}, {corpus[unit]:,} {unit}, sha256 {corpus['sha256']}"))
    rows.append(("Dev set", f"{dev['task']}, sha256 {dev['sha256']}"))
    for role, stage in facts.get("stages", {}).items():
        text = f"{stage['steps']} steps, {stage['sentences_seen']:,} sentences, best at step "
        text += str(stage["selected_step"])
        if stage.get("selected_dev") is not None:
            text += f" with dev Spearman x 100 of {100 * stage['selected_dev']:.2f}"
        rows.append((f"Stage {role}", text))
    rows.append(("Checkpoint", checkpoint))
    return rows


def _scores(job: Job, record: RunRecord, metric: str) -> str:
    rows = []
    for score in record.scores:
        if (score.subset, score.metric) == (ALL, metric):
            own = record.tasks.get(score.task, {}).get("reference", True)
            rows.append((score.task, f"{100 * score.value:.2f}{'' if own else ' (other data)'}"))
    said = "Spearman x 100 over all pairs of a task" if metric.startswith("spearman") else f"{metric} x 100"
    head = f"{said[0].upper()}{said[1:]}; record {record.key[:12]}.\n\n"
    none = "" if rows else "It has none of the last checkpoint.\n"
    return f"## Scores on {inert(job.suite)}\n\n{head}{none}" + _lines(rows)


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    return f"## {title}\n\n{_lines(rows)}"


def _lines(rows: list[tuple[str, str]]) -> str:
    return "".join(f"- {inert(name)}: {inert(text)}\n" for name, text in rows if text != "")


def inert(text: str) -> str:
    """Make any text inert in markdown, its characters that can't be printed left out."""
    printable = "".join(char for char in text if char.isprintable() or char.isspace())
    return markdown_escape(printable)
