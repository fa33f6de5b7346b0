"""Training of a masked language model: its loss in two halves, its batches, its rates."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.errors import BenchError, InputError
from bench.nn.hidden_states import compute_last_states
from bench.nn.masked_lm import compute_lm_logits
from bench.nn.tokens import Chunk, move_to_device, pad_chunk
from bench.training.checkpoint import Checkpoint, OptimizerState
from bench.training.masking import MaskedText, mask_text
from bench.training.mixed_precision import autocast_towers, to_float32
from bench.training.randomness import generator
from bench.training.two_phase_step import Objective, prepare_steps

_CURVE_EVERY = 100
_POOL = 16  # batches whose sentences are sorted by length together: less padding, still random


@dataclass(frozen=True)
class MlmSettings:
    """Settings of training a masked language model."""

    max_length: int  # tokens a line keeps, specials included
    steps: int
    batch_size: int  # sentences a step
    lr: float  # peak learning rate; linear warm-up, then linear decay to 0
    warmup: float  # share of the steps in which the rate rises
    mask: float  # share of the tokens to predict; of these 80% are masked, 10% replaced, 10% kept
    weight_decay: float  # AdamW's, on all parameters


class MlmObjective(Objective):
    """Maps token rows to the mean cross-entropy of the masked tokens, at least one a batch."""

    def __init__(self, model: Any, tokenizer: Any, share: float, draws: torch.Generator) -> None:
        super().__init__()
        self.model, self.tokenizer, self.share, self.draws = model, tokenizer, share, draws

    def prepare(self, batch: Sequence[list[int]]) -> tuple[Chunk, MaskedText]:
        """Pad the rows to the longest, and mask some of their tokens."""
        chunk = pad_chunk(batch, self.tokenizer.pad_token_id, masked=self.device.type == "cuda")
        masked = mask_text(chunk.ids, self.tokenizer, self.share, self.draws, at_least_one=True)
        return chunk._replace(ids=masked.inputs), masked

    def compute(self, prepared: tuple[Chunk, MaskedText]) -> Tensor:
        """Compute the loss; only the chosen tokens pass the head."""
        chunk, masked = prepared
        with autocast_towers(chunk.ids.device):
            states = compute_last_states(self.model.bert, chunk)
            logits = to_float32(self.model.cls(states.flatten(0, 1)[masked.places]))
        return nn.functional.cross_entropy(logits, masked.targets)


def train_mlm(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Any],
    settings: MlmSettings,
    *,
    seed: int,
    end: float | None = None,
    progress: Callable[[int], None] | None = None,
    watch: Callable[[int, Callable[[], list[list[float]]]], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[list[float]]:
    """Train for all steps, or until a point in time; return (step, mean loss of the last hundred) pairs.

    The BertForMaskedLM keeps its mode. Training ends with the first step after ``end`` on time.monotonic's
    clock, if given; the rate then follows the time. ``watch`` is called after each step with its number and a
    function that returns the pairs so far. A ``checkpoint`` keeps the state; a training by time that goes on
    has the rest of its time. Raises BenchError for an infinite or NaN loss (naming the step) or
    an end in the past, InputError for less than a batch.
    """
    if len(rows) < settings.batch_size:
        what = f"{len(rows)} lines to train on don't fill a batch of {settings.batch_size}"
        raise InputError(what, expected="a longer text")
    objective = MlmObjective(model, tokenizer, settings.mask, generator(seed, "pretrain/mask"))
    order = length_pooled_batches([len(row) for row in rows], settings.batch_size, seed)
    kind = objective.device.type
    # on a CPU fusing rounds differently from finished weights
    how: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    how["fused"] = None if kind == "cpu" else True
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), **how)
    losses, clock = _LossCurve(1 if kind == "cpu" else _CURVE_EVERY), _Clock(end)
    if clock.is_over():
        raise BenchError("the time was over before the first step", hint="give more --minutes")
    most = settings.steps if end is None else sys.maxsize
    checkpoint = checkpoint or Checkpoint(None)
    checkpoint.parts |= {"optimizer": OptimizerState(optimizer), "losses": losses, "clock": clock}
    finished = checkpoint.resume(objective, settings, seed=seed, rows=lambda: _digest_rows(rows))
    seen = sum(len(next(order)) for _ in range(finished))
    if progress and seen:
        progress(seen)
    steps = prepare_steps(
        objective,
        lambda: [rows[i] for i in next(order)],
        most - finished,
        ahead=kind == "cuda",
        hold=lambda: checkpoint.due,
    )
    with checkpoint.running(), closing(steps):
        for step in range(finished + 1, most + 1):
            if clock.is_over():
                break
            checkpoint.begin_step(step)
            sentences, prepared = next(steps)
            loss = objective.compute(prepared)
            losses.add(loss.detach())
            share = clock.share()
            for group in optimizer.param_groups:
                group["lr"] = warmup_rate(settings, step)
                if share is not None:
                    group["lr"] = rate_by_time(settings, share)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if progress:
                progress(sentences)
            if watch:
                watch(step, losses.curve)
            checkpoint.end_step(step)
    return losses.curve()


class _Clock:
    """The time that a training has, if it has an end."""

    def __init__(self, end: float | None) -> None:
        self._begin, self._end = time.monotonic(), end

    def share(self) -> float | None:
        """Return the elapsed share, 0 to 1; None without an end."""
        if self._end is None:
            return None
        return (time.monotonic() - self._begin) / (self._end - self._begin)

    def is_over(self) -> bool:
        """Return whether the end has come."""
        return self._end is not None and time.monotonic() >= self._end

    def collect(self) -> list[float] | None:
        """Return the elapsed and the whole time, for a checkpoint."""
        if self._end is None:
            return None
        return [time.monotonic() - self._begin, self._end - self._begin]

    def restore(self, data: list[float] | None) -> None:
        """Go on with the rest of the time."""
        if data is not None:
            elapsed, whole = data
            self._begin = time.monotonic() - elapsed
            self._end = self._begin + whole


def _digest_rows(rows: Sequence[Any]) -> str:
    """Return a hash of a text's token rows."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(np.asarray([len(row), *row], dtype="<i8").tobytes())
    return digest.hexdigest()


