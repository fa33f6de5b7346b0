"""A leaderboard in a few words: title, setting, and how its rows compare with the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mode

from bench.records.record import RunRecord
from bench.render.grid import BEST, SCALE, shorten_names
from bench.reports.campaign_setting import describe_setting, describe_title, is_synthetic
from bench.reports.tables.baseline_family import AHEAD, BEHIND, EQUAL, OPEN
from bench.reports.tables.leaderboard import Leaderboard, LeaderboardRow

_MOST_NAMES, _LONGEST = 6, 40  # of a verdict, and characters of each


@dataclass(frozen=True)
class BoardSummary:
    """The leaderboard of one profile and suite in words.

    Args:
        synthetic: True if its tasks are the program's own.
        seeds: Finished seeds of most rows; 0 without seeds.
        rows: Number of tested rows, of all finished rows where nothing is tested.
        verdict: Each answer with its words, such as ("ahead", "3 ahead of SimCSE: MET, MAT, ArcCon").
    """

    profile: str
    suite: str
    title: str
    setting: str
    synthetic: bool
    seeds: int
    rows: int
    verdict: tuple[tuple[str, str], ...]

    @property
    def sort_key(self) -> tuple[bool, int, str]:
        """Return the sort key: real text first, then most seeds times rows."""
        return self.synthetic, -self.rows * max(1, self.seeds), self.title


def summarise_board(
    table: Leaderboard, records: Sequence[RunRecord], names: Mapping[str, str]
) -> BoardSummary:
    """Return the words of a leaderboard; ``names`` are the printed names of its methods."""
    finished = [row for row in table.rows if row.finished]
    tested = [row for row in finished if row.rank is not None]
    counts = [row.finished for row in tested or finished if row.has_seeds]
    seeds = mode(counts) if counts else 0
    listed = {row.method for row in table.rows if not row.aside} or {row.method for row in table.rows}
    return BoardSummary(
        table.profile,
        table.suite,
        describe_title(records),
        describe_setting([record for record in records if record.method in listed]),
        is_synthetic(records),
        seeds,
        len(tested) or len(finished),
        tuple(_describe_verdict(table, tested, seeds, names)),
    )


def _describe_verdict(
    table: Leaderboard, tested: Sequence[LeaderboardRow], seeds: int, names: Mapping[str, str]
) -> list[tuple[str, str]]:
    if not tested and sum(row.finished > 0 for row in table.rows) == 1:
        return [("", "one row: nothing to compare")]
    if not tested:
        seeded = {0: "no seeds", 1: "one seed", 2: "two seeds"}.get(seeds, f"{seeds} seeds")
        return [("", f"{seeded}: nothing tested")]
    if not table.baseline:
        best = [names[row.method] for row in tested if row.cells["avg"].mark == BEST]
        if len(best) == len(tested):
            return [(OPEN, f"any of the {len(tested)} rows may be the best")]
        return [("", f"may be the best of {len(tested)} rows: {_join_names(best)}")]
    by_answer: dict[str, list[str]] = {AHEAD: [], BEHIND: [], EQUAL: [], OPEN: []}
    for row in tested:
        if row.against is not None and row.against.p is not None:
            by_answer[row.against.answer].append(names[row.method])
    ahead = by_answer[AHEAD]
    text = f"{len(ahead) or 'none'} ahead of {names[table.baseline]}"
    verdict = [(AHEAD if ahead else "", f"{text}: {_join_names(ahead)}" if ahead else text)]
    words = {BEHIND: "behind", EQUAL: f"equal within {SCALE * table.margin:g} points", OPEN: "open"}
    for answer, label in words.items():
        if by_answer[answer]:
            verdict.append((answer, f"{len(by_answer[answer])} {label}"))
    return verdict


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = shorten_names(names[:_MOST_NAMES], _LONGEST).values()
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
