"""Models on disk, folders and files of word vectors: finding, naming, hashing what determines embeddings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.config.method_ids import split_argument
from bench.config.spec import MethodRequest
from bench.data.word_vectors import FORM, dimension, stem
from bench.errors import BenchError, InputError
from bench.records.environment import ROUNDED
from bench.registry import discover

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
class MadeModel(ModelFolder):
    """A backbone that ``bench pretrain`` makes on first use; its ``sha256`` is "" until it is there.

    Args:
        recipe: Digest of what determines it. Its bytes depend on the kind of processor too.
        command: The words after ``bench`` that make it, ``--out`` aside.
    """

    recipe: str
    command: tuple[str, ...]


def resolve(reference: str, *, where: str, name: str | None = None) -> ModelFolder:
    """Find a model by folder, or by hub name in the local model cache (never over the network).

    Raises:
        InputError: no such folder, a name that can't be printed, a folder without configuration or weights.
    """
    path = local_path(reference)
    if not os.path.isdir(path):
        path, name = _from_cache(reference, where), name or reference
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
    return ModelFolder(path, _printable_name(name or path.resolve().name, where), content_hash(path))


def resolve_file(reference: str, *, where: str) -> ModelFolder:
    """Find a file of word vectors; its name is the file's without the endings that say the format.

    Raises:
        InputError: no such file, or not one of word vectors as far as its first lines show.
    """
    path = local_path(reference)
    if not os.path.isfile(path):
        raise InputError(f"'{reference}' is not a file", where=where, expected=FORM)
    dimension(path)
    return ModelFolder(path, _printable_name(stem(path), where), content_hash(path))


def local_path(reference: str) -> Path:
    """Return a path with ``~`` or ``~user`` replaced by the home folder, if there is such a user."""
    return Path(os.path.expanduser(reference))


def _printable_name(name: str, where: str) -> str:
    if not name.isprintable():
        raise InputError(f"the name {name!a} can't be printed", where=where, hint="rename the folder or file")
    return name


def content_hash(path: Path) -> str:
    """Return the sha256 over names and bytes of the files that determine embeddings, or of a single file."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    files = {file.relative_to(path).as_posix(): file for file in parts(path)}
    digest = hashlib.sha256()
    for name in sorted(files):
        with files[name].open("rb") as stream:
            digest.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def parts(path: Path) -> Iterator[Path]:
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


def hash_note(path: Path) -> str:
    """Say which files of a folder made its hash another than it was; "" where none did."""
    later = sorted(entry.name for pattern in _LATER_PARTS for entry in path.rglob(pattern) if path.is_dir())
    return f"its hash covers {' and '.join(dict.fromkeys(later))} since 2026-11-28" if later else ""


def shape(path: Path) -> tuple[int, bool]:
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


def _from_cache(reference: str, where: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    hint = f"download it first with: hf download {reference}" if reference.count("/") == 1 else None
    try:
        return Path(snapshot_download(reference, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError) as error:
        raise InputError(
            f"'{reference}' is neither a folder nor a model in the local cache", where=where, hint=hint
        ) from error


def asked_hash(asked: MethodRequest) -> str | None:
    """Return the hash of the folder or file that a request names; None where it names none."""
    try:
        card = discover().get(asked.name).card
        if not card.takes_path or asked.alias:
            return None
        path, _ = split_argument(asked, card)
        return (resolve_file if card.takes_file else resolve)(path or "", where=asked.text).sha256
    except (BenchError, OSError):
        return None
