"""Models on disk: find them, name them, hash their relevant files."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from bench.config.method_ids import split_argument
from bench.config.run_spec import MethodRequest
from bench.data.word_vectors import FORM, read_dimension, strip_endings
from bench.errors import BenchError, InputError
from bench.nn.adapter_folder import AdapterBase, find_bases, hash_with_bases
from bench.nn.adapter_view import check_adapters
from bench.nn.folder_facts import count_layers, read_json_object
from bench.nn.lora_settings import CONFIG
from bench.nn.model_files import LATER_PARTS, WEIGHTS, find_cached_model, hash_file, hash_files
from bench.registry import discover

_DESCRIPTIONS = ("config.json", "modules.json", "twin.json", CONFIG)
"""A model folder has one of these files."""


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


@dataclass(frozen=True)
class AdapterModel(ModelFolder):
    """A folder with adapters; its ``sha256`` covers their base models too."""

    bases: tuple[AdapterBase, ...]


def resolve_folder(reference: str, *, where: str, name: str | None = None) -> ModelFolder:
    """Find a model by folder, or by hub name in the local model cache (offline); InputError if incomplete.

    Adapters are compared with their base models, which are found offline too.
    """
    path = expand_path(reference)
    if not os.path.isdir(path):
        path, name = find_cached_model(reference, where), name or reference
    if not any((path / name).is_file() for name in _DESCRIPTIONS):
        expected = "config.json and safetensors weights in it"
        raise InputError(f"'{reference}' is not a model folder", where=where, expected=expected)
    check_adapters(path)
    if not any(True for pattern in WEIGHTS for _ in path.rglob(pattern)):
        expected = "model.safetensors (or pytorch_model.bin) in it"
        raise InputError(f"the model folder '{reference}' has no weights", where=where, expected=expected)
    name = _check_printable(name or path.resolve().name, where)
    if bases := find_bases(path):
        return AdapterModel(path, name, hash_with_bases(path, bases), bases)
    return ModelFolder(path, name, hash_files(path))


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
    """Return the sha256 over names and bytes of the files that determine embeddings, or of a single file.

    For a folder with adapters it covers the hashes of their base models.
    """
    return hash_file(path) if path.is_file() else hash_with_bases(path, find_bases(path))


def explain_hash_change(path: Path) -> str:
    """Name the files that have entered a folder's hash since an earlier version; "" for none."""
    later = {entry.name for pattern in LATER_PARTS for entry in path.rglob(pattern) if path.is_dir()}
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
