"""The table of rank correlations of what is probed with a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.render.grid import DASH, Grid
from bench.reports.tables.relation import HELD, Relation, Rho
from bench.stats.coverage import find_coverage
from bench.stats.inputs import MIN_PAIRS

CLOSE = 0.7  # coverage was measured where both sides correlate by 0.5 with what is held fixed, and by 0.9


@dataclass(frozen=True)
class RelationWords:
    """How a table speaks of its points.

    Args:
        points: What they are, several.
        score: The score.
        means: What a point is the mean of, "" for nothing.
        independent: Which of them count as one.
    """

    points: str
    score: str
    means: str
    independent: str


def relation_grid(title: str, found: Sequence[Relation], words: RelationWords) -> Grid:
    """Return the table of some relations: a row a quantity."""
    rows = [_relation_row(one) for one in found]
    header = (
        *("quantity", words.points, "independent", f"rho with {words.score}", "95% interval"),
        *("uniformity fixed", "its 95% interval", "rho with uniformity"),
    )
    notes = [
        f"rho: Spearman's over {words.points}{words.means}; uniformity fixed: the partial one. Intervals: "
        "Bonett and Wright (2000), with the number of independent ones in place of n, each uncorrected for "
        "the others.",
        f"independent: {words.independent}",
        *_coverage_note(found),
        *_omission_notes(found),
    ]
    if any(one.independent <= MIN_PAIRS for one in found):
        notes.append(
            f"An interval takes {MIN_PAIRS} independent ones, with uniformity fixed {MIN_PAIRS + 1}."
        )
    if any(_lacks_rho(one) for one in found):
        notes.append(
            f"No rho: it takes {MIN_PAIRS} {words.points} that aren't all equal; with uniformity fixed "
            f"{MIN_PAIRS + 1}, the uniformity of each, and an order other than it or its reverse. 1 and -1 "
            "have no interval."
        )
    return Grid(title, header, tuple(rows), tuple(notes))


def _lacks_rho(one: Relation) -> bool:
    """True where a rho is lacking or as large as it can be."""
    values = [one.rho.value] if one.quantity == HELD else [one.rho.value, one.partial.value]
    return any(value is None or abs(value) == 1 for value in values)


def _relation_row(one: Relation) -> tuple[str, ...]:
    return (
        *(one.quantity, str(len(one.points)), str(one.independent)),
        *(rho_value(one.rho.value), rho_ends(one.rho), rho_value(one.partial.value), rho_ends(one.partial)),
        rho_value(one.with_uniformity),
    )


def describe_rho(rho: Rho) -> str:
    """Say a rank correlation and its interval.

    >>> describe_rho(Rho(0.8, 0.1, 0.95)), describe_rho(Rho(1.0))
    ('+0.80, 95% interval [+0.10, +0.95]', '+1.00')
    """
    return (
        rho_value(rho.value) if rho.low is None else f"{rho_value(rho.value)}, 95% interval {rho_ends(rho)}"
    )


def rho_value(value: float | None) -> str:
    """A rank correlation with its sign."""
    return DASH if value is None else f"{value:+.2f}"


def rho_ends(rho: Rho) -> str:
    """The interval of a rank correlation."""
    return DASH if rho.low is None else f"[{rho_value(rho.low)}, {rho_value(rho.high)}]"


def _coverage_note(found: Sequence[Relation]) -> Iterator[str]:
    """How often such intervals held in simulations: of those that fit these rows the one that held least."""
    rows = {
        "": [
            find_coverage("rank correlation", one.independent, one.independent, abs(one.rho.value or 0))
            for one in found
            if one.rho.low is not None
        ],
        " with uniformity fixed": [
            find_coverage(
                *("partial rank correlation", one.independent, one.independent, abs(one.partial.value or 0)),
                design=_simulated_design(one),
            )
            for one in found
            if one.partial.low is not None
        ],
    }
    worst = {what: min(fit, key=lambda row: row.measured) for what, fit in rows.items() if fit}
    if worst:
        said = (f"{100 * row.measured:.0f}%{what} (n = {row.n_a})" for what, row in worst.items())
        yield f"In the simulations that fit, 95% intervals hold the true rho in at least {', '.join(said)}."


def _simulated_design(one: Relation) -> str:
    """The simulation in which both sides go with what is held fixed as far as these do, or further."""
    return f"normal, z {0.9 if abs(one.with_uniformity or 0) > CLOSE else 0.5}"


def _omission_notes(found: Sequence[Relation]) -> Iterator[str]:
    """Who is left out of which rows, a line a reason."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in found:
        for method, why in one.left_out.items():
            rows.setdefault((method, why), []).append(one.quantity)
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (method, why), quantities in rows.items():
        lines.setdefault((why, tuple(quantities)), []).append(method)
    for (why, of_rows), methods in lines.items():
        of = "all rows" if len(of_rows) == len(found) else ", ".join(of_rows)
        yield f"Left out of {of}: {', '.join(methods)} ({why})."
