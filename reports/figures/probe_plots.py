"""Figures of what ``bench probe`` and ``bench gradient`` write into a campaign's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.comparison.selection import group_by
from bench.errors import DataError
from bench.records.record import safe_name
from bench.render.figure import Figure, Series
from bench.reports.campaign import ALONG, GRADIENT, PROBES, Campaign, read_json, read_table
from bench.reports.figures.gradient_runs import joint_figures, run_figures
from bench.reports.figures.training_probe_plots import training_probe_figures
from bench.schema import LARGEST

_SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")
_GRID = ("mu_pos", "mu_neg")
_HARDEST = ("mu_neg", "tau", "share", "share_released")
_RUNS = ("*/gradient.json",)
"""Files of measured trainings; those of one folder share figures."""
_MOST_CELLS = 50  # a side of a drawn grid
_NAMES = {
    "gd": "Gradient dissipation",
    "ratio": "Ratio of positive to negative",
    "shaded": "Where the ratio doesn't matter",
}


def file_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of every such file.

    Raises:
        DataError: a damaged file.
    """
    probes = [
        (store, _check_figures(path, partial(_probe_figures, path))) for store, path in campaign.files(PROBES)
    ]
    sampled = [file for name in _SAMPLED for file in campaign.files(f"{GRADIENT}/{name}")]
    runs = [file for names in _RUNS for file in campaign.files(f"{GRADIENT}/{names}")]
    trainings = [
        (store, _check_figures(path, partial(training_probe_figures, path)))
        for store, path in campaign.files(ALONG)
    ]
    found = [*probes, *trainings]
    for store in campaign.stores:
        own = ([path for home, path in files if home is store] for files in (sampled, runs))
        found.append((store, _folder_figures(store.root / GRADIENT, *own)))
    return [
        _add_campaign(figure, store.campaign) if campaign.several else figure
        for store, figures in found
        for figure in figures
    ]


def gradient_figures(folder: Path) -> list[Figure]:
    """Return the figures of what ``bench gradient`` wrote into a folder; raises DataError if damaged."""
    return select_gradient_figures(
        folder, [p for name in (*_SAMPLED, *_RUNS) for p in sorted(folder.glob(name))]
    )


def select_gradient_figures(folder: Path, files: Sequence[Path]) -> list[Figure]:
    """Return the figures of some of the files in such a folder; raises DataError for a damaged one."""
    sampled, runs = ([p for p in files if (p.name in _SAMPLED) == alone] for alone in (True, False))
    return _folder_figures(folder, sampled, runs)


def _folder_figures(folder: Path, sampled: Iterable[Path], runs: Sequence[Path]) -> list[Figure]:
    found = [
        figure for path in sampled for figure in _check_figures(path, partial(_SAMPLED[path.name], path))
    ]
    found += [figure for path in runs for figure in _check_figures(path, partial(run_figures, path))]
    return found + _check_figures(folder, partial(joint_figures, runs))


def _add_campaign(figure: Figure, name: str) -> Figure:
    """A figure of one of several campaigns, whose files may have one name."""
    said = f"campaign: {name}", *figure.provenance
    return replace(figure, name=f"{name}-{figure.name}", title=f"{figure.title} ({name})", provenance=said)


def _check_figures(path: Path, make: Callable[[], Iterable[Figure]]) -> list[Figure]:
    try:
        made = list(make())
        if not all(map(_is_drawable, made)):
            raise ValueError("a number that can't be drawn, or another number of them than places")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"this file is damaged: {type(error).__name__} {error}",
            where=str(path),
            hint="write it anew, or move it out of the campaign's folder",
        ) from error
    return made


def _is_drawable(figure: Figure) -> bool:
    """True if every number is one, and there are as many as places for them."""
    series = (value for one in figure.series for value in (*one.x, *one.y, *one.spread))
    cells = (value for row in figure.cells for value in row if value is not None)
    matched = all(len(one.x) == len(one.y) and len(one.spread) in (0, len(one.x)) for one in figure.series)
    if figure.kind == "heat":
        sizes = {len(row) for row in figure.cells}
        matched = sizes == {len(figure.columns)} != {0} and len(figure.cells) == len(figure.rows)
    return matched and all(abs(value) <= LARGEST for value in (*series, *cells))


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


def _sampled_grids(path: Path) -> Iterator[Figure]:
    """Gradient dissipation and ratios over the means of the angles (gradient paradigm, Figures 2, 4, 10)."""
    table = read_table(path, _GRID)
    source = (f"file: {GRADIENT}/{path.name}", "bench gradient: sampled angles")
    rows, columns = (
        _thin_values(sorted({float(line[key]) for line in table}, reverse=key == "mu_pos")) for key in _GRID
    )
    at = {(float(line["mu_pos"]), float(line["mu_neg"])): line for line in table}
    labels = tuple(f"{angle:.2f}" for angle in rows), tuple(f"{angle:.2f}" for angle in columns)
    axes = "mean angle of negatives", "mean angle of positives"
    for key in table[0]:
        if key not in _GRID:
            kind, _, loss = key.partition("_")
            file = f"gradient-{safe_name(key.replace('_', '-'))}"
            title = f"{_NAMES.get(kind, kind)}: {loss.replace('_', ' ')}"
            cells = tuple(tuple(float(at[(p, n)][key]) for n in columns) for p in rows)
            yield Figure(file, "gradient", title, "heat", *axes, source, (), *labels, cells)


def _thin_values(values: Sequence[float]) -> list[float]:
    """At most _MOST_CELLS of them, ends included."""
    if len(values) <= _MOST_CELLS:
        return list(values)
    return [values[round(i)] for i in np.linspace(0, len(values) - 1, _MOST_CELLS)]


def _hardest_shares(path: Path) -> Iterator[Figure]:
    """Share of the hardest negative by temperature (Figure 3)."""
    table = read_table(path, _HARDEST)
    source = (f"file: {GRADIENT}/{path.name}", "bench gradient: sampled angles")
    axes = "mean angle of negatives", "share"
    for key, how in (("share", "as the paper writes it"), ("share_released", "as the released code")):
        series = tuple(
            Series(f"tau {tau}", *_columns([(line["mu_neg"], line[key]) for line in lines]))
            for tau, lines in group_by(table, lambda line: line["tau"]).items()
        )
        name, title = f"gradient-hardest-{key.replace('_', '-')}", f"Share of the hardest negative, {how}"
        yield Figure(name, "gradient", title, "lines", *axes, source, series)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(float(x) for x, _ in pairs), tuple(float(y) for _, y in pairs)


_SAMPLED: dict[str, Callable[[Path], Iterable[Figure]]] = {
    "gradient-grid.csv": _sampled_grids,
    "gradient-hardest.csv": _hardest_shares,
}
"""Files of sampled angles and what makes their figures."""
