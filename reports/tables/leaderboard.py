"""Leaderboards: a row a method, a table a profile and suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from bench.comparison.task_evidence import explain_no_test
from bench.records.imported import describe_imports, is_imported
from bench.records.record import RunRecord, count_training_sentences, sum_training_seconds
from bench.render.grid import (
    BEST,
    CAPTION,
    DASH,
    Grid,
    Printed,
    ScoreCell,
    Value,
    format_difference,
    format_interval,
    format_number,
    format_p_value,
    format_score,
    hide_deviation,
    interval_end,
    mark_best,
)
from bench.reports.campaign import MARGIN, Campaign
from bench.reports.planned_runs import plan_notes
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
    metric_title,
    record_notes,
    summarise_scores,
    task_list,
)
from bench.reports.tables.baseline_family import (
    AHEAD,
    BEHIND,
    EQUAL,
    OPEN,
    BaselineDifference,
    BaselineFamily,
    compare_family,
    find_best,
)
from bench.reports.tables.pairwise_tests import ABOVE, BELOW, describe_tests, ranking_notes, uneven_seed_notes
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.training_setup import (
    budget_notes,
    code_notes,
    dev_notes,
    member_notes,
    precision_notes,
    processor_notes,
    selection_notes,
    setting_notes,
    text_notes,
    weight_notes,
)

if TYPE_CHECKING:
    from bench.stats.method_ranking import Ranking

OVER_SEEDS = "Mean and standard deviation over"
"""How the note on the number of seeds begins."""
OF_COLUMNS = (
    *("rank:", "May be the best", "Against ", "difference:", "Where a row and ", "The intervals are "),
    *("Collapsed seeds", "No run of a row"),
)
"""How the notes on the columns of ranks and answers begin."""
BOLD = "Bold: may be the best of its column; no other row's simultaneous interval against it is above 0."


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
        against: Its difference from the baseline; None for the baseline, and without tests against one.
        aside: Why it isn't tested with the others; empty for a row of the family.
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
    against: BaselineDifference | None = None
    aside: str = ""

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
    def answer(self) -> str:
        """Its answer against the baseline, or why it has none."""
        if self.against is None:
            return self.aside or DASH
        return self.against.answer if self.against.p is not None else self.against.test

    def describe_answer(self, baseline: str) -> str:
        """Return the answer with the baseline's name, for a place outside of its table.

        >>> LeaderboardRow("tncse", {}, 0, aside="with one seed").describe_answer("simcse")
        'with one seed'
        """
        if not baseline or self.against is None or self.against.p is None:
            return "the baseline" if baseline == self.method else self.answer
        words = {AHEAD: "ahead of", BEHIND: "behind", EQUAL: "equal to", OPEN: "open against"}
        return f"{words[self.answer]} {baseline}"

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
        tests: Description of the tests of all pairs, or "".
        baseline: Row that the others are compared with, or "".
        margin: Largest difference from the baseline that counts as none.
        hidden: Number of rows that are set aside, which texts leave out.
        over_tasks: True if rows have one score a task and no seeds, so that tests are over tasks.
    """

    campaign: str
    profile: str
    suite: str
    tasks: tuple[str, ...]
    rows: tuple[LeaderboardRow, ...]
    notes: tuple[str, ...]
    bold: str
    tests: str
    baseline: str = ""
    margin: float = MARGIN
    hidden: int = 0
    over_tasks: bool = False


def leaderboard_grids(campaign: Campaign) -> list[Grid]:
    """Return the printed leaderboard of every profile and suite."""
    return [make_leaderboard_grid(table, data=campaign.pairs) for table in all_leaderboards(campaign)]


def all_leaderboards(campaign: Campaign) -> list[Leaderboard]:
    """Return a table for every profile and suite, best average first."""
    tables = []
    for records in by_profile_and_suite(campaign.records):
        table = make_leaderboard(campaign, records)
        rows = tuple(replace(row, method=campaign.shown(row.method)) for row in table.rows)
        tables.append(replace(table, rows=rows, baseline=campaign.shown(table.baseline)))
    return tables


