"""The scored items of mteb's tasks: texts and gold, from local files without mteb, or from mteb's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.local_tasks import LocalTask


@dataclass(frozen=True)
class MtebItems:
    """The scored items of one subset of one split.

    Args:
        texts: The sentences of each; its query, of a retrieval or reranking task.
        gold: Gold score, number of the class, or position of the aligned sentence; empty of queries.
        names: Names of the classes, where they aren't numbers.
        ids: The queries' own names.
    """

    texts: tuple[tuple[str, ...], ...]
    gold: NDArray[np.float64]
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def class_number(self, label: Any) -> float:
        """Return the number of a class, -1 for a text that is none."""
        if isinstance(label, str):
            return float(self.names.index(label)) if label in self.names else -1.0
        return float(label)

    def class_name(self, number: float) -> str:
        """Return the name of a class."""
        return self.names[int(number)] if 0 <= number < len(self.names) else f"{number:g}"


def local_items(task: LocalTask) -> MtebItems:
    """Return the items of a task from files."""
    if task.type == "sts":
        rows = task.table("file")
        return MtebItems(tuple((a, b) for a, b, _ in rows), np.array([float(score) for _, _, score in rows]))
    if task.type == "pair-classification":
        rows = task.table("file")
        return MtebItems(tuple((a, b) for a, b, _ in rows), np.array([float(label) for _, _, label in rows]))
    if task.type == "bitext":
        rows = task.table("file")
        return MtebItems(tuple((a, b) for a, b in rows), np.arange(float(len(rows))))
    if task.type in ("classification", "clustering"):
        rows = task.tables[-1][1]
        names = tuple(sorted({label for _, label in task.tables[0][1]}))
        gold = np.array([float(names.index(label)) for _, label in rows])
        return MtebItems(tuple((text,) for text, _ in rows), gold, names)
    if task.type == "retrieval":
        queries = {number: text for number, text in task.table("queries")}
    elif task.type == "summarisation":
        queries = {text: text for text, _ in task.table("references")}
    else:
        queries = {f"q{i}": text for i, text in enumerate(dict.fromkeys(q for q, _, _ in task.table("file")))}
    return _query_items(list(queries), list(queries.values()))


def mteb_items(made: Any, split: str, subset: str) -> MtebItems:
    """Return the items of a loaded task of mteb's.

    Args:
        made: mteb's object, its data loaded.
        split: The split.
        subset: mteb's name of the subset.

    Raises:
        Exception: a task whose data are laid out in another way.
    """
    data = made.dataset[split] if subset not in made.dataset else made.dataset[subset][split]
    if isinstance(data, dict):
        relevant, queries = data["relevant_docs"], data["queries"]
        kept = [(q, text) for q, text in zip(queries["id"], queries["text"], strict=True) if relevant.get(q)]
        return _query_items([str(q) for q, _ in kept], [str(text) for _, text in kept])
    kind = made.metadata.type
    if kind == "STS":
        first, second = (data[name] for name in made.column_names)
        return MtebItems(tuple(zip(first, second, strict=True)), np.array(data["score"], dtype=np.float64))
    if kind == "BitextMining":
        gold = [pair[1] for pair in data["gold"]] if "gold" in data.column_names else range(len(data))
        texts = tuple(zip(data["sentence1"], data["sentence2"], strict=True))
        return MtebItems(texts, np.array(gold, dtype=np.float64))
    if kind == "PairClassification":
        data = data[0] if len(data) == 1 else data  # as mteb's first version had it: all in one row
        sides = (data[made.input1_column_name], data[made.input2_column_name])
        return MtebItems(
            tuple(zip(*sides, strict=True)), np.array(data[made.label_column_name], dtype=np.float64)
        )
    labels = list(data[made.label_column_name])
    names = tuple(sorted({label for label in labels if isinstance(label, str)}))
    items = MtebItems(tuple((str(text),) for text in data[made.input_column_name]), np.empty(0), names)
    return MtebItems(items.texts, np.array([items.class_number(label) for label in labels]), names)


def _query_items(ids: Sequence[str], texts: Sequence[str]) -> MtebItems:
    return MtebItems(tuple((text,) for text in texts), np.empty(0), ids=tuple(ids))
