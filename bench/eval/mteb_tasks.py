"""Tasks that mteb measures: resolved by name without data, or made from files."""

from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data.local_tasks import KINDS, LocalTask, read_local_suite
from bench.data.mini.mini_suites import MTEB_SUITES, draw_mteb_tasks
from bench.data.mteb_names import FILES, STSB_MULTI, MtebName, parse_suite
from bench.data.source import NO_FOLDER, DataSource
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

_NOT_NAMES = ("file", "allow_pickle")  # what numpy calls its own arguments beside the names of predictions


@dataclass(frozen=True)
class MtebTask:
    """A row of a suite: a task of mteb's, a part of one, or a local one; it pickles.

    Args:
        asked: Which task.
        kind: mteb's type of task.
        score: mteb's name of the reported score.
        dataset: Name and revision of its data.
        splits: Evaluated splits.
        local: The task's data where it comes from files.
    """

    asked: MtebName
    kind: str
    score: str
    dataset: tuple[str, str]
    splits: tuple[str, ...]
    local: LocalTask | None = None

    @property
    def id(self) -> str:
        """What tables call it."""
        return self.asked.id

    @property
    def items(self) -> int:
        """Scored items; 0 where mteb's data tell, which aren't loaded yet."""
        return len(local_items(self.local).texts) if self.local else 0

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of everything that says what is measured; mteb's version isn't part of it."""
        facts = [self.asked.name, self.asked.subsets, self.score, self.dataset, self.splits]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of it."""
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

    Tasks of mteb are looked up in its registry, so nothing is fetched; local files are read and checked, the
    mini world's tasks are drawn.

    Args:
        suite: A paper's suite, ``mteb:TASK,...``, ``local:FILE.toml``, ``stsb-multi``, one of the world's.
        source: Where the data of ``stsb-multi`` and of the world's suites come from.

    Raises:
        InputError: mteb isn't installed, or no task of that name, subset or split, or no data.
        DataError: a data file that is missing or damaged.
    """
    if suite == STSB_MULTI:
        if source.folder is None:
            raise InputError(f"suite '{suite}' needs evaluation data", expected="--data DIR or BENCH_DATA")
        with resources.as_file(resources.files("bench.data").joinpath("stsb_multi.toml")) as file:
            return [_local_task(task) for task in read_local_suite(file, source.folder / "stsb_multi")]
    if suite in MTEB_SUITES:
        score = MTEB_SUITES[suite].score
        return [_world_task(task, score) for task in draw_mteb_tasks(suite, source.world)]
    if suite.startswith(FILES):
        return [_local_task(task) for task in read_local_suite(Path(suite.removeprefix(FILES)))]
    import_mteb()
    asked = parse_suite(suite)
    with preserve_random_state():
        return [_resolve_task(task, asked.score, suite) for task in asked.tasks]


def build_mteb_task(task: MtebTask) -> AbsTask:
    """Return mteb's own object of a task: a local one holds its data, another has yet to load them."""
    import_mteb()
    with preserve_random_state():
        return (
            _build_local_task(task)
            if task.local
            else _get_registry_task(task.asked, f"mteb:{task.asked.name}")
        )


def _local_task(task: LocalTask) -> MtebTask:
    if task.name in _NOT_NAMES:
        raise InputError(
            f"a task can't be called '{task.name}'", where="suite local", expected="another name"
        )
    _, kind, score = _BASES[task.type]
    return MtebTask(
        MtebName(task.name, f"Local-{task.name}"), kind, score, ("local", task.sha256), (task.split,), task
    )


def _world_task(task: LocalTask, score: str) -> MtebTask:
    _, kind, main = _BASES[task.type]
    asked, data = MtebName(task.name, task.name), ("mini", task.sha256)
    return MtebTask(asked, kind, score or main, data, (task.split,), task)


def _resolve_task(asked: MtebName, score: str, suite: str) -> MtebTask:
    task = _get_registry_task(asked, suite)
    about = task.metadata
    dataset = (str(about.dataset["path"]), str(about.dataset["revision"]))
    return MtebTask(asked, about.type, score or about.main_score, dataset, tuple(task.eval_splits))


