"""BERT-flow: the backbone's mean vectors, mapped to a Gaussian by a small Glow that is fitted to them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import nn, training
from bench.baselines.whitening import build_base_encoder, normalise_rows, stepless_facts
from bench.encoder import Encoder, FloatArray, PairScorer, Progress
from bench.errors import BenchError
from bench.lazy import torch
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec, planned_steps
from bench.training.recipe import TEXT_OPTION

if TYPE_CHECKING:
    from bench.nn.glow import Glow

ADAM_EPS, WEIGHT_DECAY, CLIP = 1e-6, 0.01, 1.0
_FILE = "flow.safetensors"
_BLOCK = 64  # batches that are encoded together
_ROWS = 4096  # vectors that the flow maps together
_BASE = ("pooling", "first_layer", "max_length")
_FLOW = ("levels", "depth", "width")
_FIT = ("lr", "batch_size", "epochs", "dropout")


class UncorrectedAdam:
    """BERT's Adam: decoupled weight decay of every weight, no bias correction, eps outside the root.

    Gradients are scaled to a joint norm of at most 1.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], lr: float) -> None:
        self.parameters, self.lr = list(parameters), lr
        self._first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._second = [torch.zeros_like(parameter) for parameter in self.parameters]

    def step(self, loss: torch.Tensor) -> None:
        """Take one step down the loss's gradient."""
        gradients = torch.autograd.grad(loss, self.parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        scale = CLIP / norm.clamp(min=CLIP)
        moments = zip(self.parameters, gradients, self._first, self._second, strict=True)
        with torch.no_grad():
            for parameter, gradient, first, second in moments:
                clipped = gradient * scale
                first.mul_(0.9).add_(clipped, alpha=0.1)
                second.mul_(0.999).add_(clipped.square(), alpha=0.001)
                update = first / (second.sqrt() + ADAM_EPS) + WEIGHT_DECAY * parameter
                parameter.sub_(update, alpha=self.lr)


def flow_loss(flow: Glow, vectors: torch.Tensor) -> torch.Tensor:
    """Return twice the mean of -log p(v) in bits a dimension: released, the sum of a batch's two sides."""
    return -2 * flow.log_likelihood(vectors).mean() / (math.log(2) * flow.width)


def draw_batches(count: int, size: int, steps: int, draws: torch.Generator) -> Iterator[list[int]]:
    """Yield the rows of each step: ``count`` rows in a new order every epoch, its last batch short."""
    while steps > 0:
        order = torch.randperm(count, generator=draws).tolist()
        starts = range(0, count, size)[:steps]
        yield from (order[start : start + size] for start in starts)
        steps -= len(starts)


def fit_flow(
    base: nn.TransformerEncoder,
    sentences: Sequence[str],
    config: Mapping[str, OptionValue],
    steps: int,
    seed: int,
    stream: str,
    progress: Progress | None = None,
) -> Glow:
    """Fit a flow to the vectors of sentences, at least two (BenchError); the base stays as it is.

    Args:
        base: The encoder.
        sentences: Rows of the fit, as often as they count.
        config: The options ``levels``, ``depth``, ``width``, ``lr``, ``batch_size`` and ``dropout``.
        steps: Optimiser steps.
        seed: The run's seed.
        stream: Name of the random streams.
        progress: Called with the number of encoded sentences.
    """
    if len(sentences) < 2:
        raise BenchError(f"a flow needs at least two sentences, not {len(sentences)}")
    size = int(config["batch_size"])
    flow = build_flow(base.dim, config, training.generator(seed, f"{stream}/weights"))
    adam = UncorrectedAdam(flow.parameters(), float(config["lr"]))
    batches = draw_batches(len(sentences), size, steps, training.generator(seed, f"{stream}/order"))
    started = False
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(training.randomness.own_random_state(seed, f"{stream}/dropout", base.device))
        stack.callback(base.model.eval)
        base.model.train(bool(config["dropout"]))
        while block := [*islice(batches, _BLOCK)]:
            texts = [sentences[row] for rows in block for row in rows]
            vectors = torch.from_numpy(base.encode(texts, progress=progress)).double()
            for part in torch.tensor_split(vectors, [*accumulate(map(len, block))][:-1]):
                if not started:  # released: the first side of the first batch
                    flow(part[: max(2, (len(part) + 1) // 2)], first=True)
                    started = True
                loss = flow_loss(flow, part)
                adam.step(loss)
            if not loss.isfinite():
                raise BenchError("the flow's loss is no longer finite", hint="a lower lr")
    return flow


def build_flow(dim: int, config: Mapping[str, OptionValue], draws: torch.Generator) -> Glow:
    """Build a flow of ``levels``, ``depth`` and ``width`` for vectors of so many dimensions."""
    levels, depth, width = (int(config[name]) for name in _FLOW)
    return nn.Glow(dim, levels, depth, width, draws)


def map_vectors(flow: Glow, vectors: FloatArray) -> FloatArray:
    """Return z of each row divided by its norm, float32 (n, H)."""
    latent = np.empty(vectors.shape, dtype=np.float64)
    with torch.no_grad():
        for start in range(0, len(vectors), _ROWS):
            latent[start : start + _ROWS] = flow(torch.from_numpy(vectors[start : start + _ROWS])).numpy()
    mapped: FloatArray = normalise_rows(latent).astype(np.float32)
    return mapped


class TargetFlow:
    """Compares the pairs of a task by a flow that is fitted to its own sentences."""

    def __init__(self, base: nn.TransformerEncoder, config: Mapping[str, OptionValue], seed: int) -> None:
        self.base, self.config, self.seed = base, {name: config[name] for name in (*_FLOW, *_FIT)}, seed
        self.facts: dict[str, str | int] = {**base.facts, "fit": "target"}

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> FloatArray:
        """Cosines of the pairs' z, float32 (n,); the fit is on both sides of all pairs."""
        if not first:
            return np.zeros(0, dtype=np.float32)
        sentences = sorted((*first, *second))  # the fit is the same in any order of the pairs
        steps = planned_steps({**self.config, "steps": 0}, len(sentences))
        flow = fit_flow(self.base, sentences, self.config, steps, self.seed, "bert_flow")
        row = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
        mapped = map_vectors(flow, self.base.encode(list(row)))
        a = mapped[[row[sentence] for sentence in first]]
        b = mapped[[row[sentence] for sentence in second]]
        cosines: FloatArray = np.einsum("ij,ij->i", a, b)
        return cosines


class FlowEncoder:
    """An encoder followed by a fitted flow."""

    def __init__(self, base: Encoder, flow: Glow) -> None:
        self.base, self.flow, self.dim = base, flow, base.dim
        self.facts: dict[str, str | int] = {**base.facts, "fit": "train"}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Vectors of length 1, float32 (n, H); see :class:`bench.encoder.Encoder`."""
        return map_vectors(self.flow, self.base.encode(sentences, batch_tokens, progress))


def train_flow(context: StageContext) -> dict[str, Any]:
    """Fit the flow to the training text's vectors: the stage of ``fit=train``."""
    from safetensors.torch import save_file

    cpu, config = time.process_time(), context.config
    base = build_base_encoder(context.model, config, context.device)
    steps = planned_steps(config, len(context.sentences))
    seen = 0

    def count(finished: int) -> None:
        nonlocal seen
        seen += finished
        if context.progress:
            context.progress(finished)

    flow = fit_flow(base, context.sentences, config, steps, context.seed, context.role, count)
    save_file(flow.state_dict(), context.out / _FILE)
    score = context.dev_score(FlowEncoder(base, flow))
    facts = {"steps": steps, "selected_step": steps, "selected_dev": score, "dev_curve": [[steps, score]]}
    return {**stepless_facts(seen, cpu), **facts}


@add_method
class BertFlow:
    """BERT-flow."""

    build_draws = True  # fit=target has no stage, but its flow's weights depend on the seed
    card = MethodCard(
        name="bert_flow",
        printed="BERT-flow",
        family="untrained",
        instead="no training of the encoder; a small normalising flow maps its mean vectors to a Gaussian",
        cites=("li-etal-2020-sentence",),
        tags=("normalising flow",),
        kind="baseline",
        summary="the backbone's mean vectors, made Gaussian by a flow fitted to the task's or training text",
        version=1,
        paper="Li, Zhou, He, Wang, Yang, Li 2020, On the Sentence Embeddings from Pre-trained Language "
        "Models",
        code="bohanli/BERT-flow 7fa8f6d",
        equations=(
            "v = (mean_t h^1_t + mean_t h^L_t) / 2; z = f(v), f invertible; the vector is z / |z|",
            "step: y = (x + b) * exp(3 l), per channel; y's channels reversed and halved, (y1, y2); "
            "x' = (y1, y2 + g(y1))",
            "g(y) = (relu(A(relu(A(y W1)) W2)) W3 + c) * exp(3 m), A act norm as in the step; W1, W2 from "
            "N(0, 0.05^2), W3 = c = m = 0",
            "levels: D steps on H, H/2, ..., H/2^(K-1) channels; after each but the last, the second half of "
            "the channels is part of z",
            "log p(v) = log N(z; 0, I) + sum of all steps' 3 l; loss = -2 mean log p / (H log 2)",
            "b, l and g's act norms from half of the first batch: mean 0, variance 1",
        ),
        options=(
            Option(
                "fit",
                "target",
                "sentences that the flow is fitted to: each task's own, or the training text",
                ("target", "train"),
            ),
            Option("levels", 3, "levels K; the dimensions H are a multiple of 2^K", minimum=1, maximum=20),
            Option("depth", 3, "steps D of a level", minimum=1, maximum=100),
            Option("width", 32, "hidden width of the couplings", minimum=1, maximum=100_000),
            Option("lr", 1e-3, "learning rate, constant; 0 keeps the flow of its first batch", minimum=0),
            Option("batch_size", 64, "sentences of a step; released: 32 pairs", minimum=2),
            Option("epochs", 1, "passes over the sentences", minimum=1),
            Option("steps", 0, "for fit=train: optimiser steps, 0 for the epochs", minimum=0),
            Option("dropout", True, "the backbone's dropout is on while the flow is fitted, as released"),
            Option(
                "pooling",
                "avg_first_last",
                "the vectors that the flow maps",
                ("avg_first_last", "avg_last_two", "avg", "cls", "pooler"),
            ),
            Option(
                "first_layer",
                "layer1",
                "first layer of avg_first_last: layer 1 (released) or the embedding output",
                ("layer1", "embedding"),
            ),
            Option("max_length", 64, "tokens a sentence keeps, specials included", minimum=3),
            TEXT_OPTION,
        ),
        deviations=(
            "printed: the mean of the last two layers; the released avg-last-2 indexes layers -0 and -1, the "
            "first and the last: pooling=avg_first_last",
            "as in the released settings, channels are reversed where Glow has 1x1 convolutions, and its "
            "couplings are additive",
            "fit=target takes both sides of a task's pairs as the suite has them; released: also its train "
            "and dev sets",
            "fit=train takes the profile's text; released: the sentences of SNLI and MNLI",
            "sentences are shuffled one by one over all rows; released: pairs, in a buffer of 1,000, and an "
            "epoch's rest of a batch is left out",
            "the backbone has no gradient and no weight decay; released: its gradient is none",
            "the flow computes in float64 on the CPU; released: float32",
        ),
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for dimensions that the levels can't halve."""
        if facts.width is not None:
            nn.check_flow_width(facts.width, int(options["levels"]))

    @staticmethod
    def scores_pairs(options: Mapping[str, OptionValue]) -> bool:
        """True for ``fit=target``: a vector depends on the task."""
        return options["fit"] == "target"

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the fit of ``fit=train``."""
        if options["fit"] != "train":
            return ()
        config = {name: options[name] for name in (*_BASE, *_FLOW, *_FIT, "steps")}
        name, text, settings = self.card.name, str(options["text"]), tuple(sorted(config.items()))
        return (StageSpec(name, name, self.card.version, settings, train_flow, text=text),)

    def build(self, context: BuildContext) -> Encoder | PairScorer:
        """Return a scorer of pairs (``fit=target``) or an encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        options = context.options
        base = build_base_encoder(context.model, options, context.device)
        nn.check_flow_width(base.dim, int(options["levels"]))
        if options["fit"] == "target":
            return TargetFlow(base, options, context.seed or 0)
        if "bert_flow" not in context.stages:
            raise BenchError("the stage 'bert_flow' has not run")
        from safetensors.torch import load_file

        flow = build_flow(base.dim, options, training.generator(0, "replaced"))
        flow.load_state_dict(load_file(context.stages["bert_flow"] / _FILE))
        return FlowEncoder(base, flow)
