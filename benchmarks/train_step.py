"""SimCSE's training step: bench's chunks of like length against padding the batch to its longest sentence.

Both sides take the same model, head, batches (64 sentences of the profile's corpus, both views, at most 32
tokens), AdamW and clipping, float32, the same number of threads, step by step in turn; the losses at dropout
0 must agree to 1e-5. The reference is SimCSE's released step: one forward of the padded 2B rows.

    python benchmarks/train_step.py --data ../shared/data [--threads 1] [--steps 12]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import profiles
from bench.baselines.simcse import info_nce, make_objective
from bench.data.corpus import read_corpus
from bench.data.suites import data_folder
from bench.nn.backbone import load_backbone, padded, token_rows
from bench.nn.folder import resolve
from bench.train.loop import batches
from bench.train.sentence_encoder import set_dropout

TAU = 0.05


class Reference(nn.Module):
    """The released step: both views in one forward, padded to the longest."""

    def __init__(self, objective: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.head, self.pad_id = objective.encoder, objective.head, pad_id

    def forward(self, rows: list[list[int]]) -> Tensor:
        """Token rows to loss."""
        ids, mask = padded([*rows, *rows], self.pad_id, "cpu")
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        projected = torch.tanh(self.head(states))
        return info_nce(projected[: len(rows)], projected[len(rows) :], TAU)


def step(
    objective: nn.Module, optimizer: torch.optim.Optimizer, rows: list[list[int]]
) -> tuple[float, float]:
    """One training step; return its wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    loss = objective(rows)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
    optimizer.step()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    data = data_folder(arguments.data)
    if data is None:
        parser.error("evaluation data needed: --data DIR or BENCH_DATA")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    profile = profiles.load("minilm")
    model, tokenizer = load_backbone(resolve(profiles.backbone_reference(profile), where="minilm").path)
    first, last = profile.corpus["exclude_lines"]
    corpus = read_corpus(data / profile.corpus["file"], (first, last))
    rows = token_rows(tokenizer, corpus.sentences, 32)
    ours = make_objective(model, tokenizer.pad_token_id, TAU).train()
    peer = Reference(ours, tokenizer.pad_token_id).train()
    order = batches(len(rows), 64, 1, corpus.sha256)
    set_dropout(model, 0.0)
    largest = 0.0
    for _ in range(2):
        batch = [rows[index] for index in next(order)]
        with torch.no_grad():
            largest = max(largest, abs(float(ours(batch)) - float(peer(batch))))
    assert largest < 1e-5, f"losses differ by {largest}"
    set_dropout(model, 0.1)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-6)
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    for number in range(arguments.steps + 1):
        batch = [rows[index] for index in next(order)]
        measured = {"ours": step(ours, optimizer, batch), "peer": step(peer, optimizer, batch)}
        if number:  # the first step is slower than the rest
            for side in times:
                times[side].append(measured[side])
    wall = {side: sum(pair[0] for pair in pairs) for side, pairs in times.items()}
    cpu = {side: sum(pair[1] for pair in pairs) for side, pairs in times.items()}
    print(
        json.dumps(
            {
                "benchmark": "train_step simcse",
                "peer": "padded to the longest",
                "threads": arguments.threads,
                "ours_sentences_per_second": round(64 * arguments.steps / wall["ours"], 1),
                "peer_sentences_per_second": round(64 * arguments.steps / wall["peer"], 1),
                "ratio_wall": round(wall["peer"] / wall["ours"], 2),
                "ratio_cpu": round(cpu["peer"] / cpu["ours"], 2),
                "largest_loss_difference": largest,
            }
        )
    )


if __name__ == "__main__":
    main()
