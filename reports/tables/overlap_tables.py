"""Test sentences that a training text contains, as ``bench data overlap`` counted them."""

from __future__ import annotations

from bench.render.grid import DASH, Grid
from bench.reports.campaign import OVERLAP, Campaign, read_table

_COUNTS = ("task", "level", "sentences", "touched", "pairs", "clean_pairs")
_COUNTS_NOTE = (
    "Test sentences that a training text contains: exactly, by letters and digits (key), or by "
    "eight words in a row (near); a pair is clean where it contains neither sentence."
)
_CLEAN = ("profile", "method", "seed", "task", "level", "all", "n_all", "clean", "low", "high", "n_clean")
_CLEAN_NOTE = (
    "A method's score on all and on the clean pairs, in the metric's unit; 95% interval of Bonett and Wright."
)


def overlap_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every csv file of ``bench data overlap`` in the campaign's folder."""
    grids = []
    for store, path in campaign.files(OVERLAP):
        with path.open(encoding="utf-8", errors="replace") as stream:
            with_scores = "method" in stream.readline().split(",")
        columns, note = (_CLEAN, _CLEAN_NOTE) if with_scores else (_COUNTS, _COUNTS_NOTE)
        rows = [tuple(row[name] or DASH for name in columns) for row in read_table(path, columns)]
        header = tuple(name.replace("_", " ") for name in columns)
        where = f"{store.campaign}/{path.name}" if campaign.several else path.name
        grids.append(Grid(f"Overlap with training text, {where}", header, tuple(rows), (note,)))
    return grids
