"""Correction of p values for the number of comparisons, with the family named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

METHODS = {"holm": "Holm", "fdr_bh": "Benjamini-Hochberg"}


@dataclass(frozen=True)
class Adjusted:
    """One comparison of a family.

    Args:
        p: Its p before correction.
        adjusted: And after it.
        minimum: The smallest adjusted p that its test can give, the other comparisons being as they are.
    """

    p: float
    adjusted: float
    minimum: float


@dataclass(frozen=True)
class Family:
    """Comparisons that were corrected together.

    Args:
        name: What they are, for the caption: "new method against the baselines".
        correction: "Holm" or "Benjamini-Hochberg".
        comparisons: Each by its name.
    """

    name: str
    correction: str
    comparisons: dict[str, Adjusted]

    @property
    def caption(self) -> str:
        """The family in words."""
        return caption(self.correction, len(self.comparisons), self.name)


def caption(correction: str, number: int, name: str) -> str:
    """A family in words."""
    return f"{correction} over {number} comparison{'s' * (number != 1)} ({name})"


def holm(p: Mapping[str, float], name: str, minimum_p: Mapping[str, float] | None = None) -> Family:
    """Holm's step-down correction (1979): bounds the chance of any false claim in the family.

    Args:
        p: The p of every comparison, by its name.
        name: What the family is.
        minimum_p: The smallest p of each one's test; those not named have none (0).

    Raises:
        ValueError: no comparison, no name, or a p outside [0, 1] or below its minimum.
    """
    return _correct(p, name, minimum_p or {}, "holm")


def benjamini_hochberg(
    p: Mapping[str, float], name: str, minimum_p: Mapping[str, float] | None = None
) -> Family:
    """Benjamini and Hochberg's correction (1995): bounds the expected share of false ones among the claims.

    For exploratory grids. Arguments and errors as ``holm``.
    """
    return _correct(p, name, minimum_p or {}, "fdr_bh")


def _correct(p: Mapping[str, float], name: str, minimum_p: Mapping[str, float], method: str) -> Family:
    if not p or not name.strip():
        raise ValueError(f"family '{name}' of {len(p)} comparisons; expected a name and at least one")
    if unknown := sorted(minimum_p.keys() - p.keys()):
        raise ValueError(f"minimum p of {unknown}, which are no comparisons of the family")
    for key, value in p.items():
        if not 0 <= minimum_p.get(key, 0.0) <= value <= 1:
            raise ValueError(f"{key}: p={value}, minimum_p={minimum_p.get(key, 0.0)}; expected p in [0, 1]")
    names, values = list(p), list(p.values())
    adjusted = adjust(values, method)
    comparisons = {}
    for i, key in enumerate(names):
        at_best = [*values[:i], minimum_p.get(key, 0.0), *values[i + 1 :]]
        comparisons[key] = Adjusted(values[i], adjusted[i], adjust(at_best, method)[i])
    return Family(name, METHODS[method], comparisons)


def adjust(values: Sequence[float], method: str) -> list[float]:
    """Return the corrected p of each, for "holm" or "fdr_bh"; see the functions of a whole family."""
    return [float(value) for value in multipletests(list(values), method=method)[1]]
