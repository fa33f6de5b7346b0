"""The same campaign on two devices, and training steps on a GPU: tables of ``docs/campaign.md``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rows import markdown_table
from scipy import stats

from bench.records.store import ResultStore
from bench.reports.grid import SCALE

Scores = dict[str, dict[Any, float]]
"""Average x 100 by method and seed, a number; None where a method has no seeds."""
LEAST = 3
"""Seeds on both devices that a row needs to be compared."""


def table(results: Path, asked: str) -> str:
    """A row a method with ``LEAST`` seeds on both, and what the rows say together.

    Seeds are the units of both tests: methods of one seed and device share the text's order and draws of
    dropout, so rows are not independent. A row's interval is Welch's over its seeds. For all rows together
    each seed that half of the rows have gives one number, the mean over them of a score's distance from the
    middle of its row's two means, and Welch's test compares these.

    Args:
        results: The folder of campaigns.
        asked: ``FIRST,SECOND``: two campaigns of one profile.
    """
    names = [name.strip() for name in asked.split(",")]
    sides = [_averages(results, name) for name in names]
    both = sides[0].keys() & sides[1].keys()
    methods = sorted(method for method in both if min(len(side[method]) for side in sides) >= LEAST)
    rows, outside = [], []
    for method in methods:
        first, second = ([*side[method].values()] for side in sides)
        test = stats.ttest_ind(first, second, equal_var=False)
        low, high = test.confidence_interval()
        outside += [method] * bool(low > 0 or high < 0)
        means = (f"{fmean(each):.2f} ({len(each)})" for each in (first, second))
        rows.append((f"`{method}`", *means, f"{fmean(first) - fmean(second):+.2f} [{low:+.2f}, {high:+.2f}]"))
    header = ("method", *(f"{name}, mean (seeds)" for name in names), "difference, 95% interval")
    return f"{markdown_table(header, rows)}\n{_together(sides, methods, outside)}"


def same_seeds(results: Path, asked: str) -> str:
    """A row a method and seed that both campaigns have: the two averages, to the digit in which they differ.

    Args:
        results: The folder of campaigns.
        asked: ``FIRST,SECOND``: two campaigns of one profile.
    """
    names = [name.strip() for name in asked.split(",")]
    sides = [_averages(results, name) for name in names]
    rows = [
        (f"`{method}`", "-" if seed is None else str(seed), *(f"{side[method][seed]:.5f}" for side in sides))
        for method in sorted(sides[0].keys() & sides[1].keys())
        for seed in sorted(sides[0][method].keys() & sides[1][method].keys())
    ]
    return markdown_table(("method", "seed", *names), rows)


def _together(sides: Sequence[Scores], methods: Sequence[str], outside: Sequence[str]) -> str:
    """What all rows say: the test by seeds, how many intervals leave 0 out, how alike the order is."""
    means = [[fmean(side[method].values()) for method in methods] for side in sides]
    centre = dict(zip(methods, (fmean(pair) for pair in zip(*means, strict=True)), strict=True))
    seeds = [_seeds(side, centre) for side in sides]
    test = stats.ttest_ind(*([*each.values()] for each in seeds), equal_var=False)
    low, high = test.confidence_interval()
    said = (", ".join(f"{seed}: {value:+.2f}" for seed, value in each.items()) for each in seeds)
    apart = ", ".join(f"`{method}`" for method in outside) or "none"
    return (
        f"{len(methods)} rows. Seed by seed, the mean over the rows of a score's distance from the middle of "
        f"its row's two means: {' against '.join(said)}. So a difference of "
        f"{fmean(seeds[0].values()) - fmean(seeds[1].values()):+.2f} points, 95% interval "
        f"[{low:+.2f}, {high:+.2f}], p = {test.pvalue:.2f} by Welch's test over these seeds. Rows whose own "
        f"interval, uncorrected, leaves 0 out: {len(outside)} ({apart}); {0.05 * len(methods):.0f} would by "
        f"chance. Means of the rows: rho = {stats.spearmanr(means, axis=1).statistic:+.2f}.\n"
    )


def _seeds(side: Scores, centre: Mapping[str, float]) -> dict[int, float]:
    """Of each seed that half of the rows have: the mean over these of the score minus the row's centre."""
    found: dict[int, list[float]] = defaultdict(list)
    for method, middle in centre.items():
        for seed, score in side[method].items():
            found[seed].append(score - middle)
    return {seed: fmean(each) for seed, each in sorted(found.items()) if 2 * len(each) >= len(centre)}


def _averages(results: Path, campaign: str) -> Scores:
    """Average x 100 of each method's seeds on sts7."""
    found: Scores = defaultdict(dict)
    for record in ResultStore(results, campaign).records():
        score = record.score("avg")
        if record.suite == "sts7" and score is not None:
            found[record.method][record.seed] = SCALE * score
    return found


def steps_table(log: Path) -> str:
    """Training steps from what ``benchmarks/train_step.py`` printed on a GPU."""
    rows: list[dict[str, Any]] = []
    for line in log.read_text(encoding="utf-8").splitlines():
        if not line.startswith("{"):
            if " use: " in line and line.startswith("train_step"):
                rows[-1]["use"] = line.split(" use: ")[1].split(" ")[0]
            continue
        facts = json.loads(line)
        if facts["benchmark"].startswith("train_step"):
            rows.append(facts)
        elif facts["benchmark"].startswith("busy") and facts["side"] == "ours":
            rows[-1] |= {name: facts[name] for name in ("kernels", "device_ms", "wall_ms")}
    header = (
        *("step", "arithmetic", "sentences", "sentences/s", "the plain loop's", "ratio", "of the peak"),
        *("kernels", "ms on the device", "ms by the clock"),
    )
    return markdown_table(
        header,
        [
            (
                *(each["benchmark"].removeprefix("train_step "), each["precision"], str(each["batch"])),
                *(f"{each['ours_sentences_per_second']:,.0f}", f"{each['peer_sentences_per_second']:,.0f}"),
                *(f"{each['ratio_wall']:.2f}", each["use"], f"{each['kernels']:,}"),
                *(f"{each['device_ms']:.0f}", f"{each['wall_ms']:.0f}"),
            )
            for each in rows
        ],
    )


def compiled_table(log: Path) -> str:
    """Steps by default and compiled, from what ``benchmarks/compiled.py`` printed on a GPU."""
    lines = [
        json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")
    ]
    sides = {
        "chunks": "chunks of like length, the default", "one chunk": "one chunk",
        "inductor": "one chunk, inductor", "graphs": "one chunk, CUDA graphs",
    }  # fmt: skip
    rows = [
        (
            *(each["benchmark"].removeprefix("compiled "), each["precision"], str(each["batch"]), what),
            f"{1000 * each[f'seconds {side}']:.1f}",
            f"{each['seconds chunks'] / each[f'seconds {side}']:.2f}",
            f"{each[f'share {side}']:.1%}",
        )
        for each in lines
        if each["benchmark"].startswith("compiled ")
        for side, what in sides.items()
    ]
    header = ("step", "arithmetic", "sentences", "how", "ms", "default / this", "of the peak")
    return markdown_table(header, rows)
