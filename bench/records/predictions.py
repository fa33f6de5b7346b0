"""The file of a record's predictions: one array of float32 a task."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.encoder import FloatArray
from bench.errors import DataError


def arrays(file: Path, content: bytes) -> dict[str, FloatArray]:
    """Return the predictions in a file's content, by their tasks.

    A zip can hold more than its entries, and the same ones in many forms. So it has to be, to the byte, what
    :func:`npz` makes of them: then nothing travels hidden in it, and files of equal predictions are equal.

    Raises:
        DataError: anything but finite float32 numbers, a list a task, or in another form.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > len(content):
                raise ValueError("packed, which ours never are: it could unpack to anything")
            found = {name: archive[name] for name in archive.files}
        if _of_numpy_2_1(found):
            raise DataError(
                "numpy 2.1 wrote these predictions, with its own argument 'allow_pickle' among the tasks",
                where=str(file),
                expected="numpy 2.2 or newer",
                hint="upgrade numpy, delete this file with its record and run the cell again",
            )
        again = npz(found)
    except DataError:
        raise
    except Exception as error:  # a damaged file makes numpy and zipfile fail in many ways
        raise DataError(
            f"these are no predictions: {type(error).__name__}", where=str(file), hint="run the cell again"
        ) from error
    for name, values in found.items():
        listed = isinstance(values, np.ndarray) and values.dtype == np.float32 and values.ndim == 1
        if not listed or not np.isfinite(values).all():
            raise DataError(
                f"the predictions of {name} are damaged",
                where=str(file),
                expected="a list of finite float32 numbers",
                hint="run the cell again",
            )
    if again != content:
        raise DataError(
            "this file isn't written as bench writes predictions: it may hold more, or be a copy of others",
            where=str(file),
            hint="run the cell again",
        )
    return found


def _of_numpy_2_1(found: Mapping[str, FloatArray]) -> bool:
    """Return whether savez of numpy 2.1 stored its argument as one more array, a single truth value."""
    extra = found.get("allow_pickle")
    return extra is not None and extra.dtype == np.bool_ and extra.ndim == 0


def npz(predictions: Mapping[str, FloatArray]) -> bytes:
    """Serialise without compression: equal arrays, equal bytes, whatever zlib is installed."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **predictions)
    return buffer.getvalue()
