"""A SimCSE step compiled, by inductor and on a GPU as CUDA graphs, against the step as it runs by default.

All sides take one model and head, the same batches (64 sentences, both views, at most 32 tokens), AdamW and
clipping, step by step in turn. By default a batch runs in chunks of like length; compiled it is one chunk,
its length a multiple of 8, and one graph for all lengths by inductor, one for each as CUDA graphs. The same
chunk uncompiled says how much of the difference is padding. Losses at dropout 0 must agree to 1e-5 of their
size (below float32 to 3e-2). First steps, which compile, are not counted: the first of each padded length.
On a GPU seconds are the clock's, and the share of its peak is said, of the real tokens' operations.

    python benchmarks/compiled.py --data data [--profile minilm] [--threads 1] [--steps 10]
    python benchmarks/compiled.py --data data --device cuda --precision bf16 --shape bert-base
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from claim import Claim, add_json, faster, show
from torch import Tensor
from train_step import ALLOWED, BATCH, PROFILES, Case, simcse_case, texts
from utilisation import PRECISIONS, clock, peak, wait

from bench.nn.device import keep_freed_memory
from bench.nn.dropout import set_dropout
from bench.nn.tokens import BUCKET, move_to_device
from bench.training.loop import TrainSettings, make_optimizer, order_batches
from bench.training.mixed_precision import train_at_precision
from bench.training.two_phase_step import CompiledHalf, compile_steps

SIDES = ("chunks", "one chunk", "inductor")
ON_CUDA = (*SIDES, "graphs")
WARM = 2
"""Steps of a padded length that aren't counted: a graph is captured in the second."""


def prepared(case: Case, rows: list[list[int]], device: str) -> dict[str, Any]:
    """The batch as each side gets it, on the device."""
    objective: Any = case.ours
    with compile_steps("inductor"):
        whole = move_to_device(objective.prepare(rows), device)
    chunks = move_to_device(objective.prepare(rows), device)
    return {"chunks": chunks, "one chunk": whole, "inductor": whole, "graphs": whole}


def measure(case: Case, order: Any, given: argparse.Namespace) -> tuple[dict[str, Any], list[Claim]]:
    """Compare the losses without dropout, then time the sides in turn."""
    objective: Any = case.ours.train()
    sides = ON_CUDA if given.device == "cuda" else SIDES
    halves: dict[str, Callable[[Any], Tensor]] = dict.fromkeys(SIDES[:2], objective.compute)
    compiled = {side: CompiledHalf(objective.compute, side) for side in sides[2:]}
    halves |= compiled
    optimizer = make_optimizer(objective.module, TrainSettings(1e-6, given.batch, given.steps, given.steps))

    def step(side: str, batch: Any) -> float:
        wait(given.device)
        begin = clock(given.device)
        loss = halves[side](batch)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
        wait(given.device)
        return clock(given.device) - begin

    def batch() -> tuple[dict[str, Any], int, int]:
        rows = [case.rows[index] for index in next(order)]
        return prepared(case, rows, given.device), -(-max(map(len, rows)) // BUCKET), case.done(rows)

    set_dropout(objective.encoder, 0.0)
    with torch.no_grad():
        made, _, _ = batch()
        losses = [float(halves[side](made[side])) for side in sides]
    allowed = ALLOWED[given.precision] * max(1.0, max(losses))
    assert max(losses) - min(losses) < allowed, f"losses differ: {losses}"
    set_dropout(objective.encoder, 0.1)
    times: dict[str, list[float]] = {side: [] for side in sides}
    seen: dict[int, int] = {}
    done = 0
    while len(times["chunks"]) < given.steps:
        made, length, operations = batch()
        seen[length] = seen.get(length, 0) + 1
        done += operations if seen[length] > WARM else 0
        for side in sides:
            seconds = step(side, made[side])
            if seen[length] > WARM:
                times[side].append(seconds)
    seconds_of = {side: median(each) for side, each in times.items()}
    assert all(each.whole for each in compiled.values())
    gpu = given.device == "cuda"
    said = f"{given.batch} sentences"
    said += f", {given.precision}, {torch.cuda.get_device_name()}" if gpu else ""
    claims = [
        faster(
            f"compiled {case.name}" + ("" if side == "inductor" else f" {side}"),
            f"{said} by {'inductor' if side == 'inductor' else 'CUDA graphs'}: as by default",
            ours=seconds_of[side],
            peer=seconds_of["chunks"],
            unit="s a step" if gpu else "CPU s a step",
        )
        for side in compiled
    ]
    facts = {
        "benchmark": f"compiled {case.name}",
        "threads": torch.get_num_threads(),
        "device": given.device,
        "precision": given.precision,
        "batch": given.batch,
        **{f"seconds {side}": round(each, 5) for side, each in seconds_of.items()},
        **{f"ratio {side}": round(seconds_of["chunks"] / seconds_of[side], 2) for side in compiled},
    }
    if gpu:
        limit = peak(given.device, given.precision)
        facts |= {f"share {side}": round(done / sum(each) / limit.rate, 4) for side, each in times.items()}
    return facts, claims


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=BATCH, help="sentences a step")
    parser.add_argument("--profile", choices=PROFILES, default="minilm")
    parser.add_argument("--shape", choices=("small", "bert-base"), default="small")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    folder, corpus = texts(arguments.profile, arguments.data)
    torch.manual_seed(0)
    case = simcse_case(folder, corpus, arguments.shape, arguments.device)
    with train_at_precision(arguments.precision):
        facts, claims = measure(
            case, order_batches(len(case.rows), arguments.batch, 1, corpus.sha256), arguments
        )
    print(json.dumps(facts), flush=True)
    show(arguments.json, *claims)


if __name__ == "__main__":
    main()