def make_leaderboard(campaign: Campaign, records: Sequence[RunRecord]) -> Leaderboard:
    """Return the table of the records of one profile and suite; its rows have the ids of the methods.

    Parts of a report share it. The campaign holds these records as long as the table.
    """
    choices = campaign.all_rows, campaign.baseline, campaign.family_kind, campaign.margin, campaign.given
    key = ("leaderboard", *choices, campaign.named, id(campaign.names), *map(id, records))
    if key not in campaign.kept:
        campaign.kept[key] = campaign.names, _make_leaderboard(campaign, records)
    table: Leaderboard = campaign.kept[key][1]
    return table


def _make_leaderboard(campaign: Campaign, records: Sequence[RunRecord]) -> Leaderboard:
    tasks, supervised = task_list(records), campaign.rank_supervised
    family, pairwise = campaign.family(records), run_pairwise_tests(campaign, records)
    rows = []
    for method, runs in by_method(records).items():
        if campaign.all_rows or method not in family.hidden:
            row = _method_row(method, runs, tasks, supervised=supervised)
            rows.append(replace(row, aside=family.aside.get(method, "")))
    rows.sort(
        key=lambda row: (not row.ranked and not campaign.given, *campaign.place(row.method, row.average))
    )
    average = pairwise.of()
    against, family_notes = compare_family(campaign, records, pairwise)
    signs = _baseline_signs(campaign, average, against)
    best = {task: find_best(pairwise, task) for task in tasks}
    rows = [_mark_row(row, rows, best, average, against) for row in rows]
    rows = [_sign_row(row, signs.get(row.method, "")) for row in rows]
    listed = campaign.listed(records)
    setup_notes = (
        *ranking_notes(average, uneven_seed_notes(pairwise), campaign.shown),
        *pairwise.unit_notes(records[0].suite),
        *explain_no_test(finished_records(records)),
        *setting_notes(listed, campaign.shown),
        *code_notes(listed, campaign.shown),
        *precision_notes(listed),
        *budget_notes(listed, campaign.shown),
        *text_notes(listed, campaign.shown),
        *member_notes(listed, campaign.shown),
        *weight_notes(listed),
        *processor_notes(listed),
        *selection_note(campaign, records),
        *campaign.apart_note(row.method for row in rows),
    )
    scores, *others = _table_notes(campaign, listed, rows, setup_notes)
    notes = (scores, *family_notes, *others)
    tests = describe_tests(average) if average.methods else ""
    bold = ""
    if has_marks(rows):
        bold = BOLD if average.methods else CAPTION
    place = (campaign.name, records[0].profile, records[0].suite)
    baseline = against.baseline if against else ""
    facts = (baseline, campaign.margin, len(family.hidden))
    return Leaderboard(*place, tasks, tuple(rows), notes, bold, tests, *facts, over_tasks=pairwise.over_tasks)


def _baseline_signs(campaign: Campaign, ranking: Ranking, against: BaselineFamily | None) -> dict[str, str]:
    """The dagger of each row that differs from the baseline that the user named."""
    signs = {}
    if against is not None and campaign.baseline is not None:
        for method, row in against.rows.items():
            signs[method] = {AHEAD: ABOVE, BEHIND: BELOW}.get(row.answer, "")
    elif campaign.baseline in ranking.methods:
        for pair in ranking.pairs:
            if campaign.baseline in (pair.first, pair.second) and pair.differs:
                other = pair.second if pair.first == campaign.baseline else pair.first
                ahead = (pair.first == other) == (pair.difference > 0)
                signs[other] = ABOVE if ahead else BELOW
    return signs


def _sign_row(row: LeaderboardRow, sign: str) -> LeaderboardRow:
    average = replace(row.cells["avg"], sign=sign)
    return replace(row, cells=row.cells | {"avg": average})


def has_marks(rows: Sequence[LeaderboardRow]) -> bool:
    """Return True for rows with a marked cell."""
    return any(cell.mark for row in rows for cell in row.cells.values())


def _mark_row(
    row: LeaderboardRow,
    rows: Sequence[LeaderboardRow],
    best: Mapping[str, frozenset[str]],
    ranking: Ranking,
    against: BaselineFamily | None,
) -> LeaderboardRow:
    """The row with its marks, its rank and its answer.

    Bold are the rows that may be the best. Without tests, the best and the second numbers are marked.
    """
    if not row.ranked:
        return row
    cells = {}
    for task, cell in row.cells.items():
        mark = BEST if row.method in best[task] else ""
        if not ranking.methods:
            means = {other.method: other.cells[task].mean for other in rows if other.ranked}
            mark = mark_best(means)[row.method]
        cells[task] = replace(cell, mark=mark)
    difference = against.rows.get(row.method) if against else None
    return replace(row, cells=cells, rank=ranking.intervals.get(row.method), against=difference)


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


