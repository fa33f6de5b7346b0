"""Masked language models as parts of other objectives: the whole model, its head, new layers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, BertForMaskedLM, DistilBertForMaskedLM, RobertaForMaskedLM

from bench.errors import InputError
from bench.nn.backbone import load_folder
from bench.nn.layer_adapters import IMPLEMENTATIONS, build_attention_mask, has_children
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


def copy_mlm_head(model: Any) -> nn.Module:
    """Return an untied copy of a masked-LM head; raises InputError for models without a known one."""
    head: nn.Module | None
    if isinstance(model, BertForMaskedLM | RobertaForMaskedLM):  # the names that checkpoints have
        head = model.cls if isinstance(model, BertForMaskedLM) else model.lm_head
    else:
        head = find_mlm_head(model)
    if head is None:
        what = f"the head of a {type(model).__name__}"
        raise InputError(what, expected="a masked language model with a head of a known kind")
    return copy.deepcopy(head)


def split_mlm_head(head: Any) -> tuple[nn.Module, nn.Linear]:
    """Return the parts of a head from :func:`copy_mlm_head`: up to (K, E), and to logits (K, V)."""
    if hasattr(head, "predictions"):
        return head.predictions.transform, head.predictions.decoder
    if not isinstance(head, MlmHead):
        return nn.Sequential(head.dense, nn.GELU(), head.layer_norm), head.decoder
    return head.transform, head.decoder


class MlmHead(nn.Module):
    """A masked-LM head in two parts: (K, H) to (K, E), and to logits (K, V)."""

    def __init__(self, transform: nn.Module, decoder: nn.Linear) -> None:
        super().__init__()
        self.transform, self.decoder = transform, decoder

    def forward(self, states: Tensor) -> Tensor:
        """Map states to logits."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits


def find_mlm_head(model: Any) -> MlmHead | None:
    """Find the parts of a masked language model's head; None for a head of another kind.

    They stay the model's own, except in DeBERTa's newer head, which takes the word embeddings as an argument.
    A head of one linear layer has the identity as its transform.
    """
    for find in (_find_predictions, _find_lm_head, _find_named_parts, _find_newer_deberta):
        head = find(model)
        if head is not None:
            return head
    return None


def _find_predictions(model: Any) -> MlmHead | None:
    """Find the head of BERT, NomicBERT and DeBERTa in ``cls``, of ALBERT in ``predictions``."""
    own = getattr(model, "predictions", None)
    if own is not None:
        return MlmHead(nn.Sequential(own.dense, own.activation, own.LayerNorm), own.decoder)
    head = getattr(getattr(model, "cls", None), "predictions", None)
    return None if head is None else MlmHead(head.transform, head.decoder)


def _find_lm_head(model: Any) -> MlmHead | None:
    """Find the head of RoBERTa's kind, or of one linear layer, in ``lm_head``."""
    head = getattr(model, "lm_head", None)
    if isinstance(head, nn.Linear):
        return MlmHead(nn.Identity(), head)
    if head is None or not has_children(head, {"dense", "layer_norm", "decoder"}):
        return None
    return MlmHead(nn.Sequential(head.dense, nn.GELU(), head.layer_norm), head.decoder)


def _find_named_parts(model: Any) -> MlmHead | None:
    """Find the head of ELECTRA's generator, DistilBERT, ModernBERT or UltraBERT."""
    if hasattr(model, "generator_lm_head"):
        return MlmHead(model.generator_predictions, model.generator_lm_head)
    if hasattr(model, "vocab_projector"):
        transform = nn.Sequential(model.vocab_transform, model.activation, model.vocab_layer_norm)
        return MlmHead(transform, model.vocab_projector)
    head: Any = getattr(model, "head", None)
    decoder = getattr(model, "decoder", None)
    if isinstance(head, nn.Module) and isinstance(decoder, nn.Linear):
        return MlmHead(head, decoder)
    if has_children(head, {"linear1", "linear2", "act_fn", "decoder"}):
        return MlmHead(nn.Sequential(head.linear1, head.act_fn, head.linear2, head.act_fn), head.decoder)
    return None


def _find_newer_deberta(model: Any) -> MlmHead | None:
    """Find the head of DeBERTa-v3's own layout."""
    head = getattr(getattr(model, "lm_predictions", None), "lm_head", None)
    if head is None:
        return None
    words = model.get_input_embeddings().weight
    decoder = nn.Linear(words.shape[1], words.shape[0], device=words.device)
    decoder.weight, decoder.bias = words, head.bias
    return MlmHead(nn.Sequential(head.dense, head.transform_act_fn, head.LayerNorm), decoder)
