"""Measuring an encoder with mteb: scores in bench's form, results in mteb's own layout too."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError, StorageError, storage_reason
from bench.eval.measure import SuiteResult
from bench.eval.mteb_classification import score_fewer_classes
from bench.eval.mteb_items import mteb_items
from bench.eval.mteb_kinds import RANKED, kind_of
from bench.eval.mteb_model import MtebEncoder
from bench.eval.mteb_predictions import keep_predictions
from bench.eval.mteb_scores import MtebEntry, entry_as_json, entry_from_json, suite_scores
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task
from bench.records.filesystem import write_atomically

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

_FORM = 2  # of what is kept of a finished task: with its predictions
_BATCH = 256  # texts that mteb hands over at once; encoders make their own batches


def evaluate_mteb(
    encoder: Encoder | PairScorer,
    tasks: Sequence[MtebTask],
    *,
    name: str,
    folder: Path,
    identity: str = "",
    force: bool = False,
    progress: Progress | None = None,
    about: Mapping[str, Any] | None = None,
) -> SuiteResult:
    """Measure an encoder on tasks of mteb; no global random state is changed.

    A finished task is kept in ``folder/parts`` at full precision, under everything that determines its
    scores, and isn't measured again. ``folder/results`` has mteb's layout: ``mteb.ResultCache(folder)`` reads
    it.

    Args:
        encoder: The encoder.
        tasks: From :func:`bench.eval.mteb_tasks.load_mteb_suite`.
        name: Model name in mteb's files, "bench/NAME".
        folder: Where they go.
        identity: What determines the encoder in addition to its weights, such as a hash of its options.
        force: Measure finished tasks again.
        progress: Called with finished sentences.
        about: See :class:`bench.eval.mteb_model.MtebEncoder`.

    Returns:
        The record's scores; what is kept of each task's predictions, nothing of some; and what the record
        says of mteb, of the model's name there and of the tasks.

    Raises:
        InputError: mteb isn't installed, or a method without vectors.
        BenchError: tasks that failed, each with its reason, after all others were measured.
    """
    import_mteb()
    import torch

    limits = importlib.import_module("threadpoolctl").threadpool_limits
    with (
        preserve_random_state(),
        silence_mteb(),
        limits(torch.get_num_threads(), "blas"),
    ):  # changes last digits
        model = MtebEncoder(encoder, name, identity, progress, about)
        found: dict[str, list[MtebEntry]] = {}
        failed: list[str] = []
        groups = _group_tasks(tasks)
        for group in groups:
            try:
                found |= _load_or_measure(model, group, folder, force=force)
            except Exception as error:  # the hub's, mteb's or the data's: said below, after the other tasks
                if words := storage_reason(error):
                    what = f"what mteb measures can't be kept: {words}"
                    raise StorageError(what, where=str(folder)) from error
                reason = " ".join(str(error).split()) or type(error).__name__
                failed.append(f"{group[0].asked.name}: {reason}")
    if failed:
        raise BenchError(
            f"{len(failed)} of {len(groups)} tasks of mteb failed ({' | '.join(failed)})",
            hint=f"the others are kept: run the same command again{_fetch_hint(failed)}",
        )
    for asked, entries in found.items():
        if coverage := entries[0].coverage:
            print(f"{asked}: word vectors know {coverage}", file=sys.stderr)
    return _build_result(model, name, tasks, found)


def _build_result(
    model: MtebEncoder, name: str, tasks: Sequence[MtebTask], found: Mapping[str, Sequence[MtebEntry]]
) -> SuiteResult:
    """Scores, what is kept of the items, and what the record says of mteb."""
    facts = {"version": _mteb_version(), "model": name, "revision": model.mteb_model_meta.revision}
    predictions = {task.id: _join_predictions(found[task.id]) for task in tasks}
    of_tasks = {task.id: {**task.facts, **_entry_facts(found[task.id])} for task in tasks}
    return SuiteResult(suite_scores(tasks, found), predictions, {"mteb": {**facts, "tasks": of_tasks}})


def _join_predictions(entries: Sequence[MtebEntry]) -> FloatArray:
    """What is kept of all entries of a task, one after the other; nothing where one has nothing."""
    kept = [entry.kept.ravel() for entry in entries if entry.kept is not None]
    return np.concatenate(kept) if kept and len(kept) == len(entries) else np.empty(0, dtype=np.float32)


def _entry_facts(entries: Sequence[MtebEntry]) -> dict[str, Any]:
    """What the record says of that: split, subset and items of each entry, and what word vectors knew."""
    facts: dict[str, Any] = {"coverage": entries[0].coverage} if entries[0].coverage else {}
    if len(_join_predictions(entries)):
        facts["kept"] = [[entry.split, entry.subset, entry.items] for entry in entries]
    return facts


def _group_tasks(tasks: Sequence[MtebTask]) -> list[list[MtebTask]]:
    """Group the rows that are parts of one task of mteb's, which is loaded and run once."""
    groups: dict[tuple[str, tuple[str, ...]], list[MtebTask]] = {}
    for task in tasks:
        groups.setdefault((task.asked.name, task.splits), []).append(task)
    return list(groups.values())


def _fetch_hint(failed: Sequence[str]) -> str:
    """What to do about data sets that aren't in the local cache: nothing is fetched unasked."""
    offline = os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0")
    missing = any("Couldn't reach" in reason or "offline" in reason.lower() for reason in failed)
    return ", with HF_HUB_OFFLINE=0 before it to fetch data sets" if offline and missing else ""


