"""STS12 to STS16, STS Benchmark and SICK-R by the similarity of vectors, as SimCSE's fork has them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import pearsonr, spearmanr

from bench.data import senteval
from bench.data.tasks import PairSubset, PairTask
from bench.errors import BenchError, DataError
from bench.eval.embeddings import Embeddings
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

        The correlations of a data set are scipy's result objects. Of equal values they are NaN, and a line on
        stderr gives the reason.
        """
        embedded = self.vectors(params, batcher)
        similarity = params.get("similarity")
        scored = [_subset_similarities(self.name, subset, embedded, similarity) for subset in self.subsets]
        results: dict[str, Any] = {}
        for subset, found in zip(self.subsets, scored, strict=True):
            _report_constant(f"{self.name}, {subset.name}", found, np.asarray(subset.gold))
            results[subset.name] = {
                "pearson": _correlate_quietly(pearsonr, found, subset.gold),
                "spearman": _correlate_quietly(spearmanr, found, subset.gold),
                "nsamples": len(found),
            }
        gold = np.concatenate([subset.gold for subset in self.subsets])
        everything, sizes = np.concatenate(scored), [len(found) for found in scored]
        results["all"] = {}
        for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
            values = [results[subset.name][kind][0] for subset in self.subsets]
            averages = {
                "all": _correlate_quietly(correlation, everything, gold)[0],
                "mean": np.average(values),
                "wmean": np.average(values, weights=sizes),
            }
            results["all"][kind] = {name: averages[name] for name in self.averages}
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


def _subset_similarities(
    task: str, subset: PairSubset, embedded: Embeddings, similarity: Callable[..., Any] | None
) -> NDArray[np.float32]:
    if similarity is None:
        return embedded.cosine(subset.first, subset.second).astype(np.float32)  # as records hold them
    rows, found = embedded.rows, np.empty(len(subset.gold), dtype=np.float32)
    for place, (a, b) in enumerate(zip(subset.first, subset.second, strict=True)):
        returned = similarity(embedded.vectors[rows[a]], embedded.vectors[rows[b]])
        try:
            found[place] = float(returned)
        except (TypeError, ValueError, RuntimeError) as error:
            what = f"params['similarity'] returned a {type(returned).__name__}"
            raise BenchError(what, where=f"{task}, {subset.name}", expected="a number") from error
    if not np.isfinite(found).all():
        place = int(np.argmin(np.isfinite(found)))
        what = f"params['similarity'] returned {found[place]} for pair {place + 1}"
        raise BenchError(what, where=f"{task}, {subset.name}", expected="a finite number")
    return found


def _report_constant(where: str, found: NDArray[np.float32], gold: NDArray[np.float64]) -> None:
    """Print on stderr why a correlation is NaN, as in SentEval; raises BenchError for a single pair."""
    if len(gold) < 2:
        raise BenchError(f"no correlation of {len(gold)} pair(s)", where=where, expected="two pairs or more")
    for what, values in (("similarities", found), ("gold scores", gold)):
        if (values == values[0]).all():
            line = f"{where}: all {len(gold)} {what} are equal, so the correlation is undefined (nan)"
            print(line, file=sys.stderr)


def _correlate_quietly(correlation: Callable[..., Any], found: ArrayLike, gold: ArrayLike) -> Any:
    """Return scipy's correlation without its warning; :func:`_report_constant` replaces it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return correlation(found, gold)
