"""Vectors on disk: kept under everything that determines them, or in a .npy file that grows by rows."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import BenchError, InputError, StorageError
from bench.records.filesystem import temporary_path, write_atomically


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
        kept = self._read_kept_embeddings(path, len(sentences))
        if kept is not None:
            if progress:
                progress(len(sentences))
            return kept
        vectors = self.encoder.encode(sentences, batch_tokens, progress)
        _write_vectors(path, vectors)
        return vectors

    def _read_kept_embeddings(self, path: Path, rows: int) -> FloatArray | None:
        """Read kept vectors, if they are undamaged."""
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
    """Write vectors atomically; raises StorageError for a read-only folder."""
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


class VectorFile:
    """Writes float32 (n, dim) for ``numpy.load``, with ``mmap_mode`` too; n may be unknown until the end.

    The whole file appears when the block ends; after an error it stays missing.
    """

    def __init__(self, path: Path, dim: int) -> None:
        check_vector_path(path)
        self.path, self.dim, self.rows = path, dim, 0
        self._temporary = temporary_path(path)
        self._stream: BinaryIO

    def __enter__(self) -> VectorFile:
        """Open a temporary file in the same folder."""
        try:
            self._stream = self._temporary.open("xb")
        except OSError as error:
            raise self._write_error(error) from error
        self._write_header()
        return self

    def append(self, vectors: FloatArray) -> None:
        """Add float32 rows (m, dim)."""
        try:
            self._stream.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        except OSError as error:
            raise self._write_error(error) from error
        self.rows += len(vectors)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the number of rows into the header and rename the file; after an error remove it."""
        try:
            if error is None:
                self._stream.seek(0)
                self._write_header()
                self._stream.close()
                self._temporary.replace(self.path)
        except OSError as failure:
            raise self._write_error(failure) from failure
        finally:
            self._stream.close()
            self._temporary.unlink(missing_ok=True)

    def _write_header(self) -> None:
        """Write the header; numpy leaves room in it for any number of rows."""
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.dim)}
        np.lib.format.write_array_header_1_0(self._stream, shape)

    def _write_error(self, error: OSError) -> BenchError:
        return BenchError(f"the vectors can't be written: {error.strerror or error}", where=str(self.path))


def check_vector_path(path: Path) -> None:
    """Raise InputError for an existing file, a missing folder, or a name of another format."""
    if path.exists():
        raise InputError("this file exists already", where=f"--out {path}", expected="a new file")
    if not path.parent.is_dir():
        raise InputError("there is no such folder", where=f"--out {path}", expected="a new file in a folder")
    if path.suffix != ".npy":
        raise InputError("vectors are written as NumPy's .npy", where=f"--out {path}", expected="FILE.npy")
