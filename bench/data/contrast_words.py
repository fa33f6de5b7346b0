"""Sentences as the rules of the contrast suite see them, and the lists of words in ``contrast.toml``."""

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
    """What may take a word's place, and where.

    Args:
        new: The other word.
        after: Words before it that decide.
        before: Words (or the sign) after it that decide.
        only: They are the only neighbours that allow it; else those that forbid it.
    """

    new: str
    after: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    only: bool = False


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
    found: dict[str, tuple[Word, ...]] = {}
    for line in lines:
        words, _, where = line.partition("|")
        marks = where.split()
        after, before = (frozenset(m[1:] for m in marks if m[0] == sign) for sign in "-+")
        one, sign, other = words.split()
        for old, new in ((one, other), (other, one)) if sign == "=" else ((one, other),):
            found[old] = (*found.get(old, ()), Word(new, after, before, "only" in marks))
    return found


@dataclass(frozen=True)
class Sentence:
    """A sentence and its words.

    Args:
        text: The sentence, white space normalised.
    """

    text: str

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where each word stands."""
        return tuple(match.span() for match in _WORD.finditer(self.text))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words in lower case; of a name, which has a capital inside the sentence, an empty text."""
        raw = [self.text[begin:end] for begin, end in self.spans]
        return tuple(
            word.lower() if word.islower() or word.isdigit() or not place else ""
            for place, word in enumerate(raw)
        )

    def has(self, kind: str) -> bool:
        """True if any word is of a closed class."""
        return not load_word_lists().closed[kind].isdisjoint(self.words)

    def sign(self, place: int) -> str:
        """What stands between a word and the next, without blanks."""
        begin = self.spans[place][1]
        end = self.spans[place + 1][0] if place + 1 < len(self.spans) else len(self.text)
        return self.text[begin:end].strip()

    def near(self, place: int) -> tuple[str, str]:
        """The word before and the word or sign after; "" where there is none."""
        before = self.words[place - 1] if place and not self.sign(place - 1) else ""
        after = self.words[place + 1] if place + 1 < len(self.words) else ""
        return before, self.sign(place) or after

    def replaced(self, changes: Mapping[tuple[int, int], str]) -> str:
        """The sentence with other words from one place to another (both included); a capital stays first."""
        text = self.text
        for (first, last), new in sorted(changes.items(), reverse=True):
            text = text[: self.spans[first][0]] + new + text[self.spans[last][1] :]
        start = self.spans[0][0]
        if self.text[start].isupper():
            text = f"{text[:start]}{text[start].upper()}{text[start + 1 :]}"
        return text

    def part(self, first: int, last: int) -> str:
        """The words from one place to another (both included), the sentence's first in lower case."""
        text = self.text[self.spans[first][0] : self.spans[last][1]]
        name = first > 0 or (text[1:2].isupper() and text[1:2].isalpha())
        return text if name else text[0].lower() + text[1:]
