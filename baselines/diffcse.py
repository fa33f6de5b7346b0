"""DiffCSE: SimCSE, and a discriminator that must find a generator's edits with the sentence vector's help."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.card import LAYERS, MASKED_LM, MethodCard, Need, Option, OptionValue
from bench.lazy import torch
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, init_linear, usual_options

HEAD_OPTION = Option(
    "head",
    "bn",
    "training-only head: bn (two layers with batch norms, the released script) or tanh (SimCSE's)",
    ("bn", "tanh"),
)
_CUDA_ROWS, _ROWS = 256, 32  # of the generator: its logits over the vocabulary are a step's largest tensor


def build_training_head(size: int, kind: str) -> Any:
    """Return the training-only head, fresh (weights normal with std 0.02).

    "bn" is g_BN(h) = BN2(W2 ReLU(BN1(W1 h))) with W1: H -> 2H and W2: 2H -> H without bias and BN2 without
    affine parameters; in training its statistics are those of all rows it gets. "tanh" is SimCSE's.

    Args:
        size: H.
        kind: "bn" or "tanh".
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


def label_replaced_tokens(edited: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Labels of replaced-token detection: 1 where an attended token was replaced by another, else 0.

    Args:
        edited: x'', (N, L) token ids.
        ids: x, (N, L).
        mask: (N, L), 1 on tokens and 0 on padding.

    Returns:
        r, (N, L), integers.
    """
    return ((edited != ids) & mask.bool()).long()


def rtd_loss(
    logits: torch.Tensor, replaced: torch.Tensor, mask: torch.Tensor, reduction: str = "cells"
) -> torch.Tensor:
    """Replaced-token detection: cross-entropy of each token's two logits against its label.

    "cells", the released code: 1 / (N L) sum_{n,t} CE(o_nt, r_nt) over all cells, padding with its label 0.
    "sentence", the paper (Chuang et al. 2022): 1 / N sum_n sum_t CE(o_nt, r_nt) over the attended tokens.

    Args:
        logits: o, (N, L, 2).
        replaced: r, (N, L), 0 or 1.
        mask: (N, L), 1 on tokens and 0 on padding.
        reduction: "cells" or "sentence".

    Returns:
        Scalar, at least 0.

    Raises:
        ValueError: shapes that don't fit, or an unknown reduction.

    Example:
        >>> logits, mask = torch.zeros(1, 4, 2), torch.tensor([[1, 1, 1, 0]])
        >>> replaced = label_replaced_tokens(torch.tensor([[2, 7, 5, 0]]), torch.tensor([[2, 7, 8, 0]]), mask)
        >>> replaced.tolist()
        [[0, 0, 1, 0]]
        >>> round(rtd_loss(logits, replaced, mask).item(), 4)  # ln 2 a cell
        0.6931
        >>> round(rtd_loss(logits, replaced, mask, "sentence").item(), 4)  # ln 2 a token, three of them
        2.0794
    """
    if logits.shape != (*replaced.shape, 2) or mask.shape != replaced.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)}, labels {tuple(replaced.shape)} and mask {tuple(mask.shape)} "
            "must be (N, L, 2), (N, L) and (N, L)"
        )
    if reduction not in ("cells", "sentence"):
        raise ValueError(f"reduction {reduction!r} must be 'cells' or 'sentence'")
    if reduction == "cells":
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), replaced.flatten())
    cells = torch.nn.functional.cross_entropy(logits.flatten(0, 1), replaced.flatten(), reduction="none")
    return (cells.view(replaced.shape) * mask).sum() / len(replaced)


def split_masked_rows(
    masked: torch.Tensor, mask: torch.Tensor, device: torch.device | str
) -> tuple[nn.Chunk, ...]:
    """Cut a masked text into what the generator reads at a time.

    Args:
        masked: Masked ids, (N, L), on the CPU.
        mask: (N, L), 1 on tokens and 0 on padding.
        device: Where they will go; a CPU is told of a portion without padding.
    """
    kind = torch.device(device).type
    rows = _CUDA_ROWS if kind == "cuda" else _ROWS
    cut = zip(torch.split(masked, rows), torch.split(mask, rows), strict=True)
    return tuple(nn.wrap_chunk(ids, None if kind != "cuda" and m.all() else m) for ids, m in cut)


def generate_edits(
    generator: Any, chunks: Sequence[nn.Chunk], *, cls_id: int, draws: torch.Tensor | None = None
) -> torch.Tensor:
    """Let the generator fill in a masked text: x'', without gradient.

    Args:
        generator: Masked language model; its dropout is active in train mode.
        chunks: The N rows, masked, all of length L; see :func:`portions`.
        cls_id: Put at position 0 of every row, whatever the generator predicts.
        draws: (N, L), uniform in [0, 1): each draws its token from the generator's distribution, by the
            inverse of the cumulated one. None takes the most probable token.

    Returns:
        (N, L) token ids at every position, masked or not; 0 on padding.
    """
    parts, start = [], 0
    with torch.no_grad():
        for chunk in chunks:
            logits = nn.compute_lm_logits(generator, chunk)
            if draws is None:
                parts.append(logits.argmax(-1))
            else:
                parts.append(_sample_tokens(logits, draws[start : start + len(logits)]))
            start += len(logits)
    edited = torch.cat(parts) * torch.cat([chunk.mask for chunk in chunks])
    edited[:, 0].fill_(cls_id)
    return edited


def _sample_tokens(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The first token at which the cumulated distribution is above the number drawn."""
    below = nn.to_float64(logits).softmax(-1).cumsum(-1)  # float32 would lose rare tokens of a vocabulary
    wanted = nn.to_float64(draws).unsqueeze(-1) * below[..., -1:]
    found = torch.searchsorted(below, wanted, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return found.to(logits.device)


class DiffCSEStep(NamedTuple):
    """What replaced-token detection needs of a step, all rows padded to the longest.

    Args:
        chunk: x, (2B, L), unmasked.
        masked: The same for the generator, masked, in :func:`portions`.
        chosen: True where a token was chosen for masking, (2B, L).
        draws: (2B, L) for :func:`edited_tokens`, or None.
    """

    chunk: nn.Chunk
    masked: tuple[nn.Chunk, ...]
    chosen: torch.Tensor
    draws: torch.Tensor | None


class DiffCSEObjective(training.Objective):
    """Token rows to InfoNCE on the head's output plus weighted replaced-token detection.

    Trained: the encoder, the head, the discriminator D (a copy of the encoder as it is now) and its token
    classifier c. The generator is frozen. The edited sentence reaches D as its own embeddings, the first of
    which is replaced by the sentence vector: that is the only way from the detection loss to the encoder.

    Args:
        model: The transformer, a BertModel or RobertaModel.
        tokenizer: Its tokenizer.
        generator: Masked language model of the same vocabulary.
        context: The stage: its options, and the streams of what is masked and of sampled replacements.
    """

    def __init__(self, model: Any, tokenizer: Any, generator: Any, context: StageContext) -> None:
        super().__init__()
        nn.check_callable_layers(model)
        config, seed, role = context.config, context.seed, context.role
        generator.requires_grad_(False)
        if not config["generator_dropout"]:
            nn.set_dropout(generator, 0.0)
        self.config, self.tokenizer, self.cls_id = config, tokenizer, int(tokenizer.cls_token_id)
        self.masks = training.randomness.generator(seed, f"mask/{role}")
        sampled = config["replacement"] == "sample"
        self.draws = training.randomness.generator(seed, f"replacement/{role}") if sampled else None
        size = model.config.hidden_size
        self.encoder, self.generator = model, generator
        self.head = build_training_head(size, str(config["head"]))
        self.discriminator = copy.deepcopy(model)
        self.classifier = torch.nn.Linear(size, 2)  # torch's own initial weights, as released

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, DiffCSEStep | None]:
        """Both views, all first ones before all second ones; and what is masked and drawn for the edits."""
        views, pad_id = [*batch, *batch], self.tokenizer.pad_token_id
        tokens = training.token_batch(views, pad_id, self.encoder)
        if not self.config["rtd_weight"]:
            return tokens, None
        chunk = nn.pad_chunk(views, pad_id, masked=self.device.type == "cuda")
        masked, chosen = training.mask_tokens(
            chunk.ids, self.tokenizer, float(self.config["mask"]), self.masks
        )
        draws = None
        if self.draws is not None:
            draws = torch.rand(masked.shape, generator=self.draws, dtype=torch.float64)
        return tokens, DiffCSEStep(chunk, split_masked_rows(masked, chunk.mask, self.device), chosen, draws)

    def compute(self, prepared: tuple[nn.TokenBatch, DiffCSEStep | None]) -> torch.Tensor:
        """InfoNCE of the heads' outputs, and the detection."""
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
        found = self.discriminator.embeddings(input_ids=edited)
        found = torch.cat([vectors.unsqueeze(1), found[:, 1:]], dim=1)
        with training.autocast_towers(mask.device):
            attended = nn.build_attention_mask(self.encoder.config, edits.chunk, found.dtype)
            found = training.to_float32(nn.run_layers(self.discriminator.encoder.layer, found, attended))
        labels = label_replaced_tokens(edited, ids, mask)
        return rtd_loss(self.classifier(found), labels, mask, str(self.config["rtd_reduction"]))


@add_method
class DiffCSE(TrainedOnce):
    """DiffCSE."""

    card = MethodCard(
        name="diffcse",
        printed="DiffCSE",
        family="contrastive",
        tags=("dropout views", "replaced tokens"),
        passes=13.6,
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
                "what the discriminator gets: the head's output or h",
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
            "the generator is the backbone with its own masked-LM head; profiles bert-base and roberta-base "
            "take the released distilbert-base-uncased and distilroberta-base, minilm takes what bench "
            "pretrain --profile minilm-mlm makes",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            "a sampled replacement is drawn by inverting the generator's cumulated distribution, a number a "
            "token, instead of a multinomial draw: the same distribution (version 2 of the stage)",
            "rate, mask share and weight for roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("diffcse", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
        auxiliaries=("generator",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; with sampled replacements its version is 2, see the card's deviations."""
        (stage,) = super().stages(options)
        return (replace(stage, version=2) if options["replacement"] == "sample" else stage,)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the contrastive and the replaced-token loss: the stage.

        Argument and result are those of :func:`bench.training.train_towers`, which has more errors.

        Raises:
            InputError: a generator that can't be loaded or has another vocabulary than the backbone.
        """
        tower = nn.load_backbone(context.model)
        generator, vocabulary = nn.load_masked_lm(context.auxiliaries["generator"])
        nn.check_same_vocabulary(tower[1], vocabulary, where=f"generator {context.config['generator']}")
        return training.train_towers(
            context, [tower], lambda model, _: DiffCSEObjective(model, tower[1], generator, context)
        )
