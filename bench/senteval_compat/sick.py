"""SICK: relatedness by a regression, and entailment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.stats import pearsonr, spearmanr

from bench.data import senteval
from bench.data.tasks import LabelledTask, PairSubset, PairTask
from bench.errors import DataError
from bench.eval.transfer import sentence_features
from bench.eval.transfer_items import SEED
from bench.senteval_compat.classification import ClassificationEval
from bench.senteval_compat.task_base import Batcher, Evaluation
from bench.senteval_compat.tools import relatedness

_ENTAILMENT = {"CONTRADICTION": "0", "NEUTRAL": "1", "ENTAILMENT": "2"}
_SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_STSB = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}


class SICKEval(Evaluation):
    """Relatedness by SentEval's regression, with the dictionary of SimCSE's fork."""

    name, folder = "SICKRelatedness-finetune", "SICK"
    validation: tuple[str, relatedness.Correlation] = ("devspearman", spearmanr)
    """The correlation on the development split that selects the fit, and its name in the dictionary."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.splits = {split: _sort_by_length(subset) for split, subset in self.read().items()}
        self.samples = []
        for subset in self.splits.values():
            self.samples += [*subset.first, *subset.second]

    def read(self) -> dict[str, PairSubset]:
        """Read the splits."""
        return sick_splits(self.path)

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return "pearson", "spearman", "mse", "yhat" on test, the best dev correlation, "ndev" and "ntest".

        ``yhat`` are scores in SentEval's order: by words of the first sentence, the second, gold score.
        """
        embedded = self.vectors(params, batcher)
        parts = []
        for split in ("train", "dev", "test"):
            subset = self.splits[split]
            features = sentence_features(embedded, subset.first, subset.second)
            parts.append({"X": features, "y": relatedness.encode_labels(subset.gold)})
        train, dev, test = parts
        gold, (name, correlation) = self.splits["test"].gold, self.validation
        config = {"seed": self.seed, "nclasses": relatedness.GRADES}
        model = relatedness.RelatednessPytorch(train, dev, test, self.splits["dev"].gold, config, correlation)
        best, yhat = model.run()
        return {
            name: best,
            "pearson": relatedness.defined_correlation(pearsonr, yhat, gold),
            "spearman": relatedness.defined_correlation(spearmanr, yhat, gold),
            "mse": float(np.mean((yhat - np.array(gold)) ** 2)),
            "yhat": yhat,
            "ndev": len(dev["y"]),
            "ntest": len(gold),
        }


class SICKEntailmentEval(ClassificationEval):
    """SICK's pairs with their entailment labels, as classes 0 to 2."""

    name, folder = "SICKEntailment", "SICK"

    def read(self) -> LabelledTask:
        """Read the data."""
        source = senteval.labelled_files(self.name, _SICK, _parse_entailment, header=senteval.SICK_HEADER)
        return cast("LabelledTask", source.read(self.path))


def sick_splits(folder: Path) -> dict[str, PairSubset]:
    """Read SICK's splits with their relatedness from their own folder; raises DataError."""
    return _read_pair_splits(folder, _SICK, (1, 2, 3), 5, senteval.SICK_HEADER)


def stsb_splits(folder: Path) -> dict[str, PairSubset]:
    """Read the STS Benchmark's splits from their own folder; raises DataError."""
    return _read_pair_splits(folder, _STSB, (5, 6, 4), 7, None)


def _read_pair_splits(
    folder: Path, files: dict[str, str], columns: tuple[int, int, int], width: int, header: Any
) -> dict[str, PairSubset]:
    splits = {}
    for split, file in files.items():
        task = senteval.pair_files(f"-{split}", file, columns, width, header).read(folder)
        splits[split] = cast("PairTask", task).subsets[0]
    return splits


def _sort_by_length(subset: PairSubset) -> PairSubset:
    """Sort as SentEval: by words of the first sentence, of the second, and by gold score."""
    rows = sorted(
        zip(subset.first, subset.second, subset.gold, strict=True),
        key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]),
    )
    first, second, gold = tuple(zip(*rows, strict=True)) or ((), (), ())
    return PairSubset(subset.name, first, second, gold, subset.source, subset.last_line)


def _parse_entailment(row: str, where: str, split: str) -> tuple[str, ...]:
    parts = row.split("\t")
    label = parts[4].strip() if len(parts) == 5 else ""
    if label not in _ENTAILMENT:
        what = f"'{label}' is not an entailment label"
        raise DataError(what, where=where, expected=f"5 columns, the last one of {', '.join(_ENTAILMENT)}")
    return _ENTAILMENT[label], parts[1], parts[2]
