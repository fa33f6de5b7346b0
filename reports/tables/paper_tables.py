"""Leaderboards as a paper prints them: a table a suite, a block a profile, and a full caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from bench.comparison.selection import format_seeds, group_by
from bench.config import profiles
from bench.records.record import RunRecord
from bench.registry import own_methods
from bench.render.formats import check_columns, column_positions, pick_columns
from bench.render.grid import CAPTION, Grid, ScoreCell, Value, format_score
from bench.render.latex import DEVIATIONS, limit_deviations
from bench.render.row_names import join_names, mark_rows
from bench.reports.campaign import Campaign
from bench.reports.method_choice import paper_name
from bench.reports.record_groups import (
    EXTERNAL_MODELS,
    SUPERVISED_GROUP,
    by_method,
    by_profile_and_suite,
    finished_records,
    measured_by_mteb,
    metric_title,
)
from bench.reports.tables.leaderboard import Leaderboard, LeaderboardRow, make_leaderboard, required_notes
from bench.reports.tables.pairwise_tests import ABOVE, BELOW
from bench.reports.tables.suite_tables import GROUPS, task_headings

SUITES = {
    "sts7": "seven STS tasks",
    "transfer7": "seven transfer tasks",
    "transfer8": "eight transfer tasks",
    "mini": "the embedded test pairs",
}
SYNTHETIC = "Synthetic data: not a benchmark."
MOST_WORDS = 40
"""Words of a caption."""
_AS_THEY_ARE = "checkpoints as they are"
AVERAGE_HEADING = "Avg."
_MORE = ("seeds", "sd", "rank")


@dataclass(frozen=True)
class PaperTable:
    """A suite's table in a paper. The grid's title stays unprinted; its notes stand below the table.

    Args:
        suite: Suite.
        grid: Cells.
        methods: Ids of its rows.
        sentences: Its caption in plain text, the most important sentence first.
        remarks: Lines for its author.
        rules: Numbers of the rows that begin another family of methods.
    """

    suite: str
    grid: Grid
    methods: tuple[str, ...]
    sentences: tuple[str, ...]
    remarks: tuple[str, ...]
    rules: tuple[int, ...] = ()

    def fit_caption(self, legend: str = "") -> tuple[str, list[str]]:
        """Return a caption of at most MOST_WORDS words, and the sentences that it has no room for.

        ``legend`` explains headings; it follows the first sentence.
        """
        first, *others = self.sentences
        chosen = [first, *[legend] * bool(legend)]
        omitted: list[str] = []
        for sentence in others:
            fits = len(" ".join([*chosen, sentence]).split()) <= MOST_WORDS
            (chosen if fits else omitted).append(sentence)
        return " ".join(chosen), omitted


def paper_tables(
    campaign: Campaign, columns: Sequence[str] = (), sd: str = DEVIATIONS[0]
) -> list[PaperTable]:
    """Return the tables of a campaign's suites with some columns, by default the tasks and the average.

    ``sd`` is one of DEVIATIONS. Raises InputError for a column that all tables lack.
    """
    suites = group_by(by_profile_and_suite(campaign.records), lambda records: records[0].suite)
    tables = [_suite_table(campaign, suite, blocks, sd) for suite, blocks in suites.items()]
    check_columns(columns, list(chain.from_iterable(table.grid.header for table in tables)))
    selected = []
    for table in tables:
        wanted = columns or [name for name in table.grid.header if name not in _MORE]
        if places := column_positions(table.grid.header, wanted):
            selected.append(replace(table, grid=pick_columns(table.grid, [0, *filter(None, places)])))
    return selected


def _suite_table(
    campaign: Campaign, suite: str, blocks: Sequence[Sequence[RunRecord]], sd: str
) -> PaperTable:
    tables = list(map(partial(make_leaderboard, campaign), blocks))
    tasks: dict[str, None] = {}
    notes: dict[str, None] = {}
    for table in tables:
        tasks |= dict.fromkeys(table.tasks)
        notes |= dict.fromkeys(filter(None, (table.bold, *table.notes)))
    tasks.pop("avg", None)
    tested, none = any(table.tests for table in tables), ScoreCell(None, None, 0)
    rows: list[tuple[Value, ...]] = []
    methods: list[str] = []
    rules: list[int] = []
    groups: list[tuple[int, str]] = []
    for table, records, title in zip(tables, blocks, _block_titles(blocks), strict=True):
        groups.append((len(rows), title))
        for family in _family_rows(campaign, table, records):
            rules.append(len(rows))
            for row in family:
                average = row.cells.get("avg", none)
                cells: list[Value] = [_row_name(campaign, row.method, records), row.seeds]
                cells += [row.cells.get(task, none) for task in tasks]
                cells += [average, format_score(average.sd), *[row.rank_text] * tested]
                rows.append(tuple(cells))
                methods.append(row.method)
    header = ("Model", "seeds", *task_headings(tasks), AVERAGE_HEADING, "sd", *["rank"] * tested)
    grid = limit_deviations(Grid(suite, header, tuple(rows), ()), sd)
    if len(groups) > 1:
        grid = replace(grid, groups=tuple(groups))
    grid = mark_rows(grid, campaign.footnotes)
    listed = list(map(campaign.listed, blocks))
    sentences = tuple(_caption_sentences(campaign, tables, listed, sd))
    remarks = (*notes, *_seed_lists(campaign, listed))
    starts = {place for place, _ in groups}
    return PaperTable(
        suite,
        grid,
        tuple(methods),
        sentences,
        remarks,
        tuple(place for place in rules if place not in starts),
    )


def _family_rows(
    campaign: Campaign, table: Leaderboard, records: Sequence[RunRecord]
) -> list[list[LeaderboardRow]]:
    """The rows of each family: untrained, checkpoints, baselines, methods, supervised.

    Rows that stand as given begin another family wherever two neighbours differ.
    """
    runs = by_method(records)
    places = {row.method: _family_place(row, runs[row.method][0]) for row in table.rows}
    rows = list(table.rows)
    if not campaign.given:
        rows.sort(key=lambda row: places[row.method])
    families: list[list[LeaderboardRow]] = []
    for row in rows:
        if not families or places[families[-1][-1].method] != places[row.method]:
            families.append([])
        families[-1].append(row)
    return families


def _family_place(row: LeaderboardRow, record: RunRecord) -> int:
    """The place of a row's family in a table."""
    if row.group in GROUPS[:2]:  # without training, checkpoints as they are
        return GROUPS.index(row.group)
    method = own_methods().get(record.name)
    baseline = method is not None and method.card.kind == "baseline"
    return 4 if row.group == SUPERVISED_GROUP else 3 - baseline


