"""The one training loop: AdamW, schedule, clipping, dev evaluation, strictly best checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import BenchError, InputError
from bench.nn.backbone import IndexedRows
from bench.nn.device import keep_freed_memory
from bench.nn.lora import has_lora, is_adapter_weight
from bench.stages import RESUMED, Report
from bench.training.checkpoint import Checkpoint, OptimizerState
from bench.training.distributed import RandomState, average_gradients, broadcast_from_first
from bench.training.mixed_precision import MasterWeights, use_full_float32
from bench.training.randomness import generator
from bench.training.training_watch import announce_training
from bench.training.two_phase_step import Objective, as_objective, compile_device_half, prepare_steps

State = dict[str, Tensor]
FIRST_STEPS = 10
"""Steps whose gradient norms are recorded."""
_STAIR = 500
DevScore = Callable[[], float]


@dataclass(frozen=True)
class TrainSettings:
    """Length, rates and batches of a training; raises InputError for a warm-up outside [0, 1]."""

    lr: float  # peak learning rate
    batch_size: int  # sentences a step; the last batch of an epoch may be shorter
    steps: int  # optimiser steps; every epoch permutes the corpus
    eval_every: int  # steps between dev evaluations; a shorter run selects its last step
    weight_decay: float = 0.0
    decay_all: bool = True  # decay all parameters; otherwise spare biases and LayerNorms
    clip: float = 1.0  # largest global gradient norm, 0 for none
    # "linear" (to 0 over all steps), "constant", or "stairs": a fifth of the rate less after 500, 1,000,
    # 1,500 and 2,000 updates, TensorFlow's count: from step 502 on, 1,002 ...
    schedule: str = "linear"
    warmup: float = 0.0  # share of the steps over which the rate rises from 0, 0 to 1
    drop_last: bool = False  # leave out an epoch's last batch where it is short
    # transformers' AdamW adds it to the root of the second moment before its bias is corrected: relative to
    # the corrected root eps / sqrt(1 - 0.999^t). None: torch's 1e-8, added to that
    adam_eps: float | None = None
    # "adamw" or "rmsprop": TensorFlow's, rho 0.9 and eps 1e-7; weight decay joins the gradient
    optimizer: str = "adamw"
    # false: AdamW's moments as they are, not divided by 1 - beta^t, so that the first steps are longer
    bias_correction: bool = True

    def __post_init__(self) -> None:
        """Check the warm-up."""
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup {self.warmup}", expected="a share of the steps, 0 to 1")


@dataclass(frozen=True)
class TrainResult:
    """Result of a training."""

    curve: tuple[tuple[int, float], ...]  # (step, dev score) of every evaluation
    losses: tuple[float, ...]  # loss of every step
    best_step: int  # step of the strictly best dev score, the earliest of equals; the last by default
    best: State  # weights of the evaluated encoder at that step
    last: State  # its weights after the last step
    sentences: int  # sentences seen, each view of a sentence counted once
    step_seconds: float  # mean wall clock of a step, the first excepted
    dev_seconds: float  # mean wall clock of a dev evaluation; 0 for none
    # of each dev evaluation: step, loss and rate of that step, its gradient's norm before clipping (None
    # without clipping), and the score as "dev"
    evaluations: tuple[Mapping[str, Any], ...] = ()
    # of the first steps, before clipping; None for an infinite one, empty without clipping
    norms: tuple[float | None, ...] = ()


def order_batches(
    count: int, batch_size: int, seed: int, corpus: str, *, drop_last: bool = False
) -> Iterator[list[int]]:
    """Yield batches of sentence indices endlessly, in a new permutation each epoch.

    The last batch of an epoch may be short. The order depends only on seed, corpus fingerprint and batch
    size: all methods of a seed see the same.
    """
    order = generator(seed, f"order/{corpus}/{batch_size}")
    while True:
        permutation = torch.randperm(count, generator=order).tolist()
        end = count - count % batch_size if drop_last else count
        yield from (permutation[start : start + batch_size] for start in range(0, end, batch_size))


def train(
    objective: Objective | nn.Module,
    encoder: nn.Module,
    rows: IndexedRows,
    settings: TrainSettings,
    *,
    seed: int,
    corpus: str,
    dev_score: DevScore,
    progress: Callable[[int], None] | None = None,
    report: Report | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainResult:
    """Minimise ``objective`` over batches of token rows.

    Processes that train together (:mod:`bench.training.distributed`) all call it, and see the same batches.

    Args:
        objective: The objective, or a module that maps a list of token rows to a scalar loss. On CUDA an
            objective's host half runs a step ahead.
        encoder: Its part that is evaluated and kept.
        rows: Input of ``objective`` for every corpus sentence.
        settings: Length, rates, schedule.
        seed: The run's seed for the order; the caller seeds dropout.
        corpus: Its fingerprint.
        dev_score: Evaluates ``encoder`` on the dev set; larger is better.
        progress: Called with the sentences of each finished step.
        report: Called with the facts of each step, and of each dev evaluation.
        checkpoint: Keeps the state of a long training, from which a killed one goes on.

    Raises:
        BenchError: empty corpus, or an infinite or NaN loss (naming the step).
        InputError: less than a batch.
    """
    if not len(rows):
        raise BenchError("the training text has no sentence")
    if len(rows) < settings.batch_size:
        what = f"{len(rows)} sentences don't fill a batch of {settings.batch_size}"
        raise InputError(what, expected="a longer training text, or a smaller batch_size")
    keep_freed_memory()
    order = order_batches(len(rows), settings.batch_size, seed, corpus, drop_last=settings.drop_last)
    history, halves = _History(encoder, settings, report), as_objective(objective)
    module, ahead = halves.module, halves.device.type == "cuda"
    stepper = _Stepper(halves, encoder, settings, plain=halves is not objective)
    module.train()
    announce_training(halves, encoder, rows)
    checkpoint = checkpoint or Checkpoint(None)
    checkpoint.parts |= {"optimizer": OptimizerState(stepper.optimizer), "history": history}
    checkpoint.parts["random"] = RandomState(halves.device)
    finished = checkpoint.resume(halves, settings, seed=seed, corpus=corpus, sentences=len(rows))
    for _ in range(finished):
        next(order)
    if progress and finished:
        progress(history.sentences)
    if report and finished:
        report({"step": finished, "steps": settings.steps, RESUMED: finished})
    steps = prepare_steps(
        halves,
        lambda: [rows[i] for i in next(order)],
        settings.steps - finished,
        ahead=ahead,
        hold=lambda: checkpoint.due,
    )
    with checkpoint.running(), closing(steps):  # its thread ends with a training that fails
        for step in range(finished + 1, settings.steps + 1):
            checkpoint.begin_step(step)
            begin = time.perf_counter()
            sentences, prepared = next(steps)
            reading = stepper.take(step, prepared)
            history.trained(step, sentences, reading.value(), begin, halves.why_not_finite)
            if step <= FIRST_STEPS and stepper.norm is not None:
                history.clipped(float(stepper.norm))
            if step % settings.eval_every == 0:
                norm = None if stepper.norm is None else _Reading(stepper.norm)
                history.evaluated(step, _evaluate_dev(module, dev_score), norm, begin)
            if progress:
                progress(sentences)
            checkpoint.end_step(step)
    module.eval()
    return history.result(settings.steps)


def _evaluate_dev(module: nn.Module, dev_score: DevScore) -> float:
    module.eval()
    with use_full_float32():
        score = broadcast_from_first(dev_score)
    module.train()
    return score


class _Stepper:
    """Takes the steps of a training: loss, gradient, clipping, optimiser."""

    def __init__(
        self, objective: Objective, encoder: nn.Module, settings: TrainSettings, *, plain: bool
    ) -> None:
        module = objective.module
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(module, settings)
        self._compute = compile_device_half(objective.compute, plain=plain)
        self._masters, self._settings = MasterWeights(encoder), settings
        self.norm: Tensor | None = None  # of the last gradient before clipping, if it clips

    def take(self, step: int, prepared: Any) -> _Reading:
        """Take a step on its prepared batch; return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self._settings, step) * group.get("rate_scale", 1.0)
            if not self._settings.bias_correction:
                group["lr"] *= uncorrected_rate(group["betas"], step)
            if self._settings.adam_eps is not None:
                group["eps"] = self._settings.adam_eps / math.sqrt(1 - group["betas"][1] ** step)
        with self._masters.lowered():
            loss = self._compute(prepared)
            reading = _Reading(loss.detach())
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
        average_gradients(self._parameters)
        if self._settings.clip:
            self.norm = nn.utils.clip_grad_norm_(self._parameters, self._settings.clip)
        self.optimizer.step()
        return reading


