"""Training text: one sentence a line, with its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.data import pins
from bench.data.lines import numbered
from bench.errors import DataError, InputError


@dataclass(frozen=True)
class Corpus:
    """A training text.

    Args:
        name: File name, for records.
        sentences: Sentences, in the file's order.
        sha256: Over the sentences, so that a changed line changes every key built on it.
        world: {"generator", "split", "seed"} if it comes from the mini world.
        source: Where the file is from, see :func:`bench.data.pins.check`; "" where nothing is known of it.
        partners: The positive of each sentence, of a file of pairs.
        negatives: The hard negative of each, of a file of triplets.
    """

    name: str
    sentences: tuple[str, ...]
    sha256: str
    world: dict[str, int] | None = None
    source: str = ""
    partners: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()


def make_corpus(name: str, sentences: Sequence[str], world: dict[str, int] | None = None) -> Corpus:
    """Return a training text with its fingerprint; raises InputError for a name that can't be printed."""
    if not name.isprintable():
        raise InputError(f"the name {name!a} can't be printed", where="training text", hint="rename the file")
    digest = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    return Corpus(name, tuple(sentences), digest, world)


def read_corpus(path: Path, exclude: tuple[int, int] | None = None) -> Corpus:
    """Read a UTF-8 text, a sentence a line, empty lines left out.

    Args:
        path: The file.
        exclude: First and last line (from 1) to leave out.

    Raises:
        DataError: missing, not what its lock file says, not UTF-8 (with the line), or without a sentence.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the training text can't be read: {error.strerror}", where=str(path)) from error
    source = pins.check(path, hashlib.sha256(raw).hexdigest())
    first, last = exclude or (0, 0)
    kept = (b"" if first <= number <= last else line for number, line in enumerate(raw.split(b"\n"), start=1))
    sentences = [sentence for _, sentence in numbered(kept, str(path)) if sentence]
    if not sentences:
        raise DataError("the training text is empty", where=str(path))
    return replace(make_corpus(path.name, sentences), source=source)
