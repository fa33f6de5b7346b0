"""Correction of p values for the number of comparisons, in a named family."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bench.stats.argument_checks import check_level

K = TypeVar("K", bound=Hashable)
METHODS = {"holm": "Holm", "fdr_bh": "Benjamini-Hochberg"}


@dataclass(frozen=True)
class Adjusted:
    """One comparison of a family; ``minimum`` is its smallest attainable adjusted p, given the others."""

    p: float
    adjusted: float
    minimum: float


@dataclass(frozen=True)
class Family:
    """Comparisons by name that were corrected together; ``name`` is for the caption."""

    name: str
    correction: str
    comparisons: dict[str, Adjusted]

    @property
    def caption(self) -> str:
        """The family in words."""
        return describe_family(self.correction, len(self.comparisons), self.name)


def describe_family(correction: str, number: int, name: str) -> str:
    """A family in words."""
    return f"{correction} over {number} comparison{'s' * (number != 1)} ({name})"


def holm(p: Mapping[str, float], name: str, minimum_p: Mapping[str, float] | None = None) -> Family:
    """Holm's step-down correction (1979) of p by name: bounds the chance of any false claim in the family.

    >>> family = holm({"simcse": 0.01, "whitening": 0.04, "untrained": 0.03}, "ours against the baselines")
    >>> {name: round(one.adjusted, 3) for name, one in family.comparisons.items()}
    {'simcse': 0.03, 'whitening': 0.06, 'untrained': 0.06}
    >>> family.caption
    'Holm over 3 comparisons (ours against the baselines)'
    """
    return _correct_family(p, name, minimum_p or {}, "holm")


def benjamini_hochberg(
    p: Mapping[str, float], name: str, minimum_p: Mapping[str, float] | None = None
) -> Family:
    """Benjamini and Hochberg's correction (1995): bounds the expected share of false claims among all claims.

    >>> family = benjamini_hochberg({"tau 0.01": 0.01, "tau 0.05": 0.04, "tau 0.1": 0.03}, "grid of tau")
    >>> [round(one.adjusted, 3) for one in family.comparisons.values()]
    [0.03, 0.04, 0.04]
    """
    return _correct_family(p, name, minimum_p or {}, "fdr_bh")


def _correct_family(p: Mapping[str, float], name: str, minimum_p: Mapping[str, float], method: str) -> Family:
    if not p or not name.strip():
        raise ValueError(f"family '{name}' of {len(p)} comparisons; expected a name and at least one")
    if unknown := sorted(minimum_p.keys() - p.keys()):
        raise ValueError(f"minimum p of {unknown}; expected comparisons of the family")
    for key, value in p.items():
        if not 0 <= minimum_p.get(key, 0.0) <= value <= 1:
            raise ValueError(f"{key}: p={value}, minimum_p={minimum_p.get(key, 0.0)}; expected p in [0, 1]")
    names, values = list(p), list(p.values())
    adjusted = adjust_p_values(values, method)
    comparisons = {}
    for i, key in enumerate(names):
        at_best = [*values[:i], minimum_p.get(key, 0.0), *values[i + 1 :]]
        comparisons[key] = Adjusted(values[i], adjusted[i], adjust_p_values(at_best, method)[i])
    return Family(name, METHODS[method], comparisons)


def adjust_p_values(values: Sequence[float], method: str) -> list[float]:
    """Return corrected p values by "holm" or "fdr_bh"; ``holm`` and ``benjamini_hochberg`` check a family.

    With p sorted, p_(1) <= ... <= p_(n): Holm gives max over j <= i of (n - j + 1) p_(j), Benjamini-Hochberg
    min over j >= i of n p_(j) / j, both at most 1.

    >>> [round(p, 2) for p in adjust_p_values([0.01, 0.04, 0.03], "holm")]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(values, dtype=np.float64)
    order, ranks = np.argsort(p), np.arange(1, len(p) + 1)
    if method == "holm":
        adjusted = np.maximum.accumulate(p[order] * ranks[::-1])
    else:
        adjusted = np.minimum.accumulate((p[order] / (ranks / len(p)))[::-1])[::-1]
    result = np.empty(len(p))
    result[order] = np.minimum(adjusted, 1)
    return [float(value) for value in result]


def adjust_levels(p: Mapping[K, float], method: str, level: float = 0.95) -> dict[K, float]:
    """Return for each comparison the level at which its interval agrees with its corrected p.

    With p sorted and R of n rejected at alpha: the i-th rejected gets 1 - alpha / (n - i + 1) after Holm, the
    level of its own step, and 1 - R alpha / n after Benjamini-Hochberg (Benjamini and Yekutieli 2005, J. Am.
    Stat. Assoc. 100). All others get 1 - alpha / n. So an interval that is dual to its test excludes 0
    exactly if the corrected p is at most alpha.

    >>> levels = adjust_levels({"a": 0.01, "b": 0.03, "c": 0.2}, "holm", 0.94)
    >>> {name: round(level, 3) for name, level in levels.items()}
    {'a': 0.98, 'b': 0.97, 'c': 0.98}
    """
    check_level(level)
    if wrong := [value for value in p.values() if not 0 <= value <= 1]:
        raise ValueError(f"p={wrong[0]}; expected p in [0, 1]")
    alpha, n = 1 - level, len(p)
    adjusted = dict(zip(p, adjust_p_values(list(p.values()), method), strict=True))
    levels = {name: 1 - alpha * (1 / n) for name in p}
    rejected = [name for name in sorted(p, key=lambda name: p[name]) if adjusted[name] <= alpha]
    for place, name in enumerate(rejected):
        levels[name] = 1 - alpha * (1 / (n - place) if method == "holm" else len(rejected) / n)
    return levels