class _LossCurve:
    """Collects the losses of all steps, read from the device ``every`` few steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._waiting: list[Tensor] = []
        self._read: list[float] = []

    def add(self, loss: Tensor) -> None:
        """Add a step's loss; raises BenchError for an infinite or NaN one, at the next reading."""
        self._waiting.append(loss)
        if len(self._waiting) == self._every:
            self._fetch()

    def curve(self) -> list[list[float]]:
        """Return step and mean loss of the last hundred steps, at every hundredth step and the last."""
        self._fetch()
        ends = [*range(_CURVE_EVERY, len(self._read), _CURVE_EVERY), len(self._read)]
        curve = []
        for end in ends:
            recent = self._read[max(0, end - _CURVE_EVERY) : end]
            curve.append([end, round(sum(recent) / len(recent), 4)])
        return curve

    def collect(self) -> list[float]:
        """Return the losses of all steps, for a checkpoint."""
        self._fetch()
        return self._read

    def restore(self, data: list[float]) -> None:
        """Go on from a checkpoint."""
        self._read = data

    def _fetch(self) -> None:
        values = torch.stack(self._waiting).tolist() if self._waiting else []
        for step, loss in enumerate(values, start=len(self._read) + 1):
            if not math.isfinite(loss):
                raise BenchError(f"the loss is {loss} at step {step}", hint="try a smaller learning rate")
        self._read += values
        self._waiting = []


def warmup_rate(settings: MlmSettings, step: int) -> float:
    """Return the learning rate of a step, from 1: linear warm-up, then linear decay to 0 after the last."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step <= warm:
        return settings.lr * step / warm
    return settings.lr * (settings.steps - step + 1) / (settings.steps - warm + 1)


def rate_by_time(settings: MlmSettings, gone: float) -> float:
    """Return the same by the elapsed share of the time, 0 to 1."""
    if gone < settings.warmup:
        return settings.lr * gone / settings.warmup
    return settings.lr * max(0.0, 1 - gone) / max(1e-9, 1 - settings.warmup)


def length_pooled_batches(lengths: Sequence[int], batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches endlessly: random pools, sorted by length inside, the pool's batches shuffled."""
    order = generator(seed, "pretrain/order")
    size = batch_size * _POOL
    while True:
        permutation = torch.randperm(len(lengths), generator=order).tolist()
        for start in range(0, len(permutation), size):
            pool = sorted(permutation[start : start + size], key=lengths.__getitem__)
            cut = [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
            yield from (cut[i] for i in torch.randperm(len(cut), generator=order).tolist())


def frequency_loss(rows: Sequence[Any]) -> float:
    """Return the loss of a model that predicts token frequencies: their entropy, in nats.

    The first and last token of each row are special and skipped.

    >>> round(frequency_loss([[2, 7, 3], [2, 8, 3]]), 4)
    0.6931
    """
    counts = np.bincount(np.concatenate([np.asarray(row[1:-1], dtype=np.int64) for row in rows]))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


@torch.inference_mode()
def masked_accuracy(model: Any, tokenizer: Any, rows: Sequence[list[int]], share: float, seed: int) -> float:
    """Return the share of masked tokens that a masked language model restores, 0 to 1."""
    draws, device, total = generator(seed, "pretrain/unseen"), torch.device(model.device), 0
    right = torch.zeros((), dtype=torch.long, device=device)
    for start in range(0, len(rows), 32):
        chunk = pad_chunk(rows[start : start + 32], tokenizer.pad_token_id, masked=device.type == "cuda")
        masked = mask_text(chunk.ids, tokenizer, share, draws, at_least_one=True)
        chunk, masked = move_to_device((chunk._replace(ids=masked.inputs), masked), device)
        logits = compute_lm_logits(model, chunk).flatten(0, 1)[masked.places]
        right += (logits.argmax(-1) == masked.targets).sum()
        total += len(masked.targets)
    return int(right) / total
