"""What DiffCSE trains: its head, the generator's edits, and the discriminator that has to find them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.nn.attention import attention_mask, run_layers
from bench.nn.backbone import load_backbone
from bench.nn.device import to_float64
from bench.nn.dropout import set_dropout
from bench.nn.masked_lm import check_layers, check_same_vocabulary, lm_logits, load_masked_lm
from bench.nn.tokens import Chunk, TokenBatch, chunk_from, chunk_of
from bench.stages import StageContext
from bench.train import streams
from bench.train.chunks import batch_states, token_batch
from bench.train.masking import mask_tokens
from bench.train.objective import Objective
from bench.train.precision import lowered, widened
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import train_towers

_CUDA_ROWS, _ROWS = 256, 32  # of the generator: its logits over the vocabulary are a step's largest tensor


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


def portions(masked: Tensor, mask: Tensor, device: torch.device | str) -> tuple[Chunk, ...]:
    """Cut a masked text into what the generator reads at a time.

    Args:
        masked: Masked ids, (N, L), on the CPU.
        mask: (N, L), 1 on tokens and 0 on padding.
        device: Where they will go; a CPU is told of a portion without padding.
    """
    kind = torch.device(device).type
    rows = _CUDA_ROWS if kind == "cuda" else _ROWS
    cut = zip(torch.split(masked, rows), torch.split(mask, rows), strict=True)
    return tuple(chunk_from(ids, None if kind != "cuda" and m.all() else m) for ids, m in cut)


def edited_tokens(
    generator: Any, chunks: Sequence[Chunk], *, cls_id: int, draws: Tensor | None = None
) -> Tensor:
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
            logits = lm_logits(generator, chunk)
            if draws is None:
                parts.append(logits.argmax(-1))
            else:
                parts.append(_drawn(logits, draws[start : start + len(logits)]))
            start += len(logits)
    edited = torch.cat(parts) * torch.cat([chunk.mask for chunk in chunks])
    edited[:, 0].fill_(cls_id)
    return edited


def _drawn(logits: Tensor, draws: Tensor) -> Tensor:
    """The first token at which the cumulated distribution is above the number drawn."""
    below = to_float64(logits).softmax(-1).cumsum(-1)  # float32 would lose rare tokens of a vocabulary
    wanted = to_float64(draws).unsqueeze(-1) * below[..., -1:]
    found = torch.searchsorted(below, wanted, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return found.to(logits.device)


class Edits(NamedTuple):
    """What replaced-token detection needs of a step, all rows padded to the longest.

    Args:
        chunk: x, (2B, L), unmasked.
        masked: The same for the generator, masked, in :func:`portions`.
        chosen: True where a token was chosen for masking, (2B, L).
        draws: (2B, L) for :func:`edited_tokens`, or None.
    """

    chunk: Chunk
    masked: tuple[Chunk, ...]
    chosen: Tensor
    draws: Tensor | None


class DiffCSEObjective(Objective):
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
        self.config, self.tokenizer, self.cls_id = config, tokenizer, int(tokenizer.cls_token_id)
        self.masks = streams.generator(seed, f"mask/{role}")
        sampled = config["replacement"] == "sample"
        self.draws = streams.generator(seed, f"replacement/{role}") if sampled else None
        size = model.config.hidden_size
        self.encoder, self.generator = model, generator
        self.head = training_head(size, str(config["head"]))
        self.discriminator = copy.deepcopy(model)
        self.classifier = nn.Linear(size, 2)  # torch's own initial weights, as released

    def prepare(self, batch: Sequence[list[int]]) -> tuple[TokenBatch, Edits | None]:
        """Both views, all first ones before all second ones; and what is masked and drawn for the edits."""
        views, pad_id = [*batch, *batch], self.tokenizer.pad_token_id
        tokens = token_batch(views, pad_id, self.encoder)
        if not self.config["rtd_weight"]:
            return tokens, None
        chunk = chunk_of(views, pad_id, masked=self.device.type == "cuda")
        masked, chosen = mask_tokens(chunk.ids, self.tokenizer, float(self.config["mask"]), self.masks)
        draws = None
        if self.draws is not None:
            draws = torch.rand(masked.shape, generator=self.draws, dtype=torch.float64)
        return tokens, Edits(chunk, portions(masked, chunk.mask, self.device), chosen, draws)

    def compute(self, prepared: tuple[TokenBatch, Edits | None]) -> Tensor:
        """InfoNCE of the heads' outputs, and the detection."""
        tokens, edits = prepared
        states = batch_states(self.encoder, tokens)
        projected = self.head(states)
        first, second = projected.chunk(2)
        loss = info_nce(first, second, float(self.config["tau"]))
        if edits is None:
            return loss
        vectors = projected if self.config["rtd_input"] == "after_head" else states
        return loss + float(self.config["rtd_weight"]) * self.detection(edits, vectors)

    def detection(self, edits: Edits, vectors: Tensor) -> Tensor:
        """Replaced-token detection of all rows; ``vectors`` is (2B, H)."""
        ids, mask = edits.chunk.ids, edits.chunk.mask
        with lowered(mask.device):
            edited = edited_tokens(self.generator, edits.masked, cls_id=self.cls_id, draws=edits.draws)
        if self.config["edited"] == "masked":
            edited = torch.where(edits.chosen, edited, ids * mask)
        found = self.discriminator.embeddings(input_ids=edited)
        found = torch.cat([vectors.unsqueeze(1), found[:, 1:]], dim=1)
        with lowered(mask.device):
            attended = attention_mask(self.encoder.config, edits.chunk, found.dtype)
            found = widened(run_layers(self.discriminator.encoder.layer, found, attended))
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
