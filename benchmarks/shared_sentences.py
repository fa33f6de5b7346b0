"""How much test pairs that share sentences change standard errors: on records of sts7 and its real pairs.

For differences of two runs, each task and the average: the standard error in points by independent pairs, by
clusters of pairs that share sentences within a task, and by clusters over the suite, from the influence of
each pair on the difference. ``largest`` is the share of the variance that the first cluster adds.

    BENCH_DATA=data python benchmarks/shared_sentences.py           # to the screen
    BENCH_DATA=data python benchmarks/shared_sentences.py --write   # shared_sentences.csv beside this script

The table and the figure of docs/statistics-items.md come from that file.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from bench.data.data_source import DataSource, data_folder
from bench.data.sentence_clusters import cluster_items
from bench.data.suites import load_suite
from bench.data.tasks import PairTask
from bench.records.record import AVERAGE, RunRecord
from bench.records.store import ResultStore
from bench.stats.argument_checks import FloatArray
from bench.stats.clustered_tests import spearman_influence
from bench.stats.item_units import Labels

RESULTS, TABLE = Path(__file__).parents[1] / "results", Path(__file__).with_name("shared_sentences.csv")
SUITE, CAMPAIGN, SEED = "sts7", "minilm-lm", 1
DIFFERENCES = (("simcse", "esimcse"), ("tncse", "jtcse"), ("simcse", "untrained"))
POINTS = 100.0


@dataclass(frozen=True)
class ErrorRow:
    """Standard errors of one difference in one task, in points; ``within`` and ``suite`` by clusters."""

    first: str
    second: str
    task: str
    pairs: int
    clusters: int
    largest_cluster: int
    difference: float
    independent: float
    within: float
    suite: float
    largest: float


def read_influence(tasks: list[PairTask]) -> dict[str, dict[str, FloatArray]]:
    """Each method's (pairs,) influence on its score, by task, and the score."""
    store = ResultStore(RESULTS, CAMPAIGN)
    found: dict[str, dict[str, FloatArray]] = {}
    wanted = {method for pair in DIFFERENCES for method in pair}
    for record in store.records():
        if record.suite != SUITE or record.method not in wanted or record.seed not in (SEED, None):
            continue
        predictions = store.predictions(record)
        found[record.method] = {}
        for task in tasks:
            gold = [score for subset in task.subsets for score in subset.gold]
            (influence,) = spearman_influence(predictions[task.id], gold)
            found[record.method][task.id] = influence / len(gold)
    return found


def error_rows() -> Iterator[ErrorRow]:
    """The rows of every difference."""
    tasks = load_suite(SUITE, DataSource(data_folder(None)))[1]
    texts = [list(task.all_pairs()) for task in tasks]
    over_suite = dict(zip([task.id for task in tasks], cluster_items(texts), strict=True))
    influence = read_influence(tasks)
    scores: dict[str, RunRecord] = {}
    for record in ResultStore(RESULTS, CAMPAIGN).records():
        if record.suite == SUITE and record.seed in (SEED, None):
            scores[record.method] = record
    for first, second in DIFFERENCES:
        differences, within_labels = {}, {}
        for task, own in zip(tasks, texts, strict=True):
            differences[task.id] = POINTS * (influence[first][task.id] - influence[second][task.id])
            (within_labels[task.id],) = cluster_items([own])
        average = np.concatenate([values / len(tasks) for values in differences.values()])
        apart = 0.0
        for task in tasks:
            values, labels = differences[task.id], over_suite[task.id]
            within = _error(values, within_labels[task.id])
            apart += (within / len(tasks)) ** 2
            yield _row(first, second, task.id, values, labels, within, scores)
        labels = np.concatenate([*over_suite.values()])
        yield _row(first, second, AVERAGE, average, labels, apart**0.5, scores)


def _row(
    first: str,
    second: str,
    task: str,
    values: FloatArray,
    labels: Labels,
    within: float,
    scores: dict[str, RunRecord],
) -> ErrorRow:
    sums = np.bincount(labels, values) ** 2
    sizes = np.bincount(labels)
    numbers = (
        POINTS * ((scores[first].score(task) or 0) - (scores[second].score(task) or 0)),
        float(np.sqrt(values @ values)),
        within,
        _error(values, labels),
        float(sums.max() / sums.sum()),
    )
    counts = len(values), int(np.count_nonzero(sizes)), int(sizes.max())
    return ErrorRow(first, second, task, *counts, *(round(number, 3) for number in numbers))


def _error(values: FloatArray, labels: Labels) -> float:
    return float(np.sqrt(np.sum(np.bincount(labels, values) ** 2)))


def main() -> None:
    """Print or write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the file in place of printing it")
    given = parser.parse_args()
    rows = list(error_rows())
    with TABLE.open("w", newline="") if given.write else sys.stdout as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(ErrorRow)])
        writer.writerows(map(astuple, rows))


if __name__ == "__main__":
    main()
