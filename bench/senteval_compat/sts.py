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
from bench.senteval_compat.sick import SICKEval, sick_splits, stsb_splits
from bench.senteval_compat.task_base import Batcher, Evaluation


class STSEval(Evaluation):
    """Pairs of one or more data sets, scored by similarity."""

    averages: tuple[str, ...] = ("all", "mean", "wmean")
    """Averages over the data sets: over all pairs, the mean, the mean weighted by pairs."""

    def __init__(self, task_path: str | Path, seed: int = SEED) -> None:
        super().__init__(task_path, seed)
        self.subsets = self.read()
        self.samples = []
        for subset in self.subsets:
            self.samples += [*subset.first, *subset.second]

    def read(self) -> list[PairSubset]:
        """Read the data sets."""
        return list(cast("PairTask", senteval.SOURCES[self.name].read(self.root())).subsets)

    def run(self, params: dict[str, Any], batcher: Batcher) -> dict[str, Any]:
        """Return {data set: {"pearson", "spearman", "nsamples"}} and "all" with the averages of both.

        Correlations are scipy's result objects. Of equal values they are NaN, with a line on stderr.
        """
        embedded = self.vectors(params, batcher)
        results: dict[str, Any] = {}
        similarities = []
        for subset in self.subsets:
            where = f"{self.name}, {subset.name}"
            values = _subset_similarities(where, subset, embedded, params.get("similarity"))
            _report_constant(where, values, np.asarray(subset.gold))
            results[subset.name] = {
                "pearson": _correlate_quietly(pearsonr, values, subset.gold),
                "spearman": _correlate_quietly(spearmanr, values, subset.gold),
                "nsamples": len(values),
            }
            similarities.append(values)
        gold = np.concatenate([subset.gold for subset in self.subsets])
        results["all"] = {}
        for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
            subset_values = [results[subset.name][kind][0] for subset in self.subsets]
            averages = {
                "all": _correlate_quietly(correlation, np.concatenate(similarities), gold)[0],
                "mean": np.average(subset_values),
                "wmean": np.average(subset_values, weights=[len(values) for values in similarities]),
            }
            results["all"][kind] = {name: averages[name] for name in self.averages}
        return results


STS12Eval = STSEval.make_class("STS12", "STS/STS12-en-test")
STS13Eval = STSEval.make_class("STS13", "STS/STS13-en-test")  # without SMT, as in SentEval
STS14Eval = STSEval.make_class("STS14", "STS/STS14-en-test")
STS15Eval = STSEval.make_class("STS15", "STS/STS15-en-test")
STS16Eval = STSEval.make_class("STS16", "STS/STS16-en-test")


STSBenchmarkEval = STSEval.make_class(
    "STSBenchmark", "STS/STSBenchmark", read=lambda task: [*stsb_splits(task.path).values()]
)
SICKRelatednessEval = STSEval.make_class(
    "SICKRelatedness", "SICK", read=lambda task: [*sick_splits(task.path).values()]
)
STSBenchmarkFinetune = SICKEval.make_class(
    "STSBenchmark-finetune", "STS/STSBenchmark", read=lambda task: stsb_splits(task.path)
)


class STSBenchmarkFix(STSEval):
    """A corrected STS Benchmark in a folder beside the first."""

    name, folder = "STSBenchmark-fix", "STS/STSBenchmark-fix"

    def read(self) -> list[PairSubset]:
        """Read the splits."""
        if not self.path.is_dir():
            raise DataError(
                "this folder is missing",
                where=str(self.path),
                expected="sts-train.csv, sts-dev.csv and sts-test.csv in it",
                hint="put the files there: SimCSE's fork only names them, and bench data fetch has none",
            )
        return list(stsb_splits(self.path).values())


def _subset_similarities(
    where: str, subset: PairSubset, embedded: Embeddings, similarity: Callable[..., Any] | None
) -> NDArray[np.float32]:
    if similarity is None:
        return embedded.cosine(subset.first, subset.second).astype(np.float32)  # as in records
    rows, values = embedded.rows, np.empty(len(subset.gold), dtype=np.float32)
    for place, (a, b) in enumerate(zip(subset.first, subset.second, strict=True)):
        returned = similarity(embedded.vectors[rows[a]], embedded.vectors[rows[b]])
        try:
            values[place] = float(returned)
        except (TypeError, ValueError, RuntimeError) as error:
            what = f"params['similarity'] returned a {type(returned).__name__}"
            raise BenchError(what, where=where, expected="a number") from error
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        what = f"params['similarity'] returned {values[place]} for pair {place + 1}"
        raise BenchError(what, where=where, expected="a finite number")
    return values


def _report_constant(where: str, similarities: NDArray[np.float32], gold: NDArray[np.float64]) -> None:
    """Print on stderr why a correlation is NaN, as in SentEval; raises BenchError for a single pair."""
    if len(gold) < 2:
        raise BenchError(f"no correlation of {len(gold)} pair(s)", where=where, expected="two pairs or more")
    for noun, values in (("similarities", similarities), ("gold scores", gold)):
        if (values == values[0]).all():
            line = f"{where}: all {len(gold)} {noun} are equal, so the correlation is undefined (nan)"
            print(line, file=sys.stderr)


def _correlate_quietly(correlation: Callable[..., Any], similarities: ArrayLike, gold: ArrayLike) -> Any:
    """Return scipy's correlation and drop its warning, which :func:`_report_constant` replaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return correlation(similarities, gold)
