"""Published figures: the result tables of four papers, as printed, with their known misprints."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from io import StringIO

from bench.errors import DataError
from bench.schema import LARGEST, parse_decimal

PAPERS = {"tncse": "TNCSE", "jtcse": "JTCSE", "unsee": "UNSEE", "gradient_paradigm": "Gradient paradigm"}
WIKI = "wiki1m"  # SimCSE's million sentences of Wikipedia
SICK = "sickr_unlabelled"
NO_TEXT = "none"

_COLUMNS = ("table", "section", "backbone", "method", "setting", "task", "metric", "value", "note")
_NEEDED = {
    "ablation_cael": "cael",
    "ablation_loss": "loss",
    "ablation_pooling": "pooling",
    "ablation_sickr": "data",
    "incremental_modification": "terms",
}
"""Key that the settings of a section's rows must have."""
# papers and sections by suite; each of mteb's suites is one paper's own list of tasks
_SUITES: dict[str, tuple[Collection[str], Collection[str]]] = {
    "sts7": (PAPERS, ("sts7", "sts7_released_checkpoints")),
    "transfer7": (PAPERS, ("transfer7",)),
    "jtcse-classification": (("jtcse",), ("zero_shot_classification",)),
    "jtcse-reranking": (("jtcse",), ("reranking",)),
    "jtcse-bitext": (("jtcse",), ("bitext",)),
    "jtcse-sts22v2": (("jtcse",), ("sts22v2",)),
    "sts3": (("jtcse",), ("sts3_mteb",)),
    "tncse-classification": (("tncse",), ("zero_shot_classification",)),
    "tncse-retrieval": (("tncse",), ("retrieval_map10",)),
    "tncse-reranking": (("tncse",), ("reranking",)),
    "tncse-sts17": (("tncse",), ("sts17",)),
    "tncse-sts22": (("tncse",), ("sts22",)),
}
_UNTRAINED = {"bert_base", "roberta_base", "bert_whitening", "roberta_whitening", "glove"}
# trained on SimCSE's text according to their own papers
_ON_WIKI = {
    *("simcse", "infonce", "esimcse", "diffcse", "arccse", "arccon", "infocse", "promptbert"),
    *("pcl", "sncse", "whitenedcse", "rankcse"),
}
_MISPRINT = ("typo", "recomputed", "differs from", "Table 3 prints", "supplementary prints")
_DOUBT = ("heading reads", "sign of the gain lost", "sign lost")

# findings of our checks, in addition to the notes on single figures
_SWAPPED = (
    "Tables 3 and 5 print the Barlow Twins and VICReg averages the other way round; which is right, and "
    "whether Table 4 is touched, the paper doesn't say"
)
_COPIED = "equal to the figure of another pooling or method in the same table: a possible copy error"
_EXTRA: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...], str], ...] = (
    ("gradient_paradigm", "sts7", ("barlow", "vicreg", "m_barlow", "m_vicreg"), (), _SWAPPED),
    ("gradient_paradigm", "transfer7", ("barlow", "vicreg", "m_barlow", "m_vicreg"), (), _SWAPPED),
    ("jtcse", "ablation_pooling", ("jtcse", "jtcse_d"), ("avg", "pooler"), _COPIED),
    ("jtcse", "ablation_pooling", ("diffcse", "whitenedcse"), ("avg", "avg_first_last"), _COPIED),
)


@dataclass(frozen=True)
class PublishedFigure:
    """One printed figure."""

    paper: str  # a key of PAPERS
    table: str
    section: str  # short name of the experiment
    backbone: str  # "bert-base", "roberta-base" or ""
    method: str  # canonical name
    setting: tuple[tuple[str, str], ...]
    task: str  # as printed; "avg" is the section's average
    metric: str
    text: str  # the number with its printed decimals; scores are x 100
    note: str  # source, inferences, misprints

    @property
    def source(self) -> str:
        """Paper and table."""
        return f"{PAPERS[self.paper]}, {self.table}"

    @property
    def misprints(self) -> tuple[str, ...]:
        """Known errors and doubts."""
        parts = [part for part in self.note.split("; ") if part.startswith((*_MISPRINT, *_DOUBT))]
        pooling = dict(self.setting).get("pooling", "")
        for paper, section, methods, poolings, what in _EXTRA:
            here = (self.paper, self.section) == (paper, section) and self.method in methods
            if here and (not poolings or pooling in poolings):
                parts.append(what)
        return tuple(parts)


@dataclass(frozen=True)
class PublishedRow:
    """A method's figures in one row of a table, by task."""

    figures: dict[str, PublishedFigure]

    @property
    def first(self) -> PublishedFigure:
        """Any figure, for facts that all share."""
        return next(iter(self.figures.values()))

    @property
    def text(self) -> str | None:
        """Training text: WIKI, perhaps with "+sickr_unlabelled", NO_TEXT, or None if unknown."""
        stated = dict(self.first.setting).get("data")
        if stated is not None:
            return stated
        if self.first.method in _UNTRAINED:
            return NO_TEXT
        if self.first.section == "sts7_released_checkpoints":
            return f"{WIKI}+{SICK}"
        return WIKI if self.first.method in _ON_WIKI else None

    @property
    def misprints(self) -> dict[str, tuple[str, ...]]:
        """Known errors and doubts, each with its tasks."""
        tasks: dict[str, tuple[str, ...]] = {}
        for task, figure in self.figures.items():
            for misprint in figure.misprints:
                tasks[misprint] = (*tasks.get(misprint, ()), task)
        return tasks


