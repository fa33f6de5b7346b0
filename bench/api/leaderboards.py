"""A campaign's leaderboard as a table, a text, or LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.api.notebook_tables import render_html
from bench.cli.terminal import get_screen
from bench.errors import InputError
from bench.render.grid import SCALE
from bench.render.latex import DEVIATIONS
from bench.render.row_names import mark_rows
from bench.reports import method_choice
from bench.reports.campaign import Campaign
from bench.reports.report import TableOptions, render_report
from bench.reports.short_report import render_short_report
from bench.reports.tables.baseline_answers import describe_answers
from bench.reports.tables.leaderboard import LeaderboardRow, all_leaderboards, make_leaderboard_grid

if TYPE_CHECKING:
    from pandas import DataFrame

_TABLE = "leaderboard"
_ANSWER = 300  # characters


class Leaderboard:
    """The leaderboard of every profile and suite of some results; shows itself as text or HTML.

    >>> import bench
    >>> str(bench.results("results/mini").leaderboard("simcse"))[:14]
    'Against SimCSE'
    """

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign

    def to_dataframe(self) -> DataFrame:
        """Return a row for each row of the leaderboard, in points.

        Columns: profile, suite, method (its id), seeds (finished runs; missing for rows without seeds),
        failed, avg, sd (over seeds), one for each task, difference from the baseline with the ends low and
        high of its interval, p, answer, and rank_low and rank_high, the 95% confidence set of its rank.

        >>> import bench
        >>> frame = bench.results("results/mini").leaderboard("simcse").to_dataframe()
        >>> frame.set_index("method").loc["tncse", "answer"]
        'open'
        """
        from pandas import DataFrame

        rows = []
        for table in all_leaderboards(self.campaign):
            for row in table.rows:
                rows.append(
                    {"profile": table.profile, "suite": table.suite, **_row_facts(row, table.baseline)}
                )
        frame = DataFrame(rows)
        return frame.astype({"seeds": "Int64"}) if rows else frame

    def to_markdown(self) -> str:
        """Return the tables and their notes as Markdown.

        >>> import bench
        >>> "| method" in bench.results("results/mini").leaderboard("simcse").to_markdown()
        True
        """
        return render_report(self.campaign, "markdown", _TABLE)

    def to_latex(self, *, sd: str = "avg") -> str:
        r"""Return LaTeX tables with published names.

        Args:
            sd: Columns with standard deviations: "avg", "all" or "none".

        >>> import bench
        >>> r"\begin{tabular}" in bench.results("results/mini").leaderboard("simcse").to_latex()
        True
        """
        if sd not in DEVIATIONS:
            raise InputError(f"sd={sd!r}", where="to_latex", expected=f"one of {', '.join(DEVIATIONS)}")
        return render_report(self.campaign, "latex", _TABLE, TableOptions(sd=sd))

    @property
    def notes(self) -> tuple[str, ...]:
        """Every line below the tables: tests, budgets, texts, options that names leave out.

        >>> import bench
        >>> len(bench.results("results/mini").leaderboard("simcse").notes) > 5
        True
        """
        named = method_choice.use_short_ids(self.campaign)
        grids = [make_leaderboard_grid(table, data=False) for table in all_leaderboards(named)]
        marked = (mark_rows(grid, named.footnotes) for grid in grids)
        return tuple(dict.fromkeys(note for grid in marked for note in grid.notes))

    def __str__(self) -> str:
        """Return the answer, the tables and at most three notes, as ``bench report`` prints them."""
        text = render_short_report(self.campaign, TableOptions(screen=get_screen()), _TABLE)
        return text.replace(": --details\n", ": .notes\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        named = method_choice.use_short_ids(self.campaign)
        answers, grids = [], []
        for table in all_leaderboards(named):
            answers.append(describe_answers(table, _ANSWER))
            grids.append(mark_rows(make_leaderboard_grid(table, data=False), named.footnotes))
        return render_html(grids, answers)


def _row_facts(row: LeaderboardRow, baseline: str) -> dict[str, Any]:
    cells, against = row.cells, row.against
    seeds = row.finished if row.has_seeds else None
    facts: dict[str, Any] = {"method": row.method, "seeds": seeds, "failed": row.failed}
    facts |= {"avg": _in_points(row.average), "sd": _in_points(cells["avg"].sd)}
    facts |= {task: _in_points(cell.mean) for task, cell in cells.items() if task != "avg"}
    low, high = (against.interval if against else None) or (None, None)
    difference = against.difference if against else None
    facts |= {"difference": _in_points(difference), "low": _in_points(low), "high": _in_points(high)}
    answer = "baseline" if row.method == baseline else row.answer
    facts |= {"p": against.p if against else None, "answer": answer}
    first, last = row.rank or (None, None)
    return facts | {"rank_low": first, "rank_high": last}


def _in_points(value: float | None) -> float | None:
    return None if value is None else SCALE * value
