"""Leaderboards as a paper prints them: a table a suite, a block a profile, and a caption that says all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.comparison.selection import format_seeds, group_by
from bench.config import profiles
from bench.records.record import RunRecord
from bench.render.formats import check_columns, column_positions, pick_columns
from bench.render.grid import DASH, Grid, ScoreCell, Value, format_score
from bench.reports.campaign import Campaign
from bench.reports.records import (
    EXTERNAL_MODELS,
    by_method,
    by_profile_and_suite,
    finished_records,
    main_metric,
)
from bench.reports.tables.leaderboard import Leaderboard, make_leaderboard, required_notes
from bench.reports.tables.pairwise_tests import ABOVE, ALPHA, BELOW, BOLD, run_pairwise_tests
from bench.reports.tables.suite_tables import TASK_NAMES

SUITES = {
    "sts7": "the seven STS tasks",
    "transfer7": "the seven transfer tasks",
    "transfer8": "the eight transfer tasks",
    "mini": "the embedded test pairs",
}
METRICS = {"spearman": "Spearman's correlation", "accuracy": "Accuracy"}
_AS_THEY_ARE = "checkpoints as they are"
_AVERAGE, _MORE = "Avg.", ("seeds", "sd", "rank", "group")
_AT_MOST, _ABOVE = f"p \N{LESS-THAN OR EQUAL TO} {ALPHA}", f"p > {ALPHA}"


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        suite: Its suite.
        grid: The table; its title and notes are not printed.
        methods: Ids of its rows.
        caption: What its caption says, without LaTeX.
        remarks: What else the report says of it: for its author.
    """

    suite: str
    grid: Grid
    methods: tuple[str, ...]
    caption: str
    remarks: tuple[str, ...]


def paper_tables(campaign: Campaign, columns: Sequence[str] = ()) -> list[PaperTable]:
    """Return the tables of a campaign's suites, with the tasks and the average or the columns asked for.

    Raises:
        InputError: a column that no table has.
    """
    suites = group_by(by_profile_and_suite(campaign.records), lambda records: records[0].suite)
    tables = [_suite_table(campaign, suite, blocks) for suite, blocks in suites.items()]
    check_columns(columns, [name for table in tables for name in table.grid.header])
    found = []
    for table in tables:
        header = table.grid.header
        if at := column_positions(header, columns or [name for name in header if name not in _MORE]):
            found.append(replace(table, grid=pick_columns(table.grid, [0, *filter(None, at)])))
    return found


def _suite_table(campaign: Campaign, suite: str, blocks: Sequence[Sequence[RunRecord]]) -> PaperTable:
    tables = [make_leaderboard(campaign, records) for records in blocks]
    tasks = tuple(task for task in dict.fromkeys(t for table in tables for t in table.tasks) if task != "avg")
    tested = any(table.tests for table in tables)
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    for table, title in zip(tables, _block_titles(blocks), strict=True):
        groups.append((len(rows), title))
        for row in table.rows:
            none = ScoreCell(None, None, 0)
            average = row.cells.get("avg", none)
            cells: list[Value] = [campaign.shown(row.method), row.seeds]
            cells += [row.cells.get(task, none) for task in tasks]
            cells += [average, format_score(average.sd), *[row.rank_text, row.letters or DASH] * tested]
            rows.append(tuple(cells))
    names = (TASK_NAMES.get(task, task) for task in tasks)
    header = ("Model", "seeds", *names, _AVERAGE, "sd", *("rank", "group") * tested)
    grid = Grid(suite, header, tuple(rows), (), tuple(groups) if len(groups) > 1 else ())
    methods = tuple(row.method for table in tables for row in table.rows)
    notes = dict.fromkeys(note for table in tables for note in (table.bold, *table.notes) if note)
    return PaperTable(suite, grid, methods, paper_caption(campaign, tables, blocks), tuple(notes))


def profile_title(records: Sequence[RunRecord]) -> str:
    """Return what a paper calls the setting: the profile's title, else the backbone's name.

    Where all rows are checkpoints as they are, the profile's backbone is none of theirs, and they are that.
    """
    name = records[0].profile
    if all(record.name in EXTERNAL_MODELS for record in records):
        return _AS_THEY_ARE
    title = profiles.load_profile(name).title if name in profiles.profile_names() else ""
    backbones = (record.backbone["name"] for record in records if record.backbone)
    return title or next(iter(backbones), "") or name


def _block_titles(blocks: Sequence[Sequence[RunRecord]]) -> list[str]:
    """The blocks' titles; where two have one, with the profiles' names."""
    titles = list(map(profile_title, blocks))
    return [
        f"{title} ({place[0].profile})" if titles.count(title) > 1 else title
        for title, place in zip(titles, blocks, strict=True)
    ]


