"""The card of an exported encoder: its origin, and its scores as Hugging Face's ``model-index``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from bench.data.rank_task import RankTask
from bench.data.suites import CASED, CASED_DEV, CASED_TRANSFER, MINI_SUITES
from bench.data.tasks import LabelledTask
from bench.eval.mteb_scores import metric_name
from bench.eval.mteb_tasks import MtebTask
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.record_probes import find_finished_record
from bench.nn.model_metadata import read_model_card
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import ALL, AVERAGE, RunRecord, Score
from bench.render.formats import markdown_escape
from bench.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def collect_model_facts(builder: EncoderBuilder) -> dict[str, Any]:
    """Return licence and training data of a cell's model, as far as its folder's card names them."""
    cell = builder.cell
    card = read_model_card(cell.model.path) if cell.model is not None and cell.model.path.is_dir() else {}
    facts = builder.facts()
    if "corpus" in facts:
        texts = [facts["corpus"], *(s["text"] for s in facts.get("stages", {}).values() if "text" in s)]
        card["training_datasets"] = list(dict.fromkeys(text["name"] for text in texts))
    elif not cell.card.takes_path:
        card["training_datasets"] = []
    return card


Kind: TypeAlias = tuple[str, str]  # a task's type on the Hub, and its name there
_SIMILARITY: Kind = ("sentence-similarity", "Semantic Similarity")
_CLASSIFICATION: Kind = ("text-classification", "Classification")
_RETRIEVAL: Kind = ("text-retrieval", "Retrieval")
_OTHER = "feature-extraction"
_OF_MTEB = dict.fromkeys(("STS", "Summarization"), _SIMILARITY[0])
_OF_MTEB |= dict.fromkeys(("Classification", "PairClassification"), _CLASSIFICATION[0])
_OF_MTEB |= {"Retrieval": _RETRIEVAL[0], "Reranking": "text-ranking"}
_METRICS = {"spearman": ("spearman_cosine", "Spearman Cosine"), "mrr": ("mrr", "MRR")}
"""Type and name as in the cards of sentence-transformers; other metrics use bench's name."""
_SYNTHETIC = frozenset({*MINI_SUITES, "toy", CASED, CASED_DEV, CASED_TRANSFER})


def build_model_index(
    name: str, plan: Plan, records: Sequence[tuple[Job, RunRecord]], checkpoint: str
) -> str:
    """Return the YAML of a ``model-index`` with the scores of the "selected" or "last" checkpoint, or ""."""
    from huggingface_hub import ModelCardData

    results: list[EvalResult] = []
    for job, record in records:
        results += _suite_results(job, record, plan, last=checkpoint == "last" and bool(job.cell.stages))
    if not results:
        return ""
    return ModelCardData(model_name=_drop_unprintable(name), eval_results=results).to_yaml() + "\n"


def _suite_results(job: Job, record: RunRecord, plan: Plan, *, last: bool) -> list[EvalResult]:
    """Return the result of every task of a suite, and their average if there are several."""
    tasks = {task.id: task for task in plan.suites[job.suite]}
    kinds = {_task_kind(task) for task in tasks.values()}
    scores = {(score.task, score.metric): score for score in record.scores if score.subset == ALL}
    suffix = "_last" if last else ""
    results = []
    for task in tasks.values():
        mteb_task, metric = None, record.metric
        if isinstance(task, MtebTask):
            mteb_task, metric = task, metric_name(task.score)
        if score := scores.get((task.id, metric + suffix)):
            results.append(_build_result(score, metric, _task_kind(task), record, mteb_task))
    average = scores.get((AVERAGE, record.metric + suffix))
    if average is not None and len(tasks) > 1:
        kind = kinds.pop() if len(kinds) == 1 else (_OTHER, "Average")
        results.append(_build_result(average, record.metric, kind, record))
    return results


def _build_result(
    score: Score, metric: str, kind: Kind, record: RunRecord, task: MtebTask | None = None
) -> EvalResult:
    from huggingface_hub import EvalResult

    whole = score.task == AVERAGE
    tasks, name, notes = [record.tasks.get(score.task, {})], score.task, list[str]()
    if whole:
        tasks, name, notes = [*record.tasks.values()], record.suite, [f"average of {score.n} tasks"]
    if record.suite in _SYNTHETIC:
        notes.append("synthetic data")
    elif not all(facts.get("reference", True) for facts in tasks):
        notes.append("other data")
    title_of_data = f"{name} ({', '.join(notes)})" if notes else name
    path, revision = task.dataset if task is not None and task.local is None else (None, None)
    type_, title = _METRICS.get(metric, (metric, metric.replace("_", " ").title()))
    return EvalResult(
        task_type=_drop_unprintable(kind[0]),
        task_name=_drop_unprintable(kind[1]),
        dataset_type=_drop_unprintable(path or name),
        dataset_name=_drop_unprintable(title_of_data),
        dataset_config=None if whole else _drop_unprintable(record.suite),
        dataset_revision=revision and _drop_unprintable(revision),
        metric_type=_drop_unprintable(type_),
        metric_name=_drop_unprintable(title),
        metric_value=score.value,
    )


