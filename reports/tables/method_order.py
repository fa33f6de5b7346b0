"""Rank correlations between settings over their methods: does a cheap setting predict the papers' order?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from statistics import median
from typing import TYPE_CHECKING

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedRow, published_rows
from bench.records.record import RunRecord, safe_name
from bench.render.grid import DASH, SCALE, Grid, Quoted, ScoreCell, Value
from bench.render.row_names import join_names
from bench.reports.campaign import Campaign
from bench.reports.record_groups import (
    EXTERNAL_MODELS,
    by_method,
    by_profile_and_suite,
    finished_records,
    is_ranked,
    main_metric,
    record_notes,
    summarise_scores,
)
from bench.reports.tables.pairwise_tests import LEVEL
from bench.reports.tables.probe_correlations import count_independent, rho_value, trained_stages
from bench.reports.tables.published_figures import Footnotes, figure_remarks, published_names
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.stats.correlations import RankCorrelation, rank_correlation

if TYPE_CHECKING:
    from bench.stats.method_ranking import Ranking

LEAST = 4
"""Methods that two settings must share, as the interval of a correlation needs so many."""
BACKBONES = ("bert-base", "roberta-base")
"""Backbones for which the papers print the STS average."""
_DIGITS = 10  # of a score: means that differ by rounding alone are equal
SUPERVISED = "supervised (--rank-supervised takes them in)"
PARAPHRASED = "trained on the made-up world's own paraphrases"
NOT_OURS = "a model that isn't the profile's, the same in every setting"


@dataclass(frozen=True)
class OrderSetting:
    """A setting that orders methods.

    Args:
        name: Profile and suite, or "published" and the backbone.
        file: The same for the name of a file.
        cells: Printed average of each method, by its id; of a published one by the name on BERT-base.
        names: Ids by the name that papers print on BERT-base, one a name; of a published one empty.
        variants: Further ids that papers would print under such a name, by the name.
        ranking: Tests between its methods; a published one lacks them, as its figures lack seeds.
        left_out: Why methods of its records are missing, by id.
        remarks: Of a published setting the doubts about a figure, by its name.
    """

    name: str
    file: str
    cells: Mapping[str, ScoreCell | Quoted]
    names: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranking: Ranking | None = None
    records: tuple[RunRecord, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """True for averages that papers print."""
        return self.ranking is None

    def score(self, method: str) -> float:
        """Return the average, in the metric's unit."""
        cell = self.cells[method]
        value = float(cell.text) / SCALE if isinstance(cell, Quoted) else cell.mean
        return round(value or 0.0, _DIGITS)

    def order(self, a: str, b: str) -> int:
        """Return 1 if a is better than b, -1 if it is worse, 0 if the tests leave it open."""
        if self.ranking is None:
            return (self.score(a) > self.score(b)) - (self.score(a) < self.score(b))
        pair = self.ranking.find_pair(a, b)
        if pair is None or not pair.differs:
            return 0
        return 1 if (pair.difference > 0) == (pair.first == a) else -1

    @property
    def tells_apart(self) -> bool:
        """False without tests."""
        return self.ranking is None or bool(self.ranking.methods)


@dataclass(frozen=True)
class SettingPair:
    """Two settings and the methods of both, by printed name: its id in each."""

    first: OrderSetting
    second: OrderSetting
    methods: Mapping[str, tuple[str, str]]

    @property
    def scores(self) -> tuple[list[float], list[float]]:
        """The averages of both, in the order of ``methods``."""
        ids = list(zip(*self.methods.values(), strict=True)) or [(), ()]
        return list(map(self.first.score, ids[0])), list(map(self.second.score, ids[1]))

    @property
    def independent(self) -> int:
        """Number of groups of methods that trained stages in either setting connect."""
        runs = by_method(self.first.records), by_method(self.second.records)
        stages = []
        for a, b in self.methods.values():
            stages.append(trained_stages([*runs[0].get(a, ()), *runs[1].get(b, ())]))
        return count_independent(stages)

    def agreement(self) -> tuple[int, int]:
        """Return how many pairs of methods both order alike, and how many both separate."""
        alike = separated = 0
        for (a, b), (c, d) in combinations(self.methods.values(), 2):
            first, second = self.first.order(a, c), self.second.order(b, d)
            separated += bool(first and second)
            alike += bool(first and first == second)
        return alike, separated


