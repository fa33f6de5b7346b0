"""Folders of mteb's results, with made-up scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.data.mteb_names import parse_task
from bench.eval.mteb_tasks import MtebTask
from bench.imports.mteb_choice import WantedTask

STS12_REVISION = "a0d554a64d88156834ff5ae9920b964011b16384"
"""The data revision of STS12 in mteb."""
FIRST, SECOND = "1" * 40, "2" * 40
"""Revisions of a model."""


def result(
    task: str,
    score: Any,
    *,
    data: str | None = STS12_REVISION,
    version: str | None = "2.10.0",
    date: Any = None,
    subset: str = "default",
    **others: Any,
) -> dict[str, Any]:
    """Return the content of a file in mteb's present form."""
    entry = {"main_score": score, "cosine_spearman": score, "hf_subset": subset, "languages": ["eng-Latn"]}
    return {
        "dataset_revision": data,
        "task_name": task,
        "mteb_version": version,
        "scores": {"test": [entry | others]},
        "evaluation_time": 1.0,
        "kg_co2_emissions": None,
        "date": date,
    }


def write_result(folder: Path, model: str, revision: str, content: Any, name: str | None = None) -> Path:
    """Write a file of a model, with the model's facts beside it."""
    place = folder / "results" / model.replace("/", "__") / revision
    place.mkdir(parents=True, exist_ok=True)
    meta = place / "model_meta.json"
    if not meta.exists():
        meta.write_text(json.dumps({"name": model, "revision": revision}))
    path = place / f"{name or content['task_name']}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def write_scores(
    folder: Path, model: str, scores: Mapping[str, float], revision: str = FIRST, **facts: Any
) -> None:
    """Write a file for each task of a model."""
    for task, score in scores.items():
        write_result(folder, model, revision, result(task, score, **facts))


def wanted_task(
    text: str = "STS12", *subsets: str, score: str = "cosine_spearman", main: str = "cosine_spearman"
) -> WantedTask:
    """Return a task to import without asking mteb."""
    name = parse_task(text)
    task = MtebTask(name, "STS", score, ("mteb/data", STS12_REVISION), (name.split or "test",))
    return WantedTask(task, subsets or ("default",), main, score == main)
