"""Figures of what ``bench probe --out`` writes into a campaign's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.render.figure import Figure, Series
from bench.reports.campaign import PROBES, Campaign, read_json
from bench.reports.figures.campaign_files import figures_by_file

_SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")


def probe_file_figures(campaign: Campaign) -> list[tuple[ResultStore, list[Figure]]]:
    """Return the figures of each file of probes, with the campaign's store; raises DataError if damaged."""
    return figures_by_file(campaign, PROBES, _probe_figures)


def _probe_figures(path: Path) -> Iterator[Figure]:
    """Densities of the cosines by gold score (JTCSE, Figure 11), and attention maps of the last layer (9)."""
    for one in read_json(path):
        name = one["method"] + ("" if one["seed"] is None else f", seed {one['seed']}")
        source = (f"file: {path.name}", f"profile: {one['profile']}", f"method: {name}")
        file = safe_name(f"{one['profile']}-{name}".replace(", ", "-"))
        density = one["probes"].get("density", {})
        if density.get("curves"):
            grid = tuple(float(x) for x in np.linspace(-1, 1, 101))
            series = tuple(
                Series(f"{group['low']:g} to {group['high']:g}", grid, tuple(map(float, curve)))
                for group, curve in zip(density["groups"], density["curves"], strict=True)
                if curve is not None
            )
            title = f"Cosines by gold score: {name}"
            yield Figure(f"{file}-density", "cosines", title, "lines", "cosine", "density", source, series)
        for number, tower in enumerate(one["probes"].get("attention_sink", {}).get("maps") or (), start=1):
            tokens = enumerate(tower["tokens"])
            labels = tuple(token if token in _SPECIAL else f"token {place}" for place, token in tokens)
            cells = tuple(tuple(map(float, row)) for row in tower["layers"][-1])
            note = f"Layer {len(tower['layers'])}, mean over heads; rows are queries. Words are left out."
            own, title = f"{file}-attention-{number}", f"Attention: {name}, tower {number}"
            yield Figure(
                own, "attention", title, "heat", "key", "query", source, (), labels, labels, cells, note
            )
