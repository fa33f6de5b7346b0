"""DiffCSE: SimCSE, and a discriminator that must find a generator's edits with the sentence vector's help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_GENERATOR_ROWS = 32  # its logits over the vocabulary are the largest tensor of a step
HEAD_OPTION = Option(
    "head",
    "bn",
    "training-only head: bn (two layers with batch norms, the released script) or tanh (SimCSE's)",
    ("bn", "tanh"),
)


def training_head(size: int, kind: str) -> Any:
    """Return the training-only head, fresh (weights normal with std 0.02).

    "bn" is g_BN(h) = BN2(W2 ReLU(BN1(W1 h))) with W1: H -> 2H and W2: 2H -> H without bias and BN2 without
    affine parameters; in training its statistics are those of all rows it gets. "tanh" is SimCSE's.

    Args:
        size: H.
        kind: "bn" or "tanh".
    """
    from torch import nn

    if kind == "tanh":
        return nn.Sequential(fresh_linear(size), nn.Tanh())
    first, second = nn.Linear(size, 2 * size, bias=False), nn.Linear(2 * size, size, bias=False)
    for linear in (first, second):
        nn.init.normal_(linear.weight, std=0.02)
    return nn.Sequential(
        first, nn.BatchNorm1d(2 * size), nn.ReLU(), second, nn.BatchNorm1d(size, affine=False)
    )


def replaced_tokens(edited: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Labels of replaced-token detection: 1 where an attended token was replaced by another, else 0.

    Args:
        edited: x'', (N, L) token ids.
        ids: x, (N, L).
        mask: (N, L), 1 on tokens and 0 on padding.

    Returns:
        r, (N, L), integers.
    """
    return ((edited != ids) & mask.bool()).long()


