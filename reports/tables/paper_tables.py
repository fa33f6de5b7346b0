"""Leaderboards as a paper prints them: a table a suite, a block a profile, and a full caption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from bench.comparison.selection import format_seeds, group_by
from bench.config import profiles
from bench.records.record import RunRecord
from bench.render.formats import check_columns, column_positions, pick_columns
from bench.render.grid import Grid, ScoreCell, Value, format_score
from bench.reports.campaign import Campaign
from bench.reports.record_groups import (
    EXTERNAL_MODELS,
    by_method,
    by_profile_and_suite,
    finished_records,
    main_metric,
    measured_by_mteb,
)
from bench.reports.tables.leaderboard import (
    Leaderboard,
    has_marks,
    make_leaderboard,
    required_notes,
)
from bench.reports.tables.pairwise_tests import ABOVE, BELOW, PairwiseTests, run_pairwise_tests
from bench.reports.tables.suite_tables import task_headings

SUITES = {
    "sts7": "the seven STS tasks",
    "transfer7": "the seven transfer tasks",
    "transfer8": "the eight transfer tasks",
    "mini": "the embedded test pairs",
}
METRICS = {"spearman": "Spearman's correlation", "accuracy": "Accuracy"}
_AS_THEY_ARE = "checkpoints as they are"
_AVERAGE, _MORE = "Avg.", ("seeds", "sd", "rank", "group")


@dataclass(frozen=True)
class PaperTable:
    """A suite's table in a paper, with ids of its rows, a caption in plain text, and remarks for its author.

    Title and notes of the grid stay unprinted.
    """

    suite: str
    grid: Grid
    methods: tuple[str, ...]
    caption: str
    remarks: tuple[str, ...]


def paper_tables(campaign: Campaign, columns: Sequence[str] = ()) -> list[PaperTable]:
    """Return the tables of a campaign's suites with some columns, by default the tasks and the average.

    Raises InputError for a column that all tables lack.
    """
    suites = group_by(by_profile_and_suite(campaign.records), lambda records: records[0].suite)
    tables = [_suite_table(campaign, suite, blocks) for suite, blocks in suites.items()]
    check_columns(columns, list(chain.from_iterable(table.grid.header for table in tables)))
    selected = []
    for table in tables:
        wanted = columns or [name for name in table.grid.header if name not in _MORE]
        if places := column_positions(table.grid.header, wanted):
            selected.append(replace(table, grid=pick_columns(table.grid, [0, *filter(None, places)])))
    return selected


def _suite_table(campaign: Campaign, suite: str, blocks: Sequence[Sequence[RunRecord]]) -> PaperTable:
    tables = list(map(partial(make_leaderboard, campaign), blocks))
    tasks: dict[str, None] = {}
    notes: dict[str, None] = {}
    for table in tables:
        tasks |= dict.fromkeys(table.tasks)
        notes |= dict.fromkeys(filter(None, (table.bold, *table.notes)))
    tasks.pop("avg", None)
    tested, none = any(table.tests for table in tables), ScoreCell(None, None, 0)
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    for table, title in zip(tables, _block_titles(blocks), strict=True):
        groups.append((len(rows), title))
        for row in table.rows:
            average = row.cells.get("avg", none)
            cells: list[Value] = [campaign.shown(row.method), row.seeds]
            cells += [row.cells.get(task, none) for task in tasks]
            cells += [average, format_score(average.sd), *[row.rank_text] * tested]
            rows.append(tuple(cells))
    header = ("Model", "seeds", *task_headings(tasks), _AVERAGE, "sd", *["rank"] * tested)
    grid = Grid(suite, header, tuple(rows), (), tuple(groups) if len(groups) > 1 else ())
    caption = paper_caption(campaign, tables, list(map(campaign.listed, blocks)))
    return PaperTable(suite, grid, list_methods(tables), caption, tuple(notes))


def list_methods(tables: Iterable[Leaderboard]) -> tuple[str, ...]:
    """Return the methods of all rows."""
    return tuple(row.method for table in tables for row in table.rows)


def profile_title(records: Sequence[RunRecord]) -> str:
    """Return a paper's name for the setting: the profile's title, otherwise the backbone's name.

    A block of only external checkpoints is named after them, as they bring their own backbones.
    """
    name = records[0].profile
    if all(record.name in EXTERNAL_MODELS for record in records):
        return _AS_THEY_ARE
    title = profiles.load_profile(name).title if name in profiles.profile_names() else ""
    backbones = (record.backbone["name"] for record in records if record.backbone)
    return title or next(iter(backbones), "") or name


def _block_titles(blocks: Sequence[Sequence[RunRecord]]) -> list[str]:
    """The blocks' titles; equal ones with the profiles' names."""
    titles = list(map(profile_title, blocks))
    distinct = []
    for title, records in zip(titles, blocks, strict=True):
        distinct.append(f"{title} ({records[0].profile})" if titles.count(title) > 1 else title)
    return distinct


def paper_caption(
    campaign: Campaign, tables: Sequence[Leaderboard], blocks: Sequence[Sequence[RunRecord]]
) -> str:
    """Return the caption of a suite's table: scores, seeds and tests."""
    records = list(chain.from_iterable(blocks))
    metric = main_metric(records)
    first = f"{METRICS.get(metric, metric)} \N{MULTIPLICATION SIGN} 100 on "
    first += SUITES.get(tables[0].suite, f"suite {tables[0].suite}")
    first += f", {' and '.join(_block_titles(blocks))}"
    if measured_by_mteb(records):
        first += ", as mteb computes it"
    if campaign.rounded:
        first += "; averages are those of rounded scores"
    seeds = list(map(partial(_seed_text, campaign), blocks))
    if len(set(seeds)) == 1 and seeds[0]:
        sentences = [f"{first}; {seeds[0]}"]
    else:
        sentences = [first, *_block_sentences(blocks, seeds)]
    sentences = [f"{sentence}." for sentence in sentences]
    tests, required = [], []
    notes: dict[str, None] = {}
    for table, group in zip(tables, blocks, strict=True):
        tests.append(" ".join(_test_sentences(campaign, table, group)))
        required.append(required_notes(campaign, group, table.rows))
        notes |= dict.fromkeys(required[-1])
    sentences += _block_sentences(blocks, tests)
    sentences += _block_sentences(blocks, list(map(partial(_external_rows, campaign), blocks)))
    sentences += campaign.apart_note(list_methods(tables), how="")
    for note in notes:
        sentences += _block_sentences(blocks, [note * (note in own) for own in required])
    return " ".join(sentences)


