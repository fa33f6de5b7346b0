"""Measuring an encoder with mteb: scores in bench's form, results in mteb's own layout too."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.encoder import Encoder, PairScorer, Progress
from bench.errors import BenchError, StorageError, storage_reason
from bench.eval.measure import Measured
from bench.eval.mteb_model import MtebEncoder
from bench.eval.mteb_scores import Entry, suite_scores
from bench.eval.mteb_setup import import_mteb, kept_random_state
from bench.eval.mteb_tasks import MtebTask, mteb_task
from bench.records.files import write_whole

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

_BATCH = 256  # texts that mteb hands over at once; encoders make their own batches


def evaluate(
    encoder: Encoder | PairScorer,
    tasks: Sequence[MtebTask],
    *,
    name: str,
    folder: Path,
    identity: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> Measured:
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

    Returns:
        The record's scores, and what it says of mteb, of the model's name there and of the tasks.

    Raises:
        InputError: mteb isn't installed, or a method without vectors.
        BenchError: tasks that failed, each with its reason, after all others were measured.
    """
    import_mteb()
    import torch

    limits = importlib.import_module("threadpoolctl").threadpool_limits
    with kept_random_state(), _quiet(), limits(torch.get_num_threads(), "blas"):  # changes last digits
        model = MtebEncoder(encoder, name, identity, progress)
        found: dict[str, list[Entry]] = {}
        failed: list[str] = []
        groups = _groups(tasks)
        for group in groups:
            try:
                found |= _finished_or_measured(model, group, folder, force=force)
            except Exception as error:  # the hub's, mteb's or the data's: said below, after the other tasks
                if words := storage_reason(error):
                    raise StorageError(
                        f"what mteb measures can't be kept: {words}", where=str(folder)
                    ) from error
                reason = " ".join(str(error).split()) or type(error).__name__
                failed.append(f"{group[0].asked.name}: {reason}")
    if failed:
        raise BenchError(
            f"{len(failed)} of {len(groups)} tasks of mteb failed ({' | '.join(failed)})",
            hint=f"the others are kept: run the same command again{_how_to_fetch(failed)}",
        )
    facts = {"version": _version(), "model": name, "revision": model.mteb_model_meta.revision}
    about = {"mteb": {**facts, "tasks": {task.id: task.facts for task in tasks}}}
    return Measured(suite_scores(tasks, found), facts=about)


def _groups(tasks: Sequence[MtebTask]) -> list[list[MtebTask]]:
    """Group the rows that are parts of one task of mteb's, which is loaded and run once."""
    groups: dict[tuple[str, tuple[str, ...]], list[MtebTask]] = {}
    for task in tasks:
        groups.setdefault((task.asked.name, task.splits), []).append(task)
    return list(groups.values())


def _how_to_fetch(failed: Sequence[str]) -> str:
    """What to do about data sets that aren't in the local cache: nothing is fetched unasked."""
    offline = os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0")
    missing = any("Couldn't reach" in reason or "offline" in reason.lower() for reason in failed)
    return ", with HF_HUB_OFFLINE=0 before it to fetch data sets" if offline and missing else ""


def _finished_or_measured(
    model: MtebEncoder, group: list[MtebTask], folder: Path, *, force: bool
) -> dict[str, list[Entry]]:
    facts = [model.mteb_model_meta.revision, _version(), *(task.sha256 for task in group)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    file = folder / "parts" / f"{key}.json"
    entries = None if force else _kept(file)
    if entries is None:
        entries = _measure(model, group, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps([asdict(entry) for entry in entries]).encode())
    return {
        task.id: [e for e in entries if not task.asked.subsets or e.subset in task.asked.subsets]
        for task in group
    }


def _kept(file: Path) -> list[Entry] | None:
    """The entries of a finished task, None where it isn't finished or its file is damaged."""
    try:
        return [Entry(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return None


def _measure(model: MtebEncoder, group: list[MtebTask], folder: Path) -> list[Entry]:
    """Run one task of mteb's on every subset that the group needs, and write mteb's own files.

    Raises:
        BenchError: a main score that isn't finite.
    """
    import mteb

    asked = [task.asked.subsets for task in group]
    every = dict.fromkeys(subset for subsets in asked for subset in subsets) if all(asked) else ()
    task = mteb_task(replace(group[0], asked=replace(group[0].asked, subsets=tuple(every))))
    if not task.data_loaded and not task.is_aggregate:
        task.load_data()  # here, so that they can be counted afterwards
    settings: Any = {"batch_size": _BATCH, "show_progress_bar": False}
    run = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, encode_kwargs=settings, show_progress_bar=False
    )
    (result,) = run.task_results
    entries = [
        Entry(split, scores["hf_subset"], _numbers(scores), _items(task, split, scores["hf_subset"]))
        for split, parts in result.scores.items()
        for scores in parts
    ]
    if bad := [
        entry.subset for entry in entries if not math.isfinite(entry.scores.get("main_score", math.nan))
    ]:
        raise BenchError(f"the score of {', '.join(bad[:5])} isn't finite (a collapsed encoder?)")
    _write_results(result, model, folder, settings)
    task.unload_data()
    return entries


def _numbers(scores: Any) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}


def _items(task: AbsTask, split: str, subset: str) -> int:
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


def _version() -> str:
    return importlib.metadata.version("mteb")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep mteb's warnings, of replaced tasks and the like, and data sets' bars off stderr."""
    datasets: Any = importlib.import_module("datasets")

    loggers = [logging.getLogger(name) for name in ("mteb", "datasets", "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    bars = not datasets.utils.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()
