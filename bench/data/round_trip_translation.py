"""Round-trip translated copies of a training text, made in parts.

``NAME.en-X-en.txt`` has a line a sentence, in the text's order; ``NAME.en-X-en.json`` is its provenance.
Fingerprints of text and copy are those of :func:`bench.data.corpus.make_corpus`, as in records.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from bench.data.corpus import Corpus, make_corpus
from bench.encoder import Progress
from bench.errors import DataError, InputError
from bench.records.filesystem import write_atomically

MADE_BY = "bench data rtt"
VERSION = 1  # raised when the same models and settings give other lines


@dataclass(frozen=True)
class Translated:
    """Translations, one for each sentence and in their order; "" for an empty output."""

    texts: list[str]
    truncated: int = 0  # sentences that were longer than the model takes
    unfinished: int = 0  # translations that were cut at the longest length


class Translator(Protocol):
    """One direction."""

    def __call__(self, sentences: Sequence[str], progress: Progress | None = None) -> Translated:
        """Translate; ``progress`` is called with finished sentences."""


@dataclass(frozen=True)
class RoundTrip:
    """One copy of a training text, English to a pivot language and back."""

    corpus: Corpus
    pivot: str  # code of the pivot language
    out: Path  # folder of the copy; a hidden folder there holds finished parts
    models: Sequence[Mapping[str, Any]]  # facts of the two models, there and back, with fingerprints
    settings: Mapping[str, Any]  # with corpus, pivot, models and chunk they determine the lines
    versions: Mapping[str, str | None]  # of packages; other versions start over, unless the copy is finished
    chunk: int  # sentences a part

    @property
    def text(self) -> Path:
        """The copy's file."""
        return self.out / f"{self._file_stem}.txt"

    @property
    def provenance(self) -> Path:
        """The file with the origin of the copy."""
        return self.out / f"{self._file_stem}.json"

    @property
    def parts(self) -> Path:
        """Folder of the finished parts; its name holds the hash of all that they depend on."""
        identity = json.dumps({**self.identity(), "versions": dict(self.versions)}, sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return self.out / f".{self._file_stem}.{digest[:16]}.parts"

    def identity(self) -> dict[str, Any]:
        """Return the facts that determine the lines."""
        corpus = self.corpus
        return {
            "made_by": MADE_BY,
            "version": VERSION,
            "corpus": {"name": corpus.name, "sha256": corpus.sha256, "lines": len(corpus.sentences)},
            "pivot": self.pivot,
            "models": [dict(model) for model in self.models],
            "settings": {**self.settings, "chunk": self.chunk},
        }

    def finished(self) -> dict[str, Any] | None:
        """Return the provenance of the finished copy, or None; raises InputError for another file there."""
        if not self.text.exists():
            return None
        where, hint = str(self.text), "move it away, or name another --out"
        facts = read_provenance(self.text)
        if facts is None:
            raise InputError("this file was not made by bench data rtt", where=where, hint=hint)
        current = self.identity()
        differences = [_format_difference(name, facts.get(name), value) for name, value in current.items()]
        if any(differences):
            what = f"the copy here was made otherwise ({'; '.join(filter(None, differences))})"
            raise InputError(what, where=where, hint=hint)
        if _hash_copy(self.text) != facts["copy"]["sha256"]:
            raise InputError("the copy was changed since it was made", where=where, hint=hint)
        return facts

    def pending(self) -> int:
        """Return the number of sentences that still have to be translated."""
        chunks = self._split_chunks()
        return sum(len(chunk) for number, chunk in chunks if self._read_part(number, chunk) is None)

    def abandoned(self) -> list[Path]:
        """Return the unused folders of parts of this name, which were made otherwise."""
        folders = self.out.glob(f".{escape(self._file_stem)}.*.parts")
        return sorted(path for path in folders if path != self.parts)

    def run(
        self, load: Callable[[], tuple[Translator, Translator]], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Translate the rest, put the copy and its provenance in place, and return the provenance.

        ``progress`` is called with finished translations, two a sentence. Raises InputError.
        """
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            with FileLock(self.out / f".{self._file_stem}.lock", timeout=0):
                return self.finished() or self._make_copy(load, progress)
        except Timeout as error:
            raise InputError("another process is making this copy", where=str(self.text)) from error
        except OSError as error:
            what, where = f"can't be written: {error.strerror or error}", str(self.out)
            hint = "finished parts are kept: fix this and run the same command again"
            raise InputError(what, where=where, hint=hint) from error

    def _make_copy(
        self, load: Callable[[], tuple[Translator, Translator]], progress: Progress | None
    ) -> dict[str, Any]:
        self.parts.mkdir(exist_ok=True)
        translators: tuple[Translator, Translator] | None = None
        parts = []
        for number, chunk in self._split_chunks():
            part = self._read_part(number, chunk)
            if part is None:
                translators = translators or load()
                part = _translate_chunk(chunk, translators, progress)
                write_atomically(self._part_path(number), json.dumps(part, ensure_ascii=False).encode())
            parts.append(part)
        lines, total = list[str](), Counter[str]()
        for part in parts:
            lines += part["lines"]
            total.update(part["counts"])
        facts = {
            **self.identity(),
            "versions": dict(self.versions),
            "copy": {"file": self.text.name, "sha256": _hash_lines(lines), "lines": len(lines), **total},
            "seconds": round(sum(part["seconds"] for part in parts), 1),
        }
        # the text last, so that it always has its provenance
        write_atomically(self.provenance, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
        write_atomically(self.text, ("\n".join(lines) + "\n").encode())
        shutil.rmtree(self.parts)
        return facts

    @property
    def _file_stem(self) -> str:
        return f"{Path(self.corpus.name).stem}.en-{self.pivot}-en"

    def _split_chunks(self) -> list[tuple[int, Sequence[str]]]:
        sentences = self.corpus.sentences
        starts = range(0, len(sentences), self.chunk)
        return [(number, sentences[start : start + self.chunk]) for number, start in enumerate(starts)]

    def _part_path(self, number: int) -> Path:
        return self.parts / f"{number:06}.json"

    def _read_part(self, number: int, chunk: Sequence[str]) -> dict[str, Any] | None:
        """Return a finished part, or None for a missing or damaged one."""
        try:
            part: dict[str, Any] = json.loads(self._part_path(number).read_text(encoding="utf-8"))
            whole = len(part["lines"]) == len(chunk) and part["sha256"] == _hash_lines(part["lines"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return part if whole else None


def read_provenance(text: Path) -> dict[str, Any] | None:
    """Return the provenance ``NAME.json`` of a copy ``NAME.txt``, if there is one; raises DataError."""
    path = text.with_suffix(".json")
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or facts.get("made_by") != MADE_BY:
            return None
        for block in ("corpus", "copy"):
            if not isinstance(facts[block]["sha256"], str):
                raise TypeError(block)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the provenance next to the copy can't be read: {type(error).__name__} {error}"
        raise DataError(what, where=str(path), hint="make the copy again with bench data rtt") from error
    return facts


def check_copy(text: Path) -> bool:
    """Check a copy against its provenance, False if that is missing; raises DataError for a changed copy."""
    if (facts := read_provenance(text)) is None:
        return False
    if _hash_copy(text) != facts["copy"]["sha256"]:
        expected = f"sha256 {facts['copy']['sha256'][:12]}, as its provenance says"
        raise DataError("the copy was changed since it was made", where=str(text), expected=expected)
    return True


def _translate_chunk(
    sentences: Sequence[str], translators: tuple[Translator, Translator], progress: Progress | None
) -> dict[str, Any]:
    """Translate there and back; a sentence stands for its own empty translation."""
    started = time.monotonic()
    there, back = translators
    first = there(sentences, progress)
    full = [index for index, text in enumerate(first.texts) if text]
    if progress and len(full) < len(sentences):
        progress(len(sentences) - len(full))
    second = back([first.texts[index] for index in full], progress)
    lines = list(sentences)
    for index, text in zip(full, second.texts, strict=True):
        lines[index] = text or lines[index]
    counts = {"empty": len(sentences) - sum(bool(text) for text in second.texts)}
    for hop, done in (("there", first), ("back", second)):
        counts |= {f"truncated_{hop}": done.truncated, f"unfinished_{hop}": done.unfinished}
    seconds = time.monotonic() - started
    return {"lines": lines, "sha256": _hash_lines(lines), "counts": counts, "seconds": seconds}


def _format_difference(name: str, then: Any, now: Any) -> str:
    if then == now:
        return ""
    if name != "settings" or not isinstance(then, dict):
        return f"other {name}"
    keys = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    return ", ".join(f"{key} then {then.get(key)}, now {now.get(key)}" for key in keys)


def _hash_lines(lines: Sequence[str]) -> str:
    return make_corpus("", lines).sha256


def _hash_copy(text: Path) -> str:
    return hashlib.sha256(text.read_bytes().removesuffix(b"\n")).hexdigest()
