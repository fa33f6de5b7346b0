"""Tasks that mteb measures: resolved by name before loading data, or made from files."""

from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data.data_source import NO_FOLDER, DataSource
from bench.data.local_tasks import KINDS, LocalTask, read_local_suite
from bench.data.mini.mini_suites import MTEB_SUITES, draw_mteb_tasks
from bench.data.mteb_names import FILES, STSB_MULTI, MtebName, parse_suite
from bench.errors import InputError, suggest_name
from bench.eval.mteb_items import local_items
from bench.eval.mteb_setup import import_mteb, preserve_random_state

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

_BASES = {
    "sts": ("AbsTaskSTS", "STS", "cosine_spearman"),
    "bitext": ("AbsTaskBitextMining", "BitextMining", "f1"),
    "classification": ("AbsTaskClassification", "Classification", "accuracy"),
    "reranking": ("AbsTaskRetrieval", "Reranking", "map_at_1000"),
    "retrieval": ("AbsTaskRetrieval", "Retrieval", "ndcg_at_10"),
    "clustering": ("AbsTaskClusteringLegacy", "Clustering", "v_measure"),
    "pair-classification": ("AbsTaskPairClassification", "PairClassification", "max_ap"),
    "summarisation": ("AbsTaskSummarization", "Summarization", "cosine_spearman"),
}

_NOT_NAMES = ("file", "allow_pickle")  # numpy's own arguments where it names predictions


@dataclass(frozen=True)
class MtebTask:
    """A row of a suite: a task of mteb's, a part of one, or a local one; it pickles."""

    asked: MtebName  # which task
    kind: str  # mteb's type of task
    score: str  # mteb's name of the reported score
    dataset: tuple[str, str]  # name and revision of its data
    splits: tuple[str, ...]  # evaluated splits
    local: LocalTask | None = None  # the task's data if it comes from files

    @property
    def id(self) -> str:
        """Name in tables."""
        return self.asked.id

    @property
    def items(self) -> int:
        """Number of scored items; 0 for mteb's data, which are loaded later."""
        return len(local_items(self.local).texts) if self.local else 0

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of everything that is measured, except mteb's version."""
        facts = [self.asked.name, self.asked.subsets, self.score, self.dataset, self.splits]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of a record."""
        return {
            "name": self.asked.name,
            "subsets": list(self.asked.subsets),
            "type": self.kind,
            "score": self.score,
            "dataset": dict(zip(("path", "revision"), self.dataset, strict=True)),
            "splits": list(self.splits),
        }


def load_mteb_suite(suite: str, source: DataSource = NO_FOLDER) -> list[MtebTask]:
    """Return the tasks of a suite for which :func:`bench.data.mteb_names.is_mteb` holds.

    mteb's registry has its tasks before their data are fetched. Local files are read and checked, the mini
    world's tasks are drawn. The source has the data of ``stsb-multi`` and of the world's suites.
    """
    if suite == STSB_MULTI:
        if source.folder is None:
            raise InputError(f"suite '{suite}' needs evaluation data", expected="--data DIR or BENCH_DATA")
        with resources.as_file(resources.files("bench.data").joinpath("stsb_multi.toml")) as file:
            return [
                _file_task(task, "local") for task in read_local_suite(file, source.folder / "stsb_multi")
            ]
    if suite in MTEB_SUITES:
        score = MTEB_SUITES[suite].score
        return [_file_task(task, "mini", score) for task in draw_mteb_tasks(suite, source.world)]
    if suite.startswith(FILES):
        return [_file_task(task, "local") for task in read_local_suite(Path(suite.removeprefix(FILES)))]
    import_mteb()
    asked = parse_suite(suite)
    tasks = []
    with preserve_random_state():
        for name in asked.tasks:
            task = _get_registry_task(name, suite)
            about = task.metadata
            dataset = (str(about.dataset["path"]), str(about.dataset["revision"]))
            score, splits = asked.score or about.main_score, tuple(task.eval_splits)
            tasks.append(MtebTask(name, about.type, score, dataset, splits))
    return tasks


def build_mteb_task(task: MtebTask) -> AbsTask:
    """Return mteb's own object of a task, with the data of a local one and before loading any other's."""
    import_mteb()
    with preserve_random_state():
        if task.local:
            return _build_local_task(task, task.local)
        return _get_registry_task(task.asked, f"mteb:{task.asked.name}")


def _file_task(task: LocalTask, path: str, score: str = "") -> MtebTask:
    if task.name in _NOT_NAMES:
        what = f"a task can't be called '{task.name}'"
        raise InputError(what, where="suite local", expected="another name")
    _, kind, main = _BASES[task.type]
    name = f"Local-{task.name}" if path == "local" else task.name
    return MtebTask(MtebName(task.name, name), kind, score or main, (path, task.sha256), (task.split,), task)


def _get_registry_task(asked: MtebName, suite: str) -> AbsTask:
    import mteb

    where = f"--suite {suite}"
    try:
        task = mteb.get_task(asked.name)
    except KeyError as error:
        tasks = mteb.get_tasks(exclude_superseded=False, exclude_private=False)
        what = f"mteb has no task '{asked.name}'"
        hint = suggest_name(asked.name, [task.metadata.name for task in tasks])
        raise InputError(what, where=where, expected="a name of mteb.get_tasks()", hint=hint) from error
    if list(task.modalities) != ["text"]:
        what = f"'{asked.name}' has {' and '.join(task.modalities)}"
        raise InputError(what, where=where, expected="tasks of text only")
    splits = (asked.split,) if asked.split else ()
    for noun, wanted, known in (
        ("subset", asked.subsets, list(task.hf_subsets)),
        ("split", splits, list(task.eval_splits)),
    ):
        unknown = [name for name in wanted if name not in known]
        if unknown:
            names = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            what = f"{asked.name} has no {noun} '{unknown[0]}'"
            raise InputError(what, where=where, expected=f"one of {names}")
    return mteb.get_task(asked.name, eval_splits=splits or None, hf_subsets=asked.subsets or None)


def _build_local_task(task: MtebTask, local: LocalTask) -> AbsTask:
    """Build an instance of a class of mteb's, made for the task, with the data in it."""
    from mteb import abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    facts: dict[str, Any] = {"type": task.kind, "main_score": task.score}
    about = TaskMetadata(
        name=task.asked.name,
        description="A task of bench's, not of mteb's.",
        **facts,
        dataset={"path": task.dataset[0], "revision": task.dataset[1]},
        eval_splits=[local.split],
        eval_langs=[local.language],
    )
    members: dict[str, Any] = {"metadata": about}
    if local.type in ("sts", "summarisation"):
        scores = [float(row[2]) for row in local.tables[-1][1]]
        members |= {"min_score": min(scores), "max_score": max(scores)}
    built: AbsTask = type("LocalTask", (getattr(abstasks, _BASES[local.type][0]),), members)()
    built.dataset = _build_dataset(local)
    built.data_loaded = True
    return built


