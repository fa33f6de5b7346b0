"""Training steps of SimCSE, TNCSE and JTCSE against the peers' own way of batching.

Both sides take the same model, head, batches (64 sentences of the profile's corpus, both views), AdamW
(the peers' as torch makes it by default) and clipping, the same type of numbers and number of threads, step
by step in turn; the losses at dropout 0 must agree to 1e-5 of their size (below float32 to 3e-2). bench runs
chunks of like length, by the arithmetic of bench/stages.py. On a GPU seconds are the clock's, and every step
is waited for, both its halves counted. What share of the device's matrix products the real tokens take is
printed too (utilisation.py). The references:

- simcse (all-MiniLM-L6-v2, 32 tokens): one forward of the 2B rows, padded to the longest;
- tncse (a BERT of 4 layers x 256, 64 tokens): rows padded to 64, one forward a tower, the norm loss row by
  row in Python, as TNCSE's released step;
- jtcse: the same, with a cross stream of whole sequences at two of the layers.

``--shape bert-base`` takes fresh BERT-bases instead.

    python benchmarks/train_step.py --data data [--threads 1] [--steps 12] [--only tncse]
    python benchmarks/train_step.py --data data --device cuda --precision bf16 --shape bert-base [--batch 512]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from claim import Claim, add_json, faster, show
from torch import Tensor, nn
from utilisation import PRECISIONS, busy, clock, operations, peak, share, utilisation, wait

from bench.baselines.simcse import SimCSEObjective
from bench.config import profiles
from bench.data.corpus import Corpus, read_corpus
from bench.data.data_source import World, data_folder
from bench.data.mini.world_text import training_text
from bench.execution.encoder_builder import make_backbone
from bench.losses.contrastive import info_nce
from bench.losses.twin_losses import cross_nce, tower_nce
from bench.methods.twin import JointObjective
from bench.nn.backbone import IndexedRows, TokenRows, load_backbone, pad_rows
from bench.nn.cael_layers import list_cael_layers
from bench.nn.cross_attention import TwinStates, compute_twin_states
from bench.nn.device import keep_freed_memory
from bench.nn.dropout import set_dropout
from bench.nn.tokens import wrap_chunk
from bench.plan.backbones import profile_backbone
from bench.registry import discover
from bench.training.loop import TrainSettings, make_optimizer, order_batches
from bench.training.mixed_precision import autocast_towers, to_float32, train_at_precision
from bench.training.two_phase_step import Objective

TAU = 0.05
BATCH = 64
PROFILES = ("minilm", "minilm-lm", "mini")
"""Whose backbone and text can be taken; minilm-lm's is made first where it isn't there, as in a run."""
GOALS = {"tncse": 1.7}
ALLOWED = {"fp32": 1e-5, "tf32": 3e-2, "bf16": 3e-2}
"""How far losses may be apart, as a share of their size."""


@dataclass(frozen=True)
class Case:
    """One comparison: two modules over the same parameters, and the rows they see."""

    name: str
    peer_way: str
    ours: Objective
    peer: nn.Module
    models: tuple[Any, ...]
    rows: IndexedRows

    def done(self, batch: list[list[int]]) -> int:
        """Operations of a step's real tokens: two views of each sentence through every tower."""
        lengths = [len(row) for row in batch]
        return sum(2 * operations(lengths, model.config) for model in self.models)


