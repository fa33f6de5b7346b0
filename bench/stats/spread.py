"""The spread over seeds and its uncertainty, for a design: the input of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import ArrayLike
from scipy.special import chdtri

from bench.stats.argument_checks import check_scores
from bench.stats.seed_pairs import paired_t

_SHARES = ((1 + 0.9) / 2, (1 - 0.9) / 2)  # of the interval of a spread


@dataclass(frozen=True)
class Spread:
    """Standard deviations over seeds, for a design: "pairs", two independent "sides", or "one side".

    Args:
        a: Of a's scores, or of the differences of pairs; above 0.
        b: Of b's scores, above 0, for "sides".
        pilot: Pairs, or seeds of the smaller side, of an estimate; ``df`` are its degrees of freedom.
    """

    design: Literal["pairs", "sides", "one side"]
    a: float
    b: float | None = None
    df: float | None = None
    pilot: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for impossible numbers."""
        deviations = [self.a] if self.b is None else [self.a, self.b]
        if not all(0 < sd < math.inf for sd in deviations) or not (self.df is None or self.df > 0):
            raise ValueError(f"standard deviations {deviations}, df={self.df}; expected positive numbers")
        if (self.design == "sides") != (self.b is not None):
            raise ValueError(f"{len(deviations)} standard deviation(s) for a design of {self.design}")

    def scaled(self, factor: float) -> Spread:
        """Return the spread times a factor."""
        return replace(self, a=self.a * factor, b=None if self.b is None else self.b * factor)

    def ends(self) -> tuple[float, float]:
        """Return sqrt(df / chi2(0.95, df)) and sqrt(df / chi2(0.05, df)), the ends over the estimate."""
        if self.df is None:
            return 1.0, 1.0
        low, high = (math.sqrt(self.df / float(chdtri(self.df, 1 - share))) for share in _SHARES)
        return low, high


def spread_of_pairs(a: ArrayLike, b: ArrayLike) -> Spread:
    """Spread of the differences of a pilot's pairs.

    >>> spread = spread_of_pairs([76.1, 76.4, 75.9], [75.8, 76.2, 75.7])
    >>> round(spread.a, 3), spread.b, spread.df, spread.pilot
    (0.058, None, 2.0, 3)
    """
    test = paired_t(a, b)
    if test.df is None:
        raise ValueError("the differences of the pairs don't vary; no number can be planned from that")
    return Spread("pairs", test.sd, None, test.df, test.n)


def spread_of_sides(a: ArrayLike, b: ArrayLike) -> Spread:
    """Spread of a pilot's two independent sides; of the side that varies where the other is one fixed score.

    The degrees of freedom are Satterthwaite's of s_a^2 + s_b^2.

    >>> spread = spread_of_sides([1, 2, 3], [2, 4, 6])
    >>> spread.a, spread.b, round(spread.df, 2), spread.pilot  # (1 + 4)^2 / (1 / 2 + 16 / 2)
    (1.0, 2.0, 2.94, 3)
    """
    sides = [check_scores(side, name, least=1) for side, name in ((a, "a"), (b, "b"))]
    # scores that differ, but for a variance that rounds to 0
    varying = [(sd, len(s)) for s in sides if s.min() < s.max() and (sd := float(s.std(ddof=1)))]
    if not varying:
        raise ValueError("no score varies over seeds; no number of seeds can be planned from that")
    total = sum(sd**2 for sd, _ in varying)
    df = total**2 / sum(sd**4 / (n - 1) for sd, n in varying)
    pilot = min(n for _, n in varying)
    if len(varying) == 1:
        return Spread("one side", varying[0][0], None, df, pilot)
    return Spread("sides", varying[0][0], varying[1][0], df, pilot)


def spread_of_correlated(sd: float, correlation: float, df: float | None = None) -> Spread:
    """Spread of pairs' differences, sd sqrt(2 (1 - r)), from one standard deviation and their correlation.

    >>> round(spread_of_correlated(0.8, 0.99).a, 3)
    0.113
    """
    if not -1 <= correlation < 1:
        raise ValueError(f"correlation={correlation}; expected a number in [-1, 1)")
    pilot = None if df is None else round(df) + 1
    return Spread("pairs", sd * math.sqrt(2 * (1 - correlation)), None, df, pilot)
