"""Masked language modelling: a backbone from nothing, or a head for a backbone that has lost its own."""

from __future__ import annotations

import json
import lzma
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from bench.data.corpus import Corpus, make_corpus
from bench.data.tasks import normalise
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import padded, quiet, token_rows
from bench.nn.folder import ModelFolder
from bench.nn.masked_lm import load_masked_lm
from bench.nn.wordpiece import train_wordpiece
from bench.records.files import whole_folder
from bench.train.masking import mask_tokens
from bench.train.precision import lowered, widened
from bench.train.spectral import spectral_embeddings
from bench.train.streams import generator, own_random_state

FACTS_FILE = "pretraining.json"
_CURVE_EVERY = 100
_UNSEEN = 512  # lines for the masked accuracy
_POOL = 16  # batches whose sentences are sorted by length together: less padding, still random


@dataclass(frozen=True)
class MlmSettings:
    """How a masked language model is trained.

    Args:
        max_length: Tokens a line keeps, specials included.
        steps: Optimiser steps.
        batch_size: Sentences a step.
        lr: Peak learning rate; linear warm-up, then linear decay to 0.
        warmup: Share of the steps in which the rate rises.
        mask: Share of the tokens to predict; of these 80% are masked, 10% replaced, 10% kept.
        weight_decay: AdamW's, on all parameters.
    """

    max_length: int
    steps: int
    batch_size: int
    lr: float
    warmup: float
    mask: float
    weight_decay: float