def paper_caption(
    campaign: Campaign, tables: Sequence[Leaderboard], blocks: Sequence[Sequence[RunRecord]]
) -> str:
    """Return what a paper says of a suite's table: what was measured, over which seeds, by which tests."""
    records = [record for group in blocks for record in group]
    metric = main_metric(records)
    first = f"{METRICS.get(metric, metric)} \N{MULTIPLICATION SIGN} 100 on "
    first += SUITES.get(tables[0].suite, f"suite {tables[0].suite}")
    first += f", {' and '.join(_block_titles(blocks))}"
    if any("mteb" in record.provenance for record in records):
        first += ", as mteb computes it"
    if campaign.rounded:
        first += "; averages are those of rounded scores"
    seeds = [_seed_text(campaign, group) for group in blocks]
    if len(set(seeds)) == 1 and seeds[0]:
        said = [f"{first}; {seeds[0]}."]
    else:
        said = [f"{first}.", *_block_sentences(blocks, [f"{over}." if over else "" for over in seeds])]
    said += _block_sentences(
        blocks, [" ".join(_test_sentences(campaign, *place)) for place in zip(tables, blocks, strict=True)]
    )
    said += _block_sentences(blocks, [_external_rows(campaign, group) for group in blocks])
    said += campaign.apart_note((row.method for table in tables for row in table.rows), how="")
    must = [required_notes(campaign, group, table.rows) for table, group in zip(tables, blocks, strict=True)]
    for note in dict.fromkeys(one for own in must for one in own):
        said += _block_sentences(blocks, [note if note in own else "" for own in must])
    return " ".join(said)


def _external_rows(campaign: Campaign, records: Sequence[RunRecord]) -> str:
    """Which rows are not of the block's title; nothing where all or none are."""
    others = {record.method for record in records if record.name in EXTERNAL_MODELS}
    if not others or profile_title(records) == _AS_THEY_ARE:
        return ""
    named = ", ".join(campaign.shown(method) for method in by_method(records) if method in others)
    return f"{_AS_THEY_ARE.capitalize()}, of other models: {named}."


def _block_sentences(blocks: Sequence[Sequence[RunRecord]], texts: Sequence[str]) -> list[str]:
    """What is said of the blocks: once where it is the same of all, else of each by its profile."""
    if len(set(texts)) == 1:
        return [texts[0]] * bool(texts[0])
    return [f"{title}: {text}" for title, text in zip(_block_titles(blocks), texts, strict=True) if text]


def _seed_text(campaign: Campaign, records: Sequence[RunRecord]) -> str:
    """Over which seeds the scores are means; the seeds of most methods first, then those of the others."""
    seeds = {
        campaign.shown(method): tuple(sorted({run.seed for run in runs if run.seed is not None}))
        for method, runs in by_method(finished_records(records)).items()
    }
    lists = group_by((method for method in seeds if seeds[method]), seeds.__getitem__)
    if not lists:
        return ""
    most, *others = sorted(lists, key=lambda own: (-len(lists[own]), -len(own), own))
    several = any(len(own) > 1 for own in lists)
    text = (
        f"mean \N{PLUS-MINUS SIGN} standard deviation over {seed_range(most)}"
        if several
        else seed_range(most)
    )
    rest = [f"{' and '.join(lists[own])}: {seed_range(own)}" for own in others]
    return f"{text} ({'; '.join(rest)})" if rest else text


def seed_range(seeds: Sequence[int]) -> str:
    r"""Return seeds as a range where they are one.

    >>> ascii(seed_range([1, 2, 3])), seed_range([1, 5])
    ("'seeds 1\\u20133'", 'seeds 1, 5')
    """
    return format_seeds(seeds).replace("-", "\N{EN DASH}").replace(",", ", ")


def _test_sentences(campaign: Campaign, table: Leaderboard, records: Sequence[RunRecord]) -> list[str]:
    """What daggers and bold mean, each with the tests behind it."""
    marked = any(cell.mark for row in table.rows for cell in row.cells.values())
    if not table.tests:
        return [table.bold] if marked else []
    ranking = (
        run_pairwise_tests(campaign, records).of().among({row.method for row in table.rows if row.ranked})
    )
    correction = ranking.caption.replace(" over", "'s correction over", 1).replace(" (", ", ").rstrip(")")
    pairs, base, said = [one for one in ranking.pairs if one.p is not None], campaign.baseline, []
    behind = f"{_test_kinds(one.test for one in pairs)}; {correction}"
    if base in ranking.methods:
        own = f"{_test_kinds(one.test for one in pairs if base in (one.first, one.second))}; {correction}"
        signs = {row.cells["avg"].sign for row in table.rows}
        words = [f"{sign} {word}" for sign, word in ((ABOVE, "above"), (BELOW, "below")) if sign in signs]
        if words:
            said.append(f"{' and '.join(words)} {campaign.shown(base)} on average, {_AT_MOST} ({own}).")
        else:
            said.append(f"No average is shown to differ from {campaign.shown(base)}'s, {_ABOVE} ({own}).")
        behind = "the same tests"
    elif base is not None:
        why = "is supervised" if base in campaign.apart else "can't be tested"
        said.append(f"No daggers: {campaign.shown(base)} {why}.")
    if marked:
        said.append(f"{BOLD}, {_ABOVE} ({behind}).")
    elif table.bold:
        said.append(table.bold)
    return said


def _test_kinds(tests: Iterable[str]) -> str:
    """The tests in words, the most frequent first."""
    from bench.stats.pair_test import AND_ITEMS, ITEMS, PAIRED, STUDENT, WELCH

    found = [test for test, _ in Counter(tests).most_common()]
    kinds = list(dict.fromkeys(test.removesuffix(AND_ITEMS) for test in found))
    names = {PAIRED: "paired", WELCH: "Welch's", STUDENT: "Student's"}
    words = [names[kind] for kind in kinds if kind in names]
    over = "over seeds and items" if any(test.endswith(AND_ITEMS) for test in found) else "over seeds"
    said = [f"{' and '.join(words)} t test{'s' * (len(words) > 1)} {over}"] if words else []
    if ITEMS in kinds:
        said.append("bootstrap of the items between methods without seeds")
    return ", ".join(said)
