"""Masked language models as parts of other objectives: the whole model, its head, new layers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, BertForMaskedLM, DistilBertForMaskedLM, RobertaForMaskedLM

from bench.errors import InputError
from bench.nn.backbone import load_folder
from bench.nn.hidden_states import ARCHITECTURES, IMPLEMENTATIONS, build_attention_mask
from bench.nn.tokens import Chunk
from bench.nn.untrusted_folder import check_weights


def load_masked_lm(folder: Path, *, new_head: bool = False) -> tuple[Any, Any]:
    """Load (model, tokenizer) from a folder in float32, quietly.

    ``new_head`` keeps the head that transformers draws from torch's state for a headless checkpoint.

    Raises: InputError where the folder lacks a masked language model, weights or a mask token.
    """
    what = "this masked language model"
    model, tokenizer, missing, _ = load_folder(folder, AutoModelForMaskedLM, what=what)
    if new_head:
        missing = [key for key in missing if key.startswith(f"{model.base_model_prefix}.")]
    hint = "bench pretrain --profile minilm-mlm makes one for all-MiniLM-L6-v2"
    check_weights(missing, folder.name, expected="a masked language model with its head", hint=hint)
    if tokenizer.mask_token_id is None:
        raise InputError("the tokenizer has no mask token", where=folder.name)
    return model, tokenizer


def compute_lm_logits(model: Any, chunk: Chunk) -> Tensor:
    """Return a masked language model's logits of every token, (b, L, V), in one go."""
    known = isinstance(model, BertForMaskedLM | RobertaForMaskedLM | DistilBertForMaskedLM)
    whole = known and model.config._attn_implementation in IMPLEMENTATIONS
    mask = build_attention_mask(model.config, chunk) if whole else chunk.mask
    logits: Tensor = model(input_ids=chunk.ids, attention_mask=mask).logits
    return logits


def check_same_vocabulary(tokenizer: Any, other: Any, *, where: str) -> None:
    """Raise InputError unless two tokenizers give every token one id; ``where`` names the second."""
    first, second = tokenizer.get_vocab(), other.get_vocab()
    if first != second:
        what = f"its vocabulary ({len(second):,} tokens) isn't the backbone's ({len(first):,} tokens)"
        raise InputError(what, where=where, expected="a model with the backbone's tokenizer")


def check_callable_layers(model: Any) -> None:
    """Raise InputError unless a transformer's layers can be called one by one."""
    if not isinstance(model, ARCHITECTURES):
        kinds = " or a ".join(kind.__name__ for kind in ARCHITECTURES)
        what = f"an auxiliary network made from {type(model).__name__}"
        raise InputError(what, expected=f"a backbone that is a {kinds}")


def copy_mlm_head(model: Any) -> nn.Module:
    """Return an untied copy of BERT's or RoBERTa's masked-LM head; raises InputError for other models."""
    if not isinstance(model, BertForMaskedLM | RobertaForMaskedLM):
        expected = "a BertForMaskedLM or a RobertaForMaskedLM"
        raise InputError(f"the head of a {type(model).__name__}", expected=expected)
    head: nn.Module = model.cls if isinstance(model, BertForMaskedLM) else model.lm_head
    return copy.deepcopy(head)


def init_layers(model: Any, count: int) -> nn.ModuleList:
    """Return fresh transformer layers of a model's kind and sizes, initialised as BERT's."""
    kind = type(model.encoder.layer[0])
    layers = nn.ModuleList(kind(model.config) for _ in range(count))
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=model.config.initializer_range)
            nn.init.zeros_(module.bias)
    return layers
