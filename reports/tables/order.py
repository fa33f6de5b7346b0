"""Does a cheap setting predict the papers' order? Rank correlations between settings over their methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.comparison.selection import group_by
from bench.render.grid import DASH, Grid, Quoted, ScoreCell, Value
from bench.reports.campaign import Campaign
from bench.reports.tables.method_order import LEAST, OrderSetting, SettingPair, order_settings, pair_settings
from bench.reports.tables.pairwise_tests import LEVEL
from bench.reports.tables.published_figures import Footnotes
from bench.stats.correlations import RankCorrelation, rank_correlation

_HEADER = ("setting A", "setting B", "methods", "independent", "rho", "95% interval", "tau-b", "agree")


@dataclass(frozen=True)
class SettingCorrelation:
    """Two settings with enough methods in common, and how far they order them alike.

    Args:
        pair: The two.
        found: The rank correlation of their averages.
    """

    pair: SettingPair
    found: RankCorrelation

    @property
    def rho(self) -> str:
        """Rho as it is printed."""
        return DASH if self.found.rho is None else f"{self.found.rho:+.2f}"

    @property
    def interval(self) -> str:
        """Its interval as it is printed; a dash where it has no width."""
        low, high = self.found.low, self.found.high
        return DASH if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]"

    @property
    def row(self) -> tuple[str, ...]:
        """Its row of the table."""
        names, (alike, both) = (self.pair.first.name, self.pair.second.name), self.pair.agreement()
        tau = DASH if self.found.tau is None else f"{self.found.tau:+.2f}"
        return (
            *names,
            str(self.found.n),
            str(self.pair.independent),
            self.rho,
            self.interval,
            tau,
            f"{alike} of {both}" if both else DASH,
        )


def correlate_settings(campaign: Campaign) -> tuple[list[SettingCorrelation], list[SettingPair]]:
    """Return every two settings with enough methods in common, and those with fewer."""
    every = pair_settings(order_settings(campaign))
    enough = [
        SettingCorrelation(p, rank_correlation(*p.scores, LEVEL, p.independent))
        for p in every
        if len(p.methods) >= LEAST
    ]
    return enough, [pair for pair in every if len(pair.methods) < LEAST]


def order_grids(campaign: Campaign) -> list[Grid]:
    """Return the correlations of every two settings, and the methods in each; none without such two."""
    enough, few = correlate_settings(campaign)
    if not enough:
        return []
    names = {setting.name: setting for one in enough for setting in (one.pair.first, one.pair.second)}
    found = sorted(names.values(), key=lambda setting: setting.published)
    notes = (*_column_notes(enough), *_setting_notes(campaign, found), *_omission_notes(campaign, found, few))
    title = f"Order of methods in two settings: campaign {campaign.name}"
    return [Grid(title, _HEADER, tuple(one.row for one in enough), notes), _method_grid(campaign, found)]


def _column_notes(enough: Sequence[SettingCorrelation]) -> list[str]:
    """What the columns say, and what they don't."""
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
    if any(one.found.rho is None for one in enough):
        notes.append("No rho: all averages of one setting are equal.")
    if any(one.found.rho is not None and one.found.low is None for one in enough):
        notes.append(f"No interval: rho is 1 or -1, or fewer than {LEAST} groups are independent.")
    return notes


def _rho_interval(methods: int) -> str:
    """The interval of a rho of 0.5."""
    from bench.stats.item_statistics import spearman_interval

    return "[{:+.1f}, {:+.1f}]".format(*spearman_interval(0.5, methods, LEVEL))


