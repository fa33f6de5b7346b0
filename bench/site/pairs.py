"""Every two methods of a campaign compared beforehand, for the page that compares by its address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from bench.comparison.comparison import compare
from bench.comparison.evidence import DrawItems
from bench.comparison.item_bootstrap import Drawn, Run, stored_draws
from bench.comparison.render import statements, verdict
from bench.comparison.select import Group, by_seed
from bench.errors import BenchError, printable
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, finished
from bench.reports.tables.pairwise_tests import Standings, interval_text, standings, tests_in_words


def pairs(campaign: Campaign) -> list[dict[str, Any]]:
    """Return what ``bench compare`` says of every two methods, a block a profile and suite.

    Each block has "profile", "suite", "rows" (method ids), "texts" (sentences, each once) and "pairs": places
    of both rows, then the numbers of their sentences. The last is what the leaderboard says of the two, by
    Holm's correction over all its pairs; the others hold for a pair that was chosen before the scores were
    looked at.
    """
    found = []
    for records in by_profile_and_suite(campaign.records):
        done = finished(records)
        if len({record.method for record in done}) > 1:
            found.append(_block(campaign, done))
    return found


def _block(campaign: Campaign, records: Sequence[RunRecord]) -> dict[str, Any]:
    groups = {
        method: Group(method, tuple(by_seed(Run(campaign.home(record), record) for record in runs)))
        for method, runs in by_method(records).items()
    }
    rows, texts = list(groups), dict[str, int]()
    drawn = {name for name, group in groups.items() if all(stored_draws(r) is not None for r in group.runs)}
    standing = standings(campaign, records)
    lines = []
    for i, j in combinations(range(len(rows)), 2):
        a, b = rows[i], rows[j]
        draw = _kept if {a, b} <= drawn else None
        said = [*_alone(groups[a], groups[b], draw), _among(standing, a, b)]
        lines.append([i, j, *(texts.setdefault(printable(text), len(texts)) for text in said)])
    place = {"profile": records[0].profile, "suite": records[0].suite}
    return place | {"rows": rows, "texts": list(texts), "pairs": lines}


def _alone(a: Group, b: Group, draw: DrawItems | None) -> list[str]:
    """The verdict and what else is said of one pair by itself, or why nothing is."""
    try:
        found = compare(a, b, draw=draw)
        return [f"{verdict(found)}.", *statements(found)]
    except BenchError as error:
        return [f"Not compared: {error.what}."]


def _kept(runs: Sequence[Run]) -> Iterator[Drawn]:
    """Draws of the items that ``bench stats`` left; none are made here, and nothing is written."""
    for run in runs:
        values = stored_draws(run)
        if values is not None:
            yield Drawn(values, None)


def _among(standing: Standings, a: str, b: str) -> str:
    ranking = standing.of()
    try:
        one = ranking.pair(a, b)
    except KeyError:
        return "Not among the pairs of the leaderboard: supervised methods are not tested against others."
    if one.p is None or one.adjusted is None:
        return f"Not tested among the pairs of the leaderboard: {one.test}."
    said = "differ" if one.differs else "are not shown to differ"
    ends = interval_text(standing, a, b)
    return (
        f"Among all pairs the two {said}: p corrected {one.adjusted:.4f}, interval of {a} - {b} {ends}, "
        f"by {tests_in_words(ranking)}."
    )
