"""Models on disk: find them, name them, hash their relevant files, and read facts from their files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench.config.method_ids import split_argument
from bench.config.run_spec import MethodRequest
from bench.data.word_vectors import FORM, read_dimension, strip_endings
from bench.errors import BenchError, InputError
from bench.records.environment import ROUNDED
from bench.registry import discover

MODULES, ARCHITECTURE = "modules", "architecture"
"""Where training sets dropout: only in modules, or in every place of an architecture."""
_LARGEST = 100_000_000  # bytes of a header, as in safetensors
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
    positions: int | None  # tokens that it has positions for
    layered: bool  # its layers can be called one by one
    causal: bool | None  # a token's state is independent of later tokens
    first_token: bool | None  # a special token precedes a sentence, or any token would do
    mask_token: bool | None  # its tokenizer has a mask token
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
        positions=positions if type(positions) is int else None,
        layered=layered,
        causal=causal,
        first_token=_has_first_token(folder),
        mask_token=_has_mask_token(folder),
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


def _has_mask_token(folder: Path) -> bool | None:
    settings = read_json_object(folder / "tokenizer_config.json")
    tokens = read_json_object(folder / "special_tokens_map.json")
    if _get_token_text(settings.get("mask_token")) or _get_token_text(tokens.get("mask_token")):
        return True
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


PRETRAINING = "pretraining.json"
"""The file in which ``bench pretrain`` describes a model."""
_NOT_MODEL = {
    *("data_config.json", "model_card.json", "training_args.json", "trainer_state.json"),
    *(PRETRAINING, ROUNDED),
}
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_LATER_PARTS = ("bpe.codes", "dict.txt", "*.spm", "prophetnet.tokenizer", "*.jinja")
"""Vocabularies and templates that are part of the hash since 2026-11-28."""
_PARTS = (*_WEIGHTS, "*.json", "vocab.txt", "merges.txt", "*.model", *_LATER_PARTS)
"""The files that loading opens. A test compares them with those of each tokenizer of transformers."""


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine. Records hold its name and hash, and omit the path."""

    path: Path  # the folder, or the file of word vectors
    name: str  # hub name, the folder's last name, or the file's without its endings
    sha256: str  # over the names and bytes of weights, configuration and tokenizer files, or over the file


@dataclass(frozen=True)
class RecipeModel(ModelFolder):
    """A backbone that ``bench pretrain`` makes on first use; its ``sha256`` is "" until then."""

    recipe: str  # digest of its settings and text. Its bytes depend on the processor's kind too
    command: tuple[str, ...]  # the words after ``bench`` that make it, except ``--out``


def resolve_folder(reference: str, *, where: str, name: str | None = None) -> ModelFolder:
    """Find a model by folder, or by hub name in the local model cache (offline); InputError if incomplete."""
    path = expand_path(reference)
    if not os.path.isdir(path):
        path, name = _find_cached_model(reference, where), name or reference
    if not any((path / name).is_file() for name in ("config.json", "modules.json", "twin.json")):
        expected = "config.json and safetensors weights in it"
        raise InputError(f"'{reference}' is not a model folder", where=where, expected=expected)
    if not any(True for pattern in _WEIGHTS for _ in path.rglob(pattern)):
        expected = "model.safetensors (or pytorch_model.bin) in it"
        raise InputError(f"the model folder '{reference}' has no weights", where=where, expected=expected)
    return ModelFolder(path, _check_printable(name or path.resolve().name, where), hash_model(path))


def resolve_file(reference: str, *, where: str) -> ModelFolder:
    """Find a file of word vectors, named by the file minus the endings of its format."""
    path = expand_path(reference)
    if not os.path.isfile(path):
        raise InputError(f"'{reference}' is not a file", where=where, expected=FORM)
    read_dimension(path)
    return ModelFolder(path, _check_printable(strip_endings(path), where), hash_model(path))


def expand_path(reference: str) -> Path:
    """Expand ``~`` or ``~user`` to an existing user's home folder."""
    return Path(os.path.expanduser(reference))


def _check_printable(name: str, where: str) -> str:
    if not name.isprintable():
        raise InputError(f"the name {name!a} can't be printed", where=where, hint="rename the folder or file")
    return name


def hash_model(path: Path) -> str:
    """Return the sha256 over names and bytes of the files that determine embeddings, or of a single file."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    files = {file.relative_to(path).as_posix(): file for file in list_hashed_files(path)}
    digest = hashlib.sha256()
    for name in sorted(files):
        with files[name].open("rb") as stream:
            digest.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def list_hashed_files(path: Path) -> Iterator[Path]:
    """Yield the files that determine embeddings; InputError for links to folders and special files."""
    for entry in path.rglob("*"):
        if entry.is_symlink() and entry.is_dir():
            what = f"the folder '{entry.name}' is a link, so the model's hash would leave out its files"
            raise InputError(what, where=path.name, hint="put a copy there")
        if not any(entry.match(pattern) for pattern in _PARTS) or entry.is_dir():
            continue
        if entry.exists() and not entry.is_file():
            raise InputError(f"'{entry.name}' is not a plain file", where=path.name)
        if entry.is_file() and entry.name not in _NOT_MODEL:
            yield entry


def explain_hash_change(path: Path) -> str:
    """Name the files that have entered a folder's hash since an earlier version; "" for none."""
    later = {entry.name for pattern in _LATER_PARTS for entry in path.rglob(pattern) if path.is_dir()}
    return f"its hash covers {' and '.join(sorted(later))} since 2026-11-28" if later else ""


def read_layer_count(path: Path) -> tuple[int, bool]:
    """Return the number of transformer layers, and whether the weights include a pretrained pooler."""
    layers = count_layers(read_json_object(path / "config.json"))
    if layers is None:
        what = "the model's configuration does not name the number of layers"
        raise InputError(what, where=str(path / "config.json"))
    from safetensors import SafetensorError, safe_open

    names: list[str] = []
    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="np") as weights:
                names += weights.keys()
        except SafetensorError as error:
            raise InputError(f"{file.name} can't be read: {error}", where=path.name) from error
    return layers, not names or any("pooler" in name.split(".") for name in names)


def count_weights(path: Path) -> int:
    """Return the number of weights in a folder's safetensors files; 0 where there are none to read."""
    from safetensors import SafetensorError, safe_open

    total = 0
    for file in path.glob("*.safetensors"):
        try:
            with safe_open(file, framework="np") as weights:
                total += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (SafetensorError, OSError):
            continue
    return total


def _find_cached_model(reference: str, where: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    hint = f"download it first with: hf download {reference}" if reference.count("/") == 1 else None
    try:
        return Path(snapshot_download(reference, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError) as error:
        what = f"'{reference}' is neither a folder nor a model in the local cache"
        raise InputError(what, where=where, hint=hint) from error


def hash_requested_model(asked: MethodRequest) -> str | None:
    """Return the hash of the folder or file that a request names, if any."""
    try:
        card = discover().get(asked.name).card
        if not card.takes_path or asked.alias:
            return None
        path, _ = split_argument(asked, card)
        return (resolve_file if card.takes_file else resolve_folder)(path or "", where=asked.text).sha256
    except (BenchError, OSError):
        return None