class SimCSEReference(nn.Module):
    """The released step: both views in one forward, padded to the longest."""

    def __init__(self, objective: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.head, self.pad_id = objective.encoder, objective.head, pad_id

    def forward(self, rows: list[list[int]]) -> Tensor:
        """Token rows to loss."""
        device = self.encoder.device
        ids, mask = pad_rows([*rows, *rows], self.pad_id, str(device))
        with autocast_towers(device):
            states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        projected = torch.tanh(self.head(to_float32(states)))
        return info_nce(projected[: len(rows)], projected[len(rows) :], TAU)


class TwinReference(nn.Module):
    """The released step: rows padded to the maximal length, one forward a tower, LTN row by row."""

    def __init__(self, first: Any, second: Any, pad_id: int, caels: tuple[int, ...], coin: Any) -> None:
        super().__init__()
        self.first, self.second, self.pad_id = first, second, pad_id
        self.caels, self.coin = caels, coin

    def forward(self, rows: list[list[int]]) -> Tensor:
        """Token rows to loss."""
        views = [row + [self.pad_id] * (64 - len(row)) for row in rows for _ in range(2)]
        ids = torch.tensor(views, device=self.first.device)
        mask = (ids != self.pad_id).long()
        with autocast_towers(ids.device):
            states = compute_twin_states(self.first, self.second, wrap_chunk(ids, mask), self.caels)
        crossed = [each if each is None else to_float32(each) for each in states[2:]]
        twin = TwinStates(to_float32(states.first), to_float32(states.second), *crossed)
        h1, h2 = twin.first[:, 0], twin.second[:, 0]
        p1, p2 = self.first.pooler(twin.first), self.second.pooler(twin.second)
        loss = tower_nce(h1, TAU) + tower_nce(h2, TAU)
        pairs = [(h1, h2)]
        if twin.cross_first is not None and twin.cross_second is not None:
            pairs.append((twin.cross_first, twin.cross_second))
        exchanged = bool(self.caels) and bool(torch.rand((), generator=self.coin) < 0.5)
        for a, b in pairs:
            loss = loss + (cross_nce(b, a, TAU) if exchanged else cross_nce(a, b, TAU))
        return loss + _row_wise(h1, p1, h2, p2) + _row_wise(h2, p2, h1, p1)


def _row_wise(ha: Tensor, pa: Tensor, hb: Tensor, pb: Tensor) -> Tensor:
    """LTN as the released code has it: a Python loop over the pairs."""
    terms = []
    for i in range(0, len(ha), 2):
        cosine = torch.cosine_similarity(ha[i], hb[i + 1], dim=0)
        weight = -torch.log(cosine if cosine > 0 else torch.tensor(1e-4))
        terms.append(weight * (pa[i] - pb[i + 1]).norm() / (pa[i].norm() + pb[i + 1].norm()) / 2)
    return torch.stack(terms).mean()


def texts(name: str, data: Path | None) -> tuple[Path, Corpus]:
    """A profile's backbone and training text; ends the program where the data aren't there."""
    data = data_folder(data)
    if data is None and name != "mini":
        sys.exit("evaluation data needed: --data DIR or BENCH_DATA, or --profile mini")
    profile = profiles.load_profile(name)
    folder = make_backbone(profile_backbone(profile, data)).path
    if data is None or name == "mini":
        return folder, training_text(World())
    first, last = profile.corpus["exclude_lines"]
    return folder, read_corpus(data / profile.corpus["file"], (first, last))


def simcse_case(folder: Path, corpus: Corpus, shape: str = "small", device: str = "cpu") -> Case:
    """SimCSE on the profile's backbone, or on a BERT-base of random weights."""
    model, tokenizer = load_backbone(folder)
    if shape == "bert-base":
        model = fresh_bert(len(tokenizer), shape)
    ours = SimCSEObjective(model, tokenizer.pad_token_id, TAU).to(device)
    peer = SimCSEReference(ours, tokenizer.pad_token_id)
    rows = TokenRows(tokenizer, corpus.sentences, 32)
    return Case("simcse", "padded to the longest", ours, peer, (model,), rows)


def fresh_bert(words: int, shape: str) -> Any:
    """A BERT of random weights: of 4 layers x 256 ("small"), or of BERT-base's shape."""
    from transformers import BertConfig, BertModel

    small: dict[str, Any] = {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    return BertModel(BertConfig(vocab_size=words, **(small if shape == "small" else {})))


def twin_case(folder: Path, corpus: Corpus, name: str, shape: str = "small", device: str = "cpu") -> Case:
    """TNCSE or JTCSE on two fresh BERTs."""
    _, tokenizer = load_backbone(folder)
    towers: list[Any] = [fresh_bert(len(tokenizer), shape) for _ in range(2)]
    layers = towers[0].config.num_hidden_layers
    caels = list_cael_layers(layers, 2 if shape == "small" else 3) if name == "jtcse" else ()
    card = discover().get(name).card
    config = {option.name: option.default for option in card.options if "." not in option.name}
    coins = [torch.Generator().manual_seed(1) for _ in range(2)]
    ours = JointObjective(towers[0], towers[1], tokenizer.pad_token_id, config, caels, coins[0]).to(device)
    peer = TwinReference(towers[0], towers[1], tokenizer.pad_token_id, caels, coins[1])
    rows = TokenRows(tokenizer, corpus.sentences, 64)
    return Case(name, "padded to 64, norm loss row by row", ours, peer, tuple(towers), rows)


def step(
    objective: Any, optimizer: torch.optim.Optimizer, rows: list[list[int]], device: str = "cpu"
) -> tuple[float, float]:
    """One training step, waited for; its wall seconds, and its CPU seconds (on a GPU the clock's again)."""
    wait(device)
    wall, begin = time.perf_counter(), clock(device)
    loss = objective(rows)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
    optimizer.step()
    wait(device)
    return time.perf_counter() - wall, clock(device) - begin


def one_way(objective: Any, rows: list[list[int]]) -> None:
    """Forward and backward."""
    torch.autograd.backward(objective(rows))


def largest_difference(case: Case, order: Iterator[list[int]], precision: str) -> float:
    """How far the losses are apart without dropout, as a share of their size; asserts that it is little."""
    for model in case.models:
        set_dropout(model, 0.0)
    case.ours.train()
    case.peer.train()
    largest = 0.0
    for _ in range(2):
        batch = [case.rows[index] for index in next(order)]
        with torch.no_grad():
            ours, peer = float(case.ours(batch)), float(case.peer(batch))
            largest = max(largest, abs(ours - peer) / max(1.0, abs(peer)))
    assert largest < ALLOWED[precision], f"losses differ by {largest} of their size"
    for model in case.models:
        set_dropout(model, 0.1)
    return largest


def measure(
    case: Case,
    order: Iterator[list[int]],
    steps: int,
    device: str = "cpu",
    precision: str = "fp32",
    size: int = BATCH,
) -> tuple[dict[str, Any], list[Claim]]:
    """Compare the losses without dropout, then time both sides in turn."""
    largest = largest_difference(case, order, precision)
    settings = TrainSettings(1e-6, size, steps, steps)
    ours_adamw = make_optimizer(case.ours.module, settings)
    peer_adamw = torch.optim.AdamW(case.ours.parameters(), lr=1e-6, weight_decay=0)
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    done = 0
    for number in range(steps + 1):
        batch = [case.rows[index] for index in next(order)]
        measured = {
            "ours": step(case.ours, ours_adamw, batch, device),
            "peer": step(case.peer, peer_adamw, batch, device),
        }
        if number:  # the first step is slower than the rest
            done += case.done(batch)
            for side in times:
                times[side].append(measured[side])
    wall = {side: sum(pair[0] for pair in pairs) for side, pairs in times.items()}
    cpu = {side: sum(pair[1] for pair in pairs) for side, pairs in times.items()}
    name, said = f"train_step {case.name}", f"{size} sentences"
    said += "" if precision == "fp32" else f", {precision}"
    said += "" if device == "cpu" else f", {torch.cuda.get_device_name()}"
    claim = faster(
        name,
        f"{said}: {case.peer_way}",
        ours=cpu["ours"] / steps,
        peer=cpu["peer"] / steps,
        unit="CPU s a step" if device == "cpu" else "s a step",
        goal=GOALS.get(case.name) if device == "cpu" else None,
    )
    use = utilisation(f"{name} use", said, done=done, seconds=cpu["ours"], limit=peak(device, precision))
    facts = {
        "benchmark": name,
        "peer": case.peer_way,
        "threads": torch.get_num_threads(),
        "device": device,
        "precision": precision,
        "batch": size,
        "ours_sentences_per_second": round(size * steps / wall["ours"], 1),
        "peer_sentences_per_second": round(size * steps / wall["peer"], 1),
        "ratio_wall": round(wall["peer"] / wall["ours"], 2),
        "ratio_cpu": round(cpu["peer"] / cpu["ours"], 2),
        "largest_loss_difference": largest,
    }
    return facts, [claim, use]


def main() -> None:
    """Measure and print two lines a case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", choices=("simcse", "tncse", "jtcse"))
    parser.add_argument("--profile", choices=PROFILES, default="minilm")
    parser.add_argument("--batch", type=int, default=BATCH, help="sentences a step")
    parser.add_argument("--shape", choices=("small", "bert-base"), default="small")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    add_json(parser)
    given = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # as our loop does; the peer has the good of it too
    folder, corpus = texts(given.profile, given.data)
    for name in ("simcse", "tncse", "jtcse"):
        if given.only not in (None, name):
            continue
        torch.manual_seed(0)
        where = (given.shape, given.device)
        simcse = name == "simcse"
        case = simcse_case(folder, corpus, *where) if simcse else twin_case(folder, corpus, name, *where)
        order = order_batches(len(case.rows), given.batch, 1, corpus.sha256)
        with train_at_precision(given.precision):
            facts, claims = measure(case, order, given.steps, given.device, given.precision, given.batch)
        print(json.dumps(facts), flush=True)
        print(share(claims[1]), flush=True)
        if given.device == "cuda":
            rows = [case.rows[index] for index in next(order)]
            with train_at_precision(given.precision):
                for side, module in (("ours", case.ours), ("peer", case.peer)):
                    used = busy(partial(one_way, module, rows))
                    print(json.dumps({"benchmark": f"busy {name}", "side": side, **used}), flush=True)
        show(given.json, *claims)


if __name__ == "__main__":
    main()
