"""Transfer tasks, SICK's entailment labels and probing tasks, with SentEval's rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.data import senteval
from bench.data.tasks import LabelledSplit, LabelledTask, normalise
from bench.errors import DataError
from bench.eval.embed import Embeddings
from bench.eval.transfer import Protocol, TransferResult, run_task
from bench.eval.transfer_suite import sentences_of

PROBING = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
"""File of each probing task below ``probing``."""
_PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}
_ENTAILMENT = {"CONTRADICTION": "0", "NEUTRAL": "1", "ENTAILMENT": "2"}


def _parse_entailment(row: str, where: str, split: str) -> tuple[str, ...]:
    parts = row.split("\t")
    label = parts[4].strip() if len(parts) == 5 else ""
    if label not in _ENTAILMENT:
        raise DataError(
            f"'{label}' is not an entailment label",
            where=where,
            expected=f"5 columns, the last one of {', '.join(_ENTAILMENT)}",
        )
    return _ENTAILMENT[label], parts[1], parts[2]


SICK = senteval.labelled(
    "SICKEntailment",
    {"train": "SICK/SICK_train.txt", "dev": "SICK/SICK_trial.txt", "test": "SICK/SICK_test_annotated.txt"},
    _parse_entailment,
    header=senteval.SICK_HEADER,
)
"""SICK's pairs with their entailment labels, as classes 0 to 2."""


def evaluate(
    name: str, task_path: Path, vectors: Callable[[Iterable[str]], Embeddings], protocol: Protocol
) -> dict[str, Any]:
    """Return SentEval's dictionary of a task.

    Args:
        name: Task.
        task_path: SentEval's data folder.
        vectors: The batcher's vectors of sentences.
        protocol: How the classifier is fitted.
    """
    if name in PROBING:
        task = read_probing(name, _probing_folder(task_path))
    else:
        source = SICK if name == "SICKEntailment" else senteval.SOURCES[name]
        task = cast("LabelledTask", source.read(senteval.find_root(task_path)))
    return dictionary(name, run_task(task, vectors(sentences_of(task)), protocol))


def dictionary(name: str, result: TransferResult) -> dict[str, Any]:
    """A result in percent: each fold rounded to two decimals, then their mean rounded, as SentEval does.

    >>> gold = np.zeros(4, dtype=np.int64)
    >>> result = TransferResult((0.81234, 0.8), (0.75, 0.76), (1, 1), gold, gold, 4, 2, None, ("a", "b"))
    >>> dictionary("CR", result)
    {'devacc': 80.62, 'acc': 75.5, 'ndev': 4, 'ntest': 4}
    """
    found = {
        "devacc": _rounded(result.dev),
        "acc": _rounded(result.test),
        "ndev": result.n_dev,
        "ntest": len(result.gold),
    }
    return {**found, "f1": round(100 * result.f1, 2)} if name == "MRPC" else found


def _rounded(accuracies: tuple[float, ...]) -> float:
    return float(round(np.mean([round(100 * accuracy, 2) for accuracy in accuracies]), 2))


def read_probing(name: str, folder: Path) -> LabelledTask:
    """Read a probing task: split (tr, va, te), label and sentence, separated by tabs; raises DataError."""
    file = PROBING[name]
    parts: dict[str, list[tuple[str, str]]] = {split: [] for split in _PROBING_SPLITS}
    for number, row in enumerate(senteval.lines(folder, file), start=1):
        split, *columns = row.rstrip().split("\t")
        if len(columns) < 2 or split not in parts:
            raise DataError(
                "this line isn't split, label and sentence",
                where=f"{folder / file}:{number}",
                expected="tr, va or te first",
            )
        parts[split].append((columns[0], normalise(columns[-1])))
    splits = []
    for split, rows in parts.items():
        labels, sentences = tuple(zip(*rows, strict=True)) or ((), ())
        splits.append(LabelledSplit(_PROBING_SPLITS[split], sentences, (), labels, file))
    return LabelledTask(name, tuple(splits))


def _probing_folder(task_path: Path) -> Path:
    for place in (task_path / "probing", task_path.parent / "probing", task_path):
        if any((place / file).is_file() for file in PROBING.values()):
            return place
    raise DataError(
        "no probing data here",
        where=str(task_path),
        expected=f"probing/{PROBING['Length']} or another of its files below it",
    )
