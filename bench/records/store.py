"""The results folder: a JSON file per cell and suite, its predictions next to it, both written atomically."""

from __future__ import annotations

import hashlib
import io
import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from bench import errors
from bench.encoder import FloatArray
from bench.errors import DataError
from bench.records import filesystem, integrity
from bench.records.campaign_lookup import check_campaign_options, find_misplaced_campaign
from bench.records.record import RecordPlace, RunRecord, parse_record, record_to_json, safe_name

_ZIP64, _LARGE, _UTF8 = 45, 2**32 - 1, 0x800
_DATE = 0x21  # 1980-01-01
_READABLE = 0o600 << 16


def parse_predictions(file: Path, content: bytes) -> dict[str, FloatArray]:
    """Return the predictions in a file's content: finite float32 numbers by task; raises DataError.

    The content must equal, to the byte, what :func:`predictions_to_npz` makes of them: so the zip hides
    nothing, and equal predictions have equal files.
    """
    damaged = partial(DataError, where=str(file), hint="run the cell again")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > len(content):
                raise ValueError("compressed, so of any size")
            arrays = {name: archive[name] for name in archive.files}
        again = predictions_to_npz(arrays)
    except Exception as error:  # a damaged file makes numpy and zipfile fail in many ways
        raise damaged(f"these are no predictions: {type(error).__name__}") from error
    if again == content and _is_from_numpy_2_1(arrays):
        what = "numpy 2.1 wrote these predictions, with its own argument 'allow_pickle' among the tasks"
        hint = "upgrade numpy, delete this file with its record and run the cell again"
        raise DataError(what, where=str(file), expected="numpy 2.2 or newer", hint=hint)
    for name, values in arrays.items():
        listed = isinstance(values, np.ndarray) and values.dtype == np.float32 and values.ndim == 1
        if not listed or not np.isfinite(values).all():
            expected = "a list of finite float32 numbers"
            raise damaged(f"the predictions of {name} are damaged", expected=expected)
    if again != content:
        raise damaged("this file isn't in bench's form of predictions: it may hold more, or be a copy")
    return arrays


def _is_from_numpy_2_1(arrays: Mapping[str, FloatArray]) -> bool:
    """Return whether savez of numpy 2.1 stored its argument, False, as the first array."""
    if not arrays:
        return False
    (first, extra), *others = arrays.items()
    argument = extra.dtype == np.bool_ and extra.ndim == 0 and not extra
    return first == "allow_pickle" and argument and all(v.dtype == np.float32 for _, v in others)


