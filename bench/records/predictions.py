"""The file of a record's predictions: one array of float32 a task."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.encoder import FloatArray
from bench.errors import DataError

_ZIP64, _LARGE, _UTF8 = 45, 2**32 - 1, 0x800
_DATE = 0x21  # 1980-01-01
_READABLE = 0o600 << 16


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
        again = npz(found)
        if again == content and _of_numpy_2_1(found):
            raise DataError(
                "numpy 2.1 wrote these predictions, with its own argument 'allow_pickle' among the tasks",
                where=str(file),
                expected="numpy 2.2 or newer",
                hint="upgrade numpy, delete this file with its record and run the cell again",
            )
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
    """Return whether savez of numpy 2.1 stored its argument, False, as the first array."""
    if not found:
        return False
    (first, extra), *others = found.items()
    argument = extra.dtype == np.bool_ and extra.ndim == 0 and not extra
    return first == "allow_pickle" and argument and all(v.dtype == np.float32 for _, v in others)


def npz(predictions: Mapping[str, FloatArray]) -> bytes:
    """Serialise as np.savez does, without compression: equal arrays, equal bytes on every system.

    Headers that zipfile writes differ between Windows and others, and between Python 3.11.2 and 3.11.7. So
    they are written here, in the form of Python 3.11.7 on Linux.
    """
    body, directory = io.BytesIO(), io.BytesIO()
    for task, values in predictions.items():
        payload = io.BytesIO()
        np.lib.format.write_array(payload, np.asanyarray(values), allow_pickle=False)
        data, name = payload.getvalue(), f"{task}.npy"
        encoded = name.encode()
        common = (0 if name.isascii() else _UTF8, 0, 0, _DATE, zlib.crc32(data))
        place = body.tell()
        body.write(struct.pack("<4s5H3L2H", b"PK\3\4", _ZIP64, *common, _LARGE, _LARGE, len(encoded), 20))
        body.write(encoded + struct.pack("<2H2Q", 1, 16, len(data), len(data)) + data)
        versions = (_ZIP64, 3, _ZIP64, 0)  # 3: Unix
        sizes = (len(data), len(data), len(encoded), 0, 0, 0, 0, _READABLE, place)
        directory.write(struct.pack("<4s4B4H3L5H2L", b"PK\1\2", *versions, *common, *sizes) + encoded)
    table, count, begin = directory.getvalue(), len(predictions), body.tell()
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(table), begin, 0)
    return body.getvalue() + table + end
