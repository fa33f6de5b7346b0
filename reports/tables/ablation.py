"""The tables of sweeps, with the papers' figures next to ours."""

from __future__ import annotations

from dataclasses import replace

from bench.config.sweeps import SWEEPS
from bench.data.published_tables import ablation_figures
from bench.errors import InputError
from bench.render.grid import Grid
from bench.reports.campaign import Campaign
from bench.reports.tables.published_figures import GREY, Footnotes, quote_figures
from bench.reports.tables.sweep_tables import sweep_grids


def ablation_grids(campaign: Campaign) -> list[Grid]:
    """Return the tables of the campaign's sweeps, sweep by sweep."""
    names = dict.fromkeys(manifest.sweep for manifest in campaign.sweeps)
    return [
        _add_published(grid, name)
        for name in names
        for grid in sweep_grids(
            [manifest for manifest in campaign.sweeps if manifest.sweep == name],
            campaign.records,
            campaign.name,
        )
    ]


def select_sweep(campaign: Campaign, name: str) -> Campaign:
    """Return the campaign with this sweep alone.

    Raises:
        InputError: no such sweep ran.
    """
    ran = tuple(manifest for manifest in campaign.sweeps if manifest.sweep == name)
    if not ran:
        known = ", ".join(dict.fromkeys(manifest.sweep for manifest in campaign.sweeps))
        raise InputError(
            f"no sweep '{name}' ran here",
            where=f"--table ablation:{name}",
            expected=f"one of {known}" if known else None,
            hint=f"bench sweep {name if name in SWEEPS else 'NAME'} --campaign {campaign.stores[0].campaign}",
        )
    return replace(campaign, sweeps=ran)


def _add_published(grid: Grid, sweep: str) -> Grid:
    printed, notes = ablation_figures(sweep), Footnotes()
    columns = [column for column in grid.header[1:] if any(place[1] == column for place in printed)]
    if not columns:
        return grid
    rows = []
    for label, *cells in grid.rows:
        quotes = (quote_figures(printed.get((str(label), column), ()), notes) for column in columns)
        rows.append((label, *cells, *quotes))
    sources = "; ".join(dict.fromkeys(f.source for found in printed.values() for f in found))
    said = (*grid.notes, f"Published: {sources}, bert-base.", GREY, *notes.notes)
    header = (*grid.header, *(f"published {column}" for column in columns))
    return replace(grid, header=header, rows=tuple(rows), notes=said)