def _get_registry_task(asked: MtebName, suite: str) -> AbsTask:
    import mteb

    where = f"--suite {suite}"
    try:
        task = mteb.get_task(asked.name)
    except KeyError as error:
        every = mteb.get_tasks(exclude_superseded=False, exclude_private=False)
        names = [task.metadata.name for task in every]
        raise InputError(
            f"mteb has no task '{asked.name}'",
            where=where,
            expected="a name of mteb.get_tasks()",
            hint=suggest_name(asked.name, names),
        ) from error
    if list(task.modalities) != ["text"]:
        raise InputError(
            f"'{asked.name}' has {' and '.join(task.modalities)}", where=where, expected="tasks of text only"
        )
    splits = (asked.split,) if asked.split else ()
    for what, given, known in (
        ("subset", asked.subsets, list(task.hf_subsets)),
        ("split", splits, list(task.eval_splits)),
    ):
        for one in given:
            if one not in known:
                shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
                raise InputError(
                    f"{asked.name} has no {what} '{one}'", where=where, expected=f"one of {shown}"
                )
    return mteb.get_task(asked.name, eval_splits=splits or None, hf_subsets=asked.subsets or None)


def _build_local_task(task: MtebTask) -> AbsTask:
    """An instance of a class of mteb's, made for the task, with the data in it."""
    from mteb import abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    local = task.local
    if local is None:
        raise InputError(f"'{task.id}' has no files")
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
    made: AbsTask = type("LocalTask", (getattr(abstasks, _BASES[local.type][0]),), members)()
    made.dataset = _build_dataset(local)
    made.data_loaded = True
    return made


def _build_dataset(task: LocalTask) -> Any:
    """The data as mteb's base class of the task's type wants them."""
    datasets: Any = importlib.import_module("datasets")
    table, splits = datasets.Dataset.from_dict, datasets.DatasetDict

    if task.type in ("sts", "bitext"):
        rows = zip(*task.table("file"), strict=True)
        columns: dict[str, Any] = dict(zip(KINDS[task.type]["file"], map(list, rows), strict=True))
        if "score" in columns:
            columns["score"] = [float(value) for value in columns["score"]]
        return splits({task.split: table(columns)})
    if task.type == "classification":
        labels = sorted({label for _, label in task.table("train")})
        parts = {"train": task.table("train"), task.split: task.table("test")}
        return splits(
            {
                split: table({"text": [x for x, _ in part], "label": [labels.index(y) for _, y in part]})
                for split, part in parts.items()
            }
        )
    if task.type in _TABLES:
        return splits({task.split: table(_TABLES[task.type](task))})
    return {"default": {task.split: _ranking_data(task, table)}}


def _cluster_table(task: LocalTask) -> dict[str, Any]:
    """All in one row, as mteb has the sets that it clusters one by one."""
    texts, labels = zip(*task.table("file"), strict=True)
    names = sorted(set(labels))
    return {"sentences": [list(texts)], "labels": [[names.index(label) for label in labels]]}


def _pair_table(task: LocalTask) -> dict[str, Any]:
    first, second, labels = map(list, zip(*task.table("file"), strict=True))
    return {"sentence1": first, "sentence2": second, "labels": [int(label) for label in labels]}


def _summary_table(task: LocalTask) -> dict[str, Any]:
    """A row for each text, with all its summaries."""
    texts = [*dict.fromkeys(text for text, _ in task.table("references"))]
    judged = [[row[1:] for row in task.table("summaries") if row[0] == text] for text in texts]
    return {
        "text": texts,
        "human_summaries": [[s for t, s in task.table("references") if t == text] for text in texts],
        "machine_summaries": [[summary for summary, _ in of_text] for of_text in judged],
        "relevance": [[float(score) for _, score in of_text] for of_text in judged],
    }


_TABLES = {"clustering": _cluster_table, "pair-classification": _pair_table, "summarisation": _summary_table}


def _ranking_data(task: LocalTask, table: Any) -> dict[str, Any]:
    """The data of a retrieval or reranking task; the latter's texts get ids, a document one per text."""
    relevant: dict[str, dict[str, int]] = {}
    ranked = None
    if task.type == "retrieval":
        queries, corpus = (
            {number: text for number, text in task.table(name)} for name in ("queries", "corpus")
        )
        for query, document, grade in task.table("qrels"):
            relevant.setdefault(query, {})[document] = int(float(grade))
    else:
        found, listed = dict[str, str](), dict[str, str]()
        for query, document, grade in task.table("file"):
            q = found.setdefault(query, f"q{len(found)}")
            d = listed.setdefault(document, f"d{len(listed)}")
            relevant.setdefault(q, {})[d] = int(float(grade))
        queries, corpus = ({number: text for text, number in texts.items()} for texts in (found, listed))
        ranked = {q: list(judged) for q, judged in relevant.items()}
        relevant = {q: {d: grade for d, grade in judged.items() if grade} for q, judged in relevant.items()}
    texts = list(corpus.values())
    return {
        "corpus": table({"id": list(corpus), "text": texts, "title": [""] * len(texts)}),
        "queries": table({"id": list(queries), "text": list(queries.values())}),
        "relevant_docs": relevant,
        "top_ranked": ranked,
    }
