"""Attention weights of one sentence, a map a layer (JTCSE, Fig. 9), as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import InputError
from bench.render.matplotlib_plots import plain_canvas, save_figure

_COLUMNS = 4


def draw_heatmaps(
    tokens: Sequence[str], layers: Sequence[Sequence[Sequence[float]]], title: str, path: Path
) -> None:
    """Draw the maps of one tower; rows are queries, columns keys, all layers on one scale from 0 to 1.

    Args:
        tokens: (T,) tokens.
        layers: (layers, T, T) attention weights, mean over heads.
        title: Of the figure.
        path: Of the file; raises InputError for an unwritable one.
    """
    with plain_canvas():
        from matplotlib.figure import Figure

        rows = -(-len(layers) // _COLUMNS)
        figure = Figure(figsize=(2.8 * _COLUMNS, 2.8 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, _COLUMNS, squeeze=False)
        for number, (panel, weights) in enumerate(zip(panels.flat, layers, strict=False), start=1):
            image = panel.imshow(weights, vmin=0, vmax=1, cmap="viridis")
            panel.set_title(f"layer {number}", fontsize=8)
            panel.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=5)
            panel.set_yticks(range(len(tokens)), tokens, fontsize=5)
        for panel in panels.flat[len(layers) :]:
            panel.set_axis_off()
        figure.colorbar(image, ax=panels, label="attention, mean over heads", shrink=0.6)
        figure.suptitle(title, fontsize=9)
        try:
            save_figure(figure, path, format="svg", metadata={"Date": None})
        except OSError as error:
            raise InputError(f"a heatmap can't be written: {error.strerror}", where=str(path)) from error
