"""How many verdicts for further seeds and items change if pairs that share sentences are one unit.

All pairs of methods of a campaign's suites of pairs are tested by variance components, the items' part from
the influence of each pair: once by single pairs, once by clusters. A line of JSON a suite.

    BENCH_DATA=data python benchmarks/item_verdicts.py minilm-lm minilm-lm-h100 minilm
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import stats

from bench.comparison.design import choose_comparison_design
from bench.comparison.item_bootstrap import CampaignRun, cluster_record_items, list_task_names
from bench.comparison.selection import Group, group_by, sort_runs_by_seed
from bench.data.data_source import data_folder
from bench.data.tasks import PairTask
from bench.errors import BenchError
from bench.eval.rescoring import load_record_tasks
from bench.records.record import AVERAGE, RunRecord
from bench.records.store import ResultStore
from bench.stats.argument_checks import FloatArray
from bench.stats.clustered_tests import spearman_influence
from bench.stats.correction import holm
from bench.stats.seeds import satterthwaite, side_parts

RESULTS, BASELINE, ALPHA = Path(__file__).parents[1] / "results", "simcse", 0.05
Parts = list[tuple[float, float]]


def seed_parts(x: FloatArray, y: FloatArray, paired: bool) -> Parts:
    """What seeds add to the variance of a difference, with degrees of freedom."""
    if paired:
        return [(float((x - y).var(ddof=1)) / len(x), len(x) - 1)]
    sides = [(float(side.var(ddof=1)) / len(side), len(side) - 1.0) for side in (x, y) if len(side) > 1]
    return side_parts(*sides) if len(sides) == 2 else sides


def p_value(difference: float, seeds: Parts, items: Parts) -> float:
    """The larger p of the seeds alone and of both."""
    found = []
    for parts in (seeds, [*seeds, *items]):
        varying = [part for part in parts if part[0] > 0]
        if varying:
            error = sum(variance for variance, _ in varying) ** 0.5
            found.append(float(2 * stats.t.sf(abs(difference) / error, satterthwaite(varying))))
    return max(found, default=float(difference == 0))


def compare_units(store: ResultStore, records: Sequence[RunRecord]) -> dict[str, tuple[float, float, float]]:
    """The p of every pair of methods, "A | B", by single pairs and by clusters, and how the error grows."""
    tasks = load_record_tasks(records[0], data_folder(None))
    units, names = cluster_record_items(records[0], tasks), list_task_names(records[0])
    labels = np.unique(np.concatenate([units.task_labels(name) for name in names]), return_inverse=True)[1]
    gold = {}
    for name in names:
        task = tasks[name]
        assert isinstance(task, PairTask)
        gold[name] = np.concatenate([np.asarray(subset.gold) for subset in task.subsets])
    sizes = [len(scores) for scores in gold.values()]
    ends = np.cumsum(sizes)
    effective = units.summary.effective_clusters(AVERAGE, AVERAGE) or float(sum(sizes))
    groups, influence = {}, {}
    for method, of_method in group_by(records, lambda record: record.method).items():
        runs = tuple(sort_runs_by_seed(CampaignRun(store, record) for record in of_method))
        groups[method] = Group(method, runs)
        for run in runs:
            predictions = store.predictions(run.record)
            parts = [spearman_influence(predictions[name], gold[name])[0] / len(gold[name]) for name in names]
            influence[run.path] = np.concatenate(parts) / len(names)
    found = {}
    for a, b in combinations(groups, 2):
        try:
            one, other, design = choose_comparison_design(groups[a], groups[b], "auto", "")
        except BenchError:
            continue
        if any(len(side.runs) == 1 and not side.deterministic for side in (one, other)):
            continue
        x, y = np.array(one.scores(AVERAGE)), np.array(other.scores(AVERAGE))
        sides = [np.mean([influence[run.path] for run in side.runs], axis=0) for side in (one, other)]
        values = sides[0] - sides[1]
        by_pairs: Parts = []
        for part, size in zip(np.split(values, ends[:-1]), sizes, strict=True):
            by_pairs.append((float(part @ part), size - 1.0))
        by_clusters: Parts = [(float(np.sum(np.bincount(labels, values) ** 2)), effective - 1)]
        seeds, difference = seed_parts(x, y, design.paired), float(x.mean() - y.mean())
        variance = sum(part for part, _ in by_pairs)
        growth = (by_clusters[0][0] / variance) ** 0.5 if variance else 1.0
        p = p_value(difference, seeds, by_pairs), p_value(difference, seeds, by_clusters)
        found[f"{a} | {b}"] = (*p, growth)
    return found


def verdict_lines(campaign: str) -> Iterator[dict[str, object]]:
    """The numbers of verdicts by single pairs and by clusters, of every suite of pairs."""
    store = ResultStore(RESULTS, campaign)
    done = [record for record in store.records() if record.status == "ok" and record.metric == "spearman"]
    for (profile, suite), records in group_by(done, lambda record: (record.profile, record.suite)).items():
        tests = compare_units(store, records)
        if not tests:
            continue
        single = np.array([*tests.values()])[:, :2] <= ALPHA
        corrected = []
        for unit in range(2):
            family = holm({pair: p[unit] for pair, p in tests.items()}, "all pairs")
            corrected.append(sum(test.adjusted <= ALPHA for test in family.comparisons.values()))
        against = [BASELINE in pair.split(" | ") for pair in tests]
        yield {
            "campaign": campaign,
            "profile": profile,
            "suite": suite,
            "pairs of methods": len(tests),
            "different, by pairs and by clusters": single.sum(0).tolist(),
            "after Holm": corrected,
            f"against {BASELINE}": [sum(against), *single[against].sum(0).tolist()],
            "changed": int((single[:, 0] != single[:, 1]).sum()),
            "error over items grows, median": round(float(np.median([*tests.values()], axis=0)[2]), 2),
        }


def main() -> None:
    """Print the lines of the named campaigns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaigns", nargs="+")
    for campaign in parser.parse_args().campaigns:
        for line in verdict_lines(campaign):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
