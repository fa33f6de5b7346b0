"""Table and figure of test pairs that share sentences, from benchmarks/shared_sentences.csv.

``python docs/item_clusters.py`` draws docs/shared-sentences.png.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from pathlib import Path

from rows import markdown_table

from bench.render.figure import Figure, Series
from bench.render.figure_files import draw_figures
from bench.stats.coverage import read_coverage

DOCS = Path(__file__).parent
TABLE, PICTURE = DOCS.parent / "benchmarks/shared_sentences.csv", DOCS / "shared-sentences.png"
HEADER = ("difference", "task", "A - B", "pairs", "in the task", "over the suite", "times", "largest")
SHARES = ("30%", "60%", "50%, topics")


def read_errors() -> list[dict[str, str]]:
    """Return the rows of the file."""
    with TABLE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def times(row: dict[str, str]) -> float:
    """Return how many times the error by clusters is that by single pairs."""
    return float(row["suite"]) / float(row["independent"])


def table() -> str:
    """Standard errors of each difference, by task."""
    lines = []
    for row in read_errors():
        errors = [f"{float(row[name]):.3f}" for name in ("independent", "within", "suite")]
        name, difference = f"{row['first']} - {row['second']}", f"{float(row['difference']):+.2f}"
        share = f"{100 * float(row['largest']):.0f}%"
        lines.append((name, row["task"], difference, *errors, f"{times(row):.2f}", share))
    return markdown_table(HEADER, lines)


def coverage_by_task() -> str:
    """Measured coverage and error rates of two checkpoints, by task and design."""
    names = {
        "paired bootstrap": "paired bootstrap",
        "pairs": "the same of single pairs",
        "clustered test": "t test by clusters (5)",
        "williams": "Williams' test (5)",
        "wilson by clusters": "Wilson's interval of effective items",
        "wilson": "Wilson's interval of all items",
        "mcnemar by clusters": "McNemar's test by flips of clusters (5)",
        "mcnemar": "McNemar's test (5)",
    }
    measured = {(row.method, row.design): row for row in read_coverage()}
    tasks = [row["task"] for row in read_errors() if row["second"] == "esimcse"][:-1]
    lines = []
    for method, words in names.items():
        for share in SHARES:
            found = [measured[method, f"sentences {share}, {task}"] for task in tasks]
            cells = []
            for row in found:
                text = f"{100 * row.measured:.1f}"
                cells.append(f"**{text}**" if row.keeps is False else text)
            lines.append((words, share, *cells))
    return markdown_table(("procedure (promised, if not 95)", "sentences", *tasks), lines)


def make_figure() -> Figure:
    """The ratios of all differences, by task."""
    series: dict[str, list[float]] = {}
    tasks: list[str] = []
    for row in read_errors():
        name = f"{row['first']} - {row['second']}"
        series.setdefault(name, []).append(times(row))
        if row["task"] not in tasks:
            tasks.append(row["task"])
    places = tuple(map(float, range(len(tasks))))
    marks = tuple(Series(name, tuple(ratios), places) for name, ratios in series.items())
    title = "Standard errors by clusters of pairs that share sentences, over those by single pairs"
    label = "times as large"
    return Figure("shared-sentences", "", title, "strip", label, "", (), marks, tuple(tasks))


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as folder:
        draw_figures([make_figure()], Path(folder))
        shutil.copyfile(Path(folder) / "shared-sentences.png", PICTURE)


if __name__ == "__main__":
    main()