_RECORDED = (
    *("curve", "losses", "best_step", "best_score", "best", "sentences"),
    *("step_seconds", "dev_seconds", "evaluations", "norms"),
)


class _History:
    """Records a training run, and the weights of its best step."""

    def __init__(self, encoder: nn.Module, settings: TrainSettings, report: Report | None) -> None:
        self.encoder, self._settings = encoder, settings
        self._report = report or (lambda _: None)
        self.curve: list[tuple[int, float]] = []
        self.losses: list[float] = []
        self.best_step, self.best_score, self.best = 0, -math.inf, State()
        self.sentences = 0
        self.step_seconds: list[float] = []
        self.dev_seconds: list[float] = []
        self.evaluations: list[Mapping[str, Any]] = []
        self.norms: list[float | None] = []

    def trained(
        self, step: int, sentences: int, loss: float, begin: float, why: Callable[[], str | None]
    ) -> None:
        """Record a step; raises BenchError for an infinite or NaN loss, with ``why`` where known."""
        if not math.isfinite(loss):
            if reason := why():
                raise BenchError(reason)
            raise BenchError(f"the loss is {loss} at step {step}", hint="try a smaller learning rate")
        self.losses.append(loss)
        self.sentences += sentences
        self.step_seconds.append(time.perf_counter() - begin)
        self._report({**self._step_facts(step), "steps": self._settings.steps})

    def clipped(self, norm: float) -> None:
        """Record the norm of a step's gradient before clipping."""
        self.norms.append(norm if math.isfinite(norm) else None)

    def _step_facts(self, step: int) -> dict[str, Any]:
        return {"step": step, "loss": self.losses[-1], "rate": learning_rate(self._settings, step)}

    def evaluated(self, step: int, score: float, norm: _Reading | None, begin: float) -> None:
        """Record a dev evaluation, and keep the weights if it is the strictly best."""
        self.dev_seconds.append(time.perf_counter() - begin - self.step_seconds[-1])
        evaluation = {**self._step_facts(step), "gradient_norm": norm and norm.arrived(), "dev": score}
        self.evaluations.append(evaluation)
        self._report(evaluation)
        self.curve.append((step, score))
        if score > self.best_score:
            self.best_step, self.best_score, self.best = step, score, copy_state(self.encoder)

    def collect(self) -> dict[str, Any]:
        """Return all of it as data, for a checkpoint."""
        return {name: value for name, value in vars(self).items() if name in _RECORDED}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        vars(self).update(data)

    def result(self, steps: int) -> TrainResult:
        """Return the result of the training after its last step."""
        last = copy_state(self.encoder)
        return TrainResult(
            tuple(self.curve),
            tuple(self.losses),
            self.best_step or steps,
            self.best or last,
            last,
            self.sentences,
            _mean(self.step_seconds[1:] or self.step_seconds),
            _mean(self.dev_seconds),
            tuple(self.evaluations),
            tuple(self.norms),
        )