def predictions_to_npz(predictions: Mapping[str, FloatArray]) -> bytes:
    """Serialise like np.savez of Python 3.11.7 on Linux: equal arrays give equal bytes on every system.

    The headers of zipfile differ between Windows and other systems, and between Python versions.
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


_WHOLE = (errors.NewerRecordError, errors.UnsealedRecordError, errors.UnreadableRecordError)
"""Errors of records that may be whole, which stop everything."""
_CAMPAIGN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ResultStore:
    """One campaign's records under ``results/<campaign>``; raises InputError for a wrong name."""

    def __init__(self, results: Path, campaign: str) -> None:
        if not _CAMPAIGN.fullmatch(campaign):
            if (misplaced := find_misplaced_campaign(results, campaign)) is not None:
                raise misplaced
            what = f"'{campaign}' is not a campaign name"
            expected = "letters, digits, '.', '_' and '-', at most 100"
            hint = "bench report takes several, with commas between them" if "," in campaign else None
            raise errors.InputError(what, where="--campaign", expected=expected, hint=hint)
        self.campaign = campaign
        self.root = results / campaign

    def prepare(self) -> None:
        """Make the folder; raises InputError for a wrong name or a read-only folder."""
        filesystem.check_new_campaign(self.root.parent, self.campaign)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / ".locks").mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root / ".locks"):  # without a name, so a kill leaves nothing
                pass
        except OSError as error:
            what = f"results can't be written: {error.strerror}"
            hint = "name another folder with --results"
            raise errors.InputError(what, where=str(self.root), hint=hint) from error

    def clear_leftovers(self) -> None:
        """Remove temporary files of killed processes from unlocked folders."""
        folders = {leftover.parent for leftover in self.root.glob("*/*/*/.*.tmp")}
        sure = self.has_locks()
        for folder in filter(self._is_real_folder, folders):
            with suppress(errors.StorageError), self._lock_folder(folder, wait=False) as mine:
                if mine:
                    _remove_temporary_files(folder, held=sure)

    def has_locks(self) -> bool:
        """Return whether locks of the campaign keep other processes out, on this machine."""
        return filesystem.do_locks_exclude(self.root / ".locks")

    def _is_real_folder(self, folder: Path) -> bool:
        """Return whether a cell's folder and its parents are real: a link could lead anywhere."""
        return folder.resolve() == self.root.resolve() / folder.relative_to(self.root)

    def _check_real_folder(self, folder: Path) -> None:
        """Raise StorageError for a link."""
        if not self._is_real_folder(folder):
            what = f"this folder is a link, or in one: {folder.resolve()}"
            expected = "a folder of its own in the campaign"
            hint = "put the folder itself there, or name another --campaign"
            raise errors.StorageError(what, where=str(folder), expected=expected, hint=hint)

    def path(self, place: RecordPlace) -> Path:
        """Return the path of a record."""
        return self.root / place.folder / f"{safe_name(place.suite)}.json"

    def read(self, place: RecordPlace) -> RunRecord | None:
        """Return the record or None; raises MisplacedRecordError, or as :func:`read_record`."""
        return self._read_path(self.path(place))

    def _read_path(self, path: Path) -> RunRecord | None:
        content = _read_content(path)
        if content is None:
            return None
        try:
            record = _parse_valid_record(path, content)
        except DataError as error:
            error.hint = error.hint or integrity.AGAIN
            raise
        if self.path(record.place) != path:
            what = f"this record of {record.method} is in another's place"
            hint = "move the copy out of the results folder"
            raise errors.MisplacedRecordError(what, where=str(path), hint=hint)
        return record

    def is_whole(self, place: RecordPlace, record: RunRecord) -> bool:
        """Return whether a record's predictions are its own; raises UnreadableRecordError."""
        if record.predictions is None:
            return record.status == "failed"
        content = _read_content(self.path(place).with_suffix(".npz"))
        return content is not None and hashlib.sha256(content).hexdigest() == record.predictions["sha256"]

    def scored(self, place: RecordPlace) -> RunRecord | None:
        """Return the undamaged record with scores at a place, of any key, whatever its predictions."""
        try:
            record = self.read(place)
        except (*_WHOLE, errors.MisplacedRecordError):
            raise
        except DataError:
            return None
        return record if record is not None and record.status == "ok" else None

    def finished(self, place: RecordPlace) -> RunRecord | None:
        """Return the finished, whole record at a place, of any key, or None; raises as :meth:`scored`."""
        record = self.scored(place)
        return record if record is not None and self.is_whole(place, record) else None

    def write(
        self, place: RecordPlace, record: RunRecord, predictions: Mapping[str, FloatArray] | None
    ) -> RunRecord:
        """Write predictions, then the record, each atomically; return the record as written.

        After a crash there is the old record, the new one, or one with other predictions, which
        :meth:`is_whole` detects. Raises StorageError.
        """
        path = self.path(place)
        self._check_real_folder(path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if predictions is None:
                path.with_suffix(".npz").unlink(missing_ok=True)
            else:
                payload = predictions_to_npz(predictions)
                digest = hashlib.sha256(payload).hexdigest()
                record = replace(record, predictions={"file": f"{path.stem}.npz", "sha256": digest})
                filesystem.write_atomically(path.with_suffix(".npz"), payload)
            record = integrity.seal_record(record)
            filesystem.write_atomically(path, record_to_json(record).encode("utf-8"))
        except OSError as error:
            what = f"the record can't be written: {error.strerror}"
            hint = "finished cells are kept: fix this and run the same command again"
            raise errors.StorageError(what, where=str(path), hint=hint) from error
        return record

    def predictions(self, record: RunRecord) -> dict[str, FloatArray]:
        """Return {task: float32 (pairs,)} of a record; raises DataError or UnreadableRecordError."""
        file = self.path(record.place).with_suffix(".npz")
        if record.predictions is None or not self.is_whole(record.place, record):
            what = "the predictions are missing or don't belong to their record"
            raise DataError(what, where=str(file), hint="run the cell again")
        values = parse_predictions(file, _read_content(file) or b"")
        sizes = {name: facts.get("pairs") for name, facts in record.tasks.items()}
        same_tasks = values.keys() == sizes.keys()
        if not same_tasks or any(sizes[name] not in (None, len(values[name])) for name in values):
            what = f"predictions of {', '.join(f'{name} ({len(array)})' for name, array in values.items())}"
            wanted = ", ".join(f"{name} ({size})" if size else name for name, size in sizes.items())
            raise DataError(what, where=str(file), expected=wanted, hint="run the cell again")
        return values

    @contextmanager
    def claim(self, place: RecordPlace, *, wait: bool) -> Iterator[bool]:
        """Hold the cell's lock, which ends with its process, and tidy up; yield False if another has it."""
        folder = self.root / place.folder
        self._check_real_folder(folder)
        with self._lock_folder(folder, wait=wait) as mine:
            if mine:
                _remove_temporary_files(folder, held=self.has_locks())
            yield mine

    @contextmanager
    def _lock_folder(self, folder: Path, *, wait: bool) -> Iterator[bool]:
        name = hashlib.sha256(folder.relative_to(self.root).as_posix().encode()).hexdigest()[:20]
        lock = FileLock(self.root / ".locks" / f"{name}.lock")
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError) as error:  # the second by filelock, where flock is missing
            what = f"the lock of {folder.name} can't be written: {getattr(error, 'strerror', None) or error}"
            hint = "name another folder with --results, on a file system that has locks (flock)"
            raise errors.StorageError(what, where=lock.lock_file, hint=hint) from error
        try:
            yield True
        finally:
            lock.release()

    def records(self) -> list[RunRecord]:
        """Return all records in the order of paths; raises as :meth:`scan`, and for damaged records."""
        records, damaged = self.scan()
        for error in damaged.values():
            raise error
        return records

    def scan(self, *, with_copies: bool = False) -> tuple[list[RunRecord], dict[Path, DataError]]:
        """Return all readable records in the order of paths, and the errors of the others.

        Raises InputError for an unknown campaign, NewerRecordError, and DataError for an unreadable folder.
        Copies and contradictory results of one key raise it too, unless ``with_copies`` accepts them.
        """
        if not any(self.root.glob("*/*/*/*.json")):
            check_campaign_options(self.root.parent, self.campaign)
        if not self.root.is_dir():
            parent = self.root.parent
            folders = sorted(parent.glob("*/"))
            known = ", ".join(path.name for path in folders if not path.name.startswith("."))
            what = f"no campaign '{self.campaign}'"
            expected = f"one of {known}" if known else "results of an earlier bench run"
            raise errors.InputError(what, where=str(parent), expected=expected, hint="bench run makes one")
        filesystem.check_readable(self.root)
        paths = (path for path in sorted(self.root.glob("*/*/*/*.json")) if not path.name.startswith("."))
        records, damaged = self._read_paths(paths, (errors.NewerRecordError,))
        for clash in () if with_copies else integrity.find_record_clashes(records):
            what = f"this and {self.path(clash.first.place)} {clash.what}"
            raise DataError(what, where=str(self.path(clash.second.place)), hint=clash.hint)
        return records, damaged

    def seal(self, record: RunRecord) -> None:
        """Rewrite a record of an older bench in the present schema, with key and seal."""
        content = record_to_json(integrity.seal_record(record)).encode("utf-8")
        filesystem.write_atomically(self.path(record.place), content)

    def seeds(self, place: RecordPlace) -> tuple[dict[RecordPlace, RunRecord], dict[Path, DataError]]:
        """Return the records of all seeds of one method and suite, and the errors of damaged ones.

        Raises NewerRecordError, UnsealedRecordError or UnreadableRecordError: such records may be results.
        """
        path = self.path(place)
        paths = sorted(folder / path.name for folder in _list_folder(path.parent.parent))
        records, damaged = self._read_paths(paths, _WHOLE)
        return {record.place: record for record in records}, damaged

    def row_records(self, place: RecordPlace) -> list[RunRecord]:
        """Return the readable records of all seeds and suites of a place's row."""
        folders = _list_folder(self.path(place).parent.parent)
        paths = sorted(path for folder in folders for path in folder.glob("*.json"))
        return self._read_paths([path for path in paths if not path.name.startswith(".")], ())[0]

    def _read_paths(
        self, paths: Iterable[Path], fatal: tuple[type[DataError], ...]
    ) -> tuple[list[RunRecord], dict[Path, DataError]]:
        """Read the records of some paths; collect all but the fatal errors."""
        records, damaged = list[RunRecord](), dict[Path, DataError]()
        for path in paths:
            try:
                record = self._read_path(path)
            except fatal:
                raise
            except DataError as error:
                damaged[path] = error
            else:
                if record:
                    records.append(record)
        return records, damaged


