"""Lock files of fetched texts, ``NAME.lock.json``.

SimCSE's training texts lack a published hash. The first fetch pins its content, and later ones refuse any
other. A text from another source is measured too, and marked as such.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import DataError
from bench.records.filesystem import write_atomically
from bench.schema import Block, Maybe, find_fault, is_count, is_label

WIKI1M = "wiki1m_for_simcse.txt"
NLI = "nli_for_simcse.csv"
UNPINNED = "not from the pinned source"
_TEXTS = dict.fromkeys(("file", "sha256", "date"), is_label)
_PIN = Block({**_TEXTS, "bytes": is_count, "etag": Maybe(is_label), "address": Maybe(is_label)}, closed=True)
_LONGEST = 1 << 16  # bytes of a lock file


@dataclass(frozen=True)
class Pin:
    """Facts of a text; ``etag`` and ``address`` only of a fetched one."""

    file: str
    bytes: int
    sha256: str
    date: str
    etag: str | None = None
    address: str | None = None

    @property
    def source(self) -> str:
        """Origin for records and tables."""
        return f"{self.address or UNPINNED}, sha256 {self.sha256}"


def lock_file(text: Path) -> Path:
    """Return the lock file of a text."""
    return text.with_suffix(".lock.json")


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def measure_text(text: Path, *, address: str | None = None, etag: str | None = None) -> Pin:
    """Measure a text; ``address`` is that of a fetch just now."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Pin(text.name, text.stat().st_size, hash_file(text), date, etag, address)


def write_pin(text: Path, pin: Pin) -> None:
    """Write the lock file of a text of that name; raises OSError."""
    write_atomically(lock_file(text), (json.dumps(asdict(pin), indent=1) + "\n").encode())


def read_pin(text: Path) -> Pin | None:
    """Return the contents of the lock file, if there is one; raises DataError for a damaged one."""
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
        hint = f"delete it, and {text.name} is '{UNPINNED}'"
        raise DataError(f"this lock file is damaged: {error}", where=str(path), hint=hint) from error
    return Pin(**facts)


def unpinned_note(name: str) -> str:
    """Return the note of tables on a text from another source than the pinned one."""
    return f"The training text {name} is {UNPINNED}."


def check_pin(text: Path, sha256: str) -> str:
    """Return the origin of a text with that hash, "" without a pinned source; raises DataError."""
    pin = read_pin(text)
    if pin is None:
        return f"{UNPINNED}, sha256 {sha256}" if text.name in (WIKI1M, NLI) else ""
    if pin.sha256 != sha256:
        what = f"this is not the text that was pinned on {pin.date[:10]}: its sha256 is {sha256}"
        hint = f"delete it and fetch it again; to accept it as it is, delete {lock_file(text)}"
        raise DataError(what, where=str(text), expected=pin.sha256, hint=hint)
    return pin.source
