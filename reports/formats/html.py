"""The whole campaign as one page: no request leaves it, and any text in it is inert."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from bench.errors import InputError, printable
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.figures import svg
from bench.reports.figures.figure import Figure, provenance
from bench.reports.figures.of_files import extra_figures
from bench.reports.figures.of_records import figures
from bench.reports.formats.render import number, plain
from bench.reports.records import SCALE, by_method, by_profile_and_suite
from bench.reports.sections import probe_tables, significance_grids, table_grids
from bench.reports.tables.items import item_interval, method_draws
from bench.reports.tables.papers import (
    ablation_grids,
    efficiency_grids,
    gain_grids,
    overlap_grids,
    suite_grid,
)
from bench.reports.tables.published import Footnotes, lines_for, matches, merged, published_grids, quoted_row
from bench.reports.tables.significance import LEVEL, averages
from bench.reports.tables.table import Cell, Grid, Quoted, Row, Table, leaderboards
from bench.version import __version__

_MOST_DATA = 300  # points that a figure repeats as a table


@dataclass(frozen=True)
class Line:
    """A leaderboard's row on the page.

    Args:
        row: The row.
        name: Registered name, the family.
        seeds: Finished seeds, and how many were tried where some failed.
        seed_interval: Of the average over seeds; None for fewer than two.
        item_interval: Of the average over items, None without kept draws.
        published: Source, backbone and figures of the tables that print it.
    """

    row: Row
    name: str
    seeds: str
    seed_interval: tuple[float, float] | None
    item_interval: tuple[float, float] | None
    published: tuple[tuple[str, str, dict[str, Quoted | str]], ...]


@dataclass(frozen=True)
class Board:
    """A leaderboard on the page."""

    table: Table
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    families: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A part of the page: tables and figures under a heading."""

    id: str
    title: str
    boards: tuple[Board, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()


def page(campaign: Campaign, table: str | None = None) -> str:
    """Return the page; with a table's name only that.

    Raises:
        InputError: nothing to show.
        NotComparableError: rows of one table were measured on different data.
        DataError: a damaged file of another command beside the records.
    """
    if table is not None:
        sections = [Section("table", table, grids=tuple(table_grids(campaign, table)))]
        missing: list[str] = []
    else:
        sections, missing = _sections(campaign)
    if not sections:
        raise InputError("nothing to show", where=f"campaign {campaign.name}")
    folder = files("bench.reports") / "templates"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    environment = Environment(
        loader=PackageLoader("bench.reports", "templates"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "svg": _svg,
        "plain": plain,
        "number": number,
        "data": _data,
        "interval": _interval,
        "breaks": _breaks,
    }
    environment.tests |= {"cell": _is_cell, "quoted": _is_quoted}
    text = environment.get_template("report.html").render(
        campaign=campaign,
        sections=sections,
        missing=missing,
        facts=provenance(campaign.records, campaign.name),
        remarks=tuple(dict.fromkeys(note for record in campaign.records for note in record.notes)),
        version=__version__,
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        style_hash=_hash(style),
        script_hash=_hash(script),
        level=f"{100 * LEVEL:g}%",
        scale=SCALE,
    )
    return text.strip() + "\n"


def _hash(text: str) -> str:
    """What the content security policy calls this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _svg(figure: Figure) -> Markup:
    return Markup(svg.draw(figure))  # noqa: S704 - it escapes every text


def _is_cell(value: object) -> bool:
    return isinstance(value, Cell)


def _is_quoted(value: object) -> bool:
    return isinstance(value, Quoted)


def _breaks(text: str) -> Markup:
    """A name that may break after its punctuation; joining escapes every piece."""
    return Markup("<wbr>").join(re.findall(r"[^,\[+_=:/]+[,\[+_=:/]*|[,\[+_=:/]+", printable(text)))


def _shown(value: object) -> object:
    """What stands on the page for a value: in its texts nothing that turns a line or can't be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _interval(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"[{SCALE * ends[0]:.2f}, {SCALE * ends[1]:.2f}]"


def _data(figure: Figure) -> list[tuple[str, ...]]:
    """A figure's points as rows (series or row, x, y), where they are few."""
    if sum(len(one.x) for one in figure.series) > _MOST_DATA:
        return []
    if figure.kind == "strip":
        return [
            (figure.rows[int(row)], one.name, f"{value:.2f}")
            for one in figure.series
            for value, row in zip(one.x, one.y, strict=True)
        ]
    return [
        (one.name, f"{a:.4g}", f"{b:.4g}") for one in figure.series for a, b in zip(one.x, one.y, strict=True)
    ]


def _sections(campaign: Campaign) -> tuple[list[Section], list[str]]:
    """What there is, in the page's order, and what isn't and why."""
    drawn = [*figures(campaign), *extra_figures(campaign)]

    def pick(*endings: str) -> tuple[Figure, ...]:
        return tuple(one for one in drawn if one.name.endswith(endings))

    sweeps = _sweep_tables(campaign)
    used = pick("-seeds", "-training", "-gmac", "-plane", "-energy", "-cosines", "-gains", "-dev", "-rank")
    attention = tuple(one for one in drawn if "-attention-" in one.name)
    names = {manifest.sweep for manifest in campaign.sweeps}
    of_sweeps = tuple(f for f in drawn if any(f"-{name}" in f.name for name in names))
    rest = [f for f in drawn if f not in used and f not in attention and f not in of_sweeps]
    papers = [grid for suite in ("sts7", "transfer7") if (grid := suite_grid(campaign, suite))]
    transfer = [Section("transfer", "Transfer tasks", grids=tuple(papers[1:]))] if len(papers) > 1 else []
    found = [
        Section("leaderboard", "Leaderboard", boards=tuple(boards(campaign))),
        *transfer,
        Section("seeds", "Seeds", figures=pick("-seeds")),
        Section("significance", "Differences", grids=tuple(significance_grids(campaign))),
        Section("published", "Published beside ours", grids=tuple(published_grids(campaign))),
        Section(
            "efficiency", "Efficiency", (), tuple(efficiency_grids(campaign)), pick("-training", "-gmac")
        ),
        Section("probes", "Probes", (), tuple(probe_tables(campaign)), pick("-plane", "-energy")),
        Section("attention", "Attention", figures=attention),
        Section("cosines", "Cosines", figures=pick("-cosines", "-density")),
        Section("curves", "Dev and collapse curves", figures=_without(pick("-dev", "-rank"), of_sweeps)),
        Section("gains", "Gains of the modified losses", (), tuple(gain_grids(campaign)), pick("-gains")),
        Section("sweeps", "Sweeps", grids=tuple(sweeps), figures=of_sweeps),
        Section("gradient", "Gradient paradigm", figures=_without(rest, pick("-density"))),
        Section("overlap", "Overlap with training text", grids=tuple(overlap_grids(campaign))),
    ]
    reasons = {
        "published": "no paper prints a figure of these methods on these suites",
        "probes": "no record has probes: bench run --probes all adds them",
        "attention": "no record has probes: bench run --probes all adds them",
        "gains": "no modified loss stands beside its original",
        "sweeps": "no sweep ran here: bench sweep NAME",
        "gradient": "no folder gradient beside the records: bench gradient --out results/CAMPAIGN/gradient",
        "overlap": "no overlap.csv beside the records: bench data overlap TEXT --format csv",
        "curves": "no method trained",
        "significance": "no two methods finished",
        "cosines": "no predictions beside the records",
    }
    there = [section for section in found if section.boards or section.grids or section.figures]
    missing = [f"{s.title}: {reasons.get(s.id, 'no record')}." for s in found if s not in there]
    return there, missing


def _without(these: Sequence[Figure], those: Sequence[Figure]) -> tuple[Figure, ...]:
    names = {one.name for one in those}
    return tuple(one for one in these if one.name not in names)


def _sweep_tables(campaign: Campaign) -> list[Grid]:
    names = dict.fromkeys(manifest.sweep for manifest in campaign.sweeps)
    return [grid for name in names for grid in ablation_grids(campaign, name)]


def boards(campaign: Campaign) -> list[Board]:
    """Return the leaderboards with their intervals and the published figures of their methods."""
    tables = leaderboards(campaign.records, campaign.name, campaign.baseline, rounded=campaign.rounded)
    groups = by_profile_and_suite(campaign.records)
    return [_board(campaign, table, records) for table, records in zip(tables, groups, strict=True)]


def _board(campaign: Campaign, table: Table, records: Sequence[RunRecord]) -> Board:
    runs, footnotes = by_method(records), Footnotes()
    intervals = {one.method: _seed_interval(one.values) for one in averages(records)}
    drawn = method_draws(campaign, records)
    lines = []
    for row in table.rows:
        first = next((r for r in runs[row.method] if r.status == "ok"), runs[row.method][0])
        done = max(cell.n for cell in row.cells.values())
        lines.append(
            Line(
                row,
                first.name,
                f"{done} of {done + row.failed}"
                if row.failed
                else str(done)
                if first.seed is not None
                else "-",
                intervals.get(row.method),
                item_interval(drawn[row.method]) if row.method in drawn else None,
                tuple(_published(first, table.tasks, footnotes)),
            )
        )
    families = tuple(sorted({line.name for line in lines}))
    present = tuple(dict.fromkeys(line.row.group for line in lines))
    return Board(table, tuple(lines), (*table.notes, *footnotes.notes), families, present)


def _published(
    record: RunRecord, tasks: Sequence[str], footnotes: Footnotes
) -> list[tuple[str, str, dict[str, Quoted | str]]]:
    found = []
    for source, line in merged(lines_for(record)):
        row = quoted_row(line, tasks, not matches(record, line), footnotes)
        found.append((source, line.first.backbone, dict(zip(tasks, row, strict=True))))
    return found


def _seed_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    from bench.stats.seeds import one_sample

    mean = fmean(values)
    d = one_sample(values, mean, LEVEL)
    return mean + d.low, mean + d.high