def _remove_temporary_files(folder: Path, *, held: bool) -> None:
    """Remove temporary files of a folder whose lock is ``held``; otherwise only those of ended processes."""
    for leftover in filesystem.find_temporary_files(folder):
        if held or filesystem.is_abandoned(leftover):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


def _list_folder(parent: Path) -> list[Path]:
    """Return the entries of a folder, [] if it is missing; raises UnreadableRecordError."""
    with _convert_read_errors(parent):
        return list(parent.iterdir())
    return []


def _read_content(file: Path) -> bytes | None:
    """Return the content of a file, if it exists; raises UnreadableRecordError."""
    with _convert_read_errors(file):
        return filesystem.read_regular_file(file)
    return None


@contextmanager
def _convert_read_errors(path: Path) -> Iterator[None]:
    """Ignore missing files; raise UnreadableRecordError for others, which may be whole."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        what = f"this can't be read: {error.strerror}"
        hint = "it may be whole, so nothing replaces it"
        raise errors.UnreadableRecordError(what, where=str(path), hint=hint) from error


def read_record(path: Path) -> RunRecord:
    """Read and check one record; raises DataError or one of its kinds."""
    content = _read_content(path)
    if content is None:
        raise DataError("this record can't be read: there is no such file", where=str(path))
    return _parse_valid_record(path, content)


def _parse_valid_record(path: Path, content: bytes) -> RunRecord:
    try:
        text = io.StringIO(content.decode("utf-8"), newline=None).read()  # git may have changed line ends
    except UnicodeDecodeError as error:
        raise DataError(f"this record can't be read: {error}", where=str(path)) from error
    record = parse_record(text, str(path))
    if fault := integrity.find_seal_fault(record, text) or next(integrity.find_record_faults(record), None):
        kind = errors.UnsealedRecordError if fault.check == "unsealed" else DataError
        raise kind(fault.what, where=str(path), hint=fault.hint or None)
    return record
