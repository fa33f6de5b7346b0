"""The scored items of mteb's tasks: texts and gold, from local files, or from mteb's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.local_tasks import LocalTask


@dataclass(frozen=True)
class MtebItems:
    """The scored items of one subset of one split."""

    texts: tuple[tuple[str, ...], ...]  # the sentences of each; for retrieval and reranking its query
    gold: NDArray[np.float64]  # score, number of the class, or row of the aligned sentence; empty of queries
    names: tuple[str, ...] = ()  # names of the classes unless they are numbers
    ids: tuple[str, ...] = ()  # the queries' ids

    def class_number(self, label: Any) -> float:
        """Return the number of a class, -1 for an unknown name."""
        if isinstance(label, str):
            return float(self.names.index(label)) if label in self.names else -1.0
        return float(label)

    def class_name(self, number: float) -> str:
        """Return the name of a class."""
        return self.names[int(number)] if 0 <= number < len(self.names) else f"{number:g}"


def local_items(task: LocalTask) -> MtebItems:
    """Return the items of a task from files."""
    if task.type in ("sts", "pair-classification", "bitext"):
        rows = task.table("file")
        gold = range(len(rows)) if task.type == "bitext" else [float(row[2]) for row in rows]
        return MtebItems(tuple((row[0], row[1]) for row in rows), np.array(gold, dtype=np.float64))
    if task.type in ("classification", "clustering"):
        names = tuple(sorted({label for _, label in task.tables[0][1]}))
        texts, labels = zip(*task.tables[-1][1], strict=True)
        return _class_items(texts, labels, names)
    if task.type == "retrieval":
        queries = {number: text for number, text in task.table("queries")}
    elif task.type == "summarisation":
        queries = {text: text for text, _ in task.table("references")}
    else:
        distinct = dict.fromkeys(query for query, _, _ in task.table("file"))
        queries = {f"q{number}": text for number, text in enumerate(distinct)}
    return _query_items(queries)


def mteb_items(built: Any, split: str, subset: str) -> MtebItems:
    """Return the items of a loaded task of mteb; raises any Exception for data in another layout."""
    data = built.dataset[split] if subset not in built.dataset else built.dataset[subset][split]
    if isinstance(data, dict):
        queries = zip(data["queries"]["id"], data["queries"]["text"], strict=True)
        return _query_items({str(q): str(text) for q, text in queries if data["relevant_docs"].get(q)})
    kind = built.metadata.type
    if kind == "STS":
        first, second = built.column_names
        return _pair_items(data[first], data[second], data["score"])
    if kind == "BitextMining":
        gold = [pair[1] for pair in data["gold"]] if "gold" in data.column_names else range(len(data))
        return _pair_items(data["sentence1"], data["sentence2"], gold)
    if kind == "PairClassification":
        data = data[0] if len(data) == 1 else data  # mteb's first version has all pairs in one row
        columns = (built.input1_column_name, built.input2_column_name, built.label_column_name)
        return _pair_items(*(data[name] for name in columns))
    labels = list(data[built.label_column_name])
    names = tuple(sorted({label for label in labels if isinstance(label, str)}))
    return _class_items(map(str, data[built.input_column_name]), labels, names)


def _pair_items(first: Sequence[str], second: Sequence[str], gold: Sequence[float]) -> MtebItems:
    return MtebItems(tuple(zip(first, second, strict=True)), np.array(gold, dtype=np.float64))


def _class_items(texts: Any, labels: Sequence[Any], names: tuple[str, ...]) -> MtebItems:
    items = MtebItems(tuple((text,) for text in texts), np.empty(0), names)
    return MtebItems(items.texts, np.array([items.class_number(label) for label in labels]), names)


def _query_items(queries: dict[str, str]) -> MtebItems:
    return MtebItems(tuple((text,) for text in queries.values()), np.empty(0), ids=tuple(queries))
