"""Facts of a model folder's files, read without torch: architecture, heads, tokens."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

MODULES, ARCHITECTURE = "modules", "architecture"
"""Where training sets dropout: only in modules, or in every place of an architecture."""
_LARGEST = 100_000_000  # bytes of a header, as in safetensors
_WIDTHS = ("hidden_size", "dim", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


@cache
def list_model_types(name: str) -> frozenset[str]:
    """Return a list of ``kinds.toml``: values of ``model_type`` with something in common.

    >>> "llama" in list_model_types("causal"), "bert" in list_model_types("causal")
    (True, False)
    """
    return frozenset(_read_kinds()[name])


@cache
def _read_kinds() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("kinds.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class FolderFacts:
    """Facts from a model folder's files; None where these leave a fact open."""

    kind: str  # its ``model_type``, "" by default
    layers: int | None  # number of layers
    width: int | None  # components of a state
    positions: int | None  # tokens that it has positions for
    layered: bool  # its layers can be called one by one
    decodes: bool  # its layers take a cross-attention to a vector
    causal: bool | None  # a token's state is independent of later tokens
    first_token: bool | None  # a special token precedes a sentence, or any token would do
    end_token: bool | None  # its tokenizer puts a token behind a sentence
    mask_token: bool | None  # its tokenizer has a mask token
    mask_word: str | None  # that token, if the files name it
    pooler: bool | None  # the checkpoint has a pooler
    pooler_layer: bool | None  # its architecture has a pooler of one dense layer
    masked_lm: bool | None  # the checkpoint has a masked-LM head
    mlm_head: bool | None  # the head is of a known kind
    mlm_transform: bool | None  # the head is more than one linear layer
    embeddings: bool | None  # its embeddings can be frozen
    position_ids: bool | None  # its states depend on position ids
    own_layers: bool  # every layer has its own weights
    drops: bool | None  # it has dropout
    masks_padding: bool | None  # masked padding leaves states unchanged
    reads_ids: bool | None  # token ids suffice for states
    one_width: bool  # its last states are as wide as those of its other layers
    dropout: str  # MODULES or ARCHITECTURE


def find_dropout_scope(folder: Path) -> str:
    """Return the places where training sets a model's dropout: a part of what determines a result.

    Until 2026-11-28 training set only modules, which spared most decoders.
    """
    kind = str(read_json_object(folder / "config.json").get("model_type"))
    return MODULES if kind in list_model_types("dropout_in_modules") else ARCHITECTURE


def read_folder_facts(folder: Path) -> FolderFacts:
    """Read a transformers folder's facts on its architecture; damaged files leave them open."""
    config = read_json_object(folder / "config.json")
    kind = str(config.get("model_type", ""))
    parts: set[str] = set()
    for name in (name for file in folder.glob("*.safetensors") for name in read_tensor_header(file) or ()):
        parts.update(name.split("."))

    def has_part(part: str) -> bool | None:
        return part in parts if parts else None

    def unless_listed(types: str) -> bool | None:
        return False if kind in list_model_types(types) else None

    causal = _is_causal(kind, config)
    head = _find_head_part(kind, config)
    masked_lm = has_part(head) if head else False if causal else None
    mlm_head = masked_lm if head else False
    layered = _is_layered(kind, config)
    only_relative = config.get("position_biased_input") is False  # DeBERTa-v3 ignores position ids
    positions = config.get("max_position_embeddings")
    return FolderFacts(
        kind=kind,
        layers=count_layers(config),
        width=next((config[name] for name in _WIDTHS if type(config.get(name)) is int), None),
        positions=positions if type(positions) is int else None,
        layered=layered,
        decodes=layered and kind in list_model_types("decoding"),
        causal=causal,
        first_token=_has_first_token(folder),
        end_token=_adds_end_token(folder),
        mask_token=_has_mask_token(folder),
        mask_word=_find_mask_word(folder),
        pooler=has_part("pooler"),
        pooler_layer=False if causal else unless_listed("no_pooler_layer"),
        masked_lm=masked_lm,
        mlm_head=mlm_head,
        mlm_transform=False if kind in list_model_types("linear_heads") else mlm_head,
        embeddings=layered or has_part("embeddings"),
        position_ids=False if only_relative else unless_listed("no_position_ids"),
        own_layers=kind not in list_model_types("shared_layers"),
        drops=unless_listed("no_dropout"),
        masks_padding=unless_listed("reads_padding"),
        reads_ids=unless_listed("not_ids_alone"),
        one_width=config.get("word_embed_proj_dim") in (None, config.get("hidden_size")),
        dropout=find_dropout_scope(folder),
    )


