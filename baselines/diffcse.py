"""DiffCSE: SimCSE, and a discriminator that must find a generator's edits with the sentence vector's help."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import (
    LAYERS,
    MASKED_LM,
    ONE_ENCODER,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, init_linear, usual_options

HEAD_OPTION = Option(
    "head",
    "bn",
    "training-only head: bn (two layers with batch norms, the released script) or tanh (SimCSE's)",
    ("bn", "tanh"),
)
_CUDA_ROWS, _ROWS = 256, 32  # of the generator: its logits over the vocabulary are a step's largest tensor


def build_training_head(size: int, kind: str) -> Any:
    """Return the fresh training-only head (weights normal with std 0.02): "tanh" is SimCSE's.

    "bn" is g_BN(h) = BN2(W2 ReLU(BN1(W1 h))) with W1: H -> 2H and W2: 2H -> H without bias, BN2 without
    affine parameters; its training statistics are those of all rows of a call.
    """
    if kind == "tanh":
        return torch.nn.Sequential(init_linear(size), torch.nn.Tanh())
    first, second = torch.nn.Linear(size, 2 * size, bias=False), torch.nn.Linear(2 * size, size, bias=False)
    for linear in (first, second):
        torch.nn.init.normal_(linear.weight, std=0.02)
    return torch.nn.Sequential(
        first,
        torch.nn.BatchNorm1d(2 * size),
        torch.nn.ReLU(),
        second,
        torch.nn.BatchNorm1d(size, affine=False),
    )


def rtd_loss(
    logits: torch.Tensor, replaced: torch.Tensor, mask: torch.Tensor, reduction: str = "cells"
) -> torch.Tensor:
    """Replaced-token detection: cross-entropy of logits o (N, L, 2) against labels r (N, L).

    "cells", the released code: 1 / (N L) sum_{n,t} CE(o_nt, r_nt) over all cells, padding with its label 0.
    "sentence", the paper (Chuang et al. 2022): 1 / N sum_n sum_t CE(o_nt, r_nt) over the attended tokens.
    """
    if logits.shape != (*replaced.shape, 2) or mask.shape != replaced.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (logits, replaced, mask))
        raise ValueError(f"logits, labels and mask {shapes} must be (N, L, 2), (N, L) and (N, L)")
    if reduction not in ("cells", "sentence"):
        raise ValueError(f"reduction {reduction!r} must be 'cells' or 'sentence'")
    if reduction == "cells":
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), replaced.flatten())
    cells = torch.nn.functional.cross_entropy(logits.flatten(0, 1), replaced.flatten(), reduction="none")
    return (cells.view(replaced.shape) * mask).sum() / len(replaced)


def find_first_id(tokenizer: Any) -> int:
    """Return the id of a row's first token: [CLS], or what a tokenizer without it puts before a sentence."""
    if tokenizer.cls_token_id is not None:
        return int(tokenizer.cls_token_id)
    before, _ = nn.find_special_ids(tokenizer)
    if not before:
        raise InputError("the tokenizer puts no token before a sentence", expected="one such as [CLS]")
    return before[0]


def split_masked_rows(
    masked: torch.Tensor, mask: torch.Tensor, device: torch.device | str
) -> tuple[nn.Chunk, ...]:
    """Cut masked ids (N, L) on the CPU into chunks for the generator on ``device``."""
    kind = torch.device(device).type
    rows = _CUDA_ROWS if kind == "cuda" else _ROWS
    chunks = []
    for ids, part in zip(torch.split(masked, rows), torch.split(mask, rows), strict=True):
        unpadded = kind != "cuda" and part.all()
        chunks.append(nn.wrap_chunk(ids, None if unpadded else part))
    return tuple(chunks)


def generate_edits(
    generator: Any, chunks: Sequence[nn.Chunk], *, cls_id: int, draws: torch.Tensor | None = None
) -> torch.Tensor:
    """Let the generator fill in the masked chunks: token ids x'' (N, L), 0 on padding, without gradient.

    ``draws`` (N, L), uniform in [0, 1), sample each token from the generator's distribution by its cumulated
    one; None takes the most probable token. Position 0 is ``cls_id``. The generator's dropout is active in
    train mode.
    """
    parts, start = [], 0
    with torch.no_grad():
        for chunk in chunks:
            logits = nn.compute_lm_logits(generator, chunk)
            end = start + len(logits)
            parts.append(logits.argmax(-1) if draws is None else _sample_tokens(logits, draws[start:end]))
            start = end
    edited = torch.cat(parts) * torch.cat([chunk.mask for chunk in chunks])
    edited[:, 0].fill_(cls_id)
    return edited


