"""Tables of published figures, damaged: read as they are, or refused with their line."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from bench.config.sweep_manifest import Manifest, save_manifest
from bench.data import published_tables
from bench.records.store import ResultStore
from tests.fuzz import core
from tests.fuzz.core import REFUSED, Dice, RuleError, refused
from tests.fuzz.data_files import DamagedError, hold, number
from tests.fuzz.data_files import csv_rows as cells
from tests.fuzz.mutate import damaged, difference
from tests.fuzz.toml_tables import swapped
from tests.support.campaigns import make_record

_COLUMNS = ("table", "section", "backbone", "method", "setting", "task", "metric", "value", "note")
_SECTIONS = ("sts7", "ablation_cael", "ablation_pooling", "ablation_loss", "ablation_sickr")
_METHODS = ("simcse", "jtcse", "bert_base")


class PublishedFigures:
    """The papers' csv files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tables = folder, {}
        source = Path(published_tables.__file__).parent / "published"
        for paper in published_tables.PAPERS:
            rows = list(csv.reader((source / f"{paper}.csv").open(encoding="utf-8", newline="")))
            kept = [row for row in rows[1:] if row[1] in _SECTIONS and row[3] in _METHODS][:40]
            stream = io.StringIO()
            csv.writer(stream, lineterminator="\n").writerows([rows[0], *kept])
            self.tables[paper] = stream.getvalue().encode()
        store = ResultStore(folder / "results", "made")
        for method, gain in (("simcse", 0.0), ("jtcse", 0.02)):
            for seed in (1, 2, 3):
                record = make_record(method, seed, dict.fromkeys(("STS12", "STSB"), 0.6 + 0.01 * seed + gain))
                store.write(record.place, record, None)
        points = (("0", "jtcse", "jtcse"), ("1", "jtcse", "simcse"))
        save_manifest(Manifest("caels", "mini", ("sts7",), (1, 2, 3), points), store.root)

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        paper = dice.choice(sorted(published_tables.PAPERS))
        folder = self.folder / "data" / "published"
        folder.mkdir(parents=True, exist_ok=True)
        for other, raw in self.tables.items():
            (folder / f"{other}.csv").write_bytes(raw)
        raw = damaged(self.tables[paper], steps)
        (folder / f"{paper}.csv").write_bytes(raw)
        log.append(f"{paper}.csv: {difference(self.tables[paper], raw)}")
        with swapped(published_tables, "files", lambda _: self.folder / "data"):
            _forget()
            try:
                return self._read(paper, raw, dice, steps, log)
            finally:
                _forget()

    def _read(self, paper: str, raw: bytes, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        figures = refused(published_tables.load_figures, f"{paper}.csv", good=not steps)
        if not hold(
            figures, lambda: _rows(raw), lambda figures: [_row(f) for f in figures if f.paper == paper]
        ):
            return REFUSED
        form = dice.choice(("text", "markdown", "csv", "json", "latex", "html"))
        table = dice.choice(("published", "ablation:caels", "gains", "published", "order"))
        arguments = ["report", "--campaign", "made", "--format", form]
        arguments += ["--table", table] if form != "html" or dice.chance(0.5) else []
        log.append(f"bench {' '.join(arguments)}")
        outcome = core.bench(*arguments)
        if table == "published" and form in ("text", "csv", "html") and "--table" in arguments:
            for figure in published_tables.load_figures():
                row = (figure.section, figure.backbone) == ("sts7", "bert-base")
                here = figure.method in ("simcse", "jtcse") and figure.task in ("STS12", "STSB", "avg")
                if row and here and figure.text not in outcome.out:
                    raise RuleError(f"{figure.text} of {figure.method}, {figure.task} isn't printed")
        return outcome.kind


def _row(figure: published_tables.PublishedFigure) -> tuple[str, ...]:
    setting = ";".join(f"{key}={value}" for key, value in figure.setting)
    first = (figure.table, figure.section, figure.backbone, figure.method, setting)
    return (*first, figure.task, figure.metric, figure.text, figure.note)


def _rows(raw: bytes) -> list[tuple[str, ...]]:
    """Read the rows by the other surface's automaton."""
    try:
        header, *rows = cells(raw.decode("utf-8-sig")) or [[]]
    except UnicodeDecodeError as error:
        raise DamagedError("bytes") from error
    if tuple(header) != _COLUMNS:
        raise DamagedError("header")
    for row in rows:
        if len(row) != len(header):
            raise DamagedError(repr(row))
        number(row[7])
    return [tuple(row) for row in rows]


def _forget() -> None:
    published_tables.load_figures.cache_clear()
    published_tables.published_rows.cache_clear()
