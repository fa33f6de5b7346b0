"""The files of a model that determine its vectors, their hash, and the local cache of hub models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from bench.errors import InputError
from bench.records.environment import ROUNDED

PRETRAINING = "pretraining.json"
"""The file in which ``bench pretrain`` describes a model."""
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
LATER_PARTS = ("bpe.codes", "dict.txt", "*.spm", "prophetnet.tokenizer", "*.jinja")
"""Vocabularies and templates that are part of the hash since 2026-11-28."""
_NOT_MODEL = {
    *("data_config.json", "model_card.json", "training_args.json", "trainer_state.json"),
    *(PRETRAINING, ROUNDED),
}
_PARTS = (*WEIGHTS, "*.json", "vocab.txt", "merges.txt", "*.model", *LATER_PARTS)
"""The files that loading opens. A test compares them with those of each tokenizer of transformers."""


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(folder: Path) -> str:
    """Return the sha256 over names and bytes of a folder's files that determine embeddings."""
    files = {file.relative_to(folder).as_posix(): file for file in list_hashed_files(folder)}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{hash_file(files[name])}\n".encode())
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


def find_cached_model(reference: str, where: str, revision: str | None = None) -> Path:
    """Return a hub model's folder in the local cache; InputError if it is missing there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    on_hub = reference.count("/") == 1 and not reference.startswith(("/", ".", "~"))
    hint = f"download it first with: hf download {reference}" if on_hub else None
    try:
        return Path(snapshot_download(reference, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError) as error:
        what = f"'{reference}' is neither a folder nor a model in the local cache"
        raise InputError(what, where=where, hint=hint) from error


def read_hub_name(folder: Path) -> str | None:
    """Return the hub name of a folder in the local cache, None for another folder.

    >>> read_hub_name(Path("hub/models--a--b/snapshots/0123"))
    'a/b'
    """
    parts = folder.parts
    if len(parts) < 3 or parts[-2] != "snapshots" or not parts[-3].startswith("models--"):
        return None
    return parts[-3].removeprefix("models--").replace("--", "/")