def _external_rows(campaign: Campaign, records: Sequence[RunRecord]) -> str:
    """A sentence on rows of other models than the block's title, or ""."""
    others = {record.method for record in records if record.name in EXTERNAL_MODELS}
    if not others or profile_title(records) == _AS_THEY_ARE:
        return ""
    named = ", ".join(campaign.shown(method) for method in by_method(records) if method in others)
    return f"{_AS_THEY_ARE.capitalize()}, of other models: {named}."


def _block_sentences(blocks: Sequence[Sequence[RunRecord]], texts: Sequence[str]) -> list[str]:
    """Sentences on the blocks: one for all if they are equal, otherwise each with its profile."""
    if len(set(texts)) == 1:
        return [texts[0]] * bool(texts[0])
    return [f"{title}: {text}" for title, text in zip(_block_titles(blocks), texts, strict=True) if text]


def _seed_text(campaign: Campaign, records: Sequence[RunRecord]) -> str:
    """The seeds of the means: those of most methods first, then the others'."""
    methods: dict[tuple[int, ...], list[str]] = {}
    for method, runs in by_method(finished_records(records)).items():
        if seeds := tuple(sorted({run.seed for run in runs if run.seed is not None})):
            methods.setdefault(seeds, []).append(campaign.shown(method))
    if not methods:
        return ""
    most, *others = sorted(methods, key=lambda seeds: (-len(methods[seeds]), -len(seeds), seeds))
    text = seed_range(most)
    if any(len(seeds) > 1 for seeds in methods):
        text = f"mean \N{PLUS-MINUS SIGN} standard deviation over {text}"
    rest = [f"{' and '.join(methods[seeds])}: {seed_range(seeds)}" for seeds in others]
    return f"{text} ({'; '.join(rest)})" if rest else text


def seed_range(seeds: Sequence[int]) -> str:
    r"""Return seeds as text, with an en dash in ranges.

    >>> ascii(seed_range([1, 2, 3])), seed_range([1, 5])
    ("'seeds 1\\u20133'", 'seeds 1, 5')
    """
    return format_seeds(seeds).replace("-", "\N{EN DASH}").replace(",", ", ")


def _test_sentences(campaign: Campaign, table: Leaderboard, records: Sequence[RunRecord]) -> list[str]:
    """Sentences on daggers and bold cells, each with its tests."""
    if not table.tests:
        return [table.bold] * has_marks(table.rows)
    tests = run_pairwise_tests(campaign, records)
    sentences, base = [], campaign.baseline
    if base is not None and base not in tests.of().methods:
        place = (table.profile, table.suite)
        whole = [record for record in campaign.records if (record.profile, record.suite) == place]
        why = campaign.family(whole).aside.get(base, "nothing to test")
        sentences.append(f"No daggers: {campaign.shown(base)} can't be tested ({why}).")
    elif base is not None:
        signs = {row.cells["avg"].sign for row in table.rows}
        words = [f"{sign} {word}" for sign, word in ((ABOVE, "above"), (BELOW, "below")) if sign in signs]
        verdict = f"No average is shown to differ from {campaign.shown(base)}'s"
        if words:
            verdict = f"{' and '.join(words)} {campaign.shown(base)} on average"
        sentences.append(f"{verdict} ({_describe_family(campaign, table, tests)}).")
    if table.bold:
        sentences.append(table.bold)
    return sentences


def _describe_family(campaign: Campaign, table: Leaderboard, tests: PairwiseTests) -> str:
    """The tests behind the daggers, and how they are corrected."""
    base, pairs = campaign.baseline, [pair for pair in tests.of().pairs if pair.p is not None]
    own = [pair for pair in pairs if base in (pair.first, pair.second)]
    kinds = _test_kinds(pair.test for pair in own)
    if table.baseline:
        return f"{kinds}; simultaneous 95% intervals, {len(own)} comparison{'s' * (len(own) > 1)}"
    return f"{kinds}; {tests.of().caption}"


def _test_kinds(tests: Iterable[str]) -> str:
    """Names of the tests, the most frequent first."""
    from bench.stats.difference_test import AND_ITEMS, ITEMS, PAIRED, STUDENT, WELCH

    names = {PAIRED: "paired", WELCH: "Welch's", STUDENT: "Student's"}
    kinds: dict[str, None] = {}
    over = "over seeds"
    for test, _ in Counter(tests).most_common():
        kinds[test.removesuffix(AND_ITEMS)] = None
        if test.endswith(AND_ITEMS):
            over = "over seeds and items"
    words = list(map(names.__getitem__, filter(names.__contains__, kinds)))
    texts = [f"{' and '.join(words)} t test{'s' * (len(words) > 1)} {over}"] * bool(words)
    if ITEMS in kinds:
        texts.append("bootstrap of the items between methods without seeds")
    return ", ".join(texts)
