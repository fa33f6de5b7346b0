"""Leaderboards: a row a method, a table a profile and suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from bench.records.record import RunRecord, count_training_sentences, sum_training_seconds
from bench.render.grid import (
    BEST,
    CAPTION,
    DASH,
    Grid,
    Printed,
    ScoreCell,
    Value,
    format_number,
    format_score,
    hide_deviation,
    mark_best,
)
from bench.reports.campaign import Campaign
from bench.reports.record_groups import (
    UNREADABLE,
    by_method,
    by_profile_and_suite,
    encoder_group,
    failure_reasons,
    finished_records,
    is_ranked,
    label_lines,
    main_metric,
    measured_by_mteb,
    record_notes,
    summarise_scores,
    task_list,
)
from bench.reports.tables.pairwise_tests import (
    BOLD,
    NO_BOLD,
    baseline_daggers,
    describe_tests,
    ranking_notes,
    run_pairwise_tests,
    uneven_seed_notes,
)
from bench.reports.tables.training_setup import (
    budget_notes,
    dev_notes,
    member_notes,
    processor_notes,
    selection_notes,
    setting_notes,
    text_notes,
    weight_notes,
)

if TYPE_CHECKING:
    from bench.stats.ranks import Ranking

OVER_SEEDS = "Mean and standard deviation over"
"""How the note on the number of seeds begins."""
OF_COLUMNS = ("group:", "Methods that share none", "rank:")
"""How the notes on the columns of ranks and groups begin."""


@dataclass(frozen=True)
class LeaderboardRow:
    """One method.

    Args:
        method: Method id.
        cells: By task, "avg" among them.
        failed: Seeds that failed, or have unreadable records.
        sentences: Training sentences seen by one run, all stages; None for an untrained method.
        cpu_seconds: CPU seconds of its training, mean over the seeds.
        reasons: Why seeds failed.
        ranked: False below the ranked rows, see :func:`bench.reports.record_groups.is_ranked`.
        group: See :func:`bench.reports.record_groups.encoder_group`.
        unreadable: Why records of seeds are unreadable.
        has_seeds: False for a deterministic method.
        rank: First and last rank of its confidence set; None without tests.
        letters: Its groups; empty without tests.
    """

    method: str
    cells: dict[str, ScoreCell]
    failed: int
    sentences: int | None = None
    cpu_seconds: float | None = None
    reasons: tuple[str, ...] = ()
    ranked: bool = True
    group: str = ""
    unreadable: tuple[str, ...] = ()
    has_seeds: bool = True
    rank: tuple[int, int] | None = None
    letters: str = ""

    @property
    def finished(self) -> int:
        """Number of seeds that finished."""
        return max(cell.n for cell in self.cells.values())

    @property
    def seeds(self) -> str:
        """Finished seeds, of how many if some failed; a dash for a deterministic method."""
        if not (self.has_seeds or self.failed):
            return DASH
        return f"{self.finished} of {self.finished + self.failed}" if self.failed else str(self.finished)

    @property
    def rank_text(self) -> str:
        """Printed ranks."""
        if self.rank is None:
            return DASH
        return "-".join(map(str, dict.fromkeys(self.rank)))

    @property
    def sentences_text(self) -> str:
        """Printed training sentences."""
        return format_number(self.sentences, ",")

    @property
    def seconds_text(self) -> str:
        """Printed CPU seconds."""
        return format_number(self.cpu_seconds, ".0f")

    @property
    def average(self) -> float | None:
        """The average's mean."""
        return self.cells["avg"].mean


@dataclass(frozen=True)
class Leaderboard:
    """A leaderboard of one profile and suite.

    Args:
        campaign: Name of the campaign.
        profile: Profile.
        suite: Suite.
        tasks: Names, "avg" the last.
        rows: The best average first.
        notes: Lines below it.
        bold: Caption of bold cells, or of their absence.
        tests: Description of the tests between methods, or "".
    """

    campaign: str
    profile: str
    suite: str
    tasks: tuple[str, ...]
    rows: tuple[LeaderboardRow, ...]
    notes: tuple[str, ...]
    bold: str
    tests: str

    @property
    def caption(self) -> str:
        """Caption of bold cells, with their tests."""
        return f"{self.bold.rstrip('.')}, p > 0.05 by {self.tests}." if self.tests else self.bold


def leaderboard_grids(campaign: Campaign) -> list[Grid]:
    """Return the printed leaderboard of every profile and suite."""
    return list(map(_leaderboard_grid, all_leaderboards(campaign)))