def _row_name(campaign: Campaign, method: str, records: Sequence[RunRecord]) -> str:
    """A row's name; an untrained backbone, which caption or heading name, is called untrained."""
    name, own = campaign.shown(method), by_method(records)[method]
    title = profile_title(records)
    if name != paper_name(own) or own[0].name not in ("untrained", "whitening"):
        return name
    if name == f"{title}-whitening":
        return "Whitening"
    return f"Untrained{name.removeprefix(title)}" if name.startswith(f"{title} (") else name


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


def _caption_sentences(
    campaign: Campaign, tables: Sequence[Leaderboard], blocks: Sequence[Sequence[RunRecord]], sd: str
) -> list[str]:
    """The sentences of the caption: scores and seeds, marks, then the notes of every table of the records."""
    records = list(chain.from_iterable(blocks))
    suite = tables[0].suite
    scale = "\N{MULTIPLICATION SIGN} 100"
    first = f"{metric_title(records)} {scale} on {SUITES.get(suite, f'suite {suite}')}"
    if len(blocks) == 1:
        first += f", {profile_title(blocks[0])}"
    if measured_by_mteb(records):
        first += ", as mteb computes it"
    if campaign.rounded:
        first += ", averages of rounded scores"
    seeds = _count_seeds(records)
    if seeds:
        first += f"; mean{_DEVIATION * (sd != 'none')} over {seeds}" if seeds != "1 seed" else f"; {seeds}"
    sentences = [f"{first}.", *[SYNTHETIC] * any(record.world is not None for record in records)]
    marks = [_explain_marks(campaign, table) for table in tables]
    sentences += _block_sentences(blocks, marks)
    sentences += campaign.apart_note(list_methods(tables), how="")
    notes: dict[str, None] = {}
    required = []
    for table, group in zip(tables, blocks, strict=True):
        required.append(required_notes(campaign, group, table.rows))
        notes |= dict.fromkeys(required[-1])
    for note in notes:
        sentences += _block_sentences(blocks, [note * (note in own) for own in required])
    return sentences + _block_sentences(blocks, list(map(partial(_external_rows, campaign), blocks)))