def _task_kind(task: object) -> Kind:
    if isinstance(task, MtebTask):
        return _OF_MTEB.get(task.kind, _OTHER), task.kind
    if isinstance(task, LabelledTask):
        return _CLASSIFICATION
    return _RETRIEVAL if isinstance(task, RankTask) else _SIMILARITY


def _drop_unprintable(text: str) -> str:
    return "".join(filter(str.isprintable, text))


def find_finished_records(plan: Plan) -> list[tuple[Job, RunRecord]]:
    """Return the finished jobs of a plan with their records; warn on stderr if all are missing."""
    records = [(job, record) for job in plan.jobs if (record := find_finished_record(plan, job)) is not None]
    if not records:
        suites = ", ".join(job.suite for job in plan.jobs)
        place = f"{plan.jobs[0].cell.describe()} on {suites} in campaign {plan.store.campaign}"
        click.echo(f"no finished record of {place}: the card holds no scores", err=True)
    return records


def build_model_card(
    builder: EncoderBuilder, records: Sequence[tuple[Job, RunRecord]], checkpoint: str
) -> str:
    """Return the model card: the method, how this encoder was made, its scores."""
    cell, card = builder.cell, builder.cell.card
    rows = [("Paper", card.paper), ("Code", card.code)]
    rows += [("Computes", line) for line in card.equations]
    rows += [("Deviation", line) for line in card.deviations]
    rows += [(f"Option {name}", str(value)) for name, value in cell.options]
    title, name, summary = map(escape_all_markdown, (cell.describe(), card.name, card.summary))
    parts = [
        f"# {title}\n\n{name}: {summary}\n",
        f"## Method\n\n{_format_list(rows)}",
        f"## Encoder\n\n{_format_list(_encoder_rows(builder, checkpoint))}",
    ]
    last = "_last" if checkpoint == "last" and cell.stages else ""
    parts += [_scores_section(job, record, f"{record.metric}{last}") for job, record in records]
    notes = dict.fromkeys(note for _, record in records for note in record.notes) or dict.fromkeys(cell.notes)
    if notes:
        parts.append("## Notes\n\n" + _format_list([("Note", note) for note in notes]))
    if cell.model is not None:
        licence = "The weights were made from the model named above, whose licence holds for them: check it."
        parts.append(f"## Licence\n\n{licence}\n")
    return "\n".join(parts)


def _encoder_rows(builder: EncoderBuilder, checkpoint: str) -> list[tuple[str, str]]:
    cell = builder.cell
    rows = [("Made by", f"cse-bench {__version__}, method version {cell.card.version}")]
    rows.append(("Profile", cell.profile))
    if cell.model is not None:
        rows.append(("Model it starts from", f"{cell.model.name}, sha256 {cell.model.sha256}"))
    if cell.seed is not None:
        rows.append(("Seed", str(cell.seed)))
    if "corpus" not in (facts := builder.facts()):  # it was trained elsewhere
        return rows
    corpus, dev = facts["corpus"], facts["dev"]
    (unit,) = {"sentences", "pairs"} & corpus.keys()
    rows.append(("Training text", f"{corpus['name']}, {corpus[unit]:,} {unit}, sha256 {corpus['sha256']}"))
    rows.append(("Dev set", f"{dev['task']}, sha256 {dev['sha256']}"))
    for role, stage in facts.get("stages", {}).items():
        text = f"{stage['steps']} steps, {stage['sentences_seen']:,} sentences"
        text += f", best at step {stage['selected_step']}"
        if stage.get("selected_dev") is not None:
            text += f" with dev Spearman x 100 of {100 * stage['selected_dev']:.2f}"
        rows.append((f"Stage {role}", text))
    rows.append(("Checkpoint", checkpoint))
    return rows


def _scores_section(job: Job, record: RunRecord, metric: str) -> str:
    rows = []
    for score in record.scores:
        if (score.subset, score.metric) == (ALL, metric):
            text = f"{100 * score.value:.2f}"
            if not record.tasks.get(score.task, {}).get("reference", True):
                text += " (other data)"
            rows.append((score.task, text))
    unit = "Spearman x 100 over all pairs of a task" if metric.startswith("spearman") else f"{metric} x 100"
    head = f"{unit[0].upper()}{unit[1:]}; record {record.key[:12]}.\n\n"
    body = _format_list(rows) or "It has none of the last checkpoint.\n"
    return f"## Scores on {escape_all_markdown(job.suite)}\n\n{head}{body}"


def _format_list(rows: Sequence[tuple[str, str]]) -> str:
    escaped = (map(escape_all_markdown, row) for row in rows if row[1] != "")
    return "".join(f"- {name}: {text}\n" for name, text in escaped)


def escape_all_markdown(text: str) -> str:
    """Make any text inert in markdown; drop unprintable characters."""
    printable = "".join(char for char in text if char.isprintable() or char.isspace())
    return markdown_escape(printable)