def all_leaderboards(campaign: Campaign) -> list[Leaderboard]:
    """Return a table for every profile and suite, best average first."""
    tables = []
    for records in by_profile_and_suite(campaign.records):
        table = make_leaderboard(campaign, records)
        rows = tuple(replace(row, method=campaign.shown(row.method)) for row in table.rows)
        tables.append(replace(table, rows=rows))
    return tables


def make_leaderboard(campaign: Campaign, records: Sequence[RunRecord]) -> Leaderboard:
    """Return the table of the records of one profile and suite; its rows have the ids of the methods."""
    tasks, supervised = task_list(records), campaign.rank_supervised
    rows = [_method_row(m, runs, tasks, supervised=supervised) for m, runs in by_method(records).items()]
    rows.sort(
        key=lambda row: (not row.ranked and not campaign.given, *campaign.place(row.method, row.average))
    )
    pairwise, ranked = run_pairwise_tests(campaign, records), ranked_methods(rows)
    rankings = {task: pairwise.of(task).among(ranked) for task in tasks}
    average = rankings["avg"]
    reasons = _unranked_reasons(campaign, rows)
    signs, dagger_notes = baseline_daggers(average, campaign.baseline, campaign.shown, reasons)
    rows = [_mark_row(row, rows, rankings, signs.get(row.method, "")) for row in rows]
    setup_notes = (
        *ranking_notes(average, uneven_seed_notes(pairwise), campaign.shown),
        *dagger_notes,
        *setting_notes(records, campaign.shown),
        *budget_notes(records, campaign.shown),
        *text_notes(records, campaign.shown),
        *member_notes(records, campaign.shown),
        *weight_notes(records),
        *processor_notes(records),
        *_selection_note(campaign, records),
        *campaign.apart_note(row.method for row in rows),
    )
    notes = _table_notes(campaign, records, rows, setup_notes)
    tests = describe_tests(average) if average.methods else ""
    bold = _bold_caption(rows, rankings)
    place = (campaign.name, records[0].profile, records[0].suite)
    return Leaderboard(*place, tasks, tuple(rows), notes, bold, tests)


def _bold_caption(rows: Sequence[LeaderboardRow], rankings: Mapping[str, Ranking]) -> str:
    """Caption of bold cells, or of their absence, or ""."""
    if has_marks(rows):
        return f"{BOLD}." if rankings["avg"].methods else CAPTION
    told_apart = any(pair.differs for ranking in rankings.values() for pair in ranking.pairs)
    return NO_BOLD if rankings["avg"].methods and not told_apart else ""


def ranked_methods(rows: Sequence[LeaderboardRow]) -> set[str]:
    """Return the methods of the ranked rows."""
    return {row.method for row in rows if row.ranked}


def has_marks(rows: Sequence[LeaderboardRow]) -> bool:
    """Return True for rows with a marked cell."""
    return any(cell.mark for row in rows for cell in row.cells.values())


def _mark_row(
    row: LeaderboardRow, rows: Sequence[LeaderboardRow], rankings: Mapping[str, Ranking], sign: str
) -> LeaderboardRow:
    """The row with its marks, rank and groups among the ranked ones.

    Bold is the first group of a column (:func:`_first_group`). Without tests, the best and the second
    numbers are marked.
    """
    if not row.ranked:
        return row
    cells, average = {}, rankings["avg"]
    for task, cell in row.cells.items():
        means = {other.method: other.cells[task].mean for other in rows if other.ranked}
        mark = BEST if row.method in _first_group(rankings[task], means) else ""
        if not average.methods:
            mark = mark_best(means)[row.method]
        cells[task] = replace(cell, mark=mark, sign=sign if task == "avg" else "")
    rank, letters = average.intervals.get(row.method), average.letters.get(row.method, "")
    return replace(row, cells=cells, rank=rank, letters=letters)


def _first_group(ranking: Ranking, means: Mapping[str, float | None]) -> tuple[str, ...]:
    """The first group of a column, if tests separate it from the next method, and no method is better."""
    first = ranking.first
    if not first or len(first) == len(ranking.methods):
        return ()
    separated, following = False, ranking.methods[len(first)]
    for method in first:
        if ranking.intervals[method][0] > 1:
            return ()
        separated = separated or ranking.pair(method, following).differs
    untested = any((means[method] or 0.0) > ranking.scores[0] for method in ranking.left_out)
    return first if separated and not untested else ()


