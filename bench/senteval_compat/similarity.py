"""STS12-16, STS Benchmark and SICK-R as SimCSE's fork of SentEval reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from bench.data import senteval
from bench.data.tasks import PairSubset, PairTask
from bench.eval.embed import Embeddings

_SPLITS = {
    "STSBenchmark": ("STSB-train", "STSB-dev", "STSB"),
    "SICKRelatedness": ("SICKR-train", "SICKR-dev", "SICKR"),
}


def evaluate(
    name: str,
    task_path: Path,
    vectors: Callable[[Iterable[str]], Embeddings],
    similarity: Callable[..., Any] | None,
) -> dict[str, Any]:
    """Return SentEval's dictionary of a task; the correlations are scipy's result objects.

    Args:
        name: Task.
        task_path: SentEval's data folder.
        vectors: The batcher's vectors of sentences.
        similarity: Computes the similarity of two vectors; None for the cosine.
    """
    root = senteval.find_root(task_path)
    tasks = [cast("PairTask", senteval.SOURCES[part].read(root)) for part in _SPLITS.get(name, (name,))]
    embedded = vectors(sentence for task in tasks for pair in task.all_pairs() for sentence in pair)
    results: dict[str, Any] = {}
    scored: list[NDArray[np.float32]] = []
    subsets = [subset for task in tasks for subset in task.subsets]
    for subset in subsets:
        found = _similarities(subset, embedded, similarity)
        scored.append(found)
        results[subset.name] = {
            "pearson": pearsonr(found, subset.gold),
            "spearman": spearmanr(found, subset.gold),
            "nsamples": len(found),
        }
    gold = np.concatenate([subset.gold for subset in subsets])
    everything = np.concatenate(scored)
    sizes = [len(found) for found in scored]
    results["all"] = {
        kind: {
            "all": correlation(everything, gold)[0],
            "mean": np.average(values),
            "wmean": np.average(values, weights=sizes),
        }
        for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr))
        for values in [[results[subset.name][kind][0] for subset in subsets]]
    }
    return results


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
