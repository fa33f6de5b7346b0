"""The same campaign on two devices, and training steps on a GPU: tables of ``docs/campaign.md``."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from rows import markdown_table
from scipy import stats

from bench.records.store import ResultStore
from bench.reports.grid import SCALE

LEAST = 3
"""Seeds on both devices that a row needs to be compared."""


def table(results: Path, asked: str) -> str:
    """A row a method with ``LEAST`` seeds on both, and what the rows say together.

    The differences are of the same seeds: order, masks and coins are equal there, dropout's draws are not.
    The interval takes rows for independent; so does Wilcoxon's test.

    Args:
        results: The folder of campaigns.
        asked: ``FIRST,SECOND``: two campaigns of one profile.
    """
    names = [name.strip() for name in asked.split(",")]
    first, second = (_averages(results, name) for name in names)
    rows, differences, means = [], [], []
    by_seed: dict[int, list[float]] = defaultdict(list)
    within: tuple[list[float], list[float]] = ([], [])
    for method in sorted(first.keys() & second.keys()):
        seeds = sorted(first[method].keys() & second[method].keys())
        if len(seeds) < LEAST:
            continue
        apart = {seed: first[method][seed] - second[method][seed] for seed in seeds}
        differences.append(fmean(apart.values()))
        means.append([fmean(side[method].values()) for side in (first, second)])
        for seed in seeds:
            by_seed[seed].append(apart[seed])
        for kept, side in zip(within, (first, second), strict=True):
            mean = fmean(side[method][seed] for seed in seeds)
            kept.extend(side[method][seed] - mean for seed in seeds)
        sides = (f"{fmean(side[method].values()):.2f} ({len(side[method])})" for side in (first, second))
        rows.append((f"`{method}`", *sides, str(len(seeds)), f"{differences[-1]:+.2f}"))
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval()
    wilcoxon = stats.wilcoxon(differences).pvalue
    spread = [_spread(side) for side in (first, second)]
    seeds_alone = ", ".join(f"{seed}: {median(each):+.2f}" for seed, each in sorted(by_seed.items()))
    lucky, ranks = stats.pearsonr(*within).statistic, stats.spearmanr(means).statistic
    together = (
        f"{len(rows)} rows: {fmean(differences):+.2f} points in the mean of the rows, 95% interval "
        f"[{low:+.2f}, {high:+.2f}], {median(differences):+.2f} in their median, p = {wilcoxon:.3f} by "
        "Wilcoxon's signed ranks; a seed's standard deviation within a row, in the median of the rows, "
        f"{spread[0]:.2f} and {spread[1]:.2f}. Seed by seed, in the median of its rows: {seeds_alone}. "
        f"Within rows a seed's score on one device and on the other: r = {lucky:+.2f}. Means of the rows: "
        f"rho = {ranks:+.2f}.\n"
    )
    header = ("method", *(f"{name}, mean (seeds)" for name in names), "same seeds", "difference on them")
    return f"{markdown_table(header, rows)}\n{together}"


def _averages(results: Path, campaign: str) -> dict[str, dict[int, float]]:
    """Average x 100 of each method's seeds on sts7."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for record in ResultStore(results, campaign).records():
        score = record.score("avg")
        if record.suite == "sts7" and record.seed is not None and score is not None:
            found[record.method][record.seed] = SCALE * score
    return found


def _spread(side: dict[str, dict[int, float]]) -> float:
    return median(stdev(seeds.values()) for seeds in side.values() if len(seeds) >= LEAST)


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
