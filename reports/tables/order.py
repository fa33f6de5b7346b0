"""Rank correlations between settings over their methods: does a cheap setting predict the papers' order?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bench.comparison.selection import group_by
from bench.render.grid import DASH, Grid, Quoted, ScoreCell, Value
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, record_notes
from bench.reports.tables.method_order import LEAST, OrderSetting, SettingPair, order_settings, pair_settings
from bench.reports.tables.pairwise_tests import LEVEL
from bench.reports.tables.published_figures import Footnotes
from bench.reports.tables.relation import rho_value
from bench.stats.correlations import RankCorrelation, rank_correlation

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
        """Its printed interval; a dash for one without width."""
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
            others = ", ".join(map(campaign.shown, setting.variants[name]))
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
            names = ", ".join(map(campaign.shown, methods))
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