@cache
def load_figures() -> tuple[PublishedFigure, ...]:
    """Return every figure of every table, in the papers' order; raises DataError for a damaged table."""
    return tuple(figure for paper in PAPERS for figure in _read_paper(paper))


def _read_paper(paper: str) -> Iterator[PublishedFigure]:
    """Read a paper's file; raises DataError with the line for a damaged row or a repeated figure."""
    where = f"bench/data/published_tables/{paper}.csv"
    try:
        text = (files("bench.data") / "published" / f"{paper}.csv").read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("these bytes are not utf-8", where=where) from error
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    seen: set[PublishedFigure] = set()
    try:
        if tuple(next(reader, ())) != _COLUMNS:
            raise DataError("other columns", where=f"{where}:1", expected=", ".join(_COLUMNS))
        for row in reader:
            figure = _parse_figure(paper, row, f"{where}:{reader.line_num}")
            same = replace(figure, table="", text="", note="")
            if same in seen:
                raise DataError("this figure is given twice", where=f"{where}:{reader.line_num}")
            seen.add(same)
            yield figure
    except csv.Error as error:
        raise DataError(f"no table: {error}", where=f"{where}:{reader.line_num}") from error


def _parse_figure(paper: str, row: list[str], where: str) -> PublishedFigure:
    if len(row) != len(_COLUMNS) or not all(map(str.isprintable, row)):
        raise DataError(f"{len(row)} cells", where=where, expected=f"{len(_COLUMNS)} that can be printed")
    table, section, backbone, method, setting, task, metric, value, note = row
    pairs = [part.partition("=") for part in setting.split(";") if part]
    named = tuple((key, text) for key, _, text in pairs)
    try:
        if abs(parse_decimal(value)) > LARGEST:  # tables compute with it, and 1e999 would be infinite
            raise ValueError(value)
    except ValueError as error:
        raise DataError(f"'{value}' is not a figure", where=where, expected="a number") from error
    needed = _NEEDED.get(section)
    if not all(equals for _, equals, _ in pairs) or needed not in (None, *dict(named)):
        expected = f"KEY=VALUE;...{f' with {needed}' if needed else ''}"
        raise DataError(f"the setting '{setting}'", where=where, expected=expected)
    return PublishedFigure(paper, table, section, backbone, method, named, task, metric, value, note)


@cache
def published_rows(suite: str) -> tuple[PublishedRow, ...]:
    """Return the rows of tables on a suite ("sts7", "transfer7", the papers' of mteb), otherwise ()."""
    papers, sections = _SUITES.get(suite, ((), ()))
    groups: dict[tuple[object, ...], dict[str, PublishedFigure]] = {}
    for figure in load_figures():
        if figure.paper in papers and figure.section in sections:
            key = (figure.paper, figure.section, figure.backbone, figure.method, figure.setting)
            groups.setdefault(key, {})[figure.task] = figure
    return tuple(PublishedRow(group) for group in groups.values())


def ablation_figures(sweep: str) -> dict[tuple[str, str], tuple[PublishedFigure, ...]]:
    """Return the printed figures at the places (row, column) of a sweep's table."""
    figures: dict[tuple[str, str], tuple[PublishedFigure, ...]] = {}
    for figure in load_figures():
        place = _sweep_place(sweep, figure, dict(figure.setting))
        if place is not None and figure.metric == "spearman":
            figures[place] = (*figures.get(place, ()), figure)
    return figures


def _sweep_place(sweep: str, figure: PublishedFigure, setting: dict[str, str]) -> tuple[str, str] | None:
    """Return the place of a figure in a sweep's table, or None."""
    method = figure.method.removesuffix("_untrained")
    section = (sweep, figure.section)
    if section == ("caels", "ablation_cael"):
        return {"none": "0"}.get(setting["cael"], setting["cael"]), "jtcse"
    if section == ("loss_terms", "ablation_loss"):
        return setting["loss"].replace("ictm", "ictn").replace("+", " + "), method
    if section == ("pooling", "ablation_pooling"):
        return method, setting["pooling"]
    if section == ("sick", "ablation_sickr") and " minus " not in setting["data"]:
        return method, "with SICK" if SICK in setting["data"] else "without"
    if section == ("single", "ablation_single_encoder"):
        return "NCE + LTN" if method == "tncse_single" else method, "score"
    both = ("dual_ensembles", "ensemble_dual_encoder"), ("dual_ensembles", "ensemble_efficiency")
    if section in both and setting.get("tower", "ensemble") == "ensemble":
        if figure.method.endswith("_untrained"):
            return None
        return method if method in ("tncse", "jtcse") else f"{method} x 2", "score"
    if section == ("modified_steps", "incremental_modification"):
        step = {"original": "original", "gd": "+ GD", "gd+w": "+ W"}.get(setting["terms"], "+ R")
        return method.removeprefix("m_"), step
    return None