_DEVIATION = " \N{PLUS-MINUS SIGN} SD"


def _count_seeds(records: Sequence[RunRecord]) -> str:
    """The number of seeds of the rows that have seeds, or ""."""
    counts = set(map(len, _method_seeds(records).values()))
    if not counts:
        return ""
    few, most = min(counts), max(counts)
    return f"{few} seed{'s' * (few > 1)}" if few == most else f"{few}\N{EN DASH}{most} seeds"


def _method_seeds(records: Sequence[RunRecord]) -> dict[str, tuple[int, ...]]:
    """The finished seeds of each method that has seeds."""
    seeds = {}
    for method, runs in by_method(finished_records(records)).items():
        if numbers := sorted({run.seed for run in runs if run.seed is not None}):
            seeds[method] = tuple(numbers)
    return seeds


def _seed_lists(campaign: Campaign, blocks: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Lines with the seeds of every block and method."""
    texts = []
    for records in blocks:
        methods = group_by(_method_seeds(records).items(), lambda entry: entry[1])
        parts = []
        for seeds, entries in sorted(methods.items(), key=lambda group: -len(group[1])):
            names = join_names(campaign.shown(method) for method, _ in entries)
            parts.append(f"{seed_range(seeds)}: {names}" if len(methods) > 1 else seed_range(seeds))
        texts.append("; ".join(parts) and f"Rows have {'; '.join(parts)}.")
    return _block_sentences(blocks, texts)


def _explain_marks(campaign: Campaign, table: Leaderboard) -> str:
    """A sentence on bold cells and daggers, or ""."""
    cells = [cell for row in table.rows for cell in row.cells.values()]
    parts, base = [], campaign.baseline
    if any(cell.mark for cell in cells):
        if not table.tests:
            return CAPTION
        parts.append("Bold: may be the best of its column")
    signs = {cell.sign for cell in cells}
    words = [f"{sign} {word}" for sign, word in ((ABOVE, "above"), (BELOW, "below")) if sign in signs]
    if words and base is not None:
        parts.append(f"{', '.join(words)} {campaign.shown(base)}")
    return f"{'; '.join(parts)} (95% confidence)." if parts else ""


def _external_rows(campaign: Campaign, records: Sequence[RunRecord]) -> str:
    """A sentence on rows of other models than the block's title, or ""."""
    others = {record.method for record in records if record.name in EXTERNAL_MODELS}
    if not others or profile_title(records) == _AS_THEY_ARE:
        return ""
    named = join_names(campaign.shown(method) for method in by_method(records) if method in others)
    return f"{_AS_THEY_ARE.capitalize()}, of other models: {named}."


def _block_sentences(blocks: Sequence[Sequence[RunRecord]], texts: Sequence[str]) -> list[str]:
    """Sentences on the blocks: one for all if they are equal, otherwise each with its profile."""
    if len(set(texts)) == 1:
        return [texts[0]] * bool(texts[0])
    return [f"{title}: {text}" for title, text in zip(_block_titles(blocks), texts, strict=True) if text]


def seed_range(seeds: Sequence[int]) -> str:
    r"""Return seeds as text, with an en dash in ranges.

    >>> ascii(seed_range([1, 2, 3])), seed_range([1, 5])
    ("'seeds 1\\u20133'", 'seeds 1, 5')
    """
    return format_seeds(seeds).replace("-", "\N{EN DASH}").replace(",", ", ")
