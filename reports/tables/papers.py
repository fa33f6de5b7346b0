"""The papers' layouts: STS and transfer by backbone and group, efficiency, ablations, gains, overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from bench.data.published import ablation, lines
from bench.errors import InputError
from bench.records.record import RunRecord
from bench.reports.campaign import OVERLAP, Campaign, read_table
from bench.reports.records import by_method, by_profile_and_suite, main_metric, task_list
from bench.reports.tables.marks import CAPTION
from bench.reports.tables.published import GREY, Footnotes, backbone_of, quote
from bench.reports.tables.significance import Averages, compare_pair
from bench.reports.tables.sweeps import sweep_grids
from bench.reports.tables.table import Cell, Grid, Quoted, Row, leaderboards, summarise
from bench.sweeps.grids import SWEEPS

GROUPS = (
    "without training",
    "checkpoints as they are",
    "one encoder",
    "several encoders",
    "distilled into one encoder",
)
TASK_NAMES = {"STSB": "STS-B", "SICKR": "SICK-R", "avg": "Avg.", "SST2": "SST"}
LOSSES = ("mhe", "mhs", "barlow", "vicreg")
_COUNTS = ("task", "level", "sentences", "touched", "pairs", "clean_pairs")
_CLEAN = ("profile", "method", "seed", "task", "level", "all", "n_all", "clean", "low", "high", "n_clean")


def suite_grid(campaign: Campaign, suite: str) -> Grid | None:
    """A suite as the papers print it: a block a backbone, in it groups of encoders; None without records."""
    records = campaign.suites(suite).get(suite, [])
    tables = [
        t for t in leaderboards(records, campaign.name, campaign.baseline, rounded=campaign.rounded) if t.rows
    ]
    if not tables:
        return None
    rows: list[tuple[Cell | Quoted | str, ...]] = []
    groups: list[tuple[int, str]] = []
    tasks = tables[0].tasks
    for table in tables:
        own = [record for record in records if record.profile == table.profile]
        backbone = next((b for record in own if (b := backbone_of(record))), "no backbone")
        for group in GROUPS:
            members = [row for row in table.rows if row.group == group]
            if members:
                groups.append((len(rows), f"{backbone} ({table.profile}): {group}"))
            rows += [
                (row.method, *(row.cells.get(task, Cell(None, None, 0)) for task in tasks)) for row in members
            ]
    notes = (
        tables[0].notes[0],
        CAPTION + " Ranked within a backbone.",
        *dict.fromkeys(n for t in tables for n in t.notes[1:]),
    )
    seeds = _seeds([row for table in tables for row in table.rows])
    header = ("method", *(TASK_NAMES.get(task, task) for task in tasks))
    title = f"{suite}, campaign {campaign.name}"
    return Grid(title, header, tuple(rows), (*notes[:2], *seeds, *notes[2:]), tuple(groups))


def _seeds(rows: Sequence[Row]) -> list[str]:
    """Which methods have fewer runs than the rest: one has no standard deviation."""
    single = [row.method for row in rows if max(cell.n for cell in row.cells.values()) == 1]
    return [f"One run, no deviation: {', '.join(dict.fromkeys(single))}."] if single else []


def efficiency_grids(campaign: Campaign) -> list[Grid]:
    """Score against cost, by profile and suite (JTCSE, Table VII)."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        (table,) = leaderboards(records, campaign.name, campaign.baseline, rounded=campaign.rounded)
        runs = by_method(records)
        rows: list[tuple[Cell | Quoted | str, ...]] = []
        groups = []
        for group in GROUPS:
            members = [row for row in table.rows if row.group == group]
            if members:
                groups.append((len(rows), group))
            rows += [_efficiency_row(row, runs[row.method]) for row in members]
        lacking = [
            m for m, group in runs.items() if not any("gmac" in r.probes.get("cost", {}) for r in group)
        ]
        notes = [
            table.notes[0],
            "GMAC of one sentence of 64 tokens (thop); eta: average x 100 a GMAC; training: CPU seconds of "
            "all stages of a run, mean over seeds.",
            CAPTION,
            *table.notes[2:],
        ]
        if lacking:
            notes.append(f"No GMAC for {', '.join(lacking)}: bench run --probes cost measures it.")
        header = (
            "method",
            "avg",
            "GMAC",
            "eta",
            "M params",
            "sentences/s",
            "training sentences",
            "training CPU s",
        )
        title = f"Efficiency: {table.suite}, profile {table.profile}, campaign {campaign.name}"
        grids.append(Grid(title, header, tuple(rows), tuple(notes), tuple(groups)))
    return grids


def _efficiency_row(row: Row, records: Sequence[RunRecord]) -> tuple[Cell | Quoted | str, ...]:
    costs = [record.probes.get("cost", {}) for record in records]
    gmac = [float(cost["gmac"]) for cost in costs if "gmac" in cost]
    million = [cost["parameters"] / 1e6 for cost in costs if "parameters" in cost]
    speed = [s for r in records if (s := r.timing.get("probes", {}).get("sentences_per_second")) is not None]
    average = row.cells["avg"]
    eta = f"{100 * average.mean / fmean(gmac):.2f}" if gmac and average.mean is not None else "-"
    return (
        row.method,
        average,
        f"{fmean(gmac):.3f}" if gmac else "-",
        eta,
        f"{fmean(million):.1f}" if million else "-",
        f"{fmean(speed):.0f}" if speed else "-",
        "-" if row.sentences is None else f"{row.sentences:,}",
        "-" if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}",
    )


