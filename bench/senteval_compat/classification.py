"""Transfer tasks, SICK's entailment labels and probing tasks, with SentEval's rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.data import senteval
from bench.data.tasks import LabelledSplit, LabelledTask, normalise
from bench.errors import DataError
from bench.eval.transfer import Protocol, TransferResult, run_task
from bench.eval.transfer_suite import sentences_of
from bench.senteval_compat.batches import Vectors

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
_SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_ENTAILMENT = {"CONTRADICTION": "0", "NEUTRAL": "1", "ENTAILMENT": "2"}


def evaluate(name: str, task_path: Path, vectors: Vectors, protocol: Protocol) -> dict[str, Any]:
    """Return SentEval's dictionary of a task.

    Args:
        name: Task.
        task_path: SentEval's data folder.
        vectors: The batcher.
        protocol: How the classifier is fitted.
    """
    if name in PROBING:
        task = read_probing(name, _probing_folder(task_path))
    else:
        root = senteval.find_root(task_path)
        read = read_entailment(root) if name == "SICKEntailment" else senteval.SOURCES[name].read(root)
        task = cast("LabelledTask", read)
    return dictionary(name, run_task(task, vectors.of(sentences_of(task)), protocol))


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


def read_entailment(root: Path) -> LabelledTask:
    """Read SICK's pairs with their entailment labels, as classes 0 to 2; raises DataError."""
    splits = []
    for name, file in _SICK.items():
        rows = senteval.lines(root, f"SICK/{file}")[1:]
        first, second, labels = [], [], []
        for number, row in enumerate(rows, start=2):
            parts = row.split("\t")
            label = parts[4].strip() if len(parts) == 5 else ""
            if label not in _ENTAILMENT:
                raise DataError(
                    f"'{label}' is not an entailment label",
                    where=f"{root / 'SICK' / file}:{number}",
                    expected=f"5 columns, the last one of {', '.join(_ENTAILMENT)}",
                )
            first.append(normalise(parts[1]))
            second.append(normalise(parts[2]))
            labels.append(_ENTAILMENT[label])
        splits.append(LabelledSplit(name, tuple(first), tuple(second), tuple(labels), file, len(rows) + 1))
    return LabelledTask("SICKEntailment", tuple(splits))


def read_probing(name: str, folder: Path) -> LabelledTask:
    """Read a probing task: split (tr, va, te), label and sentence, separated by tabs; raises DataError."""
    file = PROBING[name]
    parts: dict[str, list[tuple[str, str]]] = {split: [] for split in ("train", "dev", "test")}
    for number, row in enumerate(senteval.lines(folder, file), start=1):
        columns = row.rstrip().split("\t")
        if len(columns) < 3 or columns[0] not in _PROBING_SPLITS:
            raise DataError(
                "this line isn't split, label and sentence",
                where=f"{folder / file}:{number}",
                expected="tr, va or te first",
            )
        parts[_PROBING_SPLITS[columns[0]]].append((columns[1], normalise(columns[-1])))
    splits = tuple(
        LabelledSplit(split, tuple(s for _, s in items), (), tuple(label for label, _ in items), file)
        for split, items in parts.items()
    )
    return LabelledTask(name, splits)


def _probing_folder(task_path: Path) -> Path:
    for place in (task_path / "probing", task_path.parent / "probing", task_path):
        if any((place / file).is_file() for file in PROBING.values()):
            return place
    raise DataError(
        "no probing data here",
        where=str(task_path),
        expected=f"probing/{PROBING['Length']} or another of its files below it",
    )