def order_settings(campaign: Campaign) -> list[OrderSetting]:
    """Return the settings of a campaign that have methods, the published ones last."""
    settings = []
    rows: dict[str, RunRecord] = {}
    for records in map(finished_records, by_profile_and_suite(campaign.records)):
        if setting := _campaign_setting(campaign, records):
            runs = by_method(setting.records)
            rows |= {name: runs[method][0] for name, method in setting.names.items()}
            settings.append(setting)
    published = [_published_setting(backbone, rows) for backbone in BACKBONES]
    return [*settings, *(setting for setting in published if setting.cells)]


def pair_settings(settings: Sequence[OrderSetting]) -> list[SettingPair]:
    """Return every two settings, also those whose methods all differ."""
    ids: dict[str, str] = {}
    for setting in reversed(settings):
        ids |= setting.names
    return [SettingPair(a, b, dict(_common_methods(a, b, ids))) for a, b in combinations(settings, 2)]


def _common_methods(
    a: OrderSetting, b: OrderSetting, ids: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Methods of both: by their ids, and with a published setting by the names that papers print."""
    if a.published:
        yield from ((ids[name], (name, name)) for name in a.cells if name in b.cells)
    elif b.published:
        yield from ((method, (method, name)) for name, method in a.names.items() if name in b.cells)
    else:
        yield from ((method, (method, method)) for method in a.cells if method in b.cells)


def _campaign_setting(campaign: Campaign, done: Sequence[RunRecord]) -> OrderSetting | None:
    """The setting of finished records of one profile and suite, if they have an average."""
    metric = main_metric([record for record in done if record.method not in campaign.apart])
    cells, left_out = {}, {}
    same: dict[str, list[str]] = {}
    for method, runs in by_method(done).items():
        if why := _omission_reason(campaign, runs):
            left_out[method] = why
            continue
        cell = summarise_scores(runs, metric=metric)
        if cell.mean is not None:
            cells[method] = cell
            same.setdefault(_published_name(runs[0], BACKBONES[0]), []).append(method)
    if not cells:
        return None
    profile, suite = done[0].profile, done[0].suite
    same.pop("", None)
    named = {name: sorted(ids, key=lambda method: (len(method), method)) for name, ids in same.items()}
    return OrderSetting(
        f"{profile}, {suite}",
        f"{safe_name(profile)}-{safe_name(suite)}",
        cells,
        {name: ids[0] for name, ids in named.items()},
        {name: tuple(ids[1:]) for name, ids in named.items() if len(ids) > 1},
        run_pairwise_tests(campaign, done).of(),
        tuple(record for record in done if record.method in cells),
        left_out,
    )


def _omission_reason(campaign: Campaign, runs: Sequence[RunRecord]) -> str:
    """Why a method is excluded from comparisons of settings, or ""."""
    if runs[0].method in campaign.apart:
        return SUPERVISED
    if not all(is_ranked(record, supervised=campaign.rank_supervised) for record in runs):
        return PARAPHRASED
    return NOT_OURS if runs[0].name in EXTERNAL_MODELS else ""


def _published_name(record: RunRecord, backbone: str) -> str:
    """The name under which tables of a backbone print a method, or ""."""
    return next(iter(published_names(replace(record, backbone={"name": backbone}))), "")


def _published_setting(backbone: str, rows: Mapping[str, RunRecord]) -> OrderSetting:
    """The averages of the papers' STS tables, by the methods' names on BERT-base."""
    lines = [line for line in published_rows("sts7") if line.first.section == "sts7"]
    tables: dict[str, list[PublishedRow]] = {}
    for line in lines:
        if line.first.backbone == backbone and "avg" in line.figures:
            tables.setdefault(line.first.method, []).append(line)
    cells, remarks = {}, {}
    for name, record in rows.items():
        if own := tables.get(_published_name(record, backbone)):
            texts = {line.figures["avg"].text for line in own}
            text = texts.pop() if len(texts) == 1 else f"{median(map(float, texts)):.6g}"
            cells[name] = Quoted(text, grey=False)
            if doubts := _figure_remarks(own):
                remarks[name] = doubts
    return OrderSetting(f"published, {backbone}", f"published-{backbone}", cells, remarks=remarks)


def _figure_remarks(lines: Sequence[PublishedRow]) -> tuple[str, ...]:
    """Known errors and doubts of averages, and averages that tables only imply."""
    remarks: dict[str, None] = {}
    for line in lines:
        figure = line.figures["avg"]
        texts = [text for text, tasks in line.misprints.items() if "avg" in tasks]
        texts += [part for part in figure.note.split("; ") if part.startswith("implied")]
        remarks |= dict.fromkeys(figure_remarks(figure, texts))
    return tuple(remarks)


_HEADER = ("setting A", "setting B", "methods", "independent", "rho", "95% interval", "tau-b", "agree")


@dataclass(frozen=True)
class SettingCorrelation:
    """Two settings with enough methods in common, and the rank correlation of their averages."""

    pair: SettingPair
    found: RankCorrelation

    @property
    def rho(self) -> str:
        """Printed rho."""
        return rho_value(self.found.rho)

    @property
    def interval(self) -> str:
        """Its printed interval; a dash for equal ends."""
        low, high = self.found.low, self.found.high
        return DASH if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]"

    @property
    def row(self) -> tuple[str, ...]:
        """Its row of the table."""
        alike, separated = self.pair.agreement()
        agree = f"{alike} of {separated}" if separated else DASH
        counts = str(self.found.n), str(self.pair.independent)
        values = self.rho, self.interval, rho_value(self.found.tau)
        return (self.pair.first.name, self.pair.second.name, *counts, *values, agree)


def correlate_settings(campaign: Campaign) -> tuple[list[SettingCorrelation], list[SettingPair]]:
    """Return every two settings with enough methods in common, and those with fewer."""
    correlations, few = [], []
    for pair in pair_settings(order_settings(campaign)):
        if len(pair.methods) < LEAST:
            few.append(pair)
        else:
            found = rank_correlation(*pair.scores, LEVEL, pair.independent)
            correlations.append(SettingCorrelation(pair, found))
    return correlations, few


def order_grids(campaign: Campaign) -> list[Grid]:
    """Return the correlations of every two settings, and the methods in each."""
    correlations, few = correlate_settings(campaign)
    if not correlations:
        return []
    names: dict[str, OrderSetting] = {}
    for one in correlations:
        names |= {one.pair.first.name: one.pair.first, one.pair.second.name: one.pair.second}
    settings = sorted(names.values(), key=lambda setting: setting.published)
    notes = (
        *_column_notes(correlations),
        *_setting_notes(campaign, settings),
        *_omission_notes(campaign, settings, few),
    )
    title = f"Order of methods in two settings: campaign {campaign.name}"
    rows = tuple(correlation.row for correlation in correlations)
    return [Grid(title, _HEADER, rows, notes), _method_grid(campaign, settings)]


def _column_notes(correlations: Sequence[SettingCorrelation]) -> list[str]:
    notes = [
        "rho: Spearman's, over the methods' averages (means over seeds), with its interval (Bonett and "
        "Wright 2000); tau-b: Kendall's. Equal averages are ties.",
        "agree: of the pairs of methods that both settings tell apart, those in the same order. A setting "
        "of ours tells two apart by its tests of all its pairs (--table significance); published figures "
        "have no seeds, so there every two that are unequal count.",
        "independent: groups of methods that share no trained stage; the interval is that of so many "
        "methods, each by itself. They share more: code, and settings sometimes weights, text or test data. "
        f"Few say little: at rho 0.5 the interval is {_rho_interval(10)} with ten, {_rho_interval(30)} with "
        "thirty.",
    ]
    found = [correlation.found for correlation in correlations]
    if any(each.rho is None for each in found):
        notes.append("No rho: all averages of one setting are equal.")
    if any(each.rho is not None and each.low is None for each in found):
        notes.append(f"No interval: rho is 1 or -1, or fewer than {LEAST} groups are independent.")
    return notes


def _rho_interval(methods: int) -> str:
    """The interval of a rho of 0.5."""
    from bench.stats.item_statistics import spearman_interval

    return "[{:+.1f}, {:+.1f}]".format(*spearman_interval(0.5, methods, LEVEL))


def _setting_notes(campaign: Campaign, settings: Sequence[OrderSetting]) -> list[str]:
    notes, ours = [], [setting for setting in settings if not setting.published]
    untested = [setting.name for setting in ours if not setting.tells_apart]
    if untested:
        notes.append(f"Nothing could be tested, so no two are told apart: {'; '.join(untested)}.")
    profiles = group_by(ours, lambda setting: setting.records[0].profile)
    if several := [profile for profile, group in profiles.items() if len(group) > 1]:
        notes.append(f"Of one profile, so the same trained models: settings of {', '.join(several)}.")
    if len(ours) < len(settings):
        notes += [
            "published: the average that the papers' STS tables print, of this report's methods; where "
            "tables print several, their median. A method of ours has the figure of its printed name, "
            "whatever its training text, translations and pooling.",
            "Few tables say of how many seeds a published figure is. The best of five lies 1.2 standard "
            "deviations over seeds above their mean, so a lead of that size may be luck, or more seeds "
            "tried: no setting can be expected to repeat it, and more methods don't average it out.",
        ]
    printed: set[str] = set()
    for setting in settings:
        if setting.published:
            printed.update(setting.cells)
    for setting in ours:
        for name in filter(printed.__contains__, setting.variants):
            shown = campaign.shown(setting.names[name])
            others = join_names(map(campaign.shown, setting.variants[name]))
            choice = f"{shown} stands for the printed {name}, by its shorter id; not {others}."
            notes.append(f"{setting.name}: {choice}")
    if campaign.known:
        count = len(by_method(campaign.records))
        notes.append(f"{count} of {campaign.known} methods, chosen by --methods: so is every rho.")
    return notes


def _omission_notes(
    campaign: Campaign, settings: Sequence[OrderSetting], few: Sequence[SettingPair]
) -> list[str]:
    """Notes on missing pairs of settings and methods."""
    notes = []
    if few:
        pairs = (f"{pair.first.name} and {pair.second.name} ({len(pair.methods)})" for pair in few)
        notes.append(f"Fewer than {LEAST} methods in common, so left out: {'; '.join(pairs)}.")
    for setting in settings:
        for why, methods in group_by(setting.left_out, setting.left_out.__getitem__).items():
            names = join_names(map(campaign.shown, methods))
            notes.append(f"Left out of {setting.name}, {why}: {names}.")
    return notes


def _method_grid(campaign: Campaign, settings: Sequence[OrderSetting]) -> Grid:
    """The methods of two settings or more, a column a setting."""
    names: dict[str, str] = {}
    for setting in settings:
        names |= dict(zip(setting.names.values(), setting.names, strict=True))
    columns: list[dict[str, str]] = []
    for setting in settings:
        ids = names if setting.published else dict(zip(setting.cells, setting.cells, strict=True))
        columns.append({method: name for method, name in ids.items() if name in setting.cells})
    counts = Counter(chain.from_iterable(columns))
    rows = [method for method, count in counts.items() if count > 1]
    if campaign.given:
        rows.sort(key=campaign.given.index)
    else:
        both = list(zip(settings, columns, strict=True))
        rows.sort(key=lambda m: [(m not in c, -s.score(c[m]) if m in c else 0.0) for s, c in both])
    footnotes, cells = Footnotes(), []
    for setting, column in zip(settings, columns, strict=True):
        ids = {method: column[method] for method in rows if method in column}
        cells.append(_ranked_cells(setting, ids, footnotes))
    lines = []
    for method in rows:
        lines.append((campaign.shown(method), *(column.get(method, DASH) for column in cells)))
    notes = (
        "Averages x 100, mean and standard deviation over seeds; published ones as printed.",
        "In parentheses the rank in its column, 1 for the best of the methods that the column has here; "
        "equal ones share it. Columns with other methods have other ranks: rho above is of the methods of "
        "both.",
        *footnotes.notes,
        *record_notes(list(chain.from_iterable(setting.records for setting in settings))),
    )
    title = f"Methods in two settings or more: campaign {campaign.name}"
    return Grid(title, ("method", *(setting.name for setting in settings)), tuple(lines), notes)


def _ranked_cells(setting: OrderSetting, ids: Mapping[str, str], footnotes: Footnotes) -> dict[str, Value]:
    """Averages with their ranks."""
    scores = {own: setting.score(own) for own in ids.values()}
    cells: dict[str, Value] = {}
    for method, own in ids.items():
        rank = f" ({1 + sum(score > scores[own] for score in scores.values())})"
        cell = setting.cells[own]
        if isinstance(cell, ScoreCell):
            cells[method] = replace(cell, sign=rank)
        else:
            cells[method] = Quoted(cell.text, False, f"{footnotes.sign(setting.remarks.get(own, ()))}{rank}")
    return cells
