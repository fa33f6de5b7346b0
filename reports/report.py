"""A campaign's tables and figures as one document: which sections, in which order, in which format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from bench.comparison.select import grouped
from bench.errors import InputError, unknown
from bench.render import formats as columns
from bench.render import latex
from bench.render.formats import FILE, Screen, as_json, frame_csv, render_grids
from bench.reports.campaign import Campaign
from bench.reports.doubts import with_doubts
from bench.reports.formats.paper import Style
from bench.reports.formats.paper import tables as printed_tables
from bench.reports.records import long_frame
from bench.reports.tables.ablation import ablation_grids
from bench.reports.tables.leaderboard import leaderboards
from bench.reports.tables.paper import paper_tables

if TYPE_CHECKING:
    from bench.render.figure import Figure
    from bench.render.grid import Grid
    from bench.reports.campaign import Campaign
    from bench.reports.formats.html import Part


@dataclass(frozen=True)
class Section:
    """A view of a campaign: a part of the page and, where it has tables, a name for ``--table``.

    Args:
        name: Its id on the page; a figure names the section to which it belongs.
        title: Its heading.
        missing: Why there may be nothing to show.
        hint: What makes it.
        make: Its tables' function, "MODULE.FUNCTION" in :mod:`bench.reports.tables`; empty for figures alone.
        table: Its name for ``--table`` if that is not ``name``; with ``:SWEEP`` where it takes one.
        printed: True if a report prints it without ``--table``; the page always has it.
        selected: True if it is of the checkpoints that the dev set chose, and of no others.
    """

    name: str
    title: str
    missing: str
    hint: str
    make: str = ""
    table: str = ""
    printed: bool = False
    selected: bool = False

    def lacks(self, campaign: Campaign) -> tuple[str, str]:
        """Why there is nothing to show of a campaign, and what makes it."""
        if self.selected and campaign.last:
            return "it is of the selected checkpoint", "leave out --checkpoint last"
        return self.missing, self.hint

    def grids(self, campaign: Campaign) -> list[Grid]:
        """Return its tables, none where there is nothing to show."""
        if not self.make:
            return []
        module, _, function = self.make.partition(".")
        made: list[Grid] = getattr(import_module(f"bench.reports.tables.{module}"), function)(campaign)
        return made


_RUN, _PROBES = "bench run makes records", "bench run --probes all adds them"
SECTIONS = (
    Section("leaderboard", "Leaderboard", "no record", _RUN, "leaderboard.leaderboard_grids", printed=True),
    Section(
        "sts7",
        "STS tasks",
        "no record of suite sts7",
        "bench run --suite sts7 makes them",
        "suites.sts7_grids",
    ),
    Section(
        "transfer",
        "Transfer tasks",
        "no record of suite transfer7",
        "bench run --suite transfer7 makes them",
        "suites.transfer_grids",
    ),
    Section(
        "metrics",
        "Metrics of retrieval",
        "no suite has retrieval tasks",
        "bench run --suite tncse-retrieval makes records of some",
        "metrics.metric_grids",
    ),
    Section(
        "categories",
        "Kinds of task",
        "no suite has several kinds of task",
        "bench run --suite unsee makes records of seven",
        "categories.category_grids",
    ),
    Section("seeds", "Seeds", "no finished record", _RUN),
    Section(
        "significance",
        "Differences",
        "no two methods of one suite finished (supervised ones are not tested)",
        _RUN,
        "differences.significance_grids",
    ),
    Section(
        "neighbours",
        "Neighbours",
        "no two methods that stand next to each other were tested",
        _RUN,
        "neighbours.neighbour_grids",
    ),
    Section(
        "checkpoints",
        "Choice of checkpoint",
        "no record has the scores of a last checkpoint",
        "bench run keeps them where a method trains and the suite is of sentence pairs",
        "checkpoints.checkpoint_grids",
        selected=True,
    ),
    Section(
        "published",
        "Published figures and ours",
        "no paper prints a figure of these methods on these suites",
        "bench show METHOD says what papers print",
        "published.published_grids",
    ),
    Section(
        "order",
        "Order of methods by setting",
        "no two settings (a profile with a suite, or what papers print on a backbone) have four methods in "
        "common",
        "bench report --campaign A,B joins campaigns",
        "order.order_grids",
    ),
    Section("efficiency", "Efficiency", "no record", _RUN, "efficiency.efficiency_grids"),
    Section("probes", "Probes", "no record has probes", _PROBES, "probes.probe_tables", selected=True),
    Section(
        "mechanism", "Mechanism", "no record has probes", _PROBES, "mechanism.mechanism_grids", selected=True
    ),
    Section(
        "along",
        "Mechanism along training",
        "no file along*.json in the campaign's folder",
        "bench probe METHOD --along --out results/CAMPAIGN/along.json",
        "along.along_tables",
    ),
    Section("attention", "Attention", "no record has the probe attention_sink", _PROBES, selected=True),
    Section("cosines", "Cosines", "no predictions are kept with the records", _RUN),
    Section("curves", "Training curves", "no method trained", "bench run --methods simcse trains"),
    Section(
        "gains",
        "Gains of the modified losses",
        "no loss ran both as it was and modified",
        "bench run --methods mhe,m_mhe makes such a pair",
        "gains.gain_grids",
    ),
    Section(
        "sweeps",
        "Sweeps",
        "no sweep ran here",
        "bench sweep NAME runs one",
        "ablation.ablation_grids",
        table="ablation:SWEEP",
        printed=True,
    ),
    Section(
        "gradient",
        "Gradient paradigm",
        "no folder gradient in the campaign's folder",
        "bench gradient --out results/CAMPAIGN/gradient",
    ),
    Section(
        "overlap",
        "Overlap with training text",
        "no file overlap*.csv in the campaign's folder",
        "bench data overlap TEXT --format csv > results/CAMPAIGN/overlap.csv",
        "overlap.overlap_grids",
    ),
    Section("methods", "Methods", "no record", _RUN, "cards.card_grids"),
)
TABLES = {section.table or section.name: section for section in SECTIONS if section.make}
"""Sections by their name for ``--table``."""


def table_grids(campaign: Campaign, name: str) -> list[Grid]:
    """Return the grids of one table.

    Args:
        campaign: What to report on.
        name: One of TABLES, with a sweep's name in the place of SWEEP.

    Raises:
        InputError: an unknown name, or nothing to show.
    """
    head, colon, sweep = name.partition(":")
    section = TABLES.get(f"{head}:SWEEP" if colon else name)
    if section is None:
        raise unknown("table", name, tuple(TABLES), where="--table")
    if colon:
        from bench.reports.tables.ablation import only_sweep

        campaign = only_sweep(campaign, sweep)
    grids = section.grids(campaign)
    if not grids:
        what, hint = section.lacks(campaign)
        raise InputError(what, where=f"--table {name}, campaign {campaign.name}", hint=hint)
    return grids


@dataclass(frozen=True)
class Look:
    """How tables are shown.

    Args:
        columns: Names of the columns, in their order; empty for all.
        screen: What text is for.
        style: For LaTeX that a paper can print; None for all that a report says.
    """

    columns: tuple[str, ...] = ()
    screen: Screen = FILE
    style: Style | None = None


def report(
    campaign: Campaign,
    form: str,
    table: str | None = None,
    look: Look = Look(),
    *,
    standalone: bool = False,
) -> str:
    """Return the whole report, or one table of it.

    Args:
        campaign: What to report on.
        form: "text", "markdown", "csv", "json", "latex" or "html". csv has the records' values, from which
            all tables can be made again.
        table: Name of the only table, see :mod:`bench.reports.report`.
        look: How tables are shown.
        standalone: True for a LaTeX document, not tables for one.

    Raises:
        InputError: no such table or column, or nothing to show.
        DataError: a damaged file of another command in the campaign's folder.
    """
    if look.style is not None:
        found = paper_tables(campaign, look.columns)
        return printed_tables(found, look.style, standalone=standalone)
    if form == "html":
        _no_columns(look, "the page has its own switches for columns")
        return _page(campaign, table)
    if table is not None:
        grids = table_grids(replace(campaign, pairs=form in ("csv", "json")), table)
        grids = with_doubts(columns.select(grids, look.columns), campaign, form)
        return render_grids(grids, form, standalone=standalone, screen=look.screen)
    if form == "csv":
        return _long(campaign, look)
    if form == "json":
        _no_columns(look, "name a table: --table leaderboard")
        return as_json([*leaderboards(campaign), *ablation_grids(campaign)])
    grids = [grid for section in SECTIONS if section.printed for grid in section.grids(campaign)]
    grids = columns.select(grids, look.columns)
    if form == "latex":
        return _latex(campaign, grids, standalone)
    return render_grids(grids, form, screen=look.screen)


def _no_columns(look: Look, hint: str) -> None:
    if look.columns:
        raise InputError("columns can't be chosen here", where="--columns", hint=hint)


def _long(campaign: Campaign, look: Look) -> str:
    """The records' values, a row each."""
    frame = long_frame(campaign.records, lambda record: campaign.home(record).campaign)
    frame["method"] = frame["method"].map(campaign.shown)
    columns.check(look.columns, list(frame.columns))
    wanted = columns.places(list(frame.columns), look.columns) or range(len(frame.columns))
    return frame_csv(frame.iloc[:, list(wanted)])


