"""A SimCSE step compiled by inductor, against the same step as it runs by default.

Both sides take one model and head, the same batches (64 sentences, both views, at most 32 tokens), AdamW and
clipping, float32 on a CPU, step by step in turn. By default a batch runs in chunks of like length; compiled
it is one chunk, its length a multiple of 8, and one graph. A third side, the same chunk uncompiled, says how
much of the difference is padding. Losses at dropout 0 must agree to 1e-5 of their size. The first steps,
which compile, are not counted.

    python benchmarks/compiled.py --data data [--profile minilm] [--threads 1] [--steps 10]
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
from claim import Claim, add_json, faster, show, timed
from torch import Tensor
from train_step import BATCH, Case, simcse_case, texts

from bench.nn.heap import keep_freed_memory
from bench.train.compiled import CompiledHalf, compiling
from bench.train.loop import TrainSettings, batches, make_optimizer
from bench.train.sentence_encoder import set_dropout

SIDES = ("chunks", "one chunk", "compiled")


def prepared(case: Case, rows: list[list[int]]) -> dict[str, Any]:
    """The batch as each side gets it."""
    objective: Any = case.ours
    with compiling("inductor"):
        whole = objective.prepare(rows)
    return {"chunks": objective.prepare(rows), "one chunk": whole, "compiled": whole}


def measure(case: Case, order: Any, steps: int) -> tuple[dict[str, Any], Claim]:
    """Compare the losses without dropout, then time the sides in turn."""
    objective: Any = case.ours.train()
    halves: dict[str, Callable[[Any], Tensor]] = dict.fromkeys(SIDES, objective.compute)
    halves["compiled"] = compiled = CompiledHalf(objective.compute, "inductor")
    optimizer = make_optimizer(objective, TrainSettings(1e-6, BATCH, steps, steps))

    def step(side: str, batch: Any) -> float:
        loss = halves[side](batch)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def batch() -> dict[str, Any]:
        return prepared(case, [case.rows[index] for index in next(order)])

    set_dropout(objective.encoder, 0.0)
    with torch.no_grad():
        losses = [float(halves[side](each)) for side, each in batch().items()]
    assert max(losses) - min(losses) < 1e-5 * max(1.0, max(losses)), f"losses differ: {losses}"
    set_dropout(objective.encoder, 0.1)
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(steps + 1):  # the first ones compile
        for side, each in batch().items():
            times[side].append(timed(lambda side=side, each=each: step(side, each))[2])  # type: ignore[misc]
    seconds = {side: median(each[1:]) for side, each in times.items()}
    assert compiled.whole
    claim = faster(
        f"compiled {case.name}",
        f"{BATCH} sentences by inductor: as by default",
        ours=seconds["compiled"],
        peer=seconds["chunks"],
        unit="CPU s a step",
    )
    facts = {
        "benchmark": claim.name,
        "threads": torch.get_num_threads(),
        **{f"cpu_seconds {side}": round(each, 4) for side, each in seconds.items()},
        "ratio": round(seconds["chunks"] / seconds["compiled"], 2),
    }
    return facts, claim


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--profile", choices=("minilm", "mini"), default="minilm")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    folder, corpus = texts(arguments.profile, arguments.data)
    torch.manual_seed(0)
    case = simcse_case(folder, corpus)
    facts, claim = measure(case, batches(len(case.rows), BATCH, 1, corpus.sha256), arguments.steps)
    print(json.dumps(facts), flush=True)
    show(arguments.json, claim)


if __name__ == "__main__":
    main()