def selection_note(
    campaign: Campaign, records: Sequence[RunRecord], of_these: str = "tests and correction"
) -> list[str]:
    """Return a note on the number of chosen methods, and what depends on the choice."""
    count = len(by_method(records))
    known = campaign.known_by.get((records[0].profile, records[0].suite), count)
    if not campaign.known or count == known:
        return []
    return [f"{count} of {known} methods, chosen by --methods; {of_these} are of these."]


def _table_notes(
    campaign: Campaign, records: Sequence[RunRecord], rows: Sequence[LeaderboardRow], setup: Sequence[str]
) -> tuple[str, ...]:
    metric = main_metric(records)
    rule = "rounded scores, as SimCSE averages" if campaign.rounded else "unrounded scores"
    scores = f"{metric_title(records)} x 100"
    if measured_by_mteb(records):
        scores += ", as mteb computes it"
    elif metric == "spearman":
        scores += ", all pairs of a task in one correlation"
    notes = [f"{scores}; avg is the mean of the {rule}."]
    counts = sorted({cell.n for row in rows for cell in row.cells.values() if cell.n > 1})
    if counts:
        notes.append(f"{OVER_SEEDS} {'/'.join(map(str, counts))} seeds.")
    notes += [*plan_notes(campaign, records), *setup]
    if any(row.cpu_seconds is not None for row in rows):
        notes.append("As recorded: cpu s, which no check repeats.")
    notes += required_notes(campaign, records, rows)
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
    own = [record for record in records if not is_imported(record)]
    odd = sorted({task for r in own for task, facts in r.tasks.items() if not facts["reference"]})
    if odd:
        notes.append(f"Not the reference data: {', '.join(odd)}.")
    notes += filter(None, [describe_imports(records)])
    return [*notes, *selection_notes(records, campaign.shown), *dev_notes(records), *record_notes(records)]


def make_leaderboard_grid(table: Leaderboard, *, data: bool) -> Grid:
    """The table; as ``data`` it has the ends of intervals as numbers."""
    trains = any(row.sentences is not None for row in table.rows)
    seeds = not table.over_tasks
    header = ["method", *["seeds"] * seeds, *table.tasks, *["sd"] * seeds, *["rank"] * bool(table.tests)]
    if table.baseline:
        header += ["difference", "interval", *["low", "high"] * data, "p", "answer"]
    header += ["sentences", "cpu s"] * trains
    rows = []
    for row in table.rows:
        average = row.cells["avg"]
        cells: list[Value] = [row.method, *[row.seeds] * seeds]
        cells += [row.cells[task] for task in table.tasks if task != "avg"]
        cells += [hide_deviation(average), *[Printed(format_score(average.sd), average.sd)] * seeds]
        cells += [row.rank_text] * bool(table.tests)
        if table.baseline:
            cells += _answer_cells(row, table.baseline, data=data)
        cells += [row.sentences_text, row.seconds_text] * trains
        rows.append(tuple(cells))
    title = f"{table.suite}, profile {table.profile}, campaign {table.campaign}"
    notes = (table.notes[0], *filter(None, [table.bold]), *table.notes[1:])
    return Grid(title, tuple(header), tuple(rows), notes)


def _answer_cells(row: LeaderboardRow, baseline: str, *, data: bool) -> list[Value]:
    """Difference from the baseline, its interval, p and answer."""
    against = row.against
    if against is None or row.method == baseline:
        answer = "baseline" if row.method == baseline else row.answer
        return [*[DASH] * (3 + 2 * data), answer]
    difference = Printed(format_difference(against.difference), against.difference)
    low, high = against.interval or (None, None)
    ends: list[Value] = []
    for end in (low, high) if data else ():
        ends.append(DASH if end is None else Printed(interval_end(end), end))
    p: Value = DASH
    if against.p is not None:
        p = Printed(format_p_value(against.p), against.p)
    return [difference, format_interval(low, high), *ends, p, row.answer]