def _build_dataset(task: LocalTask) -> Any:
    """Build the data in the form of mteb's base class for the task's type."""
    datasets: Any = importlib.import_module("datasets")
    table, splits = datasets.Dataset.from_dict, datasets.DatasetDict
    if task.type in ("retrieval", "reranking"):
        return {"default": {task.split: _ranking_data(task, table)}}
    if task.type == "summarisation":
        return splits({task.split: table(_summary_columns(task))})
    if task.type == "classification":
        parts = {"train": task.table("train"), task.split: task.table("test")}
        names = sorted({label for _, label in parts["train"]})
        tables = {}
        for split, rows in parts.items():
            texts, classes = zip(*rows, strict=True)
            tables[split] = table({"text": list(texts), "label": [names.index(name) for name in classes]})
        return splits(tables)
    columns: list[list[Any]] = [list(column) for column in zip(*task.table("file"), strict=True)]
    if task.type == "clustering":  # mteb clusters the sets in a table's rows one by one: here one set
        names = sorted(set(columns[1]))
        labels = [names.index(label) for label in columns[1]]
        return splits({task.split: table({"sentences": columns[:1], "labels": [labels]})})
    if task.type == "pair-classification":
        headings = ["sentence1", "sentence2", "labels"]
        columns[2] = [int(label) for label in columns[2]]
    else:
        headings = list(KINDS[task.type]["file"])
        columns[2:] = [[float(score) for score in column] for column in columns[2:]]
    return splits({task.split: table(dict(zip(headings, columns, strict=True)))})


def _summary_columns(task: LocalTask) -> dict[str, Any]:
    """Return a row for each text, with all its summaries."""
    written: dict[str, list[str]] = {}
    for text, summary in task.table("references"):
        written.setdefault(text, []).append(summary)
    judged: dict[str, tuple[list[str], list[float]]] = {text: ([], []) for text in written}
    for text, summary, score in task.table("summaries"):
        if text in judged:
            judged[text][0].append(summary)
            judged[text][1].append(float(score))
    return {
        "text": list(written),
        "human_summaries": list(written.values()),
        "machine_summaries": [summaries for summaries, _ in judged.values()],
        "relevance": [scores for _, scores in judged.values()],
    }


def _ranking_data(task: LocalTask, table: Any) -> dict[str, Any]:
    """Build the data of a retrieval or reranking task; a reranking task gets an id for each distinct text."""
    relevant: dict[str, dict[str, int]] = {}
    ranked = None
    if task.type == "retrieval":
        queries = {number: text for number, text in task.table("queries")}
        corpus = {number: text for number, text in task.table("corpus")}
        for query, document, grade in task.table("qrels"):
            relevant.setdefault(query, {})[document] = int(float(grade))
    else:
        query_ids, document_ids = dict[str, str](), dict[str, str]()
        for query, document, grade in task.table("file"):
            q = query_ids.setdefault(query, f"q{len(query_ids)}")
            d = document_ids.setdefault(document, f"d{len(document_ids)}")
            relevant.setdefault(q, {})[d] = int(float(grade))
        queries = {number: text for text, number in query_ids.items()}
        corpus = {number: text for text, number in document_ids.items()}
        ranked = {q: list(judged) for q, judged in relevant.items()}
        for q, judged in relevant.items():
            relevant[q] = {d: grade for d, grade in judged.items() if grade}
    texts = list(corpus.values())
    return {
        "corpus": table({"id": list(corpus), "text": texts, "title": [""] * len(texts)}),
        "queries": table({"id": list(queries), "text": list(queries.values())}),
        "relevant_docs": relevant,
        "top_ranked": ranked,
    }