def _is_layered(kind: str, config: Mapping[str, Any]) -> bool:
    """Return whether an adapter takes the layers apart: not in variants that mix tokens between blocks."""
    variant = config.get("conv_kernel_size") or config.get("inner_group_num", 1) != 1
    return kind in list_model_types("layered") and not config.get("is_decoder") and not variant


def _find_head_part(kind: str, config: Mapping[str, Any]) -> str | None:
    """Return a part of the tensors' names in a masked-LM head; a tied head's own weights aren't stored."""
    if kind == "deberta-v2" and config.get("legacy") is False:
        return "lm_predictions"
    if kind in list_model_types("linear_heads") and config.get("tie_word_embeddings"):
        return "embed_tokens"
    part: str | None = _read_kinds()["masked_lm_heads"].get(kind)
    return part


def _is_causal(kind: str, config: Mapping[str, Any]) -> bool | None:
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        return None
    if kind in list_model_types("causal"):
        return True
    return True if config.get("is_decoder") and not config.get("is_encoder_decoder") else None


def read_tensor_header(file: Path) -> dict[str, Any] | None:
    """Return the tensors' entries in a safetensors header, by name; None for an unreadable header."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length < _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def count_layers(config: Mapping[str, Any]) -> int | None:
    """Return the number of layers that a configuration names, if any."""
    return next((config[name] for name in _LAYERS if type(config.get(name)) is int), None)


def _has_first_token(folder: Path) -> bool | None:
    """Return False where the classification token follows the sentence, as in XLNet."""
    settings = read_json_object(folder / "tokenizer_config.json")
    mark = _get_token_text(settings.get("cls_token"))
    post = read_json_object(folder / "tokenizer.json").get("post_processor")
    single = post.get("single") if isinstance(post, dict) else None
    if not isinstance(single, list) or mark is None:
        return None
    order = [next(iter(piece), "") for piece in single if isinstance(piece, dict)]
    if "Sequence" not in order:
        return None
    at = order.index("Sequence")
    tokens = [_get_token_text(piece.get("SpecialToken", {}).get("id")) for piece in single]
    return mark in tokens[:at] or mark not in tokens[at + 1 :]


def _adds_end_token(folder: Path) -> bool | None:
    """Return whether a token follows a sentence, by the tokenizer's post-processor; None for older files."""
    if read_json_object(folder / "tokenizer_config.json").get("add_eos_token") is True:
        return True
    tokenizer = read_json_object(folder / "tokenizer.json")
    if "post_processor" not in tokenizer:
        return None
    post = tokenizer["post_processor"] or {}
    steps = post.get("processors", [post]) if isinstance(post, dict) else []
    return any(isinstance(step, dict) and _ends_with_token(step) for step in steps)


def _ends_with_token(step: Mapping[str, Any]) -> bool:
    """Return whether a step of a post-processor puts a token behind a sentence."""
    single = step.get("single")
    if isinstance(single, list) and single and isinstance(single[-1], dict):
        return "SpecialToken" in single[-1]
    return step.get("type") in ("BertProcessing", "RobertaProcessing")


def _find_mask_word(folder: Path) -> str | None:
    files = (read_json_object(folder / f"{name}.json") for name in ("tokenizer_config", "special_tokens_map"))
    return next(filter(None, (_get_token_text(file.get("mask_token")) for file in files)), None)


def _has_mask_token(folder: Path) -> bool | None:
    if _find_mask_word(folder) is not None:
        return True
    settings = read_json_object(folder / "tokenizer_config.json")
    kind = str(settings.get("tokenizer_class")).removesuffix("Fast")
    return False if kind in list_model_types("no_mask_tokenizers") else None  # other classes may have one


def _get_token_text(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and text else None


def read_json_object(file: Path, kind: type = dict) -> Any:
    """Return a file's JSON value of a kind, an empty one by default."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return kind()
    return content if isinstance(content, kind) else kind()
