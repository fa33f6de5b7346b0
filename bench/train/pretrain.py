"""Masked language modelling from nothing: how the backbone of a profile with own pretraining is made."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.data.corpus import Corpus
from bench.errors import BenchError
from bench.nn.backbone import padded, quiet, token_rows
from bench.nn.wordpiece import train_wordpiece
from bench.train.spectral import spectral_embeddings
from bench.train.streams import generator, own_random_state

FACTS_FILE = "pretraining.json"
_CURVE_EVERY = 100
_POOL = 16  # batches whose sentences are sorted by length together: less padding, still random


@dataclass(frozen=True)
class PretrainSettings:
    """Size of the BERT and how it is trained.

    Args:
        layers: Transformer layers.
        hidden: Width; the feed-forward layers are four times as wide.
        heads: Attention heads.
        vocabulary: Largest number of WordPiece tokens.
        max_length: Positions, specials included.
        steps: Optimiser steps.
        batch_size: Sentences a step.
        lr: Peak learning rate; linear warm-up, then linear decay to 0.
        warmup: Share of the steps in which the rate rises.
        mask: Share of the tokens to predict; of these 80% are masked, 10% replaced, 10% kept.
        weight_decay: AdamW's, on all parameters.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    max_length: int
    steps: int
    batch_size: int
    lr: float
    warmup: float
    mask: float
    weight_decay: float


def pretrain(
    corpus: Corpus,
    settings: PretrainSettings,
    *,
    seed: int,
    out: Path,
    command: str,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT with its MLM head on a text and write it as float16 safetensors, tokenizer beside it.

    Two things make minutes enough. The word embeddings start from the text's co-occurrence counts
    (:mod:`bench.train.spectral`) instead of noise: tried without, the topics of the mini world alone took
    nine of twelve CPU minutes. And dropout is off, since the text is seen a few times only.

    Args:
        corpus: The text.
        settings: Sizes and rates.
        seed: For weights, order and masks.
        out: Folder to write; the facts stand there in ``pretraining.json`` too.
        command: What the facts name as the way to repeat it.
        device: "cpu" or "cuda".
        progress: Called with the sentences of each finished step.

    Returns:
        Facts: command, settings, text with fingerprint, loss curve, CPU seconds.

    Raises:
        BenchError: a loss that is not finite.
    """
    from transformers import BertConfig, BertForMaskedLM

    cpu = time.process_time()
    tokenizer = train_wordpiece(corpus.sentences, settings.vocabulary, max_length=settings.max_length)
    rows = token_rows(tokenizer, corpus.sentences, settings.max_length)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden,
        max_position_embeddings=settings.max_length,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    with own_random_state(seed, "pretrain/weights", device):
        model: Any = BertForMaskedLM(config)
    start = torch.from_numpy(
        spectral_embeddings(
            [row[1:-1] for row in rows], len(tokenizer), settings.hidden, config.initializer_range
        )
    )
    known = start.abs().sum(1) > 0
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[known] = start[known]
    model.to(device).eval()  # no dropout
    curve = _train(model, tokenizer, rows, settings, seed, progress)
    facts = {
        "command": command,
        "settings": asdict(settings),
        "embeddings": "spectral",
        "seed": seed,
        "text": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "sentences": len(corpus.sentences),
            "world": corpus.world,
        },
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss_curve": curve,
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }
    out.mkdir(parents=True, exist_ok=True)
    with quiet():
        model.half().save_pretrained(out)
        tokenizer.save_pretrained(out)
    (out / FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _train(
    model: Any,
    tokenizer: Any,
    rows: Sequence[list[int]],
    settings: PretrainSettings,
    seed: int,
    progress: Callable[[int], None] | None,
) -> list[list[float]]:
    """Run all steps; return (step, mean loss of the last hundred) pairs."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.lr, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    masks = generator(seed, "pretrain/mask")
    order = length_pooled_batches([len(row) for row in rows], settings.batch_size, seed)
    curve, losses = [], []
    for step in range(1, settings.steps + 1):
        batch = [rows[index] for index in next(order)]
        ids, attention = padded(batch, tokenizer.pad_token_id, str(model.device))
        inputs, chosen = mask_tokens(ids, tokenizer, settings.mask, masks)
        states = model.bert(input_ids=inputs, attention_mask=attention).last_hidden_state
        loss = nn.functional.cross_entropy(model.cls(states[chosen]), ids[chosen])
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise BenchError(f"the loss is {losses[-1]} at step {step}", hint="try a smaller learning rate")
        for group in optimizer.param_groups:
            group["lr"] = warmed_rate(settings, step)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % _CURVE_EVERY == 0 or step == settings.steps:
            recent = losses[-_CURVE_EVERY:]
            curve.append([step, round(sum(recent) / len(recent), 4)])
        if progress:
            progress(len(batch))
    return curve


def mask_tokens(ids: Tensor, tokenizer: Any, share: float, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """BERT's masking: of the chosen tokens 80% become [MASK], 10% a random token, 10% stay.

    Args:
        ids: (B, L) token ids.
        tokenizer: Names the special tokens, which are never chosen.
        share: Probability of choosing a token.
        draws: Where the choices come from.

    Returns:
        The inputs (B, L) and the chosen positions (B, L), at least one of them.
    """
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    chance = torch.rand(ids.shape, generator=draws).to(ids.device).masked_fill(special, 2.0)
    chosen = chance < share
    if not chosen.any():  # a loss over nothing is no number
        chosen.view(-1)[chance.view(-1).argmin()] = True
    kind = torch.rand(ids.shape, generator=draws).to(ids.device)
    words = torch.randint(len(tokenizer.all_special_ids), len(tokenizer), ids.shape, generator=draws)
    inputs = torch.where(chosen & (kind < 0.8), tokenizer.mask_token_id, ids)
    return torch.where(chosen & (kind >= 0.9), words.to(ids.device), inputs), chosen


def warmed_rate(settings: PretrainSettings, step: int) -> float:
    """Learning rate of a step, counted from 1: linear warm-up, then linear decay to 0 after the last."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step <= warm:
        return settings.lr * step / warm
    return settings.lr * (settings.steps - step + 1) / (settings.steps - warm + 1)


def length_pooled_batches(lengths: Sequence[int], batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches without end: random pools, sorted by length inside, the pool's batches shuffled."""
    order = generator(seed, "pretrain/order")
    size = batch_size * _POOL
    while True:
        permutation = torch.randperm(len(lengths), generator=order).tolist()
        for start in range(0, len(permutation), size):
            pool = sorted(permutation[start : start + size], key=lengths.__getitem__)
            cut = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
            yield from (cut[i] for i in torch.randperm(len(cut), generator=order).tolist())
