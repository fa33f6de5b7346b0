"""Evaluation on sts7: bench against encoding as SentEval does it, in one run, on the same model and data.

SentEval (SimCSE's fork, its defaults): each task alone; STS12-16 sorted within each data set by the word
counts of the first and then the second sentence; STS-B and SICK-R in file order with train and dev encoded
too; 128 pairs a batch, first and second sentences as two batches, padded to the longest. Both sides use the
same model object, float32 and the same number of threads. The similarities must agree to 2e-6 and the seven
scores to 5e-5: sentences that differ in case alone get exactly equal vectors here, so their pairs tie, while
rounding orders them at the peer.

    python benchmarks/sts_eval.py --data data [--threads 1] [--pooling avg]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
from claim import add_json, faster, show, timed

from bench.config import profiles
from bench.data import senteval
from bench.data.data_source import DataSource, data_folder
from bench.data.suites import load_suite
from bench.data.tasks import PairSubset, PairTask
from bench.encoder import FloatArray
from bench.eval.sts import predict_similarities, score_suite, spearman
from bench.nn.backbone import TransformerEncoder
from bench.nn.hidden_states import pool_states
from bench.nn.model_folder import resolve_folder

BATCH = 128
UNREPORTED = {"STSB": ("STSB-train", "STSB-dev"), "SICKR": ("SICKR-train", "SICKR-dev")}


Result = tuple[dict[str, float], dict[str, FloatArray]]


def senteval_scores(encoder: TransformerEncoder, root: Path) -> Result:
    """Encode and score the seven tasks the peer's way; return scores and similarities."""
    scores, similarity = {}, {}
    for task_id in (*senteval.STS_YEARS, *UNREPORTED):
        predicted: list[FloatArray] = []
        gold: list[float] = []
        for unreported in UNREPORTED.get(task_id, ()):
            for subset in read(root, unreported).subsets:
                similarities(encoder, subset.first, subset.second)
        for subset in read(root, task_id).subsets:
            first, second, golds = by_length(subset) if task_id in senteval.STS_YEARS else columns(subset)
            predicted.append(similarities(encoder, first, second))
            gold += golds
        similarity[task_id] = np.concatenate(predicted)
        scores[task_id] = spearman(similarity[task_id], np.asarray(gold))
    return scores, similarity


def read(root: Path, task_id: str) -> PairTask:
    """Read one pair task."""
    task = senteval.SOURCES[task_id].read(root)
    assert isinstance(task, PairTask)
    return task


def columns(subset: PairSubset) -> tuple[tuple[str, ...], tuple[str, ...], list[float]]:
    """The subset in file order."""
    return subset.first, subset.second, list(subset.gold)


def by_length(subset: PairSubset) -> tuple[tuple[str, ...], tuple[str, ...], list[float]]:
    """The subset sorted as SentEval sorts it."""
    rows = sorted(
        zip(subset.first, subset.second, subset.gold, strict=True),
        key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]),
    )
    first, second, gold = zip(*rows, strict=True)
    return first, second, list(gold)


def similarities(encoder: TransformerEncoder, first: tuple[str, ...], second: tuple[str, ...]) -> FloatArray:
    """Cosines of pairs, encoded 128 a batch."""
    parts = []
    for start in range(0, len(first), BATCH):
        a = encode_batch(encoder, first[start : start + BATCH])
        b = encode_batch(encoder, second[start : start + BATCH])
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        parts.append((a * b).sum(1) / norms)
    return np.concatenate(parts)


@torch.inference_mode()
def encode_batch(encoder: TransformerEncoder, sentences: tuple[str, ...]) -> FloatArray:
    """One batch padded to its longest sentence."""
    batch = encoder.tokenizer(list(sentences), padding=True, truncation=True, return_tensors="pt")
    batch = batch.to(encoder.device)
    states = encoder.model(**batch).last_hidden_state
    vectors: FloatArray = pool_states((states,), batch["attention_mask"], encoder.pooling).cpu().numpy()
    return vectors


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pooling", choices=("avg", "cls"), default="avg")
    parser.add_argument(
        "--backbone", default=None, help="model folder; default all-MiniLM-L6-v2 of the extra"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="on a GPU the clock counts")
    parser.add_argument("--goal", type=float, default=3.3)
    add_json(parser)
    arguments = parser.parse_args()
    data = data_folder(arguments.data)
    if data is None:
        parser.error("evaluation data needed: --data DIR or BENCH_DATA")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(arguments.threads)
    reference = arguments.backbone or profiles.backbone_reference(profiles.load_profile("minilm"))
    encoder = TransformerEncoder(
        resolve_folder(reference, where="--backbone").path, arguments.pooling, device=arguments.device
    )
    encoder.encode(["a first call, so that neither side pays for it"])

    def ours() -> Result:
        _, tasks = load_suite("sts7", DataSource(data))
        predictions = predict_similarities(encoder, tasks)
        scores = score_suite(tasks, predictions)
        return {s.task: s.value for s in scores if s.subset == "all" and s.task != "avg"}, predictions

    (our_scores, our_cosines), our_wall, our_cpu = timed(ours)
    (peer_scores, peer_cosines), peer_wall, peer_cpu = timed(
        lambda: senteval_scores(encoder, senteval.find_root(data))
    )
    assert our_scores.keys() == peer_scores.keys()
    near, same = (2e-6, 5e-5) if arguments.device == "cpu" else (1e-5, 2e-4)  # kernels differ by shape there
    for task in peer_scores:  # the peer's order of pairs is another one
        np.testing.assert_allclose(np.sort(our_cosines[task]), np.sort(peer_cosines[task]), rtol=0, atol=near)
    largest = max(abs(our_scores[task] - peer_scores[task]) for task in peer_scores)
    assert largest < same, f"scores differ by {largest}"
    print(
        json.dumps(
            {
                "benchmark": "sts_eval",
                "peer": "SentEval's batching",
                "pooling": arguments.pooling,
                "threads": arguments.threads,
                "ours_seconds": round(our_wall, 2),
                "peer_seconds": round(peer_wall, 2),
                "ratio_wall": round(peer_wall / our_wall, 2),
                "ratio_cpu": round(peer_cpu / our_cpu, 2),
                "largest_score_difference": largest,
            }
        )
    )
    what = f"sts7, {Path(reference).name if arguments.backbone else 'all-MiniLM-L6-v2'}, {arguments.pooling}"
    gpu = arguments.device == "cuda"
    claim = faster(
        "sts_eval",
        f"{what}: SentEval's batching",
        ours=our_wall if gpu else our_cpu,
        peer=peer_wall if gpu else peer_cpu,
        unit="s" if gpu else "CPU s",
        goal=None if gpu else arguments.goal,
    )
    show(arguments.json, claim)


if __name__ == "__main__":
    main()
