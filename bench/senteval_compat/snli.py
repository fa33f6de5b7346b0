"""SentEval's entailment task on SNLI, whose files its own script downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.data import senteval
from bench.data.tasks import normalise_spaces
from bench.errors import DataError
from bench.eval.transfer_items import SEED
from bench.senteval_compat.fitting_settings import read_fitting
from bench.senteval_compat.task_base import Batcher, Evaluation
from bench.senteval_compat.tools.validation import SplitClassifier

_LABELS = ("entailment", "neutral", "contradiction")
_PARTS = {"train": "train", "dev": "valid", "test": "test"}  # SNLI's splits by SentEval's names
_HINT = "SentEval's get_transfer_data.bash downloads SNLI; bench data fetch leaves it out"


class SNLIEval(Evaluation):
    """SNLI, by SentEval's own procedure at most 15 times over the training pairs, without regularisation."""

    name = folder = "SNLI"

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.data = {part: _read_split(self.path, split) for split, part in _PARTS.items()}
        self.samples = []
        for first, second, _ in self.data.values():
            self.samples += [*first, *second]

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
        x, y = {}, {}
        for part, (first, second, labels) in self.data.items():
            u, v = vectors.select(first), vectors.select(second)
            x[part] = np.hstack([u, v, u * v, np.abs(u - v)])
            y[part] = np.array([_LABELS.index(label) for label in labels])
        dev, test = SplitClassifier(x, y, config).run()
        return {"devacc": dev, "acc": test, "ndev": len(y["valid"]), "ntest": len(y["test"])}


def _read_split(folder: Path, split: str) -> tuple[list[str], list[str], list[str]]:
    """Return first sentences, second ones and labels, by the words of the second, then of the first."""
    sides = []
    for side in ("s1", "s2"):
        lines = senteval.read_lines(folder, f"{side}.{split}", "latin-1", _HINT)
        sides.append([normalise_spaces(line) for line in lines])
    first, second = sides
    labels, where = senteval.read_lines(folder, f"labels.{split}", hint=_HINT), folder / f"labels.{split}"
    if not len(first) == len(second) == len(labels) or not labels:
        what = f"{len(first)} first sentences, {len(second)} second ones and {len(labels)} labels"
        raise DataError(what, where=str(where), expected="a label for each pair")
    if unknown := set(labels) - set(_LABELS):
        what = f"'{min(unknown)}' is not an entailment label"
        raise DataError(what, where=str(where), expected=f"one of {', '.join(_LABELS)}")
    rows = sorted(
        zip(first, second, labels, strict=True), key=lambda r: (len(r[1].split()), len(r[0].split()), r[2])
    )
    first, second, labels = map(list, zip(*rows, strict=True))
    return first, second, labels
