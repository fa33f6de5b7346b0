"""Measuring an encoder with mteb: scores in bench's form, results in mteb's own layout too."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.local_tasks import LocalTask
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError, StorageError, storage_reason
from bench.eval.measure import SuiteResult
from bench.eval.mteb_items import mteb_items
from bench.eval.mteb_kinds import RANKED, kind_of
from bench.eval.mteb_model import MtebEncoder
from bench.eval.mteb_predictions import keep_predictions
from bench.eval.mteb_scores import Entries, MtebEntry, entry_as_json, entry_from_json, suite_scores
from bench.eval.mteb_setup import import_mteb, preserve_random_state, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task
from bench.records.filesystem import write_atomically

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

_FORM = 2  # of what is kept of a finished task: with its predictions
_BATCH = 256  # texts that mteb hands over at once; encoders make their own batches
_UNDEFINED = ("ap", "ap_weighted")  # mteb's scores of two classes


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
    """Measure an encoder on tasks of mteb; the global random state stays unchanged.

    ``folder/parts`` keeps each finished task at full precision, by everything that determines its scores.
    ``folder/results`` has mteb's layout: ``mteb.ResultCache(folder)`` reads it. ``force`` measures finished
    tasks again. The other options are those of :class:`bench.eval.mteb_model.MtebEncoder`.
    Failed tasks raise BenchError with their reasons, after all others were measured.
    """
    import_mteb()
    import torch

    limits = importlib.import_module("threadpoolctl").threadpool_limits
    # BLAS's number of threads changes last digits
    with preserve_random_state(), silence_mteb(), limits(torch.get_num_threads(), "blas"):
        model = MtebEncoder(encoder, name, identity, progress, about)
        entries: dict[str, list[MtebEntry]] = {}
        failures: list[str] = []
        groups: dict[tuple[str, tuple[str, ...]], list[MtebTask]] = {}  # parts of a task run together
        for task in tasks:
            groups.setdefault((task.asked.name, task.splits), []).append(task)
        for group in groups.values():
            try:
                entries |= _load_or_measure(model, group, folder, force=force)
            except Exception as error:  # of the hub, mteb or the data
                if words := storage_reason(error):
                    what = f"mteb's results can't be written: {words}"
                    raise StorageError(what, where=str(folder)) from error
                reason = " ".join(str(error).split()) or type(error).__name__
                failures.append(f"{group[0].asked.name}: {reason}")
    if failures:
        what = f"{len(failures)} of {len(groups)} tasks of mteb failed ({' | '.join(failures)})"
        hint = "the others are kept: run the same command again"
        missing = any("Couldn't reach" in reason or "offline" in reason.lower() for reason in failures)
        if missing and os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0"):
            hint += ", with HF_HUB_OFFLINE=0 before it to fetch data sets"
        raise BenchError(what, hint=hint)
    mteb_facts = {"version": version("mteb"), "model": name, "revision": model.mteb_model_meta.revision}
    predictions, mteb_facts["tasks"] = _join_parts(tasks, entries)
    return SuiteResult(suite_scores(tasks, entries), predictions, {"mteb": mteb_facts})


def _join_parts(tasks: Sequence[MtebTask], entries: Entries) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """Return predictions and facts by task, and print the coverage of word vectors on stderr."""
    predictions: dict[str, FloatArray] = {}
    task_facts = {}
    for task in tasks:
        parts, facts = entries[task.id], task.facts
        if coverage := parts[0].coverage:
            facts["coverage"] = coverage
            print(f"{task.id}: word vectors know {coverage}", file=sys.stderr)
        kept = [entry.kept.ravel() for entry in parts if entry.kept is not None]
        predictions[task.id] = np.empty(0, dtype=np.float32)
        if kept and len(kept) == len(parts):
            predictions[task.id] = np.concatenate(kept)
            facts["kept"] = [[entry.split, entry.subset, entry.items] for entry in parts]
        task_facts[task.id] = facts
    return predictions, task_facts


def _load_or_measure(
    model: MtebEncoder, group: list[MtebTask], folder: Path, *, force: bool
) -> dict[str, list[MtebEntry]]:
    facts = [_FORM, model.mteb_model_meta.revision, version("mteb"), *(task.sha256 for task in group)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    file = folder / "parts" / f"{key}.json"
    try:
        data = [] if force else json.loads(file.read_text(encoding="utf-8"))
        entries = [entry_from_json(entry) for entry in data]
    except (OSError, ValueError, TypeError, KeyError):  # an unfinished task, or a damaged file
        entries = []
    if not entries:
        entries = _measure_group(model, group, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps([entry_as_json(entry) for entry in entries]).encode())
    parts = {}
    for task in group:
        wanted = task.asked.subsets
        parts[task.id] = [entry for entry in entries if not wanted or entry.subset in wanted]
    return parts


def _measure_group(model: MtebEncoder, group: list[MtebTask], folder: Path) -> list[MtebEntry]:
    """Run one task of mteb on every subset that the group needs, and write mteb's own files."""
    import mteb

    asked = [task.asked.subsets for task in group]
    subsets = tuple(dict.fromkeys(subset for part in asked for subset in part)) if all(asked) else ()
    task = build_mteb_task(replace(group[0], asked=replace(group[0].asked, subsets=subsets)))
    if not task.data_loaded and not task.is_aggregate:
        task.load_data()  # so that the items can be counted
    score_fewer_classes(task, group[0].local)
    model.begin_task()
    settings: Any = {"batch_size": _BATCH, "show_progress_bar": False}
    with _capture_predictions(task, group[0]) as (read_predictions, prediction_folder):
        run = mteb.evaluate(
            model,
            task,
            cache=None,
            co2_tracker=False,
            encode_kwargs=settings,
            show_progress_bar=False,
            prediction_folder=prediction_folder,
        )
        (result,) = run.task_results
        entries = []
        for split, parts in result.scores.items():
            entries += [_build_entry(group[0], task, split, scores, read_predictions) for scores in parts]
    model.check_task()
    bad = [entry.subset for entry in entries if not math.isfinite(entry.scores.get("main_score", math.nan))]
    if bad:
        why = ": all vectors are equal (a collapsed encoder?)" if model.all_equal else ""
        raise BenchError(f"the score of {', '.join(bad[:5])} isn't finite{why}")
    _write_results(result, model, folder, settings)
    task.unload_data()
    return [replace(entry, coverage=model.coverage) for entry in entries]


