"""Which rows of a suite are tested together, by rules that no score takes part in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bench.comparison.confounders import find_shared_stage
from bench.comparison.method_family import choose_plain_rows
from bench.records.imported import lacks_seed
from bench.records.record import RunRecord, is_supervised
from bench.reports.record_groups import by_method, finished_records, is_ranked

SUPERVISED, COPIES = "supervised", "trained on the made-up world's own paraphrases"
VARIANT, ONE_SEED = "with other options", "with one seed"
DEPENDENT = "whose seeds share a trained stage"
NO_RUN = "without a finished run"
UNKNOWN_SEED = "one result, of an unknown seed"


_HIDDEN = (VARIANT, ONE_SEED, SUPERVISED)


@dataclass(frozen=True)
class MethodFamily:
    """The rows that are tested together, and the others.

    Args:
        tested: Ids of the rows that tests are given.
        aside: Why each other row isn't tested: one of the reasons above, by the row's id.
        hidden: Those of ``aside`` that a table for readers leaves out.
    """

    tested: tuple[str, ...]
    aside: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def describe_hidden(self) -> str:
        """Count the hidden rows by their reason in one line, or return ""."""
        counts = Counter(self.aside[method] for method in self.hidden)
        parts = [f"{counts[reason]} {reason}" for reason in _HIDDEN if counts[reason]]
        return f"Set aside: {', '.join(parts)}; --all-rows lists them." if parts else ""


def choose_family(
    records: Sequence[RunRecord], *, named: Sequence[str] = (), rank_supervised: bool = False
) -> MethodFamily:
    """Choose the rows of one profile and suite that are tested together.

    These are the rows of ``named``, if any; otherwise the rows at the profile's options; and all rows, if
    fewer than three of these have two seeds. Rows without seeds belong to it as constants, but for imported
    results beside rows with seeds, as nobody knows their seed. Rows of a single seed, supervised rows (unless
    ``rank_supervised``), rows trained on the made-up world's own paraphrases, and rows whose seeds share a
    trained stage are listed but not tested.
    """
    runs = by_method(records)
    obstacles = {}
    for method, of_method in runs.items():
        if reason := _find_obstacle(of_method, rank_supervised=rank_supervised):
            obstacles[method] = reason
    if any(record.seed is not None for record in records):  # then such a row is no fixed score
        for method, of_method in runs.items():
            if lacks_seed(of_method):
                obstacles.setdefault(method, UNKNOWN_SEED)
    chosen: Collection[str] | None = [method for method in runs if method in named]
    if not named:
        seeded = {}
        for method, of_method in runs.items():
            has_seeds = any(record.seed is not None for record in of_method)
            seeded[method] = has_seeds and method not in obstacles
        chosen = choose_plain_rows(seeded)
    whole, chosen = chosen is None, list(runs) if chosen is None else chosen
    aside = {method: VARIANT for method in runs if method not in chosen} | obstacles
    if named or whole:  # a test of a row with one seed says what it lacks
        aside = {method: reason for method, reason in aside.items() if reason != ONE_SEED}
        hidden: frozenset[str] = frozenset()
    else:
        hidden = frozenset(method for method, reason in aside.items() if reason in _HIDDEN)
    tested = tuple(method for method in chosen if method not in aside)
    return MethodFamily(tested, aside, hidden)


def _find_obstacle(records: Sequence[RunRecord], *, rank_supervised: bool) -> str | None:
    """Return why a row can't be tested over seeds with the others, or None."""
    done = finished_records(records)
    if not done:
        return NO_RUN
    if is_supervised(done[0]) and not rank_supervised:
        return SUPERVISED
    if not all(is_ranked(record, supervised=True) for record in records):
        return COPIES
    seeded = [record for record in done if record.seed is not None]
    if len(seeded) == 1:
        return ONE_SEED
    return DEPENDENT if find_shared_stage(seeded) else None
