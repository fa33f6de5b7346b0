"""Peak memory and time of a SimCSE training step against the batch, in chunks and whole.

Every figure is the peak of resident memory of a process of its own (VmHWM), after ``--steps`` steps with
AdamW on a random BERT. ``chunk`` is the option of that name, ``layers`` is checkpoint_layers. ``--peer``
compares with GradCache as sentence-transformers has it (CachedMultipleNegativesRankingLoss), at dropout 0 and
with the same chunks: the largest difference of any gradient in float64, and the time of both in float32.

    python benchmarks/training_memory.py [--sizes 64 256 1024 4096] [--chunk 64] [--shape mini] [--peer]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from claim import add_json, bounded, faster, show
from memory import peak_megabytes
from transformers import BertConfig, BertModel

from bench.baselines.simcse import SimCSEObjective
from bench.nn.device import keep_freed_memory
from bench.nn.dropout import set_dropout
from bench.nn.hidden_states import compute_last_states
from bench.nn.layer_checkpointing import checkpoint_layers
from bench.nn.tokens import pad_chunk
from bench.training.gradient_caching import cache_gradients
from bench.training.loop import TrainSettings, make_optimizer

SIZES = (64, 256, 1024, 4096)
GOAL = 1.3
TAU = 0.05
_MINI = {"vocab_size": 3000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
SHAPES: dict[str, dict[str, int]] = {
    "mini": {**_MINI, "intermediate_size": 256},
    "minilm": {**_MINILM, "intermediate_size": 1536},
    "bert-base": {},
}
Rows = list[list[int]]


def make_rows(count: int) -> Rows:
    """Return rows of 10 to 31 tokens."""
    draws = torch.Generator().manual_seed(2)
    rows = []
    for length in torch.randint(8, 30, (count,), generator=draws).tolist():
        rows.append([101, *torch.randint(1000, 2900, (length,), generator=draws).tolist(), 102])
    return rows


def make_objective(shape: str, dropout: float, *, layers: bool = False, head: bool = True) -> SimCSEObjective:
    """Return SimCSE's objective on a random BERT in training mode."""
    torch.manual_seed(1)
    model = BertModel(BertConfig(**SHAPES[shape]))
    set_dropout(model.train(), dropout)
    if layers:
        few = pad_chunk(make_rows(2), 0)
        checkpoint_layers(model, lambda: compute_last_states(model, few), shape)
    objective = SimCSEObjective(model, 0, TAU, head=head)
    objective.train()
    return objective


def train_steps(given: argparse.Namespace) -> dict[str, float]:
    """Take the steps; return the peak and the seconds of the last one."""
    keep_freed_memory()
    objective = make_objective(given.shape, 0.1, layers=given.layers)
    optimizer = make_optimizer(objective.module, TrainSettings(1e-4, given.one, given.steps, 1))
    rows, seconds = make_rows(given.one), 0.0
    with cache_gradients(given.chunk):
        for _ in range(given.steps):
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(objective(rows))
            optimizer.step()
            seconds = time.perf_counter() - begin
    return {"megabytes": round(peak_megabytes(), 1), "seconds": round(seconds, 2)}


class _PeerModule(torch.nn.Module):
    """The module of a sentence-transformers model, as far as its loss calls it: token rows to [CLS]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Encode a minibatch."""
        states = self.model(**features).last_hidden_state
        return {"sentence_embedding": states[:, 0]}


def compare_with_peer(shape: str, size: int, chunk: int, dtype: torch.dtype) -> dict[str, float]:
    """Return both losses, the largest difference of a gradient as a share, and both times."""
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    objective, rows = make_objective(shape, 0.0, head=False), make_rows(size)
    model: Any = objective.encoder.to(dtype)
    peer: Any = torch.nn.Sequential(_PeerModule(model))
    loss = CachedMultipleNegativesRankingLoss(peer, scale=1 / TAU, mini_batch_size=chunk)
    padded = pad_chunk(rows, 0)
    features = {"input_ids": padded.ids, "attention_mask": padded.mask}

    def measure(compute: Callable[[], Any]) -> tuple[float, list[torch.Tensor], float]:
        model.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        value = compute()
        torch.autograd.backward(value)
        seconds = time.perf_counter() - begin
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return float(value.detach()), gradients, seconds

    with cache_gradients(chunk):
        ours, own, seconds = measure(lambda: objective(rows))
    theirs, others, peer_seconds = measure(lambda: loss([dict(features), dict(features)], None))
    largest = max(float(g.abs().max()) for g in others)
    apart = max(float((a - b).abs().max()) for a, b in zip(own, others, strict=True)) / largest
    figures = {"loss": ours, "peer_loss": theirs, "apart": apart}
    return {**figures, "seconds": round(seconds, 2), "peer_seconds": round(peer_seconds, 2)}


def main() -> None:
    """Measure each case in a process of its own and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="batches, in sentences")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--shape", choices=SHAPES, default="mini")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--whole", type=int, default=1024, help="largest batch that is held whole")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--one", type=int, help="measure this batch here")
    parser.add_argument("--layers", action="store_true", help="with --one: checkpoint_layers")
    add_json(parser)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.one is not None:
        print(json.dumps(train_steps(given)))
        return

    def measure(size: int, chunk: int, *more: str) -> dict[str, float]:
        same = ("--shape", given.shape, "--steps", str(given.steps), "--threads", str(given.threads))
        command = [sys.executable, __file__, "--one", str(size), "--chunk", str(chunk), *same, *more]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    held = [size for size in given.sizes if size <= given.whole]
    facts: dict[str, Any] = {"benchmark": "training_memory", "shape": given.shape, "chunk": given.chunk}
    facts["chunks"] = {size: measure(size, given.chunk) for size in given.sizes}
    facts["whole"] = {size: measure(size, 0) for size in held}
    facts["layers"] = {size: measure(size, 0, "--layers") for size in held}
    facts["both"] = {size: measure(size, given.chunk, "--layers") for size in held[:1]}
    if given.peer:
        exact, timed = (
            compare_with_peer(given.shape, held[-1], given.chunk, dtype)
            for dtype in (torch.float64, torch.float32)
        )
        facts["peer"] = {**timed, "apart": exact["apart"]}
    print(json.dumps(facts))
    peaks = {size: found["megabytes"] for size, found in facts["chunks"].items()}
    small, large = given.sizes[0], given.sizes[-1]
    what = f"a step of {large:,} sentences in chunks of {given.chunk}, {given.shape}, peak memory: {small:,}"
    claims = [
        bounded("training_memory", what, ours=peaks[large], peer=peaks[small], unit="MB", goal=GOAL),
    ]
    if given.peer:
        found = facts["peer"]
        what = f"loss and gradient of {held[-1]:,} sentences in chunks: GradCache of sentence-transformers"
        ours, peer = found["seconds"], found["peer_seconds"]
        claims.append(faster("training_memory peer", what, ours=ours, peer=peer, unit="s"))
    show(given.json, *claims)


if __name__ == "__main__":
    main()
