"""What a leaderboard says of methods that trained on unequal terms: amounts of text, a backbone's bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.compare.select import grouped
from bench.records.record import RunRecord
from bench.reports.records import by_method

_MOST_NAMES, _MOST_AMOUNTS = 3, 4


def budget_notes(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a line with the sentences that methods' longest training stages read, if they are unequal.

    The longest stage, since stages that methods share, and those of a teacher, stand in the record of each.
    Amounts that differ by less than a step are equal: a last batch is full.

    Args:
        records: Of one profile and suite.
        shown: What a method is called.
    """
    found = []
    for method, group in by_method(records).items():
        stages = [stage for record in group for stage in record.training.get("stages", {}).values()]
        read = [
            (stage["sentences_seen"], stage.get("steps")) for stage in stages if "sentences_seen" in stage
        ]
        if read:
            most, steps = max(read, key=lambda one: one[0])
            found.append((most, most / (steps or most or 1), method))
    found.sort(key=lambda one: (-one[0], one[2]))
    groups: list[list[tuple[int, float, str]]] = []
    for one in found:
        if groups and groups[-1][0][0] - one[0] < max(groups[-1][0][1], one[1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    if len(groups) < 2:
        return ()
    said = [f"{group[0][0]:,} ({_some([shown(method) for *_, method in group])})" for group in groups]
    kept = said if len(said) <= _MOST_AMOUNTS else [*said[: _MOST_AMOUNTS - 1], f"... {said[-1]}"]
    return (f"Unequal budgets, in sentences that a method's longest training stage read: {', '.join(kept)}.",)


def weight_notes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a line with the bytes that runs started from, if those of one recipe's backbone are unequal.

    Args:
        records: Of one profile and suite.
    """
    made = [record for record in records if "recipe" in (record.backbone or {})]
    groups = grouped(made, lambda record: (record.backbone or {})["sha256"][:12])
    if len(groups) < 2:
        return ()
    said = [f"{name} ({len(runs)} runs of {len(by_method(runs))} methods)" for name, runs in groups.items()]
    what = "The backbone was made on several kinds of processor, which give it other last bits"
    return (f"{what}: {', '.join(said)}.",)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
