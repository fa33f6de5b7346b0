"""How many pairs of models the leaderboard MTEB(eng, v2) tells apart, over its 41 tasks.

FOLDER is a copy of mteb's results (ORG__MODEL/REVISION/TASK.json). As on mteb's board, versions of data sets
are ignored. A model counts if one revision has all tasks, or its revisions together do. Claims of model cards
(folders "external") fill missing tasks with --claims.

"bootstrap": differences of means in 10,000 draws of tasks, p at 5% without correction, as others test it.
"t": bench's test of one pair. "all pairs": the same, corrected for all pairs. "t within types" and
"all pairs, flips" are tests that bench doesn't use (coverage_tasks.py). For each: pairs that differ,
neighbours in the ranking that do not, and models not told from the first. A line of JSON an average.

    python benchmarks/mteb_board.py FOLDER [--claims]
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from coverage_tasks import flip_pairs, t_within_types
from numpy.typing import NDArray

from bench.stats.argument_checks import make_generator
from bench.stats.task_averages import AVERAGES, TaskScores, task_weights
from bench.stats.task_tests import TaskTests, compare_tasks

SUITE, DRAWS, ALPHA = "MTEB(eng, v2)", 10_000, 0.05
SUITES = Path(__file__).parents[1] / "bench" / "data" / "mteb_suites.toml"
TYPES = {
    "Reranking": r"AskUbuntuDup|Reranking$",
    "Retrieval": r"Retrieval|HardNegatives$|^ArguAna$|^FiQA|^SCIDOCS$|^TRECCOVID$",
    "Clustering": r"Clustering",
    "STS": r"^STS|^SICK-R$|^BIOSSES$",
    "PairClassification": r"^SprintDup|^Twitter(SemEval|URL)",
    "Summarization": r"Summarization",
    "Classification": r"Classification$",
}
Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def read_tasks() -> dict[str, tuple[str, str, str]]:
    """Return by task its type, its subset ("" for all) and its split."""
    tasks = {}
    for written in tomllib.loads(SUITES.read_text(encoding="utf-8"))[SUITE]["tasks"].values():
        name, subset, split = re.fullmatch(r"([^[@]+)(?:\[(.*)\])?(?:@(.*))?", written).groups()  # type: ignore[union-attr]
        kind = next(kind for kind, pattern in TYPES.items() if re.search(pattern, name))
        tasks[name] = kind, subset or "", split or "test"
    return tasks


def read_score(path: Path, subset: str, split: str) -> float | None:
    """Return the mean main score of a task's subsets, if the file has it."""
    parts = json.loads(path.read_text(encoding="utf-8")).get("scores", {}).get(split, [])
    scores = [part["main_score"] for part in parts if subset in ("", part["hf_subset"])]
    return float(np.mean(scores)) if scores and None not in scores else None


def read_revision(folder: Path, tasks: Mapping[str, tuple[str, str, str]]) -> dict[str, float]:
    """Return the scores of a revision's tasks that it has."""
    files = {name: folder / f"{name}.json" for name in tasks}
    scores = {name: read_score(file, *tasks[name][1:]) for name, file in files.items() if file.exists()}
    return {name: score for name, score in scores.items() if score is not None}


def read_board(folder: Path, *, claims: bool = False) -> tuple[TaskScores, int]:
    """Return the table of complete models, and the number of those with one complete revision."""
    tasks, rows, whole = read_tasks(), {}, 0
    for model in sorted(path for path in folder.iterdir() if path.is_dir()):
        revisions, claimed = [], model / "external"
        for revision in sorted(path for path in model.iterdir() if path != claimed):
            revisions.append(read_revision(revision, tasks))
        revisions.sort(key=len, reverse=True)  # the fullest has precedence
        whole += bool(revisions) and len(revisions[0]) == len(tasks)
        if claims and claimed.is_dir():
            revisions.append(read_revision(claimed, tasks))
        joined: dict[str, float] = {}
        for scores in revisions:
            joined = {**scores, **joined}
        if len(joined) == len(tasks):
            rows[model.name] = [100 * joined[name] for name in tasks]
    return TaskScores(
        tuple(rows), np.array(list(rows.values())), tuple(kind for kind, *_ in tasks.values())
    ), whole


def bootstrap_differs(points: Array, weights: Array) -> Bools:
    """Return the (m, m) pairs whose two-sided bootstrap p over tasks is at most 5%, without correction."""
    tasks = points.shape[1]
    taken = make_generator(0, "bootstrap").multinomial(tasks, np.full(tasks, 1 / tasks), DRAWS) * weights
    means = points @ (taken / taken.sum(axis=1, keepdims=True)).T
    above = np.array([[np.count_nonzero(one > other) for other in means] for one in means])
    ties = DRAWS - above - above.T
    p = 2 * np.minimum(above + ties, above.T + ties) / DRAWS
    return np.asarray(p <= ALPHA)


def count_verdicts(differs: Bools, tests: TaskTests) -> dict[str, int]:
    """Return the numbers of pairs told apart, of neighbours not, and of models not told from the first."""
    order = np.argsort(-tests.scores, kind="stable")
    ranked = differs[np.ix_(order, order)]
    return {
        "differ": int(np.triu(ranked, 1).sum()),
        "neighbours_open": int((~np.diagonal(ranked, 1)).sum()),
        "tied_with_first": int((~ranked[0, 1:]).sum()),
    }


def judge(table: TaskScores, average: str) -> Iterator[tuple[str, object]]:
    """Yield the findings on one average."""
    tests = compare_tasks(table, average)
    weights = task_weights(table.values.shape[1], table.types, average)
    points, (first, second) = table.points(average), np.triu_indices(len(table.methods), 1)
    within = np.zeros(tests.p.shape, dtype=bool)
    gaps = (points[i] - points[j] for i, j in zip(first, second, strict=True))
    within[first, second] = [t_within_types(gap, weights, table.types)[2] <= ALPHA for gap in gaps]
    flipped = np.zeros(tests.p.shape, dtype=bool)
    flipped[first, second] = flip_pairs((points[first] - points[second]) * weights) <= ALPHA
    verdicts = {
        "bootstrap": bootstrap_differs(points, weights),
        "t": tests.p <= ALPHA,
        "all pairs": tests.differs,
        "t within types": within | within.T,
        "all pairs, flips": flipped | flipped.T,
    }
    for name, differs in verdicts.items():
        yield name, count_verdicts(differs, tests)
    yield "may_be_best", int(tests.may_be_best.sum())
    yield "median_ranks_in_set", float(np.median(np.diff(tests.rank_intervals)) + 1)
    changed = verdicts["t"] != verdicts["t within types"]
    yield "share of t's verdicts that types as strata change", round(float(changed[first, second].mean()), 4)


def findings(folder: Path, averages: tuple[str, ...], *, claims: bool) -> Iterator[Mapping[str, object]]:
    """Yield a line on the table, and one an average."""
    table, whole = read_board(folder, claims=claims)
    count = len(table.methods)
    yield {
        "benchmark": "mteb_board",
        "claims": claims,
        "models": count,
        "of one revision": whole,
        "pairs": count * (count - 1) // 2,
        "tasks": table.values.shape[1],
    }
    for average in averages:
        yield {"average": average, **dict(judge(table, average))}


def main() -> None:
    """Print the findings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--claims", action="store_true", help="with claims of model cards")
    given = parser.parse_args()
    for line in findings(given.folder, AVERAGES, claims=given.claims):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
