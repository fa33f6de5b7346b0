"""What a model folder's files say of its architecture, read without torch: what a plan can refuse by."""

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
"""Where training sets dropout: in modules alone, or wherever an architecture keeps it."""
_LARGEST = 100_000_000  # bytes of a header, as in safetensors
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


@cache
def kinds(name: str) -> frozenset[str]:
    """Return a list of ``kinds.toml``: values of ``model_type`` that have something in common.

    >>> "llama" in kinds("causal"), "bert" in kinds("causal")
    (True, False)
    """
    text = resources.files(__package__).joinpath("kinds.toml").read_text(encoding="utf-8")
    return frozenset(tomllib.loads(text)[name])


@dataclass(frozen=True)
class FolderFacts:
    """What is known of a model folder; None where its files don't say it.

    Args:
        kind: Its ``model_type``, "" for none.
        layers: How many layers it has.
        positions: Tokens that it has positions for.
        layered: Its layers can be called one by one.
        causal: A token's state depends on no later token.
        first_token: Its tokenizer puts a token of its own before a sentence, or any token would do.
        mask_token: Its tokenizer has a mask token.
        pooler: The checkpoint has a pooler.
        pooler_layer: Its architecture has a pooler of one dense layer.
        masked_lm: The checkpoint has a masked-LM head.
        mlm_head: It has one of BERT's or RoBERTa's kind.
        embeddings: It has a layer called embeddings.
        position_ids: It takes position ids.
        own_layers: No two of its layers share their weights.
        drops: It has dropout.
        masks_padding: Padding that is masked changes no state.
        reads_ids: It gives states for token ids alone.
        dropout: MODULES or ARCHITECTURE.
    """

    kind: str
    layers: int | None
    positions: int | None
    layered: bool
    causal: bool | None
    first_token: bool | None
    mask_token: bool | None
    pooler: bool | None
    pooler_layer: bool | None
    masked_lm: bool | None
    mlm_head: bool | None
    embeddings: bool | None
    position_ids: bool | None
    own_layers: bool
    drops: bool | None
    masks_padding: bool | None
    reads_ids: bool | None
    dropout: str


def dropout_of(folder: Path) -> str:
    """Return where training sets the dropout of a folder's model: part of what determines a result.

    Until 2026-11-28 it set modules alone, whatever the architecture; most decoders then trained without any.
    """
    kind = str(json_object(folder / "config.json").get("model_type"))
    return MODULES if kind in kinds("dropout_in_modules") else ARCHITECTURE


def folder_facts(folder: Path) -> FolderFacts:
    """Read what a transformers folder says of its architecture; a damaged file says nothing."""
    config = json_object(folder / "config.json")
    kind = str(config.get("model_type", ""))
    names = [name for file in folder.glob("*.safetensors") for name in tensor_header(file) or ()]
    parts = {part for name in names for part in name.split(".")}
    known = bool(names)
    decoder = bool(config.get("is_decoder"))
    layers = layers_in(config)
    causal = _is_causal(kind, config)
    head = {"bert": "predictions", "roberta": "lm_head"}.get(kind)
    masked_lm = (head in parts if known else None) if head else (False if causal else None)
    return FolderFacts(
        kind=kind,
        layers=layers,
        positions=positions if type(positions := config.get("max_position_embeddings")) is int else None,
        layered=kind in kinds("layered") and not decoder,
        causal=causal,
        first_token=_first_token(folder),
        mask_token=_mask_token(folder),
        pooler="pooler" in parts if known else None,
        pooler_layer=False if causal or kind in kinds("no_pooler_layer") else None,
        masked_lm=masked_lm,
        mlm_head=masked_lm if head else False,
        embeddings="embeddings" in parts if known else None,
        position_ids=False if kind in kinds("no_position_ids") else None,
        own_layers=kind not in kinds("shared_layers"),
        drops=False if kind in kinds("no_dropout") else None,
        masks_padding=False if kind in kinds("reads_padding") else None,
        reads_ids=False if kind in kinds("not_ids_alone") else None,
        dropout=dropout_of(folder),
    )


def _is_causal(kind: str, config: Mapping[str, Any]) -> bool | None:
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        return None
    if kind in kinds("causal"):
        return True
    return True if config.get("is_decoder") and not config.get("is_encoder_decoder") else None


def tensor_header(file: Path) -> dict[str, Any] | None:
    """Return what a file of safetensors says of its tensors, by name; None where its header can't be read."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length < _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def layers_in(config: Mapping[str, Any]) -> int | None:
    """How many layers a configuration names, None for no number."""
    return next((config[name] for name in _LAYERS if type(config.get(name)) is int), None)


def _first_token(folder: Path) -> bool | None:
    """False where the tokenizer puts its classification token behind the sentence alone, as XLNet's does."""
    settings = json_object(folder / "tokenizer_config.json")
    mark = _content(settings.get("cls_token"))
    post = json_object(folder / "tokenizer.json").get("post_processor")
    single = post.get("single") if isinstance(post, dict) else None
    if not isinstance(single, list) or mark is None:
        return None
    order = [next(iter(piece), "") for piece in single if isinstance(piece, dict)]
    if "Sequence" not in order:
        return None
    at = order.index("Sequence")
    before, after = (
        [_content(piece.get("SpecialToken", {}).get("id")) for piece in side]
        for side in (single[:at], single[at + 1 :])
    )
    return not (mark in after and mark not in before)


def _mask_token(folder: Path) -> bool | None:
    settings = json_object(folder / "tokenizer_config.json")
    if _content(settings.get("mask_token")) or _content(
        json_object(folder / "special_tokens_map.json").get("mask_token")
    ):
        return True
    kind = str(settings.get("tokenizer_class")).removesuffix("Fast")
    return False if kind in kinds("no_mask_tokenizers") else None  # other classes may have one of their own


def _content(token: object) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) and found else None


def json_object(file: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
