"""Draw the files that other commands write into a campaign's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.errors import DataError
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.render.figure import Figure, Series
from bench.reports.campaign import PROBES, REPAIR, UNSEALED, Campaign, read_json
from bench.reports.sections import FILE_FIGURES, load_function
from bench.schema import LARGEST

_SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")


def file_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of all such files; raises DataError for a damaged one.

    Figures of several campaigns have the campaign in their names, as files of two may have one name.
    """
    figures = []
    for maker in FILE_FIGURES:
        for store, drawn in load_function(maker)(campaign):
            unsealed = set(campaign.unsealed_files(store)) if drawn else set()
            for figure in drawn:
                if unsealed.intersection(line.removeprefix("file: ") for line in figure.provenance):
                    figure = replace(figure, provenance=(*figure.provenance, UNSEALED))
                if campaign.several:
                    name, title = f"{store.campaign}-{figure.name}", f"{figure.title} ({store.campaign})"
                    provenance = f"campaign: {store.campaign}", *figure.provenance
                    figure = replace(figure, name=name, title=title, provenance=provenance)
                figures.append(figure)
    return figures


def figures_by_file(
    campaign: Campaign, pattern: str, make: Callable[[Path], Iterable[Figure]]
) -> list[tuple[ResultStore, list[Figure]]]:
    """Return each matching file's figures and its campaign; raises DataError for a damaged file."""
    return [(store, check_figures(path, partial(make, path))) for store, path in campaign.files(pattern)]


def check_figures(path: Path, make: Callable[[], Iterable[Figure]]) -> list[Figure]:
    """Return the figures of a file; raises DataError for a damaged one."""
    try:
        figures = list(make())
        if not all(map(_is_drawable, figures)):
            raise ValueError("numbers must be finite, one for each place")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = f"damaged file: {type(error).__name__} {error}"
        raise DataError(what, where=str(path), hint=REPAIR) from error
    return figures


def _is_drawable(figure: Figure) -> bool:
    """True if numbers and places are equally many, and each number is at most LARGEST."""
    values = figure.heat
    for series in figure.series:
        if len(series.x) != len(series.y) or len(series.spread) not in (0, len(series.x)):
            return False
        values += [*series.x, *series.y, *series.spread]
    if figure.kind == "heat":
        sizes = set(map(len, figure.cells))
        if sizes != {len(figure.columns)} or sizes == {0} or len(figure.cells) != len(figure.rows):
            return False
    return all(abs(value) <= LARGEST for value in values)


def probe_file_figures(campaign: Campaign) -> list[tuple[ResultStore, list[Figure]]]:
    """Return the figures of each file of ``bench probe --out``; raises DataError for a damaged file."""
    return figures_by_file(campaign, PROBES, _probe_figures)


def _probe_figures(path: Path) -> Iterator[Figure]:
    """Densities of the cosines by gold score (JTCSE, Figure 11), and attention maps of the last layer (9)."""
    for facts in read_json(path):
        name = facts["method"] if facts["seed"] is None else f"{facts['method']}, seed {facts['seed']}"
        source = (f"file: {path.name}", f"profile: {facts['profile']}", f"method: {name}")
        file = safe_name(f"{facts['profile']}-{name}".replace(", ", "-"))
        density = facts["probes"].get("density", {})
        if density.get("curves"):
            cosines = tuple(np.linspace(-1, 1, 101).tolist())
            lines = []
            for group, curve in zip(density["groups"], density["curves"], strict=True):
                if curve is not None:
                    label = f"{group['low']:g} to {group['high']:g}"
                    lines.append(Series(label, cosines, tuple(map(float, curve))))
            title, labels = f"Cosines by gold score: {name}", ("cosine", "density")
            yield Figure(f"{file}-density", "cosines", title, "lines", *labels, source, tuple(lines))
        for number, tower in enumerate(facts["probes"].get("attention_sink", {}).get("maps") or (), start=1):
            tokens = list(tower["tokens"])
            for place, token in enumerate(tokens):
                tokens[place] = token if token in _SPECIAL else f"token {place}"
            yield Figure(
                f"{file}-attention-{number}",
                "attention",
                f"Attention: {name}, tower {number}",
                *("heat", "key", "query", source, (), tuple(tokens), tuple(tokens)),
                tuple(tuple(map(float, row)) for row in tower["layers"][-1]),
                f"Layer {len(tower['layers'])}, mean over heads; rows are queries. Words are left out.",
            )