def rtd_loss(logits: Tensor, replaced: Tensor, mask: Tensor, reduction: str = "cells") -> Tensor:
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
    """
    from torch.nn import functional

    if logits.shape != (*replaced.shape, 2) or mask.shape != replaced.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)}, labels {tuple(replaced.shape)} and mask {tuple(mask.shape)} "
            "must be (N, L, 2), (N, L) and (N, L)"
        )
    if reduction not in ("cells", "sentence"):
        raise ValueError(f"reduction {reduction!r} must be 'cells' or 'sentence'")
    if reduction == "cells":
        return functional.cross_entropy(logits.flatten(0, 1), replaced.flatten())
    cells = functional.cross_entropy(logits.flatten(0, 1), replaced.flatten(), reduction="none")
    return (cells.view(replaced.shape) * mask).sum() / len(replaced)


def edited_tokens(
    generator: Any,
    masked: Tensor,
    mask: Tensor,
    *,
    cls_id: int,
    draws: torch.Generator | None = None,
) -> Tensor:
    """Let the generator fill in a masked text: x'', without gradient.

    Args:
        generator: Masked language model; its dropout is active in train mode.
        masked: Masked ids, (N, L).
        mask: (N, L), 1 on tokens and 0 on padding.
        cls_id: Stands at position 0 of every row, whatever the generator says.
        draws: None takes the most probable token; a CPU generator draws from the generator's distribution.

    Returns:
        (N, L) token ids at every position, masked or not; 0 on padding.
    """
    import torch

    parts = []
    with torch.no_grad():
        for start in range(0, len(masked), _GENERATOR_ROWS):
            ids, attended = (x[start : start + _GENERATOR_ROWS] for x in (masked, mask))
            logits = generator(input_ids=ids, attention_mask=attended).logits
            if draws is None:
                parts.append(logits.argmax(-1))
            else:
                shares = logits.softmax(-1).flatten(0, 1).cpu()
                parts.append(torch.multinomial(shares, 1, generator=draws).view(ids.shape).to(ids.device))
    edited = torch.cat(parts) * mask
    edited[:, 0] = cls_id
    return edited


def make_diffcse_objective(
    model: Any,
    tokenizer: Any,
    generator: Any,
    config: Mapping[str, OptionValue],
    masks: torch.Generator,
    draws: torch.Generator,
) -> Any:
    """Return the module: token rows to InfoNCE on the head's output plus weighted replaced-token detection.

    Trained: the encoder, the head, the discriminator D (a copy of the encoder as it is now) and its token
    classifier c. The generator is frozen. The edited sentence reaches D as its own embeddings, the first of
    which is replaced by the sentence vector: that is the only way from the detection loss to the encoder.

    Args:
        model: The transformer, a BertModel or RobertaModel.
        tokenizer: Its tokenizer.
        generator: Masked language model of the same vocabulary.
        config: The method's options.
        masks: Draws which tokens are masked.
        draws: Draws replacements, where they are sampled.
    """
    import copy

    import torch
    from torch import nn

    from bench.nn.backbone import padded
    from bench.nn.masked_lm import check_layers, run_layers
    from bench.train.chunks import cls_states
    from bench.train.masking import mask_tokens
    from bench.train.precision import lowered, widened
    from bench.train.sentence_encoder import set_dropout

    check_layers(model)
    tau, weight = float(config["tau"]), float(config["rtd_weight"])
    size, pad_id, cls_id = model.config.hidden_size, tokenizer.pad_token_id, tokenizer.cls_token_id
    generator.requires_grad_(False)
    if not config["generator_dropout"]:
        set_dropout(generator, 0.0)

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.generator = model, generator
            self.head = training_head(size, str(config["head"]))
            self.discriminator = copy.deepcopy(model)
            self.classifier = nn.Linear(size, 2)  # torch's own initial weights, as released

        def forward(self, rows: list[list[int]]) -> Tensor:
            """Both views, all first ones before all second ones."""
            views = [*rows, *rows]
            states = cls_states(model, views, pad_id)
            projected = self.head(states)
            loss = info_nce(projected[: len(rows)], projected[len(rows) :], tau)
            if not weight:
                return loss
            vectors = projected if config["rtd_input"] == "after_head" else states
            return loss + weight * self.detection(views, vectors)

        def detection(self, views: list[list[int]], vectors: Tensor) -> Tensor:
            """Replaced-token detection of all rows, padded to the longest; ``vectors`` is (2B, H)."""
            ids, mask = padded(views, pad_id, str(vectors.device))
            masked, chosen = mask_tokens(ids, tokenizer, float(config["mask"]), masks)
            sampled = draws if config["replacement"] == "sample" else None
            with lowered(mask.device):
                edited = edited_tokens(generator, masked, mask, cls_id=cls_id, draws=sampled)
            if config["edited"] == "masked":
                edited = torch.where(chosen, edited, ids * mask)
            found = self.discriminator.embeddings(input_ids=edited)
            found = torch.cat([vectors.unsqueeze(1), found[:, 1:]], dim=1)
            with lowered(mask.device):
                found = widened(run_layers(self.discriminator.encoder.layer, found, mask, model.config))
            labels = replaced_tokens(edited, ids, mask)
            return rtd_loss(self.classifier(found), labels, mask, str(config["rtd_reduction"]))

    return Objective()


def train_diffcse(context: StageContext) -> dict[str, Any]:
    """Train with the contrastive and the replaced-token loss: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: a generator that can't be loaded or has another vocabulary than the backbone.
    """
    from bench.nn.backbone import load_backbone
    from bench.nn.masked_lm import check_same_vocabulary, load_masked_lm
    from bench.train.sentence_encoder import train_towers
    from bench.train.streams import generator as stream

    tower = load_backbone(context.model)
    generator, vocabulary = load_masked_lm(context.auxiliaries["generator"])
    check_same_vocabulary(tower[1], vocabulary, where=f"generator {context.config['generator']}")
    masks, draws = (stream(context.seed, f"{name}/{context.role}") for name in ("mask", "replacement"))
    return train_towers(
        context,
        [tower],
        lambda model, _: make_diffcse_objective(model, tower[1], generator, context.config, masks, draws),
    )


@add_method
class DiffCSE:
    """DiffCSE."""

    card = MethodCard(
        name="diffcse",
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
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            HEAD_OPTION,
            Option("generator", "backbone", "masked LM that edits: a model folder, a hub name, or backbone"),
            Option("mask", 0.3, "q, share of tokens that are masked for the generator", minimum=0),
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
            *training_options(lr=7e-6, epochs=2),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the generator is the backbone with its own masked-LM head; profiles bert-base and roberta-base "
            "take the released distilbert-base-uncased and distilroberta-base, minilm takes what bench "
            "pretrain --profile minilm-mlm makes",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            "rate, mask share and weight for roberta-base are not verified",
        ),
        published_names=(("diffcse", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
        auxiliaries=("generator",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_diffcse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "diffcse")
