"""Tiny twin towers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

LAYERS, HEADS, HIDDEN = 4, 2, 16
SIZE = {
    "vocab_size": 30,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "initializer_range": 0.3,
}
PAD = 1
LENGTHS = (5, 7, 3)
Kind = tuple[str, str]
KINDS = [(family, attention) for family in ("bert", "roberta") for attention in ("eager", "sdpa")]


def tower(kind: Kind, seed: int, dropout: float = 0.0, **changes: Any) -> Any:
    family, attention = kind
    options = {**SIZE, "pad_token_id": PAD, "attn_implementation": attention, **changes}
    options |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built: Any = (
            BertModel(BertConfig(**options)) if family == "bert" else RobertaModel(RobertaConfig(**options))
        )
        for name, weight in built.named_parameters():  # biases and LayerNorms count too
            if weight.ndim == 1:
                torch.nn.init.normal_(weight, mean=float("LayerNorm.weight" in name), std=0.3)
    return built.eval()


def batch() -> tuple[Tensor, Tensor]:
    ids = torch.full((len(LENGTHS), max(LENGTHS)), PAD)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = torch.tensor([2, *((7 * row + 3 * i) % 25 + 4 for i in range(length - 1))])
    return ids, (ids != PAD).long()