def _sample_tokens(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The first token at which the cumulated distribution is above the number drawn."""
    below = nn.to_float64(logits).softmax(-1).cumsum(-1)  # float32 would lose rare tokens of a vocabulary
    wanted = nn.to_float64(draws).unsqueeze(-1) * below[..., -1:]
    tokens = torch.searchsorted(below, wanted, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return tokens.to(logits.device)


class DiffCSEStep(NamedTuple):
    """Inputs of the detection: x (2B, L), its masked chunks, chosen places (2B, L), draws (2B, L) or None."""

    chunk: nn.Chunk
    masked: tuple[nn.Chunk, ...]
    chosen: torch.Tensor
    draws: torch.Tensor | None


class DiffCSEObjective(training.Objective):
    """Token rows to InfoNCE on the head's output plus weighted replaced-token detection.

    Trained: the encoder, the head, the discriminator D (a copy of the encoder as it is now) and its token
    classifier c. The generator is frozen. The edited sentence reaches D as its own embeddings with the
    sentence vector in the first place: the only way from the detection loss to the encoder.
    """

    def __init__(self, model: Any, tokenizer: Any, generator: Any, context: StageContext) -> None:
        super().__init__()
        nn.check_callable_layers(model)
        config, seed, role = context.config, context.seed, context.role
        generator.requires_grad_(False)
        if not config["generator_dropout"]:
            nn.set_dropout(generator, 0.0)
        self.config, self.tokenizer, self.cls_id = config, tokenizer, find_first_id(tokenizer)
        self.masks = training.generator(seed, f"mask/{role}")
        sampled = config["replacement"] == "sample"
        self.draws = training.generator(seed, f"replacement/{role}") if sampled else None
        size = model.config.hidden_size
        self.encoder, self.generator = model, generator
        self.head = build_training_head(size, str(config["head"]))
        self.discriminator = copy.deepcopy(model)
        self.classifier = torch.nn.Linear(size, 2)  # torch's own initial weights, as released

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, DiffCSEStep | None]:
        """Put all first views before all second ones; mask and draw for the edits."""
        views, pad_id = [*batch, *batch], self.tokenizer.pad_token_id
        tokens = training.token_batch(views, pad_id, self.encoder)
        if not self.config["rtd_weight"]:
            return tokens, None
        chunk = nn.pad_chunk(views, pad_id, masked=self.device.type == "cuda")
        share = float(self.config["mask"])
        masked, chosen = training.mask_tokens(chunk.ids, self.tokenizer, share, self.masks)
        draws = None
        if self.draws is not None:
            draws = torch.rand(masked.shape, generator=self.draws, dtype=torch.float64)
        return tokens, DiffCSEStep(chunk, split_masked_rows(masked, chunk.mask, self.device), chosen, draws)

    def compute(self, prepared: tuple[nn.TokenBatch, DiffCSEStep | None]) -> torch.Tensor:
        """Add InfoNCE of the head's outputs and the detection."""
        tokens, edits = prepared
        states = training.batch_states(self.encoder, tokens)
        projected = self.head(states)
        first, second = projected.chunk(2)
        loss = losses.info_nce(first, second, float(self.config["tau"]))
        if edits is None:
            return loss
        vectors = projected if self.config["rtd_input"] == "after_head" else states
        return loss + float(self.config["rtd_weight"]) * self.detection(edits, vectors)

    def detection(self, edits: DiffCSEStep, vectors: torch.Tensor) -> torch.Tensor:
        """Replaced-token detection of all rows; ``vectors`` is (2B, H)."""
        ids, mask = edits.chunk.ids, edits.chunk.mask
        with training.autocast_towers(mask.device):
            edited = generate_edits(self.generator, edits.masked, cls_id=self.cls_id, draws=edits.draws)
        if self.config["edited"] == "masked":
            edited = torch.where(edits.chosen, edited, ids * mask)
        chunk = edits.chunk._replace(ids=edited)
        states = nn.compute_embeddings(self.discriminator, chunk)
        states = torch.cat([vectors.unsqueeze(1).to(states.dtype), states[:, 1:]], dim=1)
        with training.autocast_towers(mask.device):
            states = training.to_float32(nn.run_encoder(self.discriminator, states, chunk))
        labels = ((edited != ids) & mask.bool()).long()  # 1: an attended token was replaced by another
        return rtd_loss(self.classifier(states), labels, mask, str(self.config["rtd_reduction"]))


@add_method
class DiffCSE(TrainedOnce):
    """DiffCSE."""

    whole_batch: ClassVar[Mapping[str, float]] = {"rtd_weight": 0.0}
    card = MethodCard(
        name="diffcse",
        printed="DiffCSE",
        family="contrastive",
        adds="a discriminator that finds, with the sentence vector's help, words that a masked LM replaced",
        cites=("chuang-etal-2022-diffcse",),
        tags=("dropout views", "replaced tokens"),
        passes=13.6,
        encoders=(*ONE_ENCODER, HeldEncoder()),
        kind="baseline",
        summary="DiffCSE: SimCSE and replaced-token detection conditioned on the sentence vector",
        version=1,
        paper="Chuang et al. 2022, DiffCSE: Difference-based Contrastive Learning for Sentence Embeddings",
        code="voidism/DiffCSE f724b2c",
        equations=(
            "h = E(x)[0]; p = BN2(W2 ReLU(BN1(W1 h))), statistics over both views; z, z' = p of each view",
            "x'' = argmax G(mask(x; q)) at every position, [CLS] at position 0, no gradient, G's dropout on",
            "r = 1 where x'' differs from x on an attended token; o = c(D(x'' with p in place of [CLS]))",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i + lambda mean_{n,t} CE(o_nt, r_nt)",
            "at inference h of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(LAYERS), Need(MASKED_LM, of="generator")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            HEAD_OPTION,
            Option("generator", "backbone", "masked LM that edits: a model folder, a hub name, or backbone"),
            Option("mask", 0.3, "q, share of tokens that are masked for the generator", minimum=0, maximum=1),
            Option("rtd_weight", 0.005, "lambda, weight of replaced-token detection; 0: none", minimum=0),
            Option(
                "rtd_input",
                "after_head",
                "input of the discriminator: the head's output or h",
                ("after_head", "before_head"),
            ),
            Option(
                "replacement",
                "argmax",
                "the generator's most probable token (released) or one drawn from it (paper)",
                ("argmax", "sample"),
            ),
            Option(
                "edited",
                "all",
                "the generator speaks at every position (released) or at masked ones only (paper)",
                ("all", "masked"),
            ),
            Option(
                "rtd_reduction",
                "cells",
                "mean over all padded cells (released) or sum over a sentence's tokens (paper)",
                ("cells", "sentence"),
            ),
            Option("generator_dropout", True, "the generator's dropout is active (released)"),
            *usual_options(lr=7e-6, epochs=2),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the generator is the backbone with its own masked-LM head; bert-base and roberta-base take the "
            "released distilbert-base-uncased and distilroberta-base, minilm the model of minilm-mlm",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            "replacements are sampled by inverting the cumulated distribution, a number a token; released: "
            "multinomial draws, the same distribution (version 2 of the stage)",
            "rate, mask share and weight for roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("diffcse", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
        auxiliaries=("generator",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; sampled replacements have version 2 (the card's deviations)."""
        if options["rtd_weight"]:
            why = "has the prompt among the edited tokens"
            check_train_pooling(self.card.name, options, PROMPTLESS, why, expected="rtd_weight=0 with it")
        (stage,) = super().stages(options)
        return (replace(stage, version=2) if options["replacement"] == "sample" else stage,)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the contrastive and the replaced-token loss, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        generator, vocabulary = nn.load_masked_lm(context.auxiliaries["generator"])
        nn.check_same_vocabulary(tower[1], vocabulary, where=f"generator {context.config['generator']}")
        return training.train_towers(
            context, [tower], lambda model, _: DiffCSEObjective(model, tower[1], generator, context)
        )
