"""The probes' tables of a campaign, with the rank correlation of CLS energy and score."""

from __future__ import annotations

from dataclasses import replace

from bench.reports.campaign import Campaign
from bench.reports.grid import Grid
from bench.reports.tables.probes import energy_against_score, from_records, probe_grids


def probe_tables(campaign: Campaign) -> list[Grid]:
    """Return two tables a profile and suite; the last says whether CLS energy ranks methods as the score."""
    found = from_records(campaign.records)
    grids = probe_grids(found)
    if grids:
        relations = [relation.sentence() for relation in energy_against_score(found)]
        grids[-1] = replace(grids[-1], notes=(*grids[-1].notes, *relations))
    return grids
