"""The answer of a comparison of two rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.api.notebook_tables import render_html
from bench.comparison import comparison as comparisons
from bench.comparison.wording import describe_comparison, describe_verdict, format_answer
from bench.render.grid import SCALE
from bench.reports.tables.comparison_tables import comparison_grid

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Comparison:
    """Difference of two rows, first - second, in points; :meth:`bench.api.results.Results.compare` makes it.

    Args:
        found: All findings, in the metric's unit.
        messages: Lines that the command would print on stderr.

    >>> import bench
    >>> bench.results("results/mini").compare("tncse", "untrained", seeds_only=True).significant
    True
    """

    found: comparisons.Comparison
    messages: tuple[str, ...] = ()

    @property
    def estimate(self) -> float:
        """The difference of the averages, in points.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> answer.interval[0] < answer.estimate < answer.interval[1]
        True
        """
        return SCALE * self.found.headline.difference

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its confidence interval in points; None where the test has none, such as an exact test.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> [round(end, 2) for end in answer.interval]
        [-0.28, 0.03]
        """
        ends = self.found.headline.interval
        return None if ends is None else (SCALE * ends[0], SCALE * ends[1])

    @property
    def p(self) -> float:
        """The p value of the verdict.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> 0.05 < answer.p < 0.1
        True
        """
        return self.found.headline.final_p

    @property
    def significant(self) -> bool:
        """True if the test separates the rows at the level of the interval.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> answer.significant
        False
        """
        return self.found.headline.verdict == "differs"

    @property
    def verdict(self) -> str:
        """One sentence: the population, the verdict, the size, and the test.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> answer.verdict[:29]
        'New seeds, these items: no si'
        """
        return f"{describe_verdict(self.found)}."

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that both rows have; () for rows without seeds.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> answer.seeds
        (1, 2, 3, 4, 5)
        """
        first, second = self.found.seeds
        return tuple(seed for seed in first if seed in second)

    @property
    def notes(self) -> tuple[str, ...]:
        """Every sentence of ``bench compare --details``: tests, cross-checks, confounders.

        >>> import bench
        >>> len(bench.results("results/mini").compare("tncse", "simcse", seeds_only=True).notes) > 3
        True
        """
        return tuple(describe_comparison(self.found))

    @property
    def tasks(self) -> DataFrame:
        """A row for each task, ``avg`` the last: both means and their difference, in points.

        >>> import bench
        >>> frame = bench.results("results/mini").compare("tncse", "simcse", seeds_only=True).tasks
        >>> frame.columns.tolist(), frame.task.iloc[-1]
        (['task', 'first', 'second', 'difference'], 'avg')
        """
        from pandas import DataFrame

        rows = []
        for task, (first, second) in self.found.means.items():
            rows.append((task, SCALE * first, SCALE * second, SCALE * (first - second)))
        return DataFrame(rows, columns=["task", "first", "second", "difference"])

    def to_dict(self) -> dict[str, Any]:
        """Return every finding as plain values, in the metric's unit.

        >>> import bench
        >>> facts = bench.results("results/mini").compare("tncse", "simcse", seeds_only=True).to_dict()
        >>> facts["profile"], facts["suite"]
        ('mini', 'mini')
        """
        return asdict(self.found)

    def __repr__(self) -> str:
        """Return the answer in one line, as ``bench compare`` prints it."""
        return format_answer(self.found)

    def _repr_html_(self) -> str:
        lines = [*describe_comparison(self.found), *self.found.notes]
        grid = replace(comparison_grid(self.found), notes=tuple(dict.fromkeys(lines)))
        return render_html([grid], [format_answer(self.found)])
