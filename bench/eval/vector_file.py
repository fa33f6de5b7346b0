"""A .npy file that grows by rows, for vectors that don't fit into memory."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from bench.encoder import FloatArray
from bench.errors import BenchError, InputError
from bench.records.filesystem import temporary_path


class VectorFile:
    """Writes float32 (n, dim) for ``numpy.load``, with ``mmap_mode`` too; n may be unknown until the end.

    The whole file appears when the block ends without an error, and otherwise none.
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
