"""Models on disk: finding, naming, hashing what determines embeddings, and what their files say of them."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bench.config.method_ids import split_argument
from bench.config.spec import MethodRequest
from bench.data.word_vectors import FORM, read_dimension, strip_endings
from bench.errors import BenchError, InputError
from bench.records.environment import ROUNDED
from bench.registry import discover

MODULES, ARCHITECTURE = "modules", "architecture"
"""Where training sets dropout: in modules alone, or wherever an architecture keeps it."""
_LARGEST = 100_000_000  # bytes of a header, as in safetensors
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


@cache
def list_model_types(name: str) -> frozenset[str]:
    """Return a list of ``kinds.toml``: values of ``model_type`` that have something in common.

    >>> "llama" in list_model_types("causal"), "bert" in list_model_types("causal")
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


def find_dropout_scope(folder: Path) -> str:
    """Return where training sets the dropout of a folder's model: part of what determines a result.

    Until 2026-11-28 it set modules alone, whatever the architecture; most decoders then trained without any.
    """
    kind = str(read_json_object(folder / "config.json").get("model_type"))
    return MODULES if kind in list_model_types("dropout_in_modules") else ARCHITECTURE


def read_folder_facts(folder: Path) -> FolderFacts:
    """Read what a transformers folder says of its architecture; a damaged file says nothing."""
    config = read_json_object(folder / "config.json")
    kind = str(config.get("model_type", ""))
    names = [name for file in folder.glob("*.safetensors") for name in read_tensor_header(file) or ()]
    parts = {part for name in names for part in name.split(".")}
    known = bool(names)
    decoder = bool(config.get("is_decoder"))
    layers = count_layers(config)
    causal = _is_causal(kind, config)
    head = {"bert": "predictions", "roberta": "lm_head"}.get(kind)
    masked_lm = (head in parts if known else None) if head else (False if causal else None)
    return FolderFacts(
        kind=kind,
        layers=layers,
        positions=positions if type(positions := config.get("max_position_embeddings")) is int else None,
        layered=kind in list_model_types("layered") and not decoder,
        causal=causal,
        first_token=_has_first_token(folder),
        mask_token=_has_mask_token(folder),
        pooler="pooler" in parts if known else None,
        pooler_layer=False if causal or kind in list_model_types("no_pooler_layer") else None,
        masked_lm=masked_lm,
        mlm_head=masked_lm if head else False,
        embeddings="embeddings" in parts if known else None,
        position_ids=False if kind in list_model_types("no_position_ids") else None,
        own_layers=kind not in list_model_types("shared_layers"),
        drops=False if kind in list_model_types("no_dropout") else None,
        masks_padding=False if kind in list_model_types("reads_padding") else None,
        reads_ids=False if kind in list_model_types("not_ids_alone") else None,
        dropout=find_dropout_scope(folder),
    )


def _is_causal(kind: str, config: Mapping[str, Any]) -> bool | None:
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        return None
    if kind in list_model_types("causal"):
        return True
    return True if config.get("is_decoder") and not config.get("is_encoder_decoder") else None


def read_tensor_header(file: Path) -> dict[str, Any] | None:
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


def count_layers(config: Mapping[str, Any]) -> int | None:
    """How many layers a configuration names, None for no number."""
    return next((config[name] for name in _LAYERS if type(config.get(name)) is int), None)


def _has_first_token(folder: Path) -> bool | None:
    """False where the tokenizer puts its classification token behind the sentence alone, as XLNet's does."""
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
    before, after = (
        [_get_token_text(piece.get("SpecialToken", {}).get("id")) for piece in side]
        for side in (single[:at], single[at + 1 :])
    )
    return not (mark in after and mark not in before)


def _has_mask_token(folder: Path) -> bool | None:
    settings = read_json_object(folder / "tokenizer_config.json")
    if _get_token_text(settings.get("mask_token")) or _get_token_text(
        read_json_object(folder / "special_tokens_map.json").get("mask_token")
    ):
        return True
    kind = str(settings.get("tokenizer_class")).removesuffix("Fast")
    return (
        False if kind in list_model_types("no_mask_tokenizers") else None
    )  # other classes may have one of their own


def _get_token_text(token: object) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) and found else None


