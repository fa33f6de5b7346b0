"""A SimCSE step of bench's training loop against sentence-transformers' trainer, both whole.

The peer is what its unsupervised SimCSE example does: SentenceTransformerTrainer with
MultipleNegativesRankingLoss over (sentence, sentence) pairs, one forward a column, its default optimiser,
schedule and clipping. Both sides take all-MiniLM-L6-v2 with its [CLS], the same sentences in the same
batches (64 x 2, up to 32 tokens), temperature 0.05 (the peer's scale of 20), no head, the same rate and as
many steps, without evaluation or saving. The losses of a short training at dropout 0 must agree to 1e-5 of
their size, step by step; then both train with dropout, in turn. Seconds are a step's, from its end to the
next one's, the median; tokenising belongs to the step on both sides.

    python benchmarks/st_train.py --data data [--steps 8] [--rounds 2] [--device cuda --precision bf16]

The trainer needs accelerate: pip install "sentence-transformers[train]".
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from claim import Claim, add_json, faster, show
from train_step import ALLOWED, PROFILES, texts
from utilisation import PRECISIONS, clock, operations, peak, share, utilisation, wait

from bench.baselines.simcse import SimCSEObjective
from bench.nn.backbone import TokenRows, load_backbone
from bench.nn.device import keep_freed_memory
from bench.nn.dropout import set_dropout
from bench.training.loop import TrainSettings, order_batches, train
from bench.training.mixed_precision import train_at_precision

BATCH, LENGTH, TAU, RATE, SEED = 64, 32, 0.05, 1e-5, 1
CHECKED = 3


def needed() -> None:
    """End the program where the trainer can't be imported."""
    try:
        for name in ("accelerate", "datasets"):
            importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"{error}: pip install 'sentence-transformers[train]'")


class Steps:
    """The clock at the end of each step.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self.device, self.times = device, list[float]()

    def end(self) -> None:
        """A step is over."""
        wait(self.device)
        self.times.append(clock(self.device))

    def seconds(self) -> list[float]:
        """Of every step but the first."""
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


def ours(folder: Path, texts: Sequence[str], steps: int, dropout: float, device: str) -> Any:
    """Train by bench's loop; its losses and its seconds a step."""
    model, tokenizer = load_backbone(folder)
    set_dropout(model.to(device), dropout)
    objective = SimCSEObjective(model, tokenizer.pad_token_id, TAU, head=False)
    settings = TrainSettings(RATE, BATCH, steps, eval_every=steps + 1)
    seen = Steps(device)
    result = train(
        objective,
        model,
        TokenRows(tokenizer, texts, LENGTH),
        settings,
        seed=SEED,
        corpus="",
        dev_score=lambda: 0.0,
        progress=lambda _: seen.end(),
    )
    return list(result.losses), seen.seconds()


def peers(
    folder: Path, texts: Sequence[str], steps: int, dropout: float, device: str, precision: str, out: Path
) -> Any:
    """Train by sentence-transformers' trainer; its losses and its seconds a step."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from transformers import PrinterCallback, TrainerCallback

    losses: Any = importlib.import_module("sentence_transformers.losses")
    models: Any = importlib.import_module("sentence_transformers.models")
    datasets: Any = importlib.import_module("datasets")
    transformer: Any = models.Transformer(
        str(folder), max_seq_length=LENGTH, model_kwargs={"dtype": torch.float32}
    )
    pooling = models.Pooling(transformer.get_embedding_dimension(), "cls")
    model = SentenceTransformer(modules=[transformer, pooling], device=device)
    set_dropout(model, dropout)
    order = list(islice(order_batches(len(texts), BATCH, SEED, ""), steps))
    pairs = [texts[i] for batch in order for i in batch]
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        batch_sampler=in_order,
        bf16=precision == "bf16",
        tf32=True if precision == "tf32" else None,
        logging_steps=1 if dropout == 0 else steps + 1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=device == "cpu",
    )
    seen = Steps(device)

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *given: Any, **named: Any) -> None:
            seen.end()

        def on_log(self, *given: Any, logs: dict[str, float] | None = None, **named: Any) -> None:
            found.extend([logs["loss"]] if logs and "loss" in logs else [])

    found: list[float] = []
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"anchor": pairs, "positive": pairs}),
        loss=losses.MultipleNegativesRankingLoss(model),
        callbacks=[Watch()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return found, seen.seconds()


def in_order(dataset: Any, batch_size: int, drop_last: bool, **given: Any) -> Any:
    """The peer's batch sampler: batches as bench's loop draws them, one after the other."""
    from sentence_transformers.base.sampler import DefaultBatchSampler

    places = torch.utils.data.SequentialSampler(dataset)
    return DefaultBatchSampler(places, batch_size, drop_last)


def compared(
    folder: Path, texts: Sequence[str], given: argparse.Namespace, out: Path
) -> tuple[dict[str, Any], list[Claim]]:
    """Compare the losses without dropout, then time both sides in turn."""
    where = (given.device, given.precision)

    def both(steps: int, dropout: float) -> dict[str, Any]:
        with train_at_precision(given.precision):
            mine = ours(folder, texts, steps, dropout, given.device)
        return {"ours": mine, "peer": peers(folder, texts, steps, dropout, *where, out)}

    checked = both(CHECKED, 0.0)
    pairs = zip(checked["ours"][0], checked["peer"][0], strict=True)
    largest = max(abs(a - b) / max(1.0, abs(b)) for a, b in pairs)
    assert largest < ALLOWED[given.precision], f"losses differ by {largest} of their size"
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(given.rounds):
        for side, (_, seconds) in both(given.steps, 0.1).items():
            times[side] += seconds
    ours_s, peer_s = (statistics.median(times[side]) for side in ("ours", "peer"))
    model, tokenizer = load_backbone(folder)
    rows = TokenRows(tokenizer, texts, LENGTH)
    order = list(islice(order_batches(len(texts), BATCH, SEED, ""), given.steps))
    lengths = [len(rows[i]) for batch in order for i in batch for _ in range(2)]
    done, limit = operations(lengths, model.config) / given.steps, peak(*where)
    said = f"SimCSE, {BATCH} sentences, {given.precision}"
    unit = "CPU s a step" if given.device == "cpu" else "s a step"
    claims = [
        faster("st_train", f"{said}: sentence-transformers' trainer", ours=ours_s, peer=peer_s, unit=unit),
        utilisation("st_train use", said, done=done, seconds=ours_s, limit=limit),
        utilisation("st_train peer's use", said, done=done, seconds=peer_s, limit=limit),
    ]
    facts = {
        "benchmark": "st_train",
        "peer": "SentenceTransformerTrainer, MultipleNegativesRankingLoss",
        "threads": torch.get_num_threads(),
        "device": given.device,
        "precision": given.precision,
        "ours_seconds_a_step": round(ours_s, 4),
        "peer_seconds_a_step": round(peer_s, 4),
        "ratio": round(peer_s / ours_s, 2),
        "largest_loss_difference": largest,
    }
    return facts, claims


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", choices=PROFILES, default="minilm")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    add_json(parser)
    given = parser.parse_args()
    needed()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # as our loop does; the peer has the good of it too
    folder, corpus = texts(given.profile, given.data)
    with tempfile.TemporaryDirectory() as temporary:
        facts, claims = compared(folder, corpus.sentences, given, Path(temporary))
    print(json.dumps(facts), flush=True)
    for claim in claims[1:]:
        print(share(claim), flush=True)
    show(given.json, *claims)


if __name__ == "__main__":
    main()
