"""What a fetched text was when it came: its lock file, ``NAME.lock.json`` beside it.

No hash of SimCSE's training texts was ever published. The first fetch writes down what it got; from then on
another content is refused. A text that somebody else put there is measured the same way, and is said to be
just that.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import DataError
from bench.records.filesystem import write_atomically
from bench.schema import Block, Maybe, find_fault, is_count, is_label

WIKI1M = "wiki1m_for_simcse.txt"
NLI = "nli_for_simcse.csv"
UNPINNED = "not from the pinned source"
_PIN = Block(
    {
        "file": is_label,
        "bytes": is_count,
        "sha256": is_label,
        "date": is_label,
        "etag": Maybe(is_label),
        "address": Maybe(is_label),
    },
    closed=True,
)
_LONGEST = 1 << 16  # bytes of a lock file


@dataclass(frozen=True)
class Pin:
    """A text as it was measured.

    Args:
        file: Its name.
        bytes: Its size.
        sha256: Of the file as it is.
        date: When it was measured.
        etag: What the server called this version, None for a text that was not fetched.
        address: Where it came from, None for a text that was not fetched.
    """

    file: str
    bytes: int
    sha256: str
    date: str
    etag: str | None = None
    address: str | None = None

    @property
    def source(self) -> str:
        """Where it is from, as records and tables say it."""
        return f"{self.address or UNPINNED}, sha256 {self.sha256}"


def lock_file(text: Path) -> Path:
    """The lock file of a text."""
    return text.with_suffix(".lock.json")


def measure_text(text: Path, *, address: str | None = None, etag: str | None = None) -> Pin:
    """Measure a text; an address says where it was fetched from just now."""
    with text.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        size = os.fstat(stream.fileno()).st_size
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Pin(text.name, size, sha256, date, etag, address)


def write_pin(text: Path, pin: Pin) -> None:
    """Write the lock file of a text that is to be there under that name; raises OSError."""
    write_atomically(lock_file(text), (json.dumps(asdict(pin), indent=1) + "\n").encode())


def read_pin(text: Path) -> Pin | None:
    """Return what the lock file says, None where none can be read; raises DataError for a damaged one."""
    path = lock_file(text)
    try:
        with path.open("rb") as stream:
            raw = stream.read(_LONGEST)
    except OSError:
        return None
    try:
        facts = json.loads(raw.decode("utf-8"))
        if place := find_fault(facts, _PIN):
            raise ValueError(f"'{place}' is missing, unknown or of another type")
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"this lock file is damaged: {error}",
            where=str(path),
            hint=f"delete it, and {text.name} is '{UNPINNED}'",
        ) from error
    return Pin(**facts)


def unpinned_note(name: str) -> str:
    """What tables say of a text of that name that is not from the pinned source."""
    return f"The training text {name} is {UNPINNED}."


def check_pin(text: Path, sha256: str) -> str:
    """Return where a text is from, as records say it; "" for one that never had a pinned source.

    Args:
        text: The file.
        sha256: Of its bytes as they are now.

    Raises:
        DataError: it isn't what its lock file says, or that file is damaged.
    """
    pin = read_pin(text)
    if pin is None:
        return f"{UNPINNED}, sha256 {sha256}" if text.name in (WIKI1M, NLI) else ""
    if pin.sha256 != sha256:
        raise DataError(
            f"this is not the text that was pinned on {pin.date[:10]}: its sha256 is {sha256}",
            where=str(text),
            expected=pin.sha256,
            hint=f"delete it and fetch it again; to accept it as it is, delete {lock_file(text)}",
        )
    return pin.source
