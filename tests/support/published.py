"""Made-up results of another program, as an import's reader gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.eval.imported_suite import identify_score_task
from bench.imports.published import PublishedResults, PublishedRun
from bench.records.record import ALL, AVERAGE, Score

TYPES = ("STS", "STS", "STS", "STS", "Retrieval", "Retrieval", "Retrieval", "Retrieval")
SUITE = "imported:board"
SOURCE = {"kind": "csv", "label": "table.csv", "sha256": "0" * 64}


def published_run(
    method: str,
    scores: Sequence[float],
    *,
    seed: int | None = None,
    data: str = "",
    types: Sequence[str] = TYPES,
    facts: Mapping[str, Any] = {},
) -> PublishedRun:
    """A run with scores of the tasks task1, task2, ...; ``data`` is a version of their data."""
    names = [f"task{number}" for number in range(1, len(scores) + 1)]
    rows = [Score(name, ALL, "score", score, 0) for name, score in zip(names, scores, strict=True)]
    average = Score(AVERAGE, ALL, "score", fmean(scores), len(scores))
    tasks: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(names):
        identity = identify_score_task(SUITE, f"{name}{data}", "score")
        tasks[name] = {"name": name, "sha256": identity}
        if types:
            tasks[name]["type"] = types[place]
    return PublishedRun(method, seed, (*rows, average), tasks, facts)


def published_results(*runs: PublishedRun, suite: str = SUITE, **source: str) -> PublishedResults:
    """The results of these runs."""
    return PublishedResults(suite, runs, SOURCE | source)


def three_models(shift: float = 0.0) -> list[PublishedRun]:
    """Three models over eight tasks: one far behind, two that differ by chance."""
    strong = [0.81, 0.72, 0.77, 0.80, 0.55, 0.61, 0.58, 0.60]
    other = [0.80, 0.73, 0.76, 0.81, 0.56, 0.60, 0.59, 0.59]
    weak = [score - 0.2 - 0.01 * (place % 3) for place, score in enumerate(strong)]
    sizes = ({"n_parameters": 110_000_000}, {"n_parameters": 7_000_000_000}, {"n_parameters": 22_000_000})
    rows = zip(("org/strong", "org/other", "lab/weak"), (strong, other, weak), sizes, strict=True)
    return [
        published_run(name, [score + shift for score in scores], facts=size) for name, scores, size in rows
    ]
