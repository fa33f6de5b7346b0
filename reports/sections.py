"""The list of views: ``--table``, its help, the page and the printed report all read it.

A view is one file, of :mod:`bench.reports.tables` or of a feature's folder, and one entry here.
The list imports views late, so that the command line's help can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bench.errors import InputError, unknown_name

if TYPE_CHECKING:
    from bench.render.grid import Grid
    from bench.reports.campaign import Campaign


def load_function(name: str) -> Any:
    """Return "MODULE.FUNCTION"."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(module), function)


TABS = {
    "differences": "Differences",
    "tasks": "Tasks",
    "cost": "Score and cost",
    "ranks": "Ranks",
    "table": "Table",
    "training": "Training",
    "analysis": "Analysis",
    "methods": "Methods",
}
"""Tabs of a page, in order. The first shows the answers; sections name one of the others."""


@dataclass(frozen=True)
class Section:
    """A view of a campaign: a part of the page and, where it has tables, a name for ``--table``.

    Args:
        name: Its id on the page; a figure names the section to which it belongs.
        missing: Why it may be empty.
        hint: The command that fills it.
        make: Its tables' function, "MODULE.FUNCTION" or "FILE.FUNCTION" of :mod:`bench.reports.tables`; one
            called "..._grid" makes the table of a profile and suite; empty for only figures.
        table: Its name for ``--table`` if that differs from ``name``; with ``:SWEEP`` where it takes one.
        tab: The tab of the page that shows it, see TABS; "" where another table of the page has its numbers.
        printed: True if a report prints it unasked; the page always has it.
        selected: True if it needs the checkpoints that the dev set chose.
    """

    name: str
    title: str
    missing: str
    hint: str
    make: str = ""
    table: str = ""
    tab: str = "analysis"
    printed: bool = False
    selected: bool = False
    of_sweeps: bool = False

    def lacks(self, campaign: Campaign) -> tuple[str, str]:
        """Return why it is empty for a campaign, and the command that fills it."""
        if self.selected and campaign.last:
            return "it is of the selected checkpoint", "leave out --checkpoint last"
        return self.missing, self.hint

    def grids(self, campaign: Campaign) -> list[Grid]:
        """Return its tables."""
        if not self.make or (self.of_sweeps and not campaign.sweeps) or (self.selected and campaign.last):
            return []
        prefix = "" if self.make.startswith("bench.") else "bench.reports.tables."
        make = load_function(f"{prefix}{self.make}")
        grids: list[Grid] = campaign.grids(make) if self.make.endswith("_grid") else make(campaign)
        return grids


