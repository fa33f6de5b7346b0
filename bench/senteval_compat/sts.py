"""STS12 to STS16, STS Benchmark and SICK-R by the similarity of vectors, as SimCSE's fork has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from bench.data import senteval
from bench.data.tasks import PairSubset, PairTask
from bench.errors import DataError
from bench.eval.embed import Embeddings
from bench.eval.transfer_items import SEED
from bench.senteval_compat.evaluation import Batcher, Evaluation
from bench.senteval_compat.sick import SICKEval, sick_splits, stsb_splits


class STSEval(Evaluation):
    """Pairs of one or more data sets, scored without training."""

    averages: tuple[str, ...] = ("all", "mean", "wmean")
    """What is reported over the data sets: over all pairs, the mean, the mean weighted by pairs."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.subsets = self.read()
        self.samples = [
            text for subset in self.subsets for side in (subset.first, subset.second) for text in side
        ]

    def read(self) -> list[PairSubset]:
        """Read the data sets."""
        return list(cast("PairTask", senteval.SOURCES[self.name].read(self.root())).subsets)

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return {data set: {"pearson", "spearman", "nsamples"}} and "all" with the averages of both.

        The correlations of a data set are scipy's result objects.
        """
        embedded = self.vectors(params, batcher)
        scored = [_similarities(subset, embedded, params.get("similarity")) for subset in self.subsets]
        results: dict[str, Any] = {
            subset.name: {
                "pearson": pearsonr(found, subset.gold),
                "spearman": spearmanr(found, subset.gold),
                "nsamples": len(found),
            }
            for subset, found in zip(self.subsets, scored, strict=True)
        }
        gold = np.concatenate([subset.gold for subset in self.subsets])
        everything, sizes = np.concatenate(scored), [len(found) for found in scored]
        results["all"] = {}
        for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
            values = [results[subset.name][kind][0] for subset in self.subsets]
            found = {
                "all": correlation(everything, gold)[0],
                "mean": np.average(values),
                "wmean": np.average(values, weights=sizes),
            }
            results["all"][kind] = {name: found[name] for name in self.averages}
        return results


class STS12Eval(STSEval):
    """STS12."""

    name, folder = "STS12", "STS/STS12-en-test"


class STS13Eval(STSEval):
    """STS13 without SMT, whose licence keeps it out of SentEval."""

    name, folder = "STS13", "STS/STS13-en-test"


class STS14Eval(STSEval):
    """STS14."""

    name, folder = "STS14", "STS/STS14-en-test"


class STS15Eval(STSEval):
    """STS15."""

    name, folder = "STS15", "STS/STS15-en-test"


class STS16Eval(STSEval):
    """STS16."""

    name, folder = "STS16", "STS/STS16-en-test"


class STSBenchmarkEval(STSEval):
    """STS Benchmark, its splits as data sets."""

    name, folder = "STSBenchmark", "STS/STSBenchmark"

    def read(self) -> list[PairSubset]:
        """Read the splits."""
        return list(stsb_splits(self.path).values())


class STSBenchmarkFix(STSBenchmarkEval):
    """A corrected STS Benchmark in a folder beside the first."""

    name, folder = "STSBenchmark-fix", "STS/STSBenchmark-fix"

    def read(self) -> list[PairSubset]:
        """Read the splits."""
        if not self.path.is_dir():
            raise DataError(
                "this folder is missing",
                where=str(self.path),
                expected="sts-train.csv, sts-dev.csv and sts-test.csv in it",
                hint="bench data fetch doesn't get it: SimCSE's fork names it only",
            )
        return super().read()


class SICKRelatednessEval(STSEval):
    """SICK-R, its splits as data sets."""

    name, folder = "SICKRelatedness", "SICK"

    def read(self) -> list[PairSubset]:
        """Read the splits."""
        return list(sick_splits(self.path).values())


class STSBenchmarkFinetune(SICKEval):
    """STS Benchmark by a regression."""

    name, folder = "STSBenchmark-finetune", "STS/STSBenchmark"

    def read(self) -> dict[str, PairSubset]:
        """Read the splits."""
        return stsb_splits(self.path)


def _similarities(
    subset: PairSubset, embedded: Embeddings, similarity: Callable[..., Any] | None
) -> NDArray[np.float32]:
    if similarity is None:
        return embedded.cosine(subset.first, subset.second).astype(np.float32)  # as records hold them
    rows = embedded.rows
    return np.array(
        [
            similarity(embedded.vectors[rows[a]], embedded.vectors[rows[b]])
            for a, b in zip(subset.first, subset.second, strict=True)
        ],
        dtype=np.float32,
    )
