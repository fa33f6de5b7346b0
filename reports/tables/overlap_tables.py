"""Test sentences that a training text contains, as ``bench data overlap`` counted them."""

from __future__ import annotations

from bench.render.grid import DASH, Grid
from bench.reports.campaign import OVERLAP, Campaign, read_table

_COUNTS = ("task", "level", "sentences", "touched", "pairs", "clean_pairs")
_CLEAN = ("profile", "method", "seed", "task", "level", "all", "n_all", "clean", "low", "high", "n_clean")


def overlap_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every csv file of ``bench data overlap`` in the campaign's folder."""
    grids = []
    for store, path in campaign.files(OVERLAP):
        with_scores = "method" in path.open(encoding="utf-8", errors="replace").readline().split(",")
        columns = _CLEAN if with_scores else _COUNTS
        rows = tuple(tuple(row[name] or DASH for name in columns) for row in read_table(path, columns))
        note = (
            "A method's score on all and on the clean pairs, in the metric's unit; 95% interval of Bonett "
            "and Wright."
            if with_scores
            else "Test sentences that a training text contains: exactly, by letters and digits (key), or by "
            "eight words in a row (near); a pair is clean where it contains neither sentence."
        )
        header = tuple(name.replace("_", " ") for name in columns)
        where = f"{store.campaign}/{path.name}" if campaign.several else path.name
        grids.append(Grid(f"Overlap with training text, {where}", header, rows, (note,)))
    return grids