def _method_row(
    method: str, records: Sequence[RunRecord], tasks: Sequence[str], *, supervised: bool
) -> LeaderboardRow:
    metric = main_metric(records)
    cells = {task: summarise_scores(records, task, metric=metric) for task in tasks}
    reasons, unreadable = failure_reasons(records), failure_reasons(records, UNREADABLE)
    row = LeaderboardRow(
        method,
        cells,
        failed=len(reasons) + len(unreadable),
        reasons=reasons,
        ranked=all(is_ranked(record, supervised=supervised) for record in records),
        group=encoder_group(next(iter(finished_records(records)), records[0])),
        unreadable=unreadable,
        has_seeds=any(record.seed is not None for record in records),
    )
    trained = [record for record in records if record.training.get("stages")]
    if not trained:
        return row
    sentences, seconds = map(count_training_sentences, trained), map(sum_training_seconds, trained)
    return replace(row, sentences=round(fmean(sentences)), cpu_seconds=fmean(seconds))


def _unranked_reasons(campaign: Campaign, rows: Sequence[LeaderboardRow]) -> dict[str, str]:
    """Why methods with finished runs are unranked, by method."""
    copies = "its training had the mini grammar's own paraphrases"
    reasons = {row.method: copies for row in rows if row.finished and not row.ranked}
    supervised = "it is supervised (--rank-supervised ranks it)"
    return reasons | dict.fromkeys(campaign.apart.intersection(reasons), supervised)


def _selection_note(campaign: Campaign, records: Sequence[RunRecord]) -> list[str]:
    """A note on the number of chosen methods, over which the correction is."""
    count = len(by_method(records))
    known = campaign.known_by.get((records[0].profile, records[0].suite), count)
    if not campaign.known or count == known:
        return []
    return [f"{count} of {known} methods, chosen by --methods; tests and correction are of these."]


def _table_notes(
    campaign: Campaign, records: Sequence[RunRecord], rows: Sequence[LeaderboardRow], setup: Sequence[str]
) -> tuple[str, ...]:
    metric = main_metric(records)
    rule = "rounded scores, as SimCSE averages" if campaign.rounded else "unrounded scores"
    scores = f"{metric} x 100".capitalize()
    if measured_by_mteb(records):
        scores += ", as mteb computes it"
    elif metric == "spearman":
        scores += ", all pairs of a task in one correlation"
    notes = [f"{scores}; avg is the mean of the {rule}."]
    counts = sorted({cell.n for row in rows for cell in row.cells.values() if cell.n > 1})
    if counts:
        notes.append(f"{OVER_SEEDS} {'/'.join(map(str, counts))} seeds.")
    notes += [*setup, *required_notes(campaign, records, rows)]
    for row in rows:
        notes += [*label_lines("Failed", row.reasons), *label_lines("Unreadable", row.unreadable)]
    return tuple(notes)


def required_notes(
    campaign: Campaign, records: Sequence[RunRecord], rows: Sequence[LeaderboardRow]
) -> list[str]:
    """Return the notes of every table of these records: missing tasks, other data, notes of the records."""
    notes = []
    for row in rows:
        lacking = [task for task, cell in row.cells.items() if cell.mean is None]
        if lacking and row.average is not None:
            notes.append(f"{campaign.shown(row.method)} has no {', '.join(lacking)}.")
    odd = sorted({task for r in records for task, facts in r.tasks.items() if not facts["reference"]})
    if odd:
        notes.append(f"Not the reference data: {', '.join(odd)}.")
    return [*notes, *selection_notes(records, campaign.shown), *dev_notes(records), *record_notes(records)]


def _leaderboard_grid(table: Leaderboard) -> Grid:
    trains = any(row.sentences is not None for row in table.rows)
    header = ["method", "seeds", *table.tasks, "sd", *["rank", "group"] * bool(table.tests)]
    header += ["sentences", "cpu s"] * trains
    rows = []
    for row in table.rows:
        average = row.cells["avg"]
        cells: list[Value] = [row.method, row.seeds]
        cells += [row.cells[task] for task in table.tasks if task != "avg"]
        cells += [hide_deviation(average), Printed(format_score(average.sd), average.sd)]
        cells += [row.rank_text, row.letters or DASH] * bool(table.tests)
        cells += [row.sentences_text, row.seconds_text] * trains
        rows.append(tuple(cells))
    title = f"{table.suite}, profile {table.profile}, campaign {table.campaign}"
    notes = (table.notes[0], *filter(None, [table.bold]), *table.notes[1:])
    return Grid(title, tuple(header), tuple(rows), notes)
