"""Where a training step's time goes, ours and the padded one of train_step.py, on the same batches.

First by the parts of a step, in CPU seconds of one thread: tokenising, the host's half, forward, backward,
clipping, AdamW (each side's own). Then by the kind of operation: products, dropout's random numbers, copies,
and so on; the shares are those of torch's profiler in one step. And the tokens: real ones, with the padding
of our chunks, and padded to the longest, whose ratio bounds what chunks can give.

    python benchmarks/step_parts.py --data data [--steps 6] [--only simcse] [--profile mini]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from train_step import BATCH, Case, simcse_case, texts, twin_case

from bench.nn.device import keep_freed_memory
from bench.training.batch_encoding import token_batch
from bench.training.loop import TrainSettings, make_optimizer, order_batches

PARTS = ("tokenise", "host half", "forward", "backward", "clip", "AdamW")
KINDS = {
    "products": ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation"),
    "dropout's draws": ("bernoulli_",),
    "gelu, softmax, norms": (
        *("gelu", "gelu_backward", "_softmax", "_softmax_backward_data", "native_layer_norm"),
        *("native_layer_norm_backward", "tanh", "tanh_backward", "all", "where", "isneginf"),
    ),
    "sums, products by element": ("mul", "mul_", "add", "add_", "div", "div_", "sum", "sub"),
    "copies": ("copy_", "cat"),
    "filling": ("fill_", "zero_"),
    "AdamW, norm of the gradient": (
        "_fused_adamw_",
        "linalg_vector_norm",
        "sqrt",
        "addcdiv_",
        "addcmul_",
        "lerp_",
    ),
}
Seconds = dict[str, float]


def halves(case: Case, side: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A side's host half and the rest of its forward pass; the peer has no halves."""
    if side == "ours":
        objective: Any = case.ours
        return objective.prepare, objective.compute
    return (lambda rows: rows), case.peer


def step(case: Case, side: str, optimizer: torch.optim.Optimizer, numbers: Sequence[int]) -> Seconds:
    """A step of a side; CPU seconds by part."""
    prepare, compute = halves(case, side)
    marks = [time.process_time()]

    def mark() -> None:
        marks.append(time.process_time())

    rows = [case.rows[number] for number in numbers]
    mark()
    prepared = prepare(rows)
    mark()
    loss = compute(prepared)
    mark()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    mark()
    nn.utils.clip_grad_norm_(case.ours.parameters(), 1.0)
    mark()
    optimizer.step()
    mark()
    return {part: b - a for part, a, b in zip(PARTS, marks, marks[1:], strict=False)}


def kinds(found: Any) -> Seconds:
    """Profiled CPU seconds by kind of operation."""
    kind_of = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in found.key_averages():
        seconds[kind_of.get(event.key, "all else")] += event.self_cpu_time_total / 1e6
    return dict(seconds)


def tokens(case: Case, numbers: Sequence[int]) -> dict[str, int]:
    """Tokens of a batch: real ones, with our chunks' padding, with the peer's."""
    rows = [case.rows[number] for number in numbers] * 2
    chunks = token_batch(rows, 0, "cpu").chunks
    longest = 64 if len(case.models) > 1 else max(map(len, rows))
    return {
        "real": sum(map(len, rows)),
        "ours": sum(chunk.ids.numel() for chunk in chunks),
        "peer": longest * len(rows),
    }


def measure(case: Case, order: Iterator[list[int]], steps: int) -> dict[str, Any]:
    """Both sides in turn, then both in the profiler."""
    settings = TrainSettings(1e-6, BATCH, steps, steps)
    optimizers: dict[str, torch.optim.Optimizer] = {
        "ours": make_optimizer(case.ours.module, settings),
        "peer": torch.optim.AdamW(case.ours.parameters(), lr=1e-6, weight_decay=0),
    }
    case.ours.train()
    case.peer.train()
    found: dict[str, Any] = {"parts": {}, "kinds": {}}
    sums = {side: defaultdict[str, float](float) for side in optimizers}
    counted: defaultdict[str, int] = defaultdict(int)
    for number in range(steps + 1):
        batch = next(order)
        for side, optimizer in optimizers.items():
            seconds = step(case, side, optimizer, batch)
            for part, value in seconds.items() if number else ():
                sums[side][part] += value / steps
        if number:
            for what, count in tokens(case, batch).items():
                counted[what] += count
    batch = next(order)
    for side, optimizer in optimizers.items():
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            step(case, side, optimizer, batch)
        profiled_seconds, own = kinds(profiled), dict(sums[side])
        factor = sum(own.values()) / sum(profiled_seconds.values())  # the profiler counts the clock's
        found["parts"][side] = own
        found["kinds"][side] = {kind: factor * value for kind, value in profiled_seconds.items()}
    return {**found, "tokens": {what: count / steps for what, count in counted.items()}}


def shown(name: str, found: Mapping[str, Any]) -> str:
    """Both tables as text."""
    lines = []
    for block in ("parts", "kinds"):
        ours, peer = found[block]["ours"], found[block]["peer"]
        lines.append(f"{name}, {block}: ms a step, ours, padded, how many times ours")
        sums = {"all": (sum(ours.values()), sum(peer.values()))}
        rows = {
            key: (ours.get(key, 0.0), peer.get(key, 0.0)) for key in (*ours, *(peer.keys() - ours.keys()))
        }
        for key, (a, b) in sorted(rows.items(), key=lambda row: -max(row[1])) + list(sums.items()):
            ratio = f"{b / a:6.2f}" if a else "      "
            lines.append(f"  {key:28} {1e3 * a:9.1f} {1e3 * b:9.1f} {ratio}")
    counts = found["tokens"]
    lines.append(
        f"  tokens a step: {counts['real']:.0f} real, {counts['ours']:.0f} in our chunks, "
        f"{counts['peer']:.0f} padded: at most {counts['peer'] / counts['real']:.2f} times faster"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print the tables of each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--only", choices=("simcse", "tncse", "jtcse"))
    parser.add_argument("--profile", choices=("minilm", "mini"), default="minilm")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    keep_freed_memory()
    folder, corpus = texts(given.profile, given.data)
    for name in (given.only,) if given.only else ("simcse", "tncse", "jtcse"):
        torch.manual_seed(0)
        case = simcse_case(folder, corpus) if name == "simcse" else twin_case(folder, corpus, name)
        found = measure(case, order_batches(len(case.rows), BATCH, 1, corpus.sha256), given.steps)
        print(json.dumps({"benchmark": f"step_parts {name}", **found}) if given.json else shown(name, found))


if __name__ == "__main__":
    main()
