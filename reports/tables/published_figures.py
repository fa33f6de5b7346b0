"""Published figures next to ours; a difference only where backbone, data and training text are the same."""

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
from bench.reports.records import by_method, by_profile_and_suite, finished_records, task_list, task_scores
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
    """Letters for remarks, the same letter for the same remark."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def sign(self, remarks: Iterable[str]) -> str:
        """Return the letters of remarks, in superscript-like brackets where there are some."""
        for remark in remarks:
            number = len(self._letters)
            letter = _SIGNS[number % len(_SIGNS)] * (1 + number // len(_SIGNS))
            self._letters.setdefault(remark, letter)
        found = [self._letters[remark] for remark in remarks]
        return f" [{','.join(found)}]" if found else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks with their letters."""
        return tuple(f"[{letter}] {remark}." for remark, letter in self._letters.items())


def released_checkpoint(record: RunRecord) -> ReleasedCheckpoint | None:
    """The published checkpoint that a record measured, None for another method."""
    return load_checkpoints().get(str(record.options.get("name"))) if record.name == "released" else None


def paper_backbone(record: RunRecord) -> str:
    """The papers' name of a record's backbone, or its own."""
    if checkpoint := released_checkpoint(record):
        return checkpoint.backbone
    name = record.backbone["name"] if record.backbone else ""
    return _BACKBONES.get(name, name)


def paper_text(record: RunRecord) -> str | None:
    """Training text in the papers' terms, None where it is another one."""
    if checkpoint := released_checkpoint(record):
        return f"{WIKI}+{SICK}" if checkpoint.sick else WIKI
    if not record.training.get("stages"):
        return NO_TEXT
    corpus = record.training.get("corpus", {})
    if corpus.get("name") != _WIKI_FILE or corpus.get("sentences") not in _WIKI_LINES:
        return None
    sick = record.options.get("sick") is True or "sick" in str(record.options.get("text", ""))
    if record.options.get("rtt") == "none":
        return None
    return f"{WIKI}+{SICK}" if sick else WIKI


def published_names(record: RunRecord) -> tuple[str, ...]:
    """Names under which tables print this method; none for a variant with options that they don't have."""
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
    return (
        tuple(name for name in kinds if name.startswith(paper_backbone(record).removesuffix("-base")))
        or kinds[:1]
    )


def published_lines(record: RunRecord) -> list[PublishedRow]:
    """Rows that print this method on this suite: those of its backbone, else of BERT-base."""
    names = published_names(record)
    found = [line for line in published_rows(record.suite) if line.first.method in names]
    own = [line for line in found if line.first.backbone == paper_backbone(record)]
    return own or [line for line in found if line.first.backbone == "bert-base"]


def matches_setup(record: RunRecord, line: PublishedRow) -> bool:
    """True where backbone, evaluation data and training text are the row's."""
    return (
        paper_backbone(record) == line.first.backbone
        and all(facts["reference"] for facts in record.tasks.values())
        and line.text is not None
        and paper_text(record) == line.text
    )


def quote_row(line: PublishedRow, tasks: Sequence[str], grey: bool, notes: Footnotes) -> list[Quoted | str]:
    """A row's figures in the order of our tasks, footnoted where the print is known to be wrong."""
    touched: dict[str, list[str]] = {}
    for what, where in line.misprints.items():
        for task in where:
            touched.setdefault(task, []).append(f"{line.first.source}, {line.first.method}: {what}")
    return [
        Quoted(line.figures[task].text, grey, notes.sign(touched.get(task, ())))
        if task in line.figures
        else DASH
        for task in tasks
    ]


def merge_lines(found: Sequence[PublishedRow]) -> list[tuple[str, PublishedRow]]:
    """Rows with their sources; tables that print the same figures are one row."""
    same = group_by(
        found,
        lambda line: (line.first.backbone, *((task, f.text) for task, f in line.figures.items())),
    )
    return [("; ".join(line.first.source for line in group), group[0]) for group in same.values()]


def published_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite that a paper prints too."""
    return [
        grid for group in by_profile_and_suite(campaign.records) if (grid := _published_grid(group, campaign))
    ]


def _published_grid(records: Sequence[RunRecord], campaign: Campaign) -> Grid | None:
    tasks, notes = task_list(records), Footnotes()
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    matched = False
    runs_of = by_method(records)
    for method in sorted(runs_of, key=lambda method: campaign.place(method, _mean_average(runs_of[method]))):
        runs = runs_of[method]
        found, done = published_lines(runs[0]), finished_records(runs)
        if not found or not done:
            continue
        groups.append((len(rows), campaign.shown(method)))
        ours = {task: task_scores(done, task) for task in tasks}
        rows.append(("ours", paper_backbone(done[0]), *(summarise_values(ours[task]) for task in tasks)))
        for source, line in merge_lines(found):
            same = matches_setup(done[0], line)
            rows.append((source, line.first.backbone, *quote_row(line, tasks, not same, notes)))
            if same:
                matched = True
                rows += _difference_rows(ours, line, tasks)
    if not rows:
        return None
    first = records[0]
    title = f"Published figures and ours: {first.suite}, profile {first.profile}, campaign {campaign.name}"
    said = [
        "Ours: mean and standard deviation over seeds, scores x 100; published as printed in the paper.",
        "A difference, and whether the figure lies in the 95% interval of one further run of ours "
        "(Student's, over seeds), are given only where backbone, data and training text are the same.",
        *([] if matched else ["Here they are the same for none."]),
        GREY,
        *notes.notes,
        *dict.fromkeys(note for record in records for note in record.notes),
    ]
    return Grid(title, ("source", "backbone", *tasks), tuple(rows), tuple(said), tuple(groups))


def _mean_average(runs: Sequence[RunRecord]) -> float:
    scores = task_scores(runs)
    return fmean(scores) if scores else float("-inf")


def _difference_rows(
    ours: dict[str, list[float]], line: PublishedRow, tasks: Sequence[str]
) -> list[tuple[str, ...]]:
    """Ours less the published figure, and whether one more run of ours could have it."""
    differences, inside = [], []
    for task in tasks:
        figure, scores = line.figures.get(task), ours[task]
        if figure is None or not scores:
            differences.append(DASH)
        else:
            differences.append(f"{SCALE * fmean(scores) - float(figure.text):+.2f}")
        inside.append(DASH if figure is None else plausible_run(scores, float(figure.text) / SCALE))
    return [("ours - published", "", *differences), ("could be a run of ours", "", *inside)]


def plausible_run(ours: Sequence[float], figure: float) -> str:
    """Say whether a figure lies where one more seed of ours would; a dash where a seed is alone.

    A published figure is one run's. The interval of our mean shrinks as we run more seeds, and would leave
    out most single runs of the very same method.
    """
    if len(ours) < 2:
        return DASH
    from bench.stats.equivalence import predict_run_difference

    low, high = predict_run_difference(ours, [figure], LEVEL)
    return "yes" if low <= 0 <= high else "no"


def quote_figures(figures: Sequence[PublishedFigure], notes: Footnotes) -> Quoted | str:
    """The figures of one place of an ablation, of other backbones or data than ours."""
    texts = dict.fromkeys(figure.text for figure in figures)
    remarks = [f"{f.source}, {f.method}: {what}" for f in figures for what in f.misprints]
    return Quoted("; ".join(texts), True, notes.sign(tuple(dict.fromkeys(remarks)))) if texts else DASH
