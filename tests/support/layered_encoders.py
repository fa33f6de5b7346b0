"""Tiny encoders of many architectures, random and without files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

LAYERS, HEADS, HIDDEN, PAD = 4, 4, 16, 1
_SIZE = {
    "vocab_size": 40,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": PAD,
}
_MODERN = {**_SIZE, "global_attn_every_n_layers": 2, "local_attention": 6}
_DEBERTA = {**_SIZE, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]}
_GROUPED = {**_SIZE, "num_key_value_heads": 2}
_DISTIL = {"vocab_size": 40, "dim": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 24}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", _SIZE),
    "bert-eager": ("bert", {**_SIZE, "attn_implementation": "eager"}),
    "roberta": ("roberta", _SIZE),
    "xlm-roberta": ("xlm-roberta", _SIZE),
    "camembert": ("camembert", _SIZE),
    "data2vec-text": ("data2vec-text", _SIZE),
    "ernie": ("ernie", _SIZE),
    "electra": ("electra", {**_SIZE, "embedding_size": 8}),
    "electra-whole": ("electra", {**_SIZE, "embedding_size": HIDDEN}),
    "distilbert": ("distilbert", {**_DISTIL, "pad_token_id": PAD, "max_position_embeddings": 40}),
    "albert": ("albert", {**_SIZE, "embedding_size": 8}),
    "albert-groups": ("albert", {**_SIZE, "embedding_size": 8, "num_hidden_groups": 2}),
    "mpnet": ("mpnet", _SIZE),
    "deberta-v2": ("deberta-v2", _DEBERTA),
    "deberta-v3": (
        "deberta-v2",
        {
            **_DEBERTA,
            **{"norm_rel_ebd": "layer_norm", "share_att_key": True, "type_vocab_size": 0},
            "position_biased_input": False,
        },
    ),
    "deberta-plain": ("deberta-v2", {**_SIZE, "relative_attention": False}),
    "modernbert": ("modernbert", _MODERN),
    "modernbert-eager": ("modernbert", {**_MODERN, "attn_implementation": "eager"}),
    "nomic": ("nomic_bert", _SIZE),
    "gte": ("gte", _SIZE),
    "jina-v3": ("jina_embeddings_v3", _SIZE),
    "eurobert": ("eurobert", _GROUPED),
    "eurobert-eager": ("eurobert", {**_GROUPED, "attn_implementation": "eager"}),
    "ultrabert": ("ultrabert", _GROUPED),
}
PRE_NORM = ("modernbert", "modernbert-eager", "eurobert", "eurobert-eager", "ultrabert")


def encoder(name: str, seed: int = 0, *, head: Any = AutoModel, **changes: Any) -> Any:
    """Make an encoder in evaluation mode, or a model with a head; its biases and norms count too."""
    kind, settings = ENCODERS[name]
    given = {**settings, **changes}
    implementation = given.pop("attn_implementation", None)
    named = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
    config = AutoConfig.for_model(kind, **{**named, **given})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        how = {} if implementation is None else {"attn_implementation": implementation}
        model: Any = head.from_config(config, **how)
        for part, weight in model.named_parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.3)
            else:
                torch.nn.init.normal_(weight, mean=float("weight" in part), std=0.3)
    return model.eval()


def batch() -> tuple[Tensor, Tensor]:
    """Three rows of 9, 14 and 3 tokens, and their mask."""
    lengths = (9, 14, 3)
    ids = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.tensor([2, *((7 * row + 3 * i) % 35 + 4 for i in range(length - 1))])
    return ids, (ids != PAD).long()
