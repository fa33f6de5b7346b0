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
from bench.render.grid import SCALE
from bench.stats.seeds import one_sample

Scores = dict[str, dict[Any, float]]
"""Average x 100 by method and seed, a number; None where a method has no seeds."""
LEAST = 3
"""Seeds on both devices that a row needs to be compared."""


def table(results: Path, asked: str) -> str:
    """A row a method with ``LEAST`` seeds on both, and what the rows say together, by the seeds of both.

    A seed's runs read the text in one order on either device, so seeds are pairs and every test is of their
    differences. Methods of one seed share that order too, and a device's draws of dropout, so rows are not
    independent: for all rows together a seed that half of them have gives one number, the mean over these
    rows of the differences.

    Args:
        results: The folder of campaigns.
        asked: ``FIRST,SECOND``: two campaigns of one profile.
    """
    names = [name.strip() for name in asked.split(",")]
    first, second = (_averages(results, name) for name in names)
    pairs = {method: sorted(first[method].keys() & second[method].keys()) for method in sorted(first)}
    pairs = {method: seeds for method, seeds in pairs.items() if len(seeds) >= LEAST}
    rows, outside = [], []
    for method, seeds in pairs.items():
        test = one_sample([first[method][seed] - second[method][seed] for seed in seeds], fixed=0.0)
        outside += [method] * bool(test.low > 0 or test.high < 0)
        means = (f"{fmean(side[method][seed] for seed in seeds):.2f}" for side in (first, second))
        found = f"{test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}]"
        rows.append((f"`{method}`", str(len(seeds)), *means, found))
    header = ("method", "seeds of both", *(f"{name}, mean" for name in names), "difference, 95% interval")
    return f"{markdown_table(header, rows)}\n{_together(first, second, pairs, outside)}"


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


def _together(
    first: Scores, second: Scores, pairs: Mapping[str, Sequence[int]], outside: Sequence[str]
) -> str:
    """What all rows say: the test by seeds, how many intervals leave 0 out, how alike the order is."""
    by_seed: dict[int, list[float]] = defaultdict(list)
    for method, seeds in pairs.items():
        for seed in seeds:
            by_seed[seed].append(first[method][seed] - second[method][seed])
    differences = {seed: fmean(each) for seed, each in sorted(by_seed.items()) if 2 * len(each) >= len(pairs)}
    test = one_sample([*differences.values()], fixed=0.0)
    means = [
        [fmean(side[method][seed] for seed in seeds) for method, seeds in pairs.items()]
        for side in (first, second)
    ]
    said = ", ".join(f"{seed}: {value:+.2f}" for seed, value in differences.items())
    apart = ", ".join(f"`{method}`" for method in outside) or "none"
    return (
        f"{len(pairs)} rows. Seed by seed, the mean over the rows of the difference: {said}. So a difference "
        f"of {test.difference:+.2f} points, 95% interval [{test.low:+.2f}, {test.high:+.2f}], "
        f"p = {test.p:.2f} by a paired t-test over these seeds. Rows whose own interval, uncorrected, leaves "
        f"0 out: {len(outside)} ({apart}); {0.05 * len(pairs):.0f} would by chance. "
        f"Means of the rows: rho = {stats.spearmanr(means, axis=1).statistic:+.2f}.\n"
    )


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