_RUN, _PROBES = "bench run makes records", "bench run --probes all adds them"
SECTIONS = (
    Section(
        "leaderboard",
        "Leaderboard",
        "no record",
        _RUN,
        "leaderboard.leaderboard_grids",
        printed=True,
        tab="table",
    ),
    Section("ranks", "Ranks", "no two methods of one suite were tested", _RUN, tab="ranks"),
    Section(
        *("averages", "Averages and ranks", "no two rows with one score a task, without seeds and items"),
        *("bench import makes such rows", "task_averages.average_grid"),
        tab="ranks",
    ),
    Section(
        *("sts7", "STS tasks", "no record of suite sts7"),
        *("bench run --suite sts7 makes them", "suite_tables.sts7_grids"),
        tab="",
    ),
    Section(
        *("transfer", "Transfer tasks", "no record of suite transfer7"),
        *("bench run --suite transfer7 makes them", "suite_tables.transfer_grids"),
        tab="",
    ),
    Section(
        *("metrics", "Metrics of retrieval", "no suite has retrieval tasks"),
        *("bench run --suite tncse-retrieval makes records of some", "retrieval_metrics.metric_grid"),
        tab="tasks",
    ),
    Section(
        *("categories", "Kinds of task", "no suite has several kinds of task"),
        *("bench run --suite unsee makes records of seven", "retrieval_metrics.category_grid"),
        tab="tasks",
    ),
    Section("seeds", "Seeds", "no finished record", _RUN, tab="table"),
    Section(
        "significance",
        "All pairs",
        "no two methods of one suite finished (supervised ones are not tested)",
        _RUN,
        "differences.significance_grids",
        tab="ranks",
    ),
    Section(
        *("neighbours", "Neighbours", "no two methods that stand next to each other were tested"),
        *(_RUN, "differences.neighbour_grid"),
    ),
    Section(
        "checkpoints",
        "Choice of checkpoint",
        "no record has the scores of a last checkpoint",
        "bench run keeps them where a method trains and the suite is of sentence pairs",
        "checkpoint_choice.checkpoint_grid",
        selected=True,
        tab="training",
    ),
    Section(
        "published",
        "Published figures and ours",
        "no paper prints a figure of these methods on these suites",
        "bench show METHOD says what papers print",
        "published_figures.published_grid",
    ),
    Section(
        "order",
        "Order of methods by setting",
        "no two settings (a profile with a suite, or what papers print on a backbone) have four methods in "
        "common",
        "bench report --campaign A,B joins campaigns",
        "method_order.order_grids",
    ),
    Section("efficiency", "Efficiency", "no record", _RUN, "efficiency.efficiency_grid", tab="cost"),
    Section("probes", "Probes", "no record has probes", _PROBES, "probes.probe_tables", selected=True),
    Section(
        "mechanism",
        "Mechanism",
        "no record has probes",
        _PROBES,
        "probe_correlations.mechanism_grids",
        selected=True,
    ),
    Section(
        "along",
        "Mechanism along training",
        "no file along*.json in the campaign's folder",
        "bench probe METHOD --along --out results/CAMPAIGN/along.json",
        "bench.training_probes.tables.training_probe_tables",
    ),
    Section("attention", "Attention", "no record has the probe attention_sink", _PROBES, selected=True),
    Section("cosines", "Cosines", "no predictions are kept with the records", _RUN),
    Section(
        "curves", "Training curves", "no method trained", "bench run --methods simcse trains", tab="training"
    ),
    Section(
        *("gains", "Gains of the modified losses", "no loss ran both as it was and modified"),
        *("bench run --methods mhe,m_mhe makes such a pair", "differences.gain_grid"),
    ),
    Section(
        *("sweeps", "Sweeps", "no sweep ran here"),
        *("bench sweep NAME runs one", "sweep_tables.ablation_grids"),
        table="ablation:SWEEP",
        printed=True,
        of_sweeps=True,
    ),
    Section(
        *("gradient", "Gradient paradigm", "no folder gradient in the campaign's folder"),
        "bench gradient --out results/CAMPAIGN/gradient",
    ),
    Section(
        "overlap",
        "Overlap with training text",
        "no file overlap*.csv in the campaign's folder",
        "bench data overlap TEXT --format csv > results/CAMPAIGN/overlap.csv",
        "bench.reports.campaign.overlap_grids",
    ),
    Section("methods", "Methods", "no record", _RUN, "method_cards.card_grids", tab="methods"),
)
FILE_FIGURES = (
    "bench.reports.figures.campaign_files.probe_file_figures",
    "bench.training_probes.tables.training_probe_figures",
    "bench.gradient.figures.campaign_gradient_figures",
)
"""Functions that draw the files of other commands in a campaign's folder."""
TABLES = {section.table or section.name: section for section in SECTIONS if section.make}
"""Sections by their name for ``--table``."""


def table_grids(campaign: Campaign, name: str) -> list[Grid]:
    """Return the grids of one of TABLES, with a sweep's name for SWEEP.

    Raises InputError for an unknown name, or an empty table.
    """
    head, colon, sweep = name.partition(":")
    section = TABLES.get(f"{head}:SWEEP" if colon else name)
    if section is None:
        raise unknown_name("table", name, tuple(TABLES), where="--table")
    if colon:
        from bench.reports.tables.sweep_tables import select_sweep

        campaign = select_sweep(campaign, sweep)
    grids = section.grids(campaign)
    if not grids:
        what, hint = section.lacks(campaign)
        raise InputError(what, where=f"--table {name}, campaign {campaign.name}", hint=hint)
    return grids