def ablation_grids(campaign: Campaign, name: str) -> list[Grid]:
    """A sweep's tables with the paper's figures beside them.

    Raises:
        InputError: no such sweep ran.
    """
    ran = [manifest for manifest in campaign.sweeps if manifest.sweep == name]
    if not ran:
        known = ", ".join(dict.fromkeys(manifest.sweep for manifest in campaign.sweeps))
        raise InputError(
            f"no sweep '{name}' ran here",
            where=f"--table ablation:{name}",
            expected=f"one of {known}" if known else None,
            hint=f"bench sweep {name if name in SWEEPS else 'NAME'} --campaign {campaign.name}",
        )
    return [_beside(grid, name) for grid in sweep_grids(ran, campaign.records, campaign.name)]


def _beside(grid: Grid, sweep: str) -> Grid:
    printed, notes = ablation(sweep), Footnotes()
    columns = [column for column in grid.header[1:] if any(place[1] == column for place in printed)]
    if not columns:
        return grid
    rows = []
    for label, *cells in grid.rows:
        quotes = (quote(printed.get((str(label), column), ()), notes) for column in columns)
        rows.append((label, *cells, *quotes))
    sources = "; ".join(dict.fromkeys(f.source for found in printed.values() for f in found))
    said = (*grid.notes, f"Published: {sources}, bert-base.", GREY, *notes.notes)
    header = (*grid.header, *(f"published {column}" for column in columns))
    return replace(grid, header=header, rows=tuple(rows), notes=said)


def gain_grids(campaign: Campaign) -> list[Grid]:
    """What the modified losses gain over their originals (gradient paradigm, Tables 3 and 4)."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        runs, metric, tasks = by_method(records), main_metric(records), task_list(records)
        printed = {(line.first.method, line.first.backbone): line for line in lines(records[0].suite)}
        rows: list[tuple[Cell | Quoted | str, ...]] = []
        for loss in LOSSES:
            before, after = runs.get(loss, []), runs.get(f"m_{loss}", [])
            means = [
                [summarise([r.score(task, metric=metric) for r in group]).mean for task in tasks]
                for group in (before, after)
            ]
            if any(value is None for side in means for value in side):
                continue
            gains = [
                f"{100 * (b - a):+.2f}"
                for a, b in zip(*means, strict=True)
                if a is not None and b is not None
            ]
            rows.append((f"m_{loss} - {loss}", *gains, _interval(before, after, metric)))
            for backbone in ("bert-base", "roberta-base"):
                line = printed.get((f"m_{loss}", backbone))
                if line is not None:
                    quotes = (_printed_gain(line.figures[t].note if t in line.figures else "") for t in tasks)
                    rows.append((f"published, {backbone}", *quotes, "-"))
        if rows:
            first = records[0]
            where = f"{first.suite}, profile {first.profile}, campaign {campaign.name}"
            header = ("gain", *(TASK_NAMES.get(task, task) for task in tasks), "95% of Avg.")
            notes = ("Points, means over seeds; interval: Welch's, over seeds, not corrected.", GREY)
            swapped = "Gradient paradigm, Tables 3 to 5: the Barlow Twins and VICReg rows may be exchanged."
            title = f"Gains of the modified losses: {where}"
            grids.append(Grid(title, header, tuple(rows), (*notes, *([swapped] if printed else []))))
    return grids


def _interval(before: Sequence[RunRecord], after: Sequence[RunRecord], metric: str) -> str:
    sides = [
        Averages(
            runs[0].method, tuple(v for r in runs if (v := r.score("avg", metric=metric)) is not None), False
        )
        for runs in (after, before)
    ]
    pair = compare_pair(*sides)
    return (
        "-" if pair.low is None or pair.high is None else f"[{100 * pair.low:+.2f}, {100 * pair.high:+.2f}]"
    )


def _printed_gain(note: str) -> Quoted | str:
    gain = note.partition("printed gain ")[2].partition(";")[0].split(" ")[0]
    return Quoted(gain) if gain else "-"


def overlap_grids(campaign: Campaign) -> list[Grid]:
    """Tables of ``bench data overlap --format csv`` that stand beside the records."""
    grids = []
    for path in sorted(campaign.store.root.glob(OVERLAP)):
        with_scores = "method" in path.open(encoding="utf-8", errors="replace").readline().split(",")
        columns = _CLEAN if with_scores else _COUNTS
        rows = tuple(tuple(row[name] or "-" for name in columns) for row in read_table(path, columns))
        note = (
            "A method's score on all and on the clean pairs, in the metric's unit; 95% interval of Bonett "
            "and Wright."
            if with_scores
            else "Test sentences that stand in a training text: exact, by letters and digits (key), or eight "
            "words in a row (near); a pair is clean where neither sentence does."
        )
        header = tuple(name.replace("_", " ") for name in columns)
        grids.append(Grid(f"Overlap with training text, {path.name}", header, rows, (note,)))
    return grids
