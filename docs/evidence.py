"""Tables of bench/stats/coverage.csv for the site: how often intervals hold, and tests are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.stats.coverage import CoverageRow, read_coverage

COLUMNS = (2, 3, 5, 10)
HEADER = ("procedure", "scores", "speaks for", "promised", *(f"n = {n}" for n in COLUMNS), "others")
NAMES = {
    "welch": "Welch's interval",
    "student": "Student's interval, against one fixed score",
    "paired t": "paired t interval",
    "components": "variance components",
    "components, paired": "variance components of pairs",
    "hierarchical": "hierarchical bootstrap",
    "item bootstrap": "item bootstrap alone",
    "equivalence": "`--margin`: equal within, though they aren't",
    "equivalence, different": "`--margin`: different, though within",
    "claim": "`--claim`: supported, though not true",
    "largest possible": "largest difference that the data leave possible",
    "one run each": "where one further run of each lies",
    "plan": "interval of the number of seeds",
    "permutation": "exact permutation test",
    "sign flip": "exact sign-flip test",
    "iqm": "IQM, t interval with the bootstrap's error",
    "iqm, percentile": "IQM, percentile interval",
    "superiority": "P(A > B)",
    "superiority, paired": "P(A > B), pairs",
    "outlying": "an outlying seed named, though none is",
    "outlying, found": "a collapsed seed named",
    "aso": "almost stochastic order below 0.5, of equals",
    "paired bootstrap": "paired bootstrap of the items",
    "item bootstrap, one run": "item bootstrap of one checkpoint",
    "bonett-wright": "Bonett and Wright's interval of one checkpoint",
    "rank correlation": "Bonett and Wright's interval over methods",
    "partial rank correlation": "the same with one variable held fixed",
    "williams": "Williams' test",
    "williams, Pearson's r": "Williams' test of Pearson's r",
    "steiger": "Steiger's test",
    "steiger, Pearson's r": "Steiger's test of Pearson's r",
    "mcnemar": "McNemar's test",
    "pairs": "normal interval of independent pairs",
    "clusters": "normal interval of clusters",
    "dyadic-robust": "dyadic-robust interval",
    "node resampling": "interval by resampled sentences",
    "clustered test": "t test by clusters",
    "wilson": "Wilson's interval",
    "wilson by clusters": "Wilson's interval of effective items",
    "mcnemar by clusters": "McNemar's test by flips of clusters",
    "max-t": "rows against a baseline, single-step max-t",
    "bonferroni": "rows against a baseline, unpaired, Bonferroni",
    "best, unpaired": "the best row is bold, unpaired",
    "best": "the best row is bold",
    "gate": "a gate of ten cells over unchanged code that fails",
}
"""The methods of the table, in words."""


def table(methods: str, designs: str = "", targets: str = "") -> str:
    """A line for a procedure in a design, a column for a number of seeds per side; bold breaks a promise.

    Args:
        methods: Names of the file, with semicolons between.
        designs: The same of designs; "" for all.
        targets: The same of targets; "" for all.

    Raises:
        ValueError: a method, design or target without a row.
    """
    wanted = _words(methods)
    rows = _of(
        _of(_of(read_coverage(), "method", wanted), "design", _words(designs)), "target", _words(targets)
    )
    rows.sort(key=lambda row: wanted.index(row.method))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADER, *_lines(rows))) + "\n"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(";") if word.strip()]


def _of(rows: Iterable[CoverageRow], name: str, wanted: Sequence[str]) -> list[CoverageRow]:
    """The rows with one of some values, all where none is named."""
    found = [row for row in rows if not wanted or getattr(row, name) in wanted]
    if lacking := set(wanted) - {getattr(row, name) for row in found}:
        raise ValueError(f"coverage.csv has no {name} {', '.join(sorted(lacking))} among these rows")
    return found


def _lines(rows: Sequence[CoverageRow]) -> Iterator[Sequence[str]]:
    yield ("---", "---", "---", *("---:" for _ in range(5)), "---")
    lines: dict[tuple[str, ...], dict[tuple[int, int], str]] = {}
    for row in rows:
        lines.setdefault(_line(row), {})[row.n_a, row.n_b] = _cell(row)
    for key, cells in lines.items():
        main = [cells.pop((n, n), "") or cells.pop((n, 1), "") for n in COLUMNS]
        yield (*key, *main, "; ".join(f"{_numbers(*n)}{cell}" for n, cell in cells.items()))


def _line(row: CoverageRow) -> tuple[str, str, str, str]:
    """What the cells of a line share."""
    pairs = "" if row.correlation is None else f", r = {row.correlation:g}"
    if row.method in ("components", "item bootstrap") and row.n_b == 1:
        pairs = ", b without seeds"
    promised = "" if row.nominal is None else f"{100 * row.nominal:g}"
    return NAMES[row.method], row.design + pairs, row.target, promised


def _cell(row: CoverageRow) -> str:
    text = f"{100 * row.measured:.1f}"
    return f"**{text}**" if row.keeps is False else text


def _numbers(n_a: int, n_b: int) -> str:
    if n_a == n_b == 1:
        return ""  # two checkpoints
    return f"{n_a}: " if n_b in (1, n_a) else f"{n_a} v {n_b}: "