class _Reading:
    """The number in a scalar tensor; CUDA starts its copy at once, ahead of later work."""

    def __init__(self, scalar: Tensor) -> None:
        self._scalar, self._copied = scalar, None
        if scalar.is_cuda:
            self._scalar = torch.empty_like(scalar, device="cpu", pin_memory=True)
            self._scalar.copy_(scalar, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def value(self) -> float:
        """Wait for the copy and return it."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._scalar)

    def arrived(self) -> float | None:
        """Return it at once, None while the copy is under way."""
        arrived = self._copied is None or self._copied.query()  # type: ignore[no-untyped-call]
        return float(self._scalar) if arrived else None


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / max(1, len(seconds))


def make_optimizer(module: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return torch's fused AdamW for a module's parameters, or RMSprop."""
    groups = parameter_groups(module, settings)
    if settings.optimizer == "rmsprop":
        decay = settings.weight_decay
        return torch.optim.RMSprop(groups, lr=settings.lr, alpha=0.9, eps=1e-7, weight_decay=decay)
    return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay, fused=True)


def parameter_groups(module: nn.Module, settings: TrainSettings) -> list[dict[str, Any]]:
    """Return the optimiser's groups: all parameters in one, or biases and LayerNorms separately, undecayed.

    Parameters of a module with a ``rate_scale``, such as a head, form their own groups: it multiplies their
    rate.
    """
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    norms = {id(p) for m in module.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for name, parameter in trained:
        spare = not settings.decay_all and (name.endswith("bias") or id(parameter) in norms)
        (spared if spare else decayed).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decayed}]
    if not settings.decay_all:
        groups.append({"params": spared, "weight_decay": 0.0})
    scaled = [(m, float(m.rate_scale)) for m in module.modules() if hasattr(m, "rate_scale")]  # type: ignore[arg-type]
    scales = {id(p): scale for part, scale in scaled for p in part.parameters()}
    if not scales:
        return groups
    scaled_groups = []
    for group in groups:
        for scale in dict.fromkeys((1.0, *scales.values())):
            if members := [p for p in group["params"] if scales.get(id(p), 1.0) == scale]:
                scaled_groups.append({**group, "params": members, "rate_scale": scale})
    return scaled_groups


def uncorrected_rate(betas: tuple[float, float], step: int) -> float:
    """Return the factor of AdamW's rate that undoes the correction of its moments' bias at a step.

    >>> [round(uncorrected_rate((0.9, 0.999), step), 2) for step in (1, 10, 10_000)]
    [3.16, 6.53, 1.0]
    """
    first, second = betas
    return (1 - first**step) / math.sqrt(1 - second**step)


def learning_rate(settings: TrainSettings, step: int) -> float:
    """Return the learning rate of a step, counted from 1: linear decay reaches 0 one step after the last.

    A warm-up of w steps starts at 0 and reaches the full rate at step w + 1, where the decay begins.
    """
    rising = math.ceil(settings.warmup * settings.steps)
    if step <= rising:
        return settings.lr * (step - 1) / rising
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "stairs":
        return settings.lr * (5 - min(4, max(0, step - 2) // _STAIR)) / 5
    return settings.lr * (settings.steps - step + 1) / (settings.steps - rising)


def copy_state(module: nn.Module) -> State:
    """Copy weights to the CPU, detached from training; of models with LoRA adapters only these."""
    state: State = module.state_dict()
    if has_lora(module):
        state = {name: value for name, value in state.items() if is_adapter_weight(name)}
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