@dataclass(frozen=True)
class PretrainSettings(MlmSettings):
    """The same for a new BERT, which has as many positions as a line keeps tokens, and its size.

    Args:
        layers: Transformer layers.
        hidden: Width; the feed-forward layers are four times as wide.
        heads: Attention heads.
        vocabulary: Largest number of WordPiece tokens.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int


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
    """Train a BERT with its MLM head on a text and write it as float16 safetensors, with its tokenizer.

    Minutes are enough for two reasons. The word embeddings start from the text's co-occurrence counts
    (:mod:`bench.train.spectral`) instead of noise: tried without, the topics of the mini world alone took
    nine of twelve CPU minutes. And dropout is off, since the text is seen a few times only.

    Args:
        corpus: The text.
        settings: Sizes and rates.
        seed: For weights, order and masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        device: "cpu" or "cuda".
        progress: Called with the sentences of each finished step.

    Returns:
        Facts: command, settings, text with fingerprint, loss curve, CPU seconds.

    Raises:
        BenchError: a loss that is not finite.
    """
    cpu = time.process_time()
    tokenizer = train_wordpiece(corpus.sentences, settings.vocabulary, max_length=settings.max_length)
    rows = token_rows(tokenizer, corpus.sentences, settings.max_length)
    model = _new_bert(len(tokenizer), rows, settings, seed, device)
    model.to(device).eval()  # no dropout
    curve = _train(model, tokenizer, rows, settings, seed, progress)
    facts = {
        "command": command,
        "settings": asdict(settings),
        "embeddings": "spectral",
        **_facts(corpus, seed, model, curve, cpu),
    }
    _save(model, tokenizer, facts, out)
    return facts


def _new_bert(
    vocabulary: int, rows: Sequence[list[int]], settings: PretrainSettings, seed: int, device: str
) -> Any:
    """A BERT with random weights, except for the embeddings of tokens that occur in the rows."""
    config = BertConfig(
        vocab_size=vocabulary,
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
    inner = [row[1:-1] for row in rows]
    start = torch.from_numpy(
        spectral_embeddings(inner, vocabulary, settings.hidden, config.initializer_range)
    )
    known = start.abs().sum(1) > 0
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[known] = start[known]
    return model


def add_head(
    backbone: ModelFolder,
    corpus: Corpus,
    settings: MlmSettings,
    *,
    seed: int,
    out: Path,
    command: str,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train a BERT whose checkpoint has no masked-LM head into a masked language model, and write it.

    The head is fresh, its decoder tied to the word embeddings. Encoder and head are trained together, without
    dropout, on as many lines as the steps need; lines that were not trained on give the masked accuracy.

    Args:
        backbone: The BERT.
        corpus: The text, a document a line.
        settings: Length and rates.
        seed: For the head, the choice of lines, their order and the masks.
        out: Folder to write; it also gets the facts, in ``pretraining.json``.
        command: What the facts name as the way to repeat it.
        device: "cpu" or "cuda".
        progress: Called with the sentences of each finished step.

    Returns:
        Facts: command, settings, backbone and text with fingerprints, loss curve, masked accuracy on unseen
        lines, CPU seconds.

    Raises:
        InputError: a backbone that isn't BERT.
        BenchError: fewer than two lines, or a loss that is not finite.
    """
    cpu = time.process_time()
    with own_random_state(seed, "pretrain/weights", device):
        model, tokenizer = load_masked_lm(backbone.path, new_head=True)
    if model.config.model_type != "bert":
        raise InputError(f"a head for a {type(model).__name__}", expected="a BERT", where=backbone.name)
    lines = torch.randperm(len(corpus.sentences), generator=generator(seed, "pretrain/lines")).tolist()
    unseen = min(_UNSEEN, len(lines) // 2)
    if not unseen:
        raise BenchError("the text has fewer than two lines", where=corpus.name)
    chosen = [corpus.sentences[line] for line in lines[: unseen + settings.steps * settings.batch_size]]
    rows = token_rows(tokenizer, chosen, settings.max_length)
    model.to(device).eval()  # no dropout
    curve = _train(model, tokenizer, rows[unseen:], settings, seed, progress)
    facts = {
        "command": command,
        "settings": asdict(settings),
        "backbone": {"name": backbone.name, "sha256": backbone.sha256},
        **_facts(corpus, seed, model, curve, cpu),
        "masked_accuracy": masked_accuracy(model, tokenizer, rows[:unseen], settings.mask, seed),
    }
    _save(model, tokenizer, facts, out)
    return facts


@torch.inference_mode()
def masked_accuracy(model: Any, tokenizer: Any, rows: Sequence[list[int]], share: float, seed: int) -> float:
    """Share of masked tokens that a masked language model restores, 0 to 1."""
    draws = generator(seed, "pretrain/unseen")
    right = total = 0
    for start in range(0, len(rows), 32):
        ids, attention = padded(rows[start : start + 32], tokenizer.pad_token_id, str(model.device))
        inputs, chosen = mask_tokens(ids, tokenizer, share, draws, at_least_one=True)
        logits = model(input_ids=inputs, attention_mask=attention).logits[chosen]
        right += int((logits.argmax(-1) == ids[chosen]).sum())
        total += len(logits)
    return right / total


def read_documents(path: Path) -> Corpus:
    """Read an xz-compressed UTF-8 text, a document a line, empty lines left out.

    Raises:
        DataError: missing, damaged, not UTF-8, or empty.
    """
    try:
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            lines = [text for line in stream if (text := normalise(line))]
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"the text can't be read: {error}", where=path.name) from error
    if not lines:
        raise DataError("the text is empty", where=path.name)
    return make_corpus(path.name, lines)


def _facts(corpus: Corpus, seed: int, model: Any, curve: list[list[float]], cpu: float) -> dict[str, Any]:
    return {
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


def _save(model: Any, tokenizer: Any, facts: dict[str, Any], out: Path) -> None:
    with whole_folder(out) as folder:
        with quiet():
            model.half().save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        (folder / FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _train(
    model: Any,
    tokenizer: Any,
    rows: Sequence[list[int]],
    settings: MlmSettings,
    seed: int,
    progress: Callable[[int], None] | None,
) -> list[list[float]]:
    """Run all steps; return (step, mean loss of the last hundred) pairs."""
    if len(rows) < settings.batch_size:
        raise InputError(
            f"{len(rows)} lines to train on don't fill a batch of {settings.batch_size}",
            expected="a longer text",
        )
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
        inputs, chosen = mask_tokens(ids, tokenizer, settings.mask, masks, at_least_one=True)
        with lowered(model.device):
            states = model.bert(input_ids=inputs, attention_mask=attention).last_hidden_state
            logits = widened(model.cls(states[chosen]))
        loss = nn.functional.cross_entropy(logits, ids[chosen])
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


def warmed_rate(settings: MlmSettings, step: int) -> float:
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
