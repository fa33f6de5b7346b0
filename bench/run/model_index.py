"""The scores of an exported encoder as Hugging Face's ``model-index``, for the head of its model card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from bench.data.rank import RankTask
from bench.data.suites import MINI_SUITES
from bench.data.tasks import LabelledTask
from bench.eval.mteb_scores import metric_name
from bench.eval.mteb_tasks import MtebTask
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import ALL, AVERAGE, RunRecord, Score

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

Kind: TypeAlias = tuple[str, str]
"""A task's kind: its type on the Hub, and its name."""
_SIMILARITY: Kind = ("sentence-similarity", "Semantic Similarity")
_CLASSIFICATION: Kind = ("text-classification", "Classification")
_RETRIEVAL: Kind = ("text-retrieval", "Retrieval")
_OTHER = "feature-extraction"
_OF_MTEB = {
    "STS": _SIMILARITY[0],
    "Summarization": _SIMILARITY[0],
    "Classification": _CLASSIFICATION[0],
    "PairClassification": _CLASSIFICATION[0],
    "Retrieval": _RETRIEVAL[0],
    "Reranking": "text-ranking",
}
_METRICS = {"spearman": ("spearman_cosine", "Spearman Cosine"), "mrr": ("mrr", "MRR")}
"""Type and name as in the cards of sentence-transformers; of others made from bench's name."""
_SYNTHETIC = frozenset({*MINI_SUITES, "toy"})


def model_index(name: str, plan: Plan, records: Sequence[tuple[Job, RunRecord]], checkpoint: str) -> str:
    """Return the YAML of a ``model-index``, "" without a score.

    A score is in the record's unit and at full precision. A suite is the data set of its average, and the
    configuration of its tasks.

    Args:
        name: The model's name.
        plan: Has the tasks of every suite.
        records: Finished jobs.
        checkpoint: "selected", or "last" for the scores of the last checkpoint.
    """
    from huggingface_hub import ModelCardData

    results = [
        result
        for job, record in records
        for result in _results(job, record, plan, last=checkpoint == "last" and bool(job.cell.stages))
    ]
    if not results:
        return ""
    return ModelCardData(model_name=_printable(name), eval_results=results).to_yaml() + "\n"


def _results(job: Job, record: RunRecord, plan: Plan, *, last: bool) -> list[EvalResult]:
    """Return the result of every task of a suite, and their average where there are several."""
    tasks = {task.id: task for task in plan.suites[job.suite]}
    kinds = {_kind(task) for task in tasks.values()}
    common = kinds.pop() if len(kinds) == 1 else (_OTHER, "Average")
    scores = {(score.task, score.metric): score for score in record.scores if score.subset == ALL}
    suffix = "_last" if last else ""
    found = []
    for task in tasks.values():
        own = metric_name(task.score) if isinstance(task, MtebTask) else record.metric
        if score := scores.get((task.id, own + suffix)):
            found.append(
                _result(score, own, _kind(task), record, task if isinstance(task, MtebTask) else None)
            )
    average = scores.get((AVERAGE, record.metric + suffix))
    if average is not None and len(tasks) > 1:
        found.append(_result(average, record.metric, common, record))
    return found


def _result(
    score: Score, metric: str, kind: Kind, record: RunRecord, task: MtebTask | None = None
) -> EvalResult:
    from huggingface_hub import EvalResult

    whole = score.task == AVERAGE
    tasks = record.tasks.values() if whole else [record.tasks.get(score.task, {})]
    notes = [f"average of {score.n} tasks"] if whole else []
    if record.suite in _SYNTHETIC:
        notes.append("synthetic data")
    elif not all(facts.get("reference", True) for facts in tasks):
        notes.append("other data")
    name = record.suite if whole else score.task
    path, revision = task.dataset if task is not None and task.local is None else (None, None)
    type_, title = _METRICS.get(metric, (metric, metric.replace("_", " ").title()))
    return EvalResult(
        task_type=_printable(kind[0]),
        task_name=_printable(kind[1]),
        dataset_type=_printable(path or name),
        dataset_name=_printable(f"{name} ({', '.join(notes)})" if notes else name),
        dataset_config=None if whole else _printable(record.suite),
        dataset_revision=revision and _printable(revision),
        metric_type=_printable(type_),
        metric_name=_printable(title),
        metric_value=score.value,
    )


def _kind(task: object) -> Kind:
    if isinstance(task, MtebTask):
        return _OF_MTEB.get(task.kind, _OTHER), task.kind
    if isinstance(task, LabelledTask):
        return _CLASSIFICATION
    return _RETRIEVAL if isinstance(task, RankTask) else _SIMILARITY


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
