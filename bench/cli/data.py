"""``bench data``: fetch, verify, overlap, rtt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench.cli import completion
from bench.cli.commands import bench_group
from bench.cli.options import PATH, data_option, format_option, results_option
from bench.cli.round_trip_translation import rtt_command
from bench.cli.strict_options import strict_option
from bench.errors import DataError, InputError

with_data = data_option("Folder of evaluation data; default BENCH_DATA, then ./data.")


@bench_group()
def data_command() -> None:
    """Download, verify, audit and translate data."""


@data_command.command("fetch")
@click.argument("name")
@with_data
def fetch_command(name: str, data_dir: Path | None) -> None:
    """Download and check data.

    NAME is sts7, transfer7, probing (SentEval's), wiki1m or nli (SimCSE's texts).
    """
    from bench.data.data_source import data_folder
    from bench.data.downloads import fetch_data
    from bench.data.lock_files import lock_file, read_pin

    folder = data_folder(data_dir) or Path("data")
    for path in fetch_data(name, folder):
        click.echo(f"{name}: {path}")
        if path.is_file() and (pin := read_pin(path)) is not None:
            click.echo(f"{lock_file(path)}: {pin.bytes:,} bytes, {pin.source}")
    if data_dir is not None:
        click.echo(f"use it with --data {folder} or BENCH_DATA={folder}", err=True)


@data_command.command("verify")
@click.argument("group", required=False)
@with_data
def verify_data_command(group: str | None, data_dir: Path | None) -> None:
    """Compare data with their lock files and fingerprints.

    All of them, or those of sts7, transfer7, probing, wiki1m or nli. Texts without a lock file are listed
    with their hash.
    """
    from bench.data.data_source import data_folder
    from bench.data.downloads import NAMES
    from bench.errors import unknown_name

    if group is not None and group not in NAMES:
        raise unknown_name("data set", group, NAMES, where="bench data verify")
    folder = data_folder(data_dir)
    if folder is None:
        raise InputError("no data folder", expected="--data DIR or BENCH_DATA", hint="bench data fetch sts7")
    bad = 0
    for name, check in _list_checks(folder, group):
        try:
            click.echo(f"{name} ok  {check()}")
        except DataError as error:
            bad += 1
            click.echo(f"{name} BAD {error}")
    if bad:
        raise DataError(f"{bad} of these are missing, damaged or not the reference", where=str(folder))


def _list_checks(folder: Path, group: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    from bench.data import probing_files, senteval
    from bench.data.downloads import TEXTS
    from bench.data.suites import GROUPS

    if group in (None, *TEXTS):
        for file in _find_texts(folder, group):
            yield f"{file:42}", partial(_check_training_text, folder / file)
    if group in (None, "probing"):
        probing = probing_files.choose_probing_folder(folder)
        for file in probing_files.BLOBS:
            if group or (probing / file).is_file():
                yield f"{file:26}", partial(_check_probing_file, file, probing)
    if group in (None, *GROUPS):
        root = senteval.find_root(folder)
        for task_id in GROUPS[group] if group else senteval.SOURCES:
            yield f"{task_id:12}", partial(_check_task, root, task_id)


def _check_task(root: Path, task_id: str) -> str:
    from bench.data.suites import check_reference, read_task

    task = read_task(root, task_id)
    check_reference(task, root)
    return f"{task.items:>6,} items  sha256 {task.sha256[:12]}"


def _check_probing_file(file: str, folder: Path) -> str:
    from bench.data.probing_files import check_probing_file

    return f"git blob {check_probing_file(file, folder)[:12]}"


def _find_texts(folder: Path, group: str | None) -> list[str]:
    """The profiles' existing training texts, as paths below the folder, or the text of a group."""
    from bench.config import profiles
    from bench.data.downloads import TEXTS

    if group is not None:
        return [f"corpus/{TEXTS[group]}"]
    texts = [f"corpus/{file}" for file in TEXTS.values()]
    for profile in profiles.profile_names():
        corpus = profiles.load_profile(profile).corpus
        texts += [corpus[name] for name in ("file", "sick", "pairs") if name in corpus]
        texts += corpus.get("copies", {}).values()
    return [file for file in dict.fromkeys(texts) if (folder / file).exists()]


def _check_training_text(path: Path) -> str:
    """Describe a training text; raises DataError where its lock file or provenance differs."""
    from bench.data import downloads, lock_files
    from bench.data.round_trip_translation import check_copy
    from bench.probes.training_overlap import read_training_lines

    if not path.exists():
        name = next(name for name, file in downloads.TEXTS.items() if file == path.name)
        raise DataError("this text is missing", where=str(path), hint=f"bench data fetch {name} gets it")
    lines = sum(1 for _ in read_training_lines(path))
    sha256 = lock_files.measure_text(path).sha256
    source = lock_files.check_pin(path, sha256).removesuffix(f", sha256 {sha256}")
    if path.name in downloads.TEXTS.values():
        downloads.check_text_size(path)
    made = "as bench data rtt made it" if check_copy(path) else "no published hash to compare with"
    return f"{lines:>9,} lines  sha256 {sha256[:12]}  {source or made}"


