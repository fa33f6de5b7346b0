"""Vectors of a suite's sentences kept on disk, under everything that determines them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import StorageError
from bench.records.filesystem import write_atomically


class CachedEncoder:
    """An encoder that looks up the vectors of a list of sentences in a folder before it computes them.

    ``identity`` is JSON of all that determines the vectors: hashes of weights and tokenizer, options, seed,
    stages, precision, device, threads.
    """

    def __init__(self, encoder: Encoder, folder: Path, identity: object) -> None:
        self.encoder, self.folder = encoder, folder
        self.dim, self.facts = encoder.dim, encoder.facts
        self._identity = json.dumps(identity, sort_keys=True)

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Return checked vectors of the cache, or compute and keep them."""
        facts = json.dumps([self._identity, batch_tokens, list(sentences)])
        path = self.folder / f"{hashlib.sha256(facts.encode()).hexdigest()}.npz"
        kept = self._read_vectors(path, len(sentences))
        if kept is not None:
            if progress:
                progress(len(sentences))
            return kept
        vectors = self.encoder.encode(sentences, batch_tokens, progress)
        _write_vectors(path, vectors)
        return vectors

    def _read_vectors(self, path: Path, rows: int) -> FloatArray | None:
        """Read kept vectors; None if they are missing or damaged."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                if sum(member.file_size for member in archive.zip.infolist()) > path.stat().st_size:
                    return None  # compressed, so from elsewhere
                vectors: FloatArray = archive["vectors"]
                sound = archive["sha256"].item() == hashlib.sha256(vectors.tobytes()).hexdigest()
        except Exception:  # numpy and zipfile fail in many ways
            return None
        return vectors if sound and vectors.shape == (rows, self.dim) else None


def _write_vectors(path: Path, vectors: FloatArray) -> None:
    """Write vectors atomically; raises StorageError if the folder can't be written."""
    payload = io.BytesIO()
    digest = np.array(hashlib.sha256(vectors.tobytes()).hexdigest())
    np.savez(payload, allow_pickle=False, vectors=vectors, sha256=digest)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, payload.getvalue())
    except OSError as error:
        raise StorageError(
            f"vectors can't be kept: {error.strerror}",
            where=str(path.parent),
            hint="fix this, or run without --keep-vectors",
        ) from error