def _load_or_measure(
    model: MtebEncoder, group: list[MtebTask], folder: Path, *, force: bool
) -> dict[str, list[MtebEntry]]:
    facts = [_FORM, model.mteb_model_meta.revision, _mteb_version(), *(task.sha256 for task in group)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    file = folder / "parts" / f"{key}.json"
    entries = None if force else _load_entries(file)
    if entries is None:
        entries = _measure_group(model, group, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps([entry_as_json(entry) for entry in entries]).encode())
    return {
        task.id: [e for e in entries if not task.asked.subsets or e.subset in task.asked.subsets]
        for task in group
    }


def _load_entries(file: Path) -> list[MtebEntry] | None:
    """The entries of a finished task, None where it isn't finished or its file is damaged."""
    try:
        return [entry_from_json(entry) for entry in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _measure_group(model: MtebEncoder, group: list[MtebTask], folder: Path) -> list[MtebEntry]:
    """Run one task of mteb's on every subset that the group needs, and write mteb's own files.

    Raises:
        BenchError: a main score that isn't finite, or word vectors without a word of the task.
    """
    import mteb

    asked = [task.asked.subsets for task in group]
    every = dict.fromkeys(subset for subsets in asked for subset in subsets) if all(asked) else ()
    task = build_mteb_task(replace(group[0], asked=replace(group[0].asked, subsets=tuple(every))))
    if not task.data_loaded and not task.is_aggregate:
        task.load_data()  # here, so that they can be counted afterwards
    score_fewer_classes(task, group[0].local)
    model.begin_task()
    settings: Any = {"batch_size": _BATCH, "show_progress_bar": False}
    with _capture_predictions(task, group[0]) as (said, folder_of_predictions):
        run = mteb.evaluate(
            model,
            task,
            cache=None,
            co2_tracker=False,
            encode_kwargs=settings,
            show_progress_bar=False,
            prediction_folder=folder_of_predictions,
        )
        (result,) = run.task_results
        entries = [
            _build_entry(group[0], task, split, scores, said)
            for split, parts in result.scores.items()
            for scores in parts
        ]
    model.check_task()
    if bad := [
        entry.subset for entry in entries if not math.isfinite(entry.scores.get("main_score", math.nan))
    ]:
        why = ": all vectors are equal (a collapsed encoder?)" if model.all_equal else ""
        raise BenchError(f"the score of {', '.join(bad[:5])} isn't finite{why}")
    _write_results(result, model, folder, settings)
    task.unload_data()
    return [replace(entry, coverage=model.coverage) for entry in entries]


@contextmanager
def _capture_predictions(
    task: AbsTask, asked: MtebTask
) -> Iterator[tuple[Callable[[str, str], Any], Path | None]]:
    """Listen to what mteb says of the items of a task: yield what reads it, and the folder to write it to.

    Predictions come from mteb's file of them. Of queries, which have a thousand documents each, their scores
    are taken on their way.
    """
    made: Any = task
    if kind_of(asked) is None or made.is_aggregate:
        yield lambda split, subset: None, None
    elif asked.kind in RANKED:
        heard: dict[tuple[str, str], Any] = {}
        usual = made.task_specific_scores

        def listen(scores: Any, *others: Any, hf_split: str, hf_subset: str) -> Any:
            heard[hf_subset, hf_split] = scores
            return usual(scores, *others, hf_split=hf_split, hf_subset=hf_subset)

        made.task_specific_scores = listen
        yield lambda split, subset: heard[subset, split], None
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / made.prediction_file_name

            @cache
            def read() -> Any:
                return json.loads(file.read_text(encoding="utf-8"))

            yield lambda split, subset: read()[subset][split], Path(folder)


def _build_entry(
    asked: MtebTask, task: AbsTask, split: str, scores: Any, said: Callable[[str, str], Any]
) -> MtebEntry:
    """What mteb measured on a subset, with what is kept of its predictions."""
    subset = scores["hf_subset"]
    entry = MtebEntry(
        split, subset, _select_numbers(scores), asked.items or _count_items(task, split, subset)
    )
    kind, value = kind_of(asked), entry.scores.get(asked.score)
    if kind is None or value is None:
        return entry
    try:
        items = mteb_items(task, split, subset)
        kept = keep_predictions(kind, said(split, subset), items, value)
    except (
        AttributeError,
        KeyError,
        OSError,
        TypeError,
        ValueError,
    ):  # a task that mteb lays out in its own way
        return entry
    return entry if kept is None else replace(entry, items=len(items.texts), kept=kept)


def _select_numbers(scores: Any) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}


def _count_items(task: AbsTask, split: str, subset: str) -> int:
    """Pairs, sentences or queries of a split, 0 for a task that is made of others."""
    data: Any = task.dataset
    if not data:
        return 0
    part = data[split] if subset not in data else data[subset][split]
    return len(part["queries"]) if isinstance(part, dict) and "queries" in part else len(part)


def _write_results(result: TaskResult, model: MtebEncoder, folder: Path, settings: dict[str, Any]) -> None:
    """Write mteb's file of a task, with the subsets that an earlier run measured."""
    from mteb import ResultCache

    cache, about = ResultCache(folder), model.mteb_model_meta
    before = cache.load_task_result(result.task_name, about)
    if before is not None and before.is_mergeable(result, criteria=["mteb_version", "dataset_revision"]):
        result = before.merge(result)
    cache.save_to_cache(result, about, encode_kwargs=settings)


def _mteb_version() -> str:
    return importlib.metadata.version("mteb")
