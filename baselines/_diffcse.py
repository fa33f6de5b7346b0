"""What DiffCSE trains: its head, the generator's edits, and the discriminator that has to find them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.nn.backbone import load_backbone, padded
from bench.nn.masked_lm import check_layers, check_same_vocabulary, load_masked_lm, run_layers
from bench.stages import StageContext
from bench.train import streams
from bench.train.chunks import cls_states
from bench.train.masking import mask_tokens
from bench.train.precision import lowered, widened
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import set_dropout, train_towers

_GENERATOR_ROWS = 32  # its logits over the vocabulary are the largest tensor of a step


def training_head(size: int, kind: str) -> Any:
    """Return the training-only head, fresh (weights normal with std 0.02).

    "bn" is g_BN(h) = BN2(W2 ReLU(BN1(W1 h))) with W1: H -> 2H and W2: 2H -> H without bias and BN2 without
    affine parameters; in training its statistics are those of all rows it gets. "tanh" is SimCSE's.

    Args:
        size: H.
        kind: "bn" or "tanh".
    """
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

    Example:
        >>> logits, mask = torch.zeros(1, 4, 2), torch.tensor([[1, 1, 1, 0]])
        >>> replaced = replaced_tokens(torch.tensor([[2, 7, 5, 0]]), torch.tensor([[2, 7, 8, 0]]), mask)
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
        return functional.cross_entropy(logits.flatten(0, 1), replaced.flatten())
    cells = functional.cross_entropy(logits.flatten(0, 1), replaced.flatten(), reduction="none")
    return (cells.view(replaced.shape) * mask).sum() / len(replaced)


def edited_tokens(
    generator: Any, masked: Tensor, mask: Tensor, *, cls_id: int, draws: torch.Generator | None = None
) -> Tensor:
    """Let the generator fill in a masked text: x'', without gradient.

    Args:
        generator: Masked language model; its dropout is active in train mode.
        masked: Masked ids, (N, L).
        mask: (N, L), 1 on tokens and 0 on padding.
        cls_id: Put at position 0 of every row, whatever the generator predicts.
        draws: None takes the most probable token; a CPU generator draws from the generator's distribution.

    Returns:
        (N, L) token ids at every position, masked or not; 0 on padding.
    """
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


class DiffCSEObjective(nn.Module):
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
        check_layers(model)
        config, seed, role = context.config, context.seed, context.role
        generator.requires_grad_(False)
        if not config["generator_dropout"]:
            set_dropout(generator, 0.0)
        self.config, self.tokenizer = config, tokenizer
        self.masks = streams.generator(seed, f"mask/{role}")
        sampled = config["replacement"] == "sample"
        self.draws = streams.generator(seed, f"replacement/{role}") if sampled else None
        size = model.config.hidden_size
        self.encoder, self.generator = model, generator
        self.head = training_head(size, str(config["head"]))
        self.discriminator = copy.deepcopy(model)
        self.classifier = nn.Linear(size, 2)  # torch's own initial weights, as released

    def forward(self, rows: list[list[int]]) -> Tensor:
        """Both views, all first ones before all second ones."""
        views, weight = [*rows, *rows], float(self.config["rtd_weight"])
        states = cls_states(self.encoder, views, self.tokenizer.pad_token_id)
        projected = self.head(states)
        loss = info_nce(projected[: len(rows)], projected[len(rows) :], float(self.config["tau"]))
        if not weight:
            return loss
        vectors = projected if self.config["rtd_input"] == "after_head" else states
        return loss + weight * self.detection(views, vectors)

    def detection(self, views: list[list[int]], vectors: Tensor) -> Tensor:
        """Replaced-token detection of all rows, padded to the longest; ``vectors`` is (2B, H)."""
        ids, mask = padded(views, self.tokenizer.pad_token_id, str(vectors.device))
        masked, chosen = mask_tokens(ids, self.tokenizer, float(self.config["mask"]), self.masks)
        with lowered(mask.device):
            edited = edited_tokens(
                self.generator, masked, mask, cls_id=self.tokenizer.cls_token_id, draws=self.draws
            )
        if self.config["edited"] == "masked":
            edited = torch.where(chosen, edited, ids * mask)
        found = self.discriminator.embeddings(input_ids=edited)
        found = torch.cat([vectors.unsqueeze(1), found[:, 1:]], dim=1)
        with lowered(mask.device):
            layers = self.discriminator.encoder.layer
            found = widened(run_layers(layers, found, mask, self.encoder.config))
        labels = replaced_tokens(edited, ids, mask)
        return rtd_loss(self.classifier(found), labels, mask, str(self.config["rtd_reduction"]))


def train(context: StageContext) -> dict[str, Any]:
    """Train with the contrastive and the replaced-token loss: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a generator that can't be loaded or has another vocabulary than the backbone.
    """
    tower = load_backbone(context.model)
    generator, vocabulary = load_masked_lm(context.auxiliaries["generator"])
    check_same_vocabulary(tower[1], vocabulary, where=f"generator {context.config['generator']}")
    return train_towers(
        context, [tower], lambda model, _: DiffCSEObjective(model, tower[1], generator, context)
    )