def _setting_notes(campaign: Campaign, found: Sequence[OrderSetting]) -> list[str]:
    """What one must know of these settings."""
    notes, ours = [], [setting for setting in found if not setting.published]
    untested = [setting.name for setting in ours if not setting.tells_apart]
    if untested:
        notes.append(f"Nothing could be tested, so no two are told apart: {'; '.join(untested)}.")
    profiles = group_by(ours, lambda setting: setting.records[0].profile)
    if several := [profile for profile, there in profiles.items() if len(there) > 1]:
        notes.append(f"Of one profile, so the same trained models: settings of {', '.join(several)}.")
    if len(ours) < len(found):
        notes += [
            "published: the average that the papers' STS tables print, of this report's methods; where "
            "tables print several, their median. A method of ours has the figure of its printed name, "
            "whatever its training text, translations and pooling.",
            "Few tables say of how many seeds a published figure is. The best of five lies 1.2 standard "
            "deviations over seeds above their mean, so a lead of that size may be luck, or more seeds "
            "tried: no setting can be expected to repeat it, and more methods don't average it out.",
        ]
    printed = {name for setting in found if setting.published for name in setting.cells}
    for setting in ours:
        for name, others in setting.variants.items():
            if name not in printed:
                continue
            shown, rest = campaign.shown(setting.names[name]), ", ".join(map(campaign.shown, others))
            notes.append(
                f"{setting.name}: {shown} stands for the printed {name}, by its shorter id; not {rest}."
            )
    if campaign.known:
        count = len({record.method for record in campaign.records})
        notes.append(f"{count} of {campaign.known} methods, chosen by --methods: so is every rho.")
    return notes


def _omission_notes(
    campaign: Campaign, found: Sequence[OrderSetting], few: Sequence[SettingPair]
) -> list[str]:
    """Which pairs of settings and which methods aren't here."""
    notes = []
    if few:
        said = (f"{pair.first.name} and {pair.second.name} ({len(pair.methods)})" for pair in few)
        notes.append(f"Fewer than {LEAST} methods in common, so left out: {'; '.join(said)}.")
    for setting in found:
        for why, methods in group_by(setting.left_out, setting.left_out.__getitem__).items():
            names = ", ".join(map(campaign.shown, methods))
            notes.append(f"Left out of {setting.name}, {why}: {names}.")
    return notes


def _method_grid(campaign: Campaign, found: Sequence[OrderSetting]) -> Grid:
    """The methods that stand in two settings or more, a column a setting."""
    columns = [_method_names(setting, found) for setting in found]
    both = list(zip(found, columns, strict=True))
    every = dict.fromkeys(method for column in columns for method in column)
    rows = [m for m in every if sum(m in column for column in columns) > 1]
    if campaign.given:
        rows.sort(key=campaign.given.index)
    else:
        rows.sort(key=lambda m: [(m not in c, -s.score(c[m]) if m in c else 0.0) for s, c in both])
    footnotes = Footnotes()
    texts = [_ranked_cells(s, {m: c[m] for m in rows if m in c}, footnotes) for s, c in both]
    lines = [(campaign.shown(m), *(text.get(m, DASH) for text in texts)) for m in rows]
    notes = (
        "Averages x 100, mean and standard deviation over seeds; published ones as printed.",
        "In parentheses the rank in its column, 1 for the best of the methods that the column has here; "
        "equal ones share it. Columns with other methods have other ranks: rho above is of the methods of "
        "both.",
        *footnotes.notes,
        *dict.fromkeys(note for s in found for record in s.records for note in record.notes),
    )
    title = f"Methods in two settings or more: campaign {campaign.name}"
    return Grid(title, ("method", *(setting.name for setting in found)), tuple(lines), notes)


def _method_names(setting: OrderSetting, found: Sequence[OrderSetting]) -> dict[str, str]:
    """What a setting has, by the ids of methods."""
    if not setting.published:
        return {method: method for method in setting.cells}
    named = {method: name for one in found for name, method in one.names.items()}
    return {method: name for method, name in named.items() if name in setting.cells}


def _ranked_cells(setting: OrderSetting, shown: Mapping[str, str], footnotes: Footnotes) -> dict[str, Value]:
    """Averages with their ranks."""
    scores = {own: setting.score(own) for own in shown.values()}
    texts: dict[str, Value] = {}
    for method, own in shown.items():
        rank = f" ({1 + sum(score > scores[own] for score in scores.values())})"
        cell = setting.cells[own]
        if isinstance(cell, ScoreCell):
            texts[method] = replace(cell, sign=rank)
        else:
            texts[method] = Quoted(cell.text, False, f"{footnotes.sign(setting.remarks.get(own, ()))}{rank}")
    return texts