@data_command.command()
@click.argument("texts", nargs=-1, required=True, type=PATH)
@strict_option("--text-column", metavar="NAME", help="Column of TEXTS that are tables.")
@strict_option("--suite", default="sts7", shell_complete=completion.suite, help="Suite with the test sets.")
@with_data
@strict_option("--accept-data", is_flag=True, help="Accept data that differ from the reference version.")
@strict_option(
    "--level",
    type=click.Choice(["exact", "key", "near"]),
    default="near",
    help="Overlap to exclude from clean pairs.",
)
@strict_option(
    "--campaign",
    shell_complete=completion.campaign,
    help="Also score this campaign's records on the clean pairs (csv: only these rows).",
)
@results_option
@format_option("text", "csv")
def overlap_command(
    texts: tuple[Path, ...], suite: str, accept_data: bool, campaign: str | None, form: str, **options: Any
) -> None:
    """Find training sentences in the test sets of a suite.

    TEXTS have one sentence a line, .xz too.

    Levels: exact (same string), key (same letters and digits), near (key, or eight words in a row).
    """
    from itertools import chain

    import pandas as pd

    from bench.data.data_source import DataSource, data_folder
    from bench.data.suites import load_suite
    from bench.eval.recomputation import require_sound_scores
    from bench.probes.training_overlap import audit_overlap
    from bench.records.store import ResultStore

    source = DataSource(data_folder(options["data_dir"]), accept_changed=accept_data)
    tasks = load_suite(suite, source)[1]
    store = ResultStore(options["results"], campaign) if campaign is not None else None
    records = []
    if store is not None:
        stored = [record for record in store.records() if record.suite == suite]
        records = require_sound_scores(store, stored, options["data_dir"])
    sentences = chain.from_iterable(_read_sentences(text, options["text_column"]) for text in texts)
    audits = audit_overlap(sentences, tasks)
    if store is not None:
        chosen = {entry.task: entry for entry in audits if entry.level == options["level"]}
        rows = _score_clean_pairs(store, records, suite, tasks, chosen)
        if not rows:
            raise InputError(f"no finished record of suite '{suite}'", where=f"campaign {campaign}")
        clean = pd.DataFrame(rows).astype({"seed": "Int64"})  # None would make fractions of them
        if form == "csv":  # one table a stream
            _print_frame(clean, form)
            return
    counts = [(e.task, e.level, e.sentences, e.touched_sentences, e.pairs, e.clean_pairs) for e in audits]
    columns = ["task", "level", "sentences", "touched", "pairs", "clean_pairs"]
    _print_frame(pd.DataFrame(counts, columns=columns), form)
    if store is not None:
        click.echo("")
        _print_frame(clean, form)


def _read_sentences(path: Path, column: str | None) -> Iterator[str]:
    """Yield the sentences of a text or a table's column, and print their number on stderr at the end."""
    from bench.data.text_columns import OPTION, column_rows, is_table
    from bench.probes.training_overlap import read_training_rows

    if column is not None and not is_table(path):
        raise InputError(f"{path.name} is read as a sentence a line", where=f"{OPTION} {column}")
    count, empty = 0, 0
    for _, line in column_rows(path, column) if is_table(path) else read_training_rows(path):
        if line:
            count += 1
            yield line
        else:
            empty += 1
    if not count:
        raise DataError("the training text is empty", where=str(path))
    sentences = f"{count:,} sentence{'s' * (count != 1)}"
    click.echo(f"{path}: {sentences}, empty lines or cells left out: {empty:,}", err=True)


def _score_clean_pairs(
    store: Any, records: list[Any], suite: str, tasks: list[Any], chosen: dict[str, Any]
) -> list[dict[str, Any]]:
    from bench.errors import NotComparableError
    from bench.probes.training_overlap import clean_score

    rows = []
    for record in records:
        if record.suite != suite or record.status != "ok":
            continue
        predictions = store.predictions(record)
        for task in tasks:
            if record.tasks[task.id]["sha256"] != task.sha256:
                what = f"{record.method} was measured on another version of {task.id}"
                raise NotComparableError(what, where=f"campaign {store.campaign}")
            clean = clean_score(task, chosen[task.id], predictions[task.id])
            cell = {"profile": record.profile, "method": record.method, "seed": record.seed}
            whole = {"level": chosen[task.id].level, "all": record.score(task.id), "n_all": task.pairs}
            part = {"clean": clean.value, "low": clean.low, "high": clean.high, "n_clean": clean.n}
            rows.append(cell | {"task": task.id} | whole | part)
    return rows


def _print_frame(frame: Any, form: str) -> None:
    if form == "csv":
        from bench.render.formats import frame_csv

        click.echo(frame_csv(frame), nl=False)
    else:
        click.echo(frame.to_string(index=False, na_rep="-", float_format=lambda value: f"{value:.4f}"))


data_command.add_command(rtt_command)
