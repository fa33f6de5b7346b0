"""SentEval's entailment task on SNLI, whose files its own script downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.data import senteval
from bench.data.tasks import normalise_spaces
from bench.encoder import FloatArray
from bench.errors import DataError
from bench.eval.embeddings import Embeddings
from bench.eval.transfer_items import SEED
from bench.senteval_compat.evaluation import Batcher, Evaluation, sentence_vectors
from bench.senteval_compat.fitting import read_fitting
from bench.senteval_compat.tools.validation import SplitClassifier

_LABELS = ("entailment", "neutral", "contradiction")
_PARTS = {"train": "train", "dev": "valid", "test": "test"}  # SNLI's splits by SentEval's names
_HINT = "bench data fetch doesn't get SNLI; SentEval's get_transfer_data.bash does"

Rows = tuple[list[str], list[str], list[str]]


class SNLIEval(Evaluation):
    """SNLI, by SentEval's own procedure at most 15 times over the training pairs, without regularisation.

    Args:
        task_path: The folder ``SNLI``.
        seed: Of the fit.

    Raises:
        DataError: missing or damaged data.
    """

    name = folder = "SNLI"

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.data = {part: _read_split(self.path, split) for split, part in _PARTS.items()}
        self.samples = [text for first, second, _ in self.data.values() for text in (*first, *second)]

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return "devacc" and "acc" in percent, "ndev" and "ntest"."""
        given = read_fitting(params, self.seed).config
        config = {
            "nclasses": len(_LABELS),
            "seed": self.seed,
            "usepytorch": given["usepytorch"],
            "noreg": True,
            "classifier": {**given["classifier"], "max_epoch": 15, "epoch_size": 1},
        }
        vectors = self.vectors(params, batcher)
        x = {part: _entailment_features(vectors, rows) for part, rows in self.data.items()}
        y = {
            part: np.array([_LABELS.index(label) for label in labels])
            for part, (*_, labels) in self.data.items()
        }
        dev, test = SplitClassifier(x, y, config).run()
        return {"devacc": dev, "acc": test, "ndev": len(y["valid"]), "ntest": len(y["test"])}


def _read_split(folder: Path, split: str) -> Rows:
    """First sentences, second ones and labels, by the words of the second, then of the first."""
    first, second = (
        [normalise_spaces(line) for line in senteval.read_lines(folder, f"{side}.{split}", "latin-1", _HINT)]
        for side in ("s1", "s2")
    )
    labels = senteval.read_lines(folder, f"labels.{split}", hint=_HINT)
    if not len(first) == len(second) == len(labels) or not labels:
        raise DataError(
            f"{len(first)} first sentences, {len(second)} second ones and {len(labels)} labels",
            where=str(folder / f"labels.{split}"),
            expected="a label for each pair",
        )
    if unknown := set(labels) - set(_LABELS):
        raise DataError(
            f"'{min(unknown)}' is not an entailment label",
            where=str(folder / f"labels.{split}"),
            expected=f"one of {', '.join(_LABELS)}",
        )
    rows = sorted(
        zip(first, second, labels, strict=True), key=lambda r: (len(r[1].split()), len(r[0].split()), r[2])
    )
    ones, others, kinds = map(list, zip(*rows, strict=True))
    return ones, others, kinds


def _entailment_features(vectors: Embeddings, rows: Rows) -> FloatArray:
    """(u, v, u * v, |u - v|), (pairs, 4 dim)."""
    u, v = (sentence_vectors(vectors, side) for side in rows[:2])
    return np.hstack([u, v, u * v, np.abs(u - v)])
