"""Published figures next to ours, with differences for equal backbone, data and training text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean

from bench.comparison.selection import group_by
from bench.data.published_tables import NO_TEXT, SICK, WIKI, PublishedFigure, PublishedRow, published_rows
from bench.data.released_checkpoints import ReleasedCheckpoint, load_checkpoints
from bench.records.record import RunRecord
from bench.render.grid import DASH, SCALE, Grid, Quoted, Value, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, finished_records, record_notes, task_list, task_scores
from bench.reports.tables.pairwise_tests import LEVEL

GREY = (
    "Grey (in parentheses where there is no colour): of another backbone or other data than ours, so the two "
    "can't be compared."
)
_BACKBONES = {"bert-base-uncased": "bert-base", "roberta-base": "roberta-base"}
_TEXTS = re.compile(r"\[((text|sick|rtt|pooling)=[^,]*,?)*\]")
_WIKI_FILE, _WIKI_LINES = "wiki1m_for_simcse.txt", (1_000_000, 1_000_001)
_SIGNS = "abcdefghijklmnopqrstuvwxyz"


class Footnotes:
    """Letters for distinct remarks."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def sign(self, remarks: Iterable[str]) -> str:
        """Return the letters of remarks in brackets, or ""."""
        for remark in remarks:
            number = len(self._letters)
            letter = _SIGNS[number % len(_SIGNS)] * (1 + number // len(_SIGNS))
            self._letters.setdefault(remark, letter)
        letters = ",".join(map(self._letters.__getitem__, remarks))
        return f" [{letters}]" if letters else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks with their letters."""
        return tuple(f"[{letter}] {remark}." for remark, letter in self._letters.items())


def released_checkpoint(record: RunRecord) -> ReleasedCheckpoint | None:
    """Return the published checkpoint that a record measured, if any."""
    return load_checkpoints().get(str(record.options.get("name"))) if record.name == "released" else None


def paper_backbone(record: RunRecord) -> str:
    """Return the papers' name of a record's backbone, or its own."""
    if checkpoint := released_checkpoint(record):
        return checkpoint.backbone
    name = record.backbone["name"] if record.backbone else ""
    return _BACKBONES.get(name, name)


def paper_text(record: RunRecord) -> str | None:
    """Return the training text in the papers' terms, if any."""
    if checkpoint := released_checkpoint(record):
        return f"{WIKI}+{SICK}" if checkpoint.sick else WIKI
    if not record.training.get("stages"):
        return NO_TEXT
    corpus = record.training.get("corpus", {})
    wiki = corpus.get("name") == _WIKI_FILE and corpus.get("sentences") in _WIKI_LINES
    if not wiki or record.options.get("rtt") == "none":
        return None
    sick = record.options.get("sick") is True or "sick" in str(record.options.get("text", ""))
    return f"{WIKI}+{SICK}" if sick else WIKI


def published_names(record: RunRecord) -> tuple[str, ...]:
    """Return the names under which tables print this method; a variant with other options lacks one."""
    if checkpoint := released_checkpoint(record):
        return (checkpoint.method,)
    bare = _TEXTS.fullmatch(record.method.removeprefix(record.name))
    if record.method != record.name and not bare and record.name != "untrained":
        return ()
    if record.name == "untrained":
        kinds = ("bert_base", "roberta_base") if record.options.get("pooling") == "avg_first_last" else ()
    elif record.name == "whitening":
        kinds = ("bert_whitening", "roberta_whitening")
    else:
        return (record.name,)
    family = paper_backbone(record).removesuffix("-base")
    return tuple(name for name in kinds if name.startswith(family)) or kinds[:1]


def published_lines(record: RunRecord) -> list[PublishedRow]:
    """Return the rows that print this method on this suite: of its backbone, otherwise of BERT-base."""
    names = published_names(record)
    lines = [line for line in published_rows(record.suite) if line.first.method in names]
    by_backbone = group_by(lines, lambda line: line.first.backbone)
    return by_backbone.get(paper_backbone(record)) or by_backbone.get("bert-base", [])


def matches_setup(record: RunRecord, line: PublishedRow) -> bool:
    """Return True if backbone, evaluation data and training text are the row's."""
    return (
        paper_backbone(record) == line.first.backbone
        and all(facts["reference"] for facts in record.tasks.values())
        and line.text is not None
        and paper_text(record) == line.text
    )


def quote_row(line: PublishedRow, tasks: Sequence[str], grey: bool, notes: Footnotes) -> list[Quoted | str]:
    """Return a row's figures in the order of our tasks, with footnotes on misprints."""
    cells: list[Quoted | str] = []
    source = f"{line.first.source}, {line.first.method}"
    for task in tasks:
        if task in line.figures:
            remarks = [f"{source}: {text}" for text, where in line.misprints.items() if task in where]
            cells.append(Quoted(line.figures[task].text, grey, notes.sign(remarks)))
        else:
            cells.append(DASH)
    return cells


def merge_lines(lines: Sequence[PublishedRow]) -> list[tuple[str, PublishedRow]]:
    """Return rows with their sources; tables that print the same figures are one row."""
    same: dict[tuple[object, ...], tuple[list[str], PublishedRow]] = {}
    for line in lines:
        key = (line.first.backbone, *((task, figure.text) for task, figure in line.figures.items()))
        same.setdefault(key, ([], line))[0].append(line.first.source)
    return [("; ".join(sources), line) for sources, line in same.values()]


def published_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of methods that a paper prints too, if any."""
    tasks, notes = task_list(records), Footnotes()
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    matched = False
    runs_of = by_method(records)
    means = {method: summarise_values(task_scores(runs)).mean for method, runs in runs_of.items()}
    for method in sorted(means, key=lambda method: campaign.place(method, means[method])):
        lines, done = published_lines(runs_of[method][0]), finished_records(runs_of[method])
        if not lines or not done:
            continue
        groups.append((len(rows), campaign.shown(method)))
        ours = {task: task_scores(done, task) for task in tasks}
        rows.append(("ours", paper_backbone(done[0]), *map(summarise_values, ours.values())))
        for source, line in merge_lines(lines):
            same = matches_setup(done[0], line)
            rows.append((source, line.first.backbone, *quote_row(line, tasks, not same, notes)))
            if same:
                matched = True
                rows += _difference_rows(ours, line, tasks)
    if not rows:
        return None
    remarks = [
        "Ours: mean and standard deviation over seeds, scores x 100; published as printed in the paper.",
        "A difference, and whether the figure lies in the 95% interval of one further run of ours "
        "(Student's, over seeds), are given only where backbone, data and training text are the same.",
        *["Here they are the same for none."] * (not matched),
        GREY,
        *notes.notes,
        *record_notes(records),
    ]
    title, header = campaign.title("Published figures and ours", records), ("source", "backbone", *tasks)
    return Grid(title, header, tuple(rows), tuple(remarks), tuple(groups))


def _difference_rows(
    ours: dict[str, list[float]], line: PublishedRow, tasks: Sequence[str]
) -> list[tuple[str, ...]]:
    """Ours less the published figure, and whether one more run of ours could have it."""
    differences, inside = [], []
    for task in tasks:
        difference = plausible = DASH
        if task in line.figures and ours[task]:
            figure = float(line.figures[task].text)
            difference = f"{SCALE * fmean(ours[task]) - figure:+.2f}"
            plausible = plausible_run(ours[task], figure / SCALE)
        differences.append(difference)
        inside.append(plausible)
    return [("ours - published", "", *differences), ("could be a run of ours", "", *inside)]


def plausible_run(ours: Sequence[float], figure: float) -> str:
    """Return "yes" for a figure in the prediction interval of one more seed, "no", or a dash for one seed.

    A published figure is one run's. The interval of our mean shrinks with more seeds, and would exclude most
    single runs of the very same method.
    """
    if len(ours) < 2:
        return DASH
    from bench.stats.equivalence import predict_run_difference

    low, high = predict_run_difference(ours, [figure], LEVEL)
    return "yes" if low <= 0 <= high else "no"


def figure_remarks(figure: PublishedFigure, texts: Iterable[str]) -> list[str]:
    """Return remarks on a figure, with its table and method."""
    return [f"{figure.source}, {figure.method}: {text}" for text in texts]


def quote_figures(figures: Sequence[PublishedFigure], notes: Footnotes) -> Quoted | str:
    """Return the figures of one cell of an ablation, of other backbones or data than ours."""
    texts = dict.fromkeys(figure.text for figure in figures)
    remarks: dict[str, None] = {}
    for figure in figures:
        remarks |= dict.fromkeys(figure_remarks(figure, figure.misprints))
    return Quoted("; ".join(texts), True, notes.sign(tuple(remarks))) if texts else DASH
