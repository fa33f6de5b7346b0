"""Figures of results for a notebook, and as files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api.command_options import check_path
from bench.errors import InputError
from bench.reports.figures.forest import forest_figures
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.method_choice import use_published_names

if TYPE_CHECKING:
    from bench.render.figure import Figure
    from bench.reports.campaign import Campaign


class Plot:
    """One figure for each profile and suite; a notebook shows it.

    >>> import bench
    >>> bench.results("results/mini").plot.forest("simcse").svg[:4]
    '<svg'
    """

    def __init__(self, figures: Sequence[Figure]) -> None:
        self.figures = tuple(figures)

    @property
    def titles(self) -> list[str]:
        """The title of each figure.

        >>> import bench
        >>> len(bench.results("results/mini").plot.seeds().titles)
        1
        """
        return [figure.title for figure in self.figures]

    @property
    def svg(self) -> str:
        """The SVG of the only figure; raises InputError for several.

        >>> import bench
        >>> "simcse" in bench.results("results/mini").plot.seeds().svg.lower()
        True
        """
        if len(self.figures) > 1:
            what = f"{len(self.figures)} figures: {', '.join(self.titles)}"
            raise InputError(what, where="svg", hint="choose with .filter(suite=..., profile=...)")
        return self._drawings()[0]

    def save(self, path: str | Path) -> Path:
        """Write the only figure as .svg, .pdf or .png; raises InputError for another ending.

        >>> import bench, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bench.results("results/mini").plot.forest("simcse").save(f"{folder}/forest.pdf").name
        'forest.pdf'
        """
        from bench.render.figure_files import FORMATS, convert_svg

        path = check_path(path, "path", "save")
        ending = path.suffix.removeprefix(".").lower()
        if ending not in FORMATS:
            raise InputError(
                f"'{path.name}'", where="save", expected=f"a name that ends in .{', .'.join(FORMATS)}"
            )
        try:
            path.write_bytes(convert_svg(self.svg, ending))
        except OSError as error:
            raise InputError(f"{path} can't be written: {error.strerror}", where="save") from error
        return path

    def _drawings(self) -> list[str]:
        from bench.render.figure_files import draw_picture

        return list(map(draw_picture, self.figures))

    def _repr_html_(self) -> str:
        # as images, so that the styles of a drawing stay its own
        images = []
        for figure, drawing in zip(self.figures, self._drawings(), strict=True):
            source = f"data:image/svg+xml;base64,{b64encode(drawing.encode()).decode()}"
            images.append(f'<img alt="{escape(figure.title)}" src="{source}">')
        return "".join(images)

    def __repr__(self) -> str:
        """Return the titles."""
        return f"<Plot {'; '.join(self.titles)}>"


class Plots:
    """The figures of some results, ``results.plot``.

    >>> import bench
    >>> [len(bench.results("results/mini").plot.forest(name).titles) for name in ("simcse", "untrained")]
    [1, 1]
    """

    def __init__(self, make_campaign: Callable[[str | type | None], Campaign]) -> None:
        self._make_campaign = make_campaign

    def forest(self, baseline: str | type | None = None) -> Plot:
        """Plot each row's difference from a baseline with its interval, and its seeds.

        Args:
            baseline: Row to compare with; default: the sealed plan's, otherwise simcse, if it has two seeds.

        Raises:
            InputError: an unknown baseline, or no row can be compared with it.

        >>> import bench
        >>> "ahead" in bench.results("results/mini").plot.forest("simcse").titles[0]
        True
        """
        campaign = self._make_campaign(baseline)
        return _require_figures(forest_figures(campaign), "two rows with two seeds, one of them the baseline")

    def seeds(self) -> Plot:
        """Plot the average of every run, a line a row.

        Raises:
            InputError: no row has two seeds.

        >>> import bench
        >>> bench.results("results/mini").plot.seeds()
        <Plot Seeds: mini, mini>
        """
        figures = suite_figures(use_published_names(self._make_campaign(None)))
        return _require_figures(
            [figure for figure in figures if figure.kind == "strip"], "two seeds of a row"
        )


def _require_figures(figures: Sequence[Figure], expected: str) -> Plot:
    if not figures:
        raise InputError("there is nothing to plot", where="plot", expected=expected)
    return Plot(figures)
