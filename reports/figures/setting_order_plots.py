"""Two settings' averages against each other, a point a method."""

from __future__ import annotations

from bench.render.figure import Figure
from bench.render.grid import SCALE
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import point_series
from bench.reports.records import describe_provenance
from bench.reports.tables.order import SettingCorrelation, correlate_settings

_MOST = 6


def order_figures(campaign: Campaign) -> list[Figure]:
    """Return a scatter of every two settings with enough methods in common, at most six: those with most."""
    found, _ = correlate_settings(campaign)
    drawn = sorted(range(len(found)), key=lambda place: -found[place].found.n)[:_MOST]
    said = ""
    if len(found) > _MOST:
        said = f" {_MOST} of {len(found)} pairs of settings are drawn: those with most methods in common."
    return [_order_figure(campaign, found[place], said) for place in sorted(drawn)]


def _order_figure(campaign: Campaign, one: SettingCorrelation, said: str) -> Figure:
    a, b = one.pair.first, one.pair.second
    both = zip(one.pair.methods, *one.pair.scores, strict=True)
    series = point_series({campaign.shown(method): (SCALE * x, SCALE * y) for method, x, y in both})
    records = [record for setting in (a, b) for record in setting.records]
    source = describe_provenance(records, campaign.name) if records else (f"campaign: {campaign.name}",)
    if b.published:  # they stand last
        source = (*source, "published: the papers' STS tables")
    note = f"{one.found.n} methods: Spearman's rho {one.rho}, 95% interval {one.interval}.{said}"
    return Figure(
        f"order-{a.file}-{b.file}",
        "order",
        f"{a.name} against {b.name}",
        "points",
        f"{a.name}: average x 100",
        f"{b.name}: average x 100",
        source,
        series,
        note=note,
    )