def score_fewer_classes(task: Any, local: LocalTask | None) -> None:
    """Leave average precision out of a classification task of mteb where it is undefined.

    mteb scores two test classes as a binary task. With a third class in training scikit-learn fails unless
    one label is 1. A task from files then lacks that score; a task of mteb's keeps it wherever mteb has one.
    """
    compute: Callable[..., Any] | None = getattr(task, "_calculate_scores", None)
    if compute is None or task.metadata.type != "Classification":
        return
    many = local is not None and len({label for _, label in local.table("train")}) > 2

    def scores(gold: Sequence[Any], predicted: Sequence[Any]) -> Any:
        """Score an experiment; to leave average precision out, the labels become numbers from 0."""
        if not many:
            try:
                return compute(gold, predicted)
            except ValueError:
                if len({*gold}) != 2:
                    raise
        labels = [*sorted({*gold}), *sorted({*predicted} - {*gold})]
        numbers = dict(zip(labels, range(len(labels)), strict=True))
        results = compute([*map(numbers.get, gold)], [*map(numbers.get, predicted)])
        return {**results, **dict.fromkeys(_UNDEFINED)}

    task._calculate_scores = scores


@contextmanager
def _capture_predictions(
    task: AbsTask, asked: MtebTask
) -> Iterator[tuple[Callable[[str, str], Any], Path | None]]:
    """Yield a reader of predictions (of queries their scores) by split and subset, and mteb's folder."""
    built: Any = task
    if kind_of(asked) is None or built.is_aggregate:
        yield lambda split, subset: None, None
    elif asked.kind in RANKED:
        query_scores: dict[tuple[str, str], Any] = {}
        compute = built.task_specific_scores

        def listen(scores: Any, *others: Any, hf_split: str, hf_subset: str) -> Any:
            query_scores[hf_subset, hf_split] = scores
            return compute(scores, *others, hf_split=hf_split, hf_subset=hf_subset)

        built.task_specific_scores = listen
        yield lambda split, subset: query_scores[subset, split], None
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / built.prediction_file_name

            @cache
            def read() -> Any:
                return json.loads(file.read_text(encoding="utf-8"))

            yield lambda split, subset: read()[subset][split], Path(folder)


def _build_entry(
    asked: MtebTask, task: AbsTask, split: str, scores: Any, read_predictions: Callable[[str, str], Any]
) -> MtebEntry:
    """Return a subset's scores with its predictions."""
    subset = scores["hf_subset"]
    numbers = {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}
    entry = MtebEntry(split, subset, numbers, asked.items or _count_items(task, split, subset))
    kind, value = kind_of(asked), entry.scores.get(asked.score)
    if kind is None or value is None:
        return entry
    try:
        items = mteb_items(task, split, subset)
        kept = keep_predictions(kind, read_predictions(split, subset), items, value)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):  # data in a layout of the task's own
        return entry
    return entry if kept is None else replace(entry, items=len(items.texts), kept=kept)


def _count_items(task: AbsTask, split: str, subset: str) -> int:
    """Count the pairs, sentences or queries of a split; 0 for an aggregated task."""
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
