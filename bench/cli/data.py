"""``bench data``: fetch, verify, overlap, rtt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bench.cli.options import PATH, data_option, format_option
from bench.cli.rtt import rtt
from bench.errors import DataError, InputError

with_data = data_option("Evaluation data; default BENCH_DATA, then ./data.")


@click.group()
def data() -> None:
    """Get, check and audit evaluation data."""


@data.command()
@click.argument("name")
@with_data
def fetch(name: str, data_dir: Path | None) -> None:
    """Download sts7, transfer7 (SentEval's files) or wiki1m (SimCSE's corpus) and check every task."""
    from bench.data.hub import fetch as fetch_group
    from bench.data.suites import data_folder

    folder = data_folder(data_dir) or Path("data")
    for path in fetch_group(name, folder):
        click.echo(f"{name}: {path}")
    if data_dir is not None:
        click.echo(f"use it with --data {folder} or BENCH_DATA={folder}", err=True)


@data.command()
@click.argument("group", required=False)
@with_data
def verify(group: str | None, data_dir: Path | None) -> None:
    """Compare every task (or those of sts7 or transfer7) with its committed fingerprint."""
    from bench.data import senteval
    from bench.data.suites import GROUPS, check_reference, data_folder, read_task
    from bench.errors import unknown

    if group is not None and group not in GROUPS:
        raise unknown("data set", group, GROUPS, where="bench data verify")
    folder = data_folder(data_dir)
    if folder is None:
        raise InputError("no data folder", expected="--data DIR or BENCH_DATA", hint="bench data fetch sts7")
    root = senteval.find_root(folder)
    bad = 0
    for task_id in GROUPS[group] if group else senteval.SOURCES:
        try:
            task = read_task(root, task_id)
            check_reference(task, root)
            click.echo(f"{task_id:12} ok  {task.items:>6,} items  sha256 {task.sha256[:12]}")
        except DataError as error:
            bad += 1
            click.echo(f"{task_id:12} BAD {error}")
    if bad:
        raise DataError(f"{bad} task(s) are missing or differ", where=str(root))


@data.command()
@click.argument("texts", nargs=-1, required=True, type=PATH)
@click.option("--suite", default="sts7")
@with_data
@click.option("--accept-data", is_flag=True, help="Audit data that differ from the reference version.")
@click.option(
    "--level",
    type=click.Choice(["exact", "key", "near"]),
    default="near",
    help="Level of the scores on clean pairs.",
)
@click.option(
    "--campaign",
    help="Score this campaign's records on the clean pairs (csv: these rows instead of the counts).",
)
@click.option("--results", type=PATH, default=Path("results"))
@format_option("text", "csv")
def overlap(
    texts: tuple[Path, ...], suite: str, accept_data: bool, campaign: str | None, form: str, **options: Any
) -> None:
    """Audit training TEXTS (one sentence a line, .xz too) against a suite's test sets.

    Levels: exact (same string), key (same letters and digits), near (key, or eight words in a row).
    """
    from itertools import chain

    import pandas as pd

    from bench.data.suites import data_folder, load_suite
    from bench.probes.overlap import audit
    from bench.records.store import ResultStore

    tasks = load_suite(suite, data_folder(options["data_dir"]), accept_data=accept_data)[1]
    store = ResultStore(options["results"], campaign) if campaign is not None else None
    records = store.records() if store else []
    audits = audit(chain.from_iterable(_lines(text) for text in texts), tasks)
    if store is not None:
        chosen = {entry.task: entry for entry in audits if entry.level == options["level"]}
        rows = _clean_rows(store, records, suite, tasks, chosen)
        if not rows:
            raise InputError(f"no finished record of suite '{suite}'", where=f"campaign {campaign}")
        if form == "csv":  # one table a stream
            _echo_frame(pd.DataFrame(rows), form)
            return
    counts = [(e.task, e.level, e.sentences, e.touched_sentences, e.pairs, e.clean_pairs) for e in audits]
    columns = ["task", "level", "sentences", "touched", "pairs", "clean_pairs"]
    _echo_frame(pd.DataFrame(counts, columns=columns), form)
    if store is not None:
        click.echo("")
        _echo_frame(pd.DataFrame(rows), form)


def _lines(path: Path) -> Iterator[str]:
    """The lines of one text, read once (it may be a pipe); raises DataError if there is none."""
    from bench.probes.overlap import training_lines

    empty = True
    for line in training_lines(path):
        empty = False
        yield line
    if empty:
        raise DataError("the training text is empty", where=str(path))


def _clean_rows(
    store: Any, records: list[Any], suite: str, tasks: list[Any], chosen: dict[str, Any]
) -> list[dict[str, Any]]:
    """Scores of a campaign's records on all and on the clean pairs, in the metric's unit."""
    from bench.errors import NotComparableError
    from bench.probes.overlap import clean_score

    rows = []
    for record in records:
        if record.suite != suite or record.status != "ok":
            continue
        predictions = store.predictions(record)
        for task in tasks:
            if record.tasks[task.id]["sha256"] != task.sha256:
                raise NotComparableError(
                    f"{record.method} was measured on another version of {task.id}",
                    where=f"campaign {store.campaign}",
                )
            clean = clean_score(task, chosen[task.id], predictions[task.id])
            cell = {"profile": record.profile, "method": record.method, "seed": record.seed}
            whole = {"level": chosen[task.id].level, "all": record.score(task.id), "n_all": task.pairs}
            part = {"clean": clean.value, "low": clean.low, "high": clean.high, "n_clean": clean.n}
            rows.append(cell | {"task": task.id} | whole | part)
    return rows


def _echo_frame(frame: Any, form: str) -> None:
    if form == "csv":
        from bench.reports.formats.render import frame_csv

        click.echo(frame_csv(frame), nl=False)
    else:
        click.echo(frame.to_string(index=False, na_rep="-", float_format=lambda value: f"{value:.4f}"))


data.add_command(rtt)
