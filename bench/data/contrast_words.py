"""Sentences for the rules of the contrast suite, and the word lists of ``contrast.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

_WORD = re.compile(r"[^\W_]+(?:[.,:/'\u2019-][^\W_]+)*|'[a-z]+")


@dataclass(frozen=True)
class Word:
    """A replacement for a word, and the neighbours that decide where it fits."""

    new: str
    after: frozenset[str] = frozenset()  # words before it
    before: frozenset[str] = frozenset()  # words (or the sign) after it
    only: bool = False  # only these neighbours allow it; otherwise they forbid it


@dataclass(frozen=True)
class WordLists:
    """The lists in ``contrast.toml``."""

    synonyms: Mapping[str, tuple[Word, ...]]
    antonyms: Mapping[str, tuple[Word, ...]]
    closed: Mapping[str, frozenset[str]]


@cache
def load_word_lists() -> WordLists:
    """Read ``contrast.toml``."""
    data = tomllib.loads(resources.files(__package__).joinpath("contrast.toml").read_text(encoding="utf-8"))
    closed = {name: frozenset(text.split()) for name, text in data["closed"].items()}
    return WordLists(_parse_entries(data["synonyms"]), _parse_entries(data["antonyms"]), closed)


def _parse_entries(lines: list[str]) -> dict[str, tuple[Word, ...]]:
    entries: dict[str, tuple[Word, ...]] = {}
    for line in lines:
        words, _, where = line.partition("|")
        marks = where.split()
        after = frozenset(mark[1:] for mark in marks if mark[0] == "-")
        before = frozenset(mark[1:] for mark in marks if mark[0] == "+")
        one, sign, other = words.split()
        for old, new in ((one, other), (other, one)) if sign == "=" else ((one, other),):
            entries[old] = (*entries.get(old, ()), Word(new, after, before, "only" in marks))
    return entries


@dataclass(frozen=True)
class Sentence:
    """A sentence with normalised white space, and its words."""

    text: str

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Begin and end of each word."""
        return tuple(match.span() for match in _WORD.finditer(self.text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words in lower case; "" for a name, which has a capital inside the sentence."""
        words = [self.text[begin:end] for begin, end in self.spans]
        names = [place > 0 and not (word.islower() or word.isdigit()) for place, word in enumerate(words)]
        return tuple("" if name else word.lower() for name, word in zip(names, words, strict=True))

    def has(self, kind: str) -> bool:
        """Check for a word of a closed class."""
        return not load_word_lists().closed[kind].isdisjoint(self.words)

    def sign(self, place: int) -> str:
        """Return the signs between a word and the next, without blanks."""
        begin = self.spans[place][1]
        end = self.spans[place + 1][0] if place + 1 < len(self.spans) else len(self.text)
        return self.text[begin:end].strip()

    def near(self, place: int) -> tuple[str, str]:
        """Return the word before and the word or sign after, or ""."""
        before = self.words[place - 1] if place and not self.sign(place - 1) else ""
        after = self.words[place + 1] if place + 1 < len(self.words) else ""
        return before, self.sign(place) or after

    def replaced(self, changes: Mapping[tuple[int, int], str]) -> str:
        """Replace the words from one place to another (both included); a capital stays first."""
        text = self.text
        for (first, last), new in sorted(changes.items(), reverse=True):
            text = text[: self.spans[first][0]] + new + text[self.spans[last][1] :]
        start = self.spans[0][0]
        if self.text[start].isupper():
            text = f"{text[:start]}{text[start].upper()}{text[start + 1 :]}"
        return text

    def part(self, first: int, last: int) -> str:
        """Return the words from one place to another (both included), the sentence's first in lower case."""
        text = self.text[self.spans[first][0] : self.spans[last][1]]
        name = first > 0 or (text[1:2].isupper() and text[1:2].isalpha())
        return text if name else text[0].lower() + text[1:]
