"""Evaluation on STS-B test and on sts7: bench against sentence-transformers' evaluator and mteb.

The same all-MiniLM-L6-v2, pooled by its mean, in float32 and with the same number of threads; the data are
read beforehand on all sides. The peers are EmbeddingSimilarityEvaluator (one a task, 16 sentences a batch,
its default) and mteb.evaluate on local tasks (32 a batch, its default, with all its metrics), both on a
SentenceTransformer. A task is all of its pairs in one correlation, which is bench's "all". The scores must
agree to 1e-6 on STS-B and to 5e-5 on sts7: sentences that differ in case alone get equal vectors here, so
their pairs tie, while rounding orders them at the peers.

    python benchmarks/st_eval.py --data data [--threads 1] [--suite stsb] [--device cuda]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from claim import Claim, add_json, faster, show, timed

from bench.config import profiles
from bench.data.data_source import DataSource, data_folder
from bench.data.suites import load_suite
from bench.data.tasks import PairTask
from bench.eval.sts import predict_similarities, score_suite
from bench.nn.backbone import TransformerEncoder
from bench.nn.model_folder import resolve_folder

ALLOWED = {"stsb": 1e-6, "sts7": 5e-5, "toy": 1e-6}
Scores = dict[str, float]


def ours(encoder: TransformerEncoder, tasks: Sequence[PairTask]) -> Scores:
    """Score by bench: every distinct sentence once, sorted by length."""
    scores = score_suite(tasks, predict_similarities(encoder, tasks))
    return {score.task: score.value for score in scores if score.subset == "all" and score.task != "avg"}


def columns(task: PairTask) -> tuple[list[str], list[str], list[float]]:
    """All pairs of a task, and their gold scores."""
    first, second = (list(side) for side in zip(*task.all_pairs(), strict=True))
    return first, second, [float(gold) for subset in task.subsets for gold in subset.gold]


def evaluator(model: Any, tasks: Sequence[PairTask]) -> Scores:
    """Score by sentence-transformers' evaluator."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    evaluators = {task.id: EmbeddingSimilarityEvaluator(*columns(task)) for task in tasks}
    return {name: float(made(model)["spearman_cosine"]) for name, made in evaluators.items()}


def mteb_tasks(tasks: Sequence[PairTask]) -> list[Any]:
    """The tasks as mteb's."""
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    datasets: Any = importlib.import_module("datasets")
    made = []
    for task in tasks:
        about = TaskMetadata(
            name=task.id,
            type="STS",
            main_score="cosine_spearman",
            description="A task from local files.",
            dataset={"path": "local", "revision": "1"},
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
        )
        first, second, gold = columns(task)
        members = {"metadata": about, "min_score": min(gold), "max_score": max(gold)}
        one: Any = type("LocalTask", (AbsTaskSTS,), members)()
        rows = datasets.Dataset.from_dict({"sentence1": first, "sentence2": second, "score": gold})
        one.dataset, one.data_loaded = datasets.DatasetDict({"test": rows}), True
        made.append(one)
    return made


def mteb_scores(model: Any, tasks: Sequence[Any]) -> Scores:
    """Score by mteb."""
    import mteb

    with contextlib.redirect_stderr(io.StringIO()):
        found = mteb.evaluate(model, tasks, cache=None, show_progress_bar=False)
    return {result.task_name: float(result.get_score()) for result in found.task_results}


def compared(name: str, encoder: TransformerEncoder, model: Any, tasks: Sequence[PairTask]) -> list[Claim]:
    """Score by all three, assert equal scores; the rows of the table."""
    local = mteb_tasks(tasks)
    ways: Mapping[str, tuple[str, Callable[[], Scores]]] = {
        "evaluator": ("sentence-transformers' evaluator", lambda: evaluator(model, tasks)),
        "mteb": ("mteb", lambda: mteb_scores(model, local)),
    }
    mine, our_wall, our_cpu = timed(lambda: ours(encoder, tasks))
    claims = []
    for way, (said, call) in ways.items():
        theirs, wall, cpu = timed(call)
        assert theirs.keys() == mine.keys()
        largest = max(abs(mine[task] - theirs[task]) for task in mine)
        assert largest < ALLOWED[name], f"scores differ by {largest}"
        facts = {
            "benchmark": f"st_eval {name} {way}",
            "peer": said,
            "threads": torch.get_num_threads(),
            "ratio_wall": round(wall / our_wall, 2),
            "ratio_cpu": round(cpu / our_cpu, 2),
            "largest_score_difference": largest,
        }
        print(json.dumps(facts), flush=True)
        gpu = encoder.device == "cuda"
        mine_s, peer_s, unit = (our_wall, wall, "s") if gpu else (our_cpu, cpu, "CPU s")
        claims.append(faster(f"st_eval {name} {way}", f"{name}: {said}", ours=mine_s, peer=peer_s, unit=unit))
    return claims


def main() -> None:
    """Measure and print a JSON line a comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--suite", action="append", choices=("stsb", "sts7", "toy"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    add_json(parser)
    given = parser.parse_args()
    suites = given.suite or ["stsb", "sts7"]
    data = data_folder(given.data)
    if data is None and suites != ["toy"]:
        parser.error("evaluation data needed: --data DIR or BENCH_DATA")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(given.threads)
    folder = resolve_folder(profiles.backbone_reference(profiles.load_profile("minilm")), where="minilm").path
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["MTEB_CACHE"] = temporary
        from sentence_transformers import SentenceTransformer

        encoder = TransformerEncoder(folder, "avg", device=given.device)
        model = SentenceTransformer(str(folder), device=given.device)
        model.max_seq_length = encoder.max_length
        toy = load_suite("toy", DataSource(data))[1]
        for suite in suites:
            tasks = load_suite("sts7" if suite == "stsb" else suite, DataSource(data))[1]
            if suite == "stsb":
                tasks = [task for task in tasks if task.id == "STSB"]
            for first in (ours(encoder, toy), evaluator(model, toy), mteb_scores(model, mteb_tasks(toy))):
                assert first  # a first call, so that no side pays for imports
            show(given.json, *compared(suite, encoder, model, tasks))


if __name__ == "__main__":
    main()