def read_json_object(file: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


PRETRAINING = "pretraining.json"
"""What ``bench pretrain`` says of a model, in its folder."""
_NOT_MODEL = {
    "data_config.json",
    "model_card.json",
    "training_args.json",
    "trainer_state.json",
    PRETRAINING,
    ROUNDED,
}
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_LATER_PARTS = ("bpe.codes", "dict.txt", "*.spm", "prophetnet.tokenizer", "*.jinja")
"""Files of vocabularies, and templates, that the hash left out until 2026-11-28."""
_PARTS = (
    *("*.safetensors", "pytorch_model*.bin", "*.json", "vocab.txt", "merges.txt", "*.model"),
    *_LATER_PARTS,
)
"""What loading opens. A test holds it against the files that each tokenizer of transformers names."""


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine. The path stays here; records hold the name and the hash.

    Args:
        path: The folder, or the file of word vectors.
        name: Hub name, the folder's last name, or the file's without its endings.
        sha256: Over the names and bytes of weights, configuration and tokenizer files, or over the file.
    """

    path: Path
    name: str
    sha256: str


@dataclass(frozen=True)
class RecipeModel(ModelFolder):
    """A backbone that ``bench pretrain`` makes on first use; its ``sha256`` is "" until it is there.

    Args:
        recipe: Digest of what determines it. Its bytes depend on the kind of processor too.
        command: The words after ``bench`` that make it, ``--out`` aside.
    """

    recipe: str
    command: tuple[str, ...]


def resolve_folder(reference: str, *, where: str, name: str | None = None) -> ModelFolder:
    """Find a model by folder, or by hub name in the local model cache (never over the network).

    Raises:
        InputError: no such folder, a name that can't be printed, a folder without configuration or weights.
    """
    path = expand_path(reference)
    if not os.path.isdir(path):
        path, name = _find_cached_model(reference, where), name or reference
    if not any((path / name).is_file() for name in ("config.json", "modules.json", "twin.json")):
        raise InputError(
            f"'{reference}' is not a model folder",
            where=where,
            expected="config.json and safetensors weights in it",
        )
    if not any(True for pattern in _WEIGHTS for _ in path.rglob(pattern)):
        raise InputError(
            f"the model folder '{reference}' has no weights",
            where=where,
            expected="model.safetensors (or pytorch_model.bin) in it",
        )
    return ModelFolder(path, _check_printable(name or path.resolve().name, where), hash_model(path))


def resolve_file(reference: str, *, where: str) -> ModelFolder:
    """Find a file of word vectors; its name is the file's without the endings that say the format.

    Raises:
        InputError: no such file, or not one of word vectors as far as its first lines show.
    """
    path = expand_path(reference)
    if not os.path.isfile(path):
        raise InputError(f"'{reference}' is not a file", where=where, expected=FORM)
    read_dimension(path)
    return ModelFolder(path, _check_printable(strip_endings(path), where), hash_model(path))


def expand_path(reference: str) -> Path:
    """Return a path with ``~`` or ``~user`` replaced by the home folder, if there is such a user."""
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
    """Yield the files of a model's folder that determine embeddings.

    Raises:
        InputError: a linked folder, which ``rglob`` passes by, or a file that is not a plain one.
    """
    for entry in path.rglob("*"):
        if entry.is_symlink() and entry.is_dir():
            raise InputError(
                f"the folder '{entry.name}' is a link, so the model's hash would leave out its files",
                where=path.name,
                hint="put a copy there",
            )
        if not any(entry.match(pattern) for pattern in _PARTS) or entry.is_dir():
            continue
        if entry.exists() and not entry.is_file():
            raise InputError(f"'{entry.name}' is not a plain file", where=path.name)
        if entry.is_file() and entry.name not in _NOT_MODEL:
            yield entry


def explain_hash_change(path: Path) -> str:
    """Say which files of a folder made its hash another than it was; "" where none did."""
    later = sorted(entry.name for pattern in _LATER_PARTS for entry in path.rglob(pattern) if path.is_dir())
    return f"its hash covers {' and '.join(dict.fromkeys(later))} since 2026-11-28" if later else ""


def read_layer_count(path: Path) -> tuple[int, bool]:
    """Return the number of transformer layers, and whether a pretrained pooler is among the weights.

    Raises:
        InputError: the configuration doesn't say, or it or the weights can't be read.
    """
    try:
        layers = int(json.loads((path / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "the model's configuration does not name the number of layers", where=str(path / "config.json")
        ) from error
    from safetensors import SafetensorError, safe_open

    names: list[str] = []
    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, framework="np") as weights:
                names += weights.keys()
        except SafetensorError as error:
            raise InputError(f"{file.name} can't be read: {error}", where=path.name) from error
    return layers, not names or any("pooler" in name.split(".") for name in names)


def _find_cached_model(reference: str, where: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    hint = f"download it first with: hf download {reference}" if reference.count("/") == 1 else None
    try:
        return Path(snapshot_download(reference, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError) as error:
        raise InputError(
            f"'{reference}' is neither a folder nor a model in the local cache", where=where, hint=hint
        ) from error


def hash_requested_model(asked: MethodRequest) -> str | None:
    """Return the hash of the folder or file that a request names; None where it names none."""
    try:
        card = discover().get(asked.name).card
        if not card.takes_path or asked.alias:
            return None
        path, _ = split_argument(asked, card)
        return (resolve_file if card.takes_file else resolve_folder)(path or "", where=asked.text).sha256
    except (BenchError, OSError):
        return None
