"""Training steps with freed memory kept (bench.nn.device) against glibc's way, which gives large blocks back.

Each side in processes of its own, in turn: SimCSE on all-MiniLM-L6-v2, 64 sentences a step, AdamW and
clipping. The losses must be equal to the last bit.

    python benchmarks/heap.py --data data [--rounds 3] [--steps 4]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from claim import add_json, faster, show

SIDES = ("kept", "given back")


def measure(side: str, profile: str, data: Path | None, steps: int) -> dict[str, Any]:
    """CPU seconds of steps in this process, the first one left out, and the loss before each of them."""
    import torch
    from train_step import BATCH, simcse_case, step, texts

    from bench.nn.device import keep_freed_memory
    from bench.training.loop import TrainSettings, make_optimizer, order_batches

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if side == "kept":
        keep_freed_memory()
    folder, corpus = texts(profile, data)
    case = simcse_case(folder, corpus)
    case.ours.train()
    order = order_batches(len(case.rows), BATCH, 1, corpus.sha256)
    optimizer = make_optimizer(case.ours.module, TrainSettings(1e-5, BATCH, steps, steps))
    losses, seconds = [], []
    for _ in range(steps + 1):
        batch = [case.rows[index] for index in next(order)]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            losses.append(float(case.ours(batch)))
        seconds.append(step(case.ours, optimizer, batch)[1])
    return {"losses": losses, "cpu_seconds": sum(seconds[1:]), "batch": BATCH}


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--profile", choices=("minilm", "mini"), default="minilm")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    add_json(parser)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(measure(given.side, given.profile, given.data, given.steps)))
        return
    sums = dict.fromkeys(SIDES, 0.0)
    losses = []
    for _ in range(given.rounds):
        for side in SIDES:
            command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            found = json.loads(done.stdout)
            sums[side] += found["cpu_seconds"]
            losses.append(found["losses"])
    assert all(each == losses[0] for each in losses), f"losses differ: {losses}"
    steps = given.rounds * given.steps
    kept, back = (sums[side] / steps for side in SIDES)
    print(
        json.dumps({"kept": round(kept, 3), "given_back": round(back, 3), "ratio_cpu": round(back / kept, 3)})
    )
    what = f"SimCSE, {found['batch']} sentences: large blocks given back at once"
    show(given.json, faster("heap", what, ours=kept, peer=back, unit="CPU s a step"))


if __name__ == "__main__":
    main()