def _latex(campaign: Campaign, grids: Sequence[Grid], standalone: bool) -> str:
    """The tables, and the diagrams of the groups."""
    from bench.render.picture import critical_difference
    from bench.reports.figures.of_records import group_figures

    body = "\n".join([latex.tables(grids), *map(critical_difference, group_figures(campaign))])
    return latex.document(body) if standalone else body


def all_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign; raises DataError for a damaged file in its folder."""
    from bench.reports.figures.of_files import extra_figures
    from bench.reports.figures.of_order import order_figures
    from bench.reports.figures.of_records import figures
    from bench.reports.figures.of_sweeps import sweep_figures

    return [*figures(campaign), *order_figures(campaign), *sweep_figures(campaign), *extra_figures(campaign)]


def _page(campaign: Campaign, table: str | None) -> str:
    from bench.reports.formats.html import Part, html

    if table is None:
        return html(campaign, *page_parts(campaign))
    grids = tuple(with_doubts(table_grids(campaign, table), campaign, "html"))
    return html(campaign, [Part("table", table, grids=grids)], [])


def page_parts(campaign: Campaign) -> tuple[list[Part], list[str]]:
    """Return the parts of a campaign's page, and what it could show, why it doesn't, and what makes it."""
    from bench.reports.formats.html import Part
    from bench.reports.tables.boards import boards

    parts, missing = [], []
    drawn = grouped(all_figures(campaign), lambda figure: figure.section)
    for section in SECTIONS:
        rich = tuple(boards(campaign)) if section.name == "leaderboard" else ()  # it can be filtered
        grids = () if rich else tuple(section.grids(campaign))
        figures = tuple(drawn.get(section.name, ()))
        if rich or grids or figures:
            parts.append(Part(section.name, section.title, rich, grids, figures))
        else:
            missing.append("{}: {} ({}).".format(section.title, *section.lacks(campaign)))
    return parts, missing
