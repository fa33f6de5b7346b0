"""The words of the mini world and their forms."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Concept:
    """Words that mean the same.

    Args:
        words: Synonyms, base forms or whole phrases.
        general: A more general word, "" for none.
    """

    words: tuple[str, ...]
    general: str = ""


@dataclass(frozen=True)
class Frame:
    """An action and what it can be done to."""

    verb: Concept
    objects: tuple[Concept, ...]


@dataclass(frozen=True)
class Topic:
    """Who does what where in one part of the world."""

    name: str
    subjects: tuple[str, ...]
    agents: tuple[Concept, ...]
    places: tuple[Concept, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Lexicon:
    """All words, and the irregular forms."""

    topics: tuple[Topic, ...]
    numbers: tuple[Concept, ...]
    qualities: tuple[Concept, ...]
    times: tuple[Concept, ...]
    openers: tuple[str, ...]
    reporters: tuple[str, ...]
    sayings: tuple[str, ...]
    past: dict[str, tuple[str, str]]
    doubled: frozenset[str]
    plurals: dict[str, str]

    def plural(self, noun: str) -> str:
        """Plural of a noun."""
        if noun in self.plurals:
            return self.plurals[noun]
        if noun.endswith(("s", "x", "z", "ch", "sh")):
            return noun + "es"
        if noun.endswith("y") and noun[-2] not in "aeiou":
            return noun[:-1] + "ies"
        return noun + "s"

    def third(self, verb: str) -> str:
        """Third person singular present."""
        head, particle = _split_particle(verb)
        if head.endswith(("s", "x", "z", "ch", "sh")):
            return head + "es" + particle
        if head.endswith("y") and head[-2] not in "aeiou":
            return head[:-1] + "ies" + particle
        return head + "s" + particle

    def gerund(self, verb: str) -> str:
        """The -ing form."""
        head, particle = _split_particle(verb)
        if head in self.doubled:
            return head + head[-1] + "ing" + particle
        if head.endswith("e") and not head.endswith("ee"):
            head = head[:-1]
        return head + "ing" + particle

    def preterite(self, verb: str) -> str:
        """Simple past."""
        return self._past_form(verb, 0)

    def participle(self, verb: str) -> str:
        """Past participle."""
        return self._past_form(verb, 1)

    def _past_form(self, verb: str, form: int) -> str:
        if verb in self.past:
            return self.past[verb][form].replace("_", " ")
        head, particle = _split_particle(verb)
        if head in self.doubled:
            return head + head[-1] + "ed" + particle
        if head.endswith("e"):
            return head + "d" + particle
        if head.endswith("y") and head[-2] not in "aeiou":
            return head[:-1] + "ied" + particle
        return head + "ed" + particle


@cache
def load_lexicon() -> Lexicon:
    """Read ``lexicon.toml``."""
    text = resources.files(__package__).joinpath("lexicon.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    general, irregular = data.pop("general"), data.pop("irregular")
    past = [line.split() for line in irregular["past"]]
    return Lexicon(
        tuple(_parse_topic(name, table) for name, table in data.items()),
        tuple(map(_parse_phrases, general["numbers"])),
        tuple(map(_parse_phrases, general["qualities"])),
        tuple(map(_parse_phrases, general["times"])),
        tuple(general["openers"]),
        tuple(general["reporters"]),
        tuple(general["sayings"]),
        {base: (preterite, participle) for base, preterite, participle in past},
        frozenset(irregular["doubled"]),
        dict(line.split() for line in irregular["plurals"]),
    )


def _parse_topic(name: str, table: dict[str, Any]) -> Topic:
    return Topic(
        name,
        tuple(table["subjects"].split()),
        tuple(map(_parse_words, table["agents"])),
        tuple(map(_parse_phrases, table["places"])),
        tuple(
            Frame(_parse_words(f["verbs"]), tuple(map(_parse_words, f["objects"]))) for f in table["frames"]
        ),
    )


def _parse_words(line: str) -> Concept:
    words, _, general = line.partition(">")
    return Concept(tuple(words.split()), general.strip())


def _parse_phrases(line: str) -> Concept:
    return Concept(tuple(phrase.strip() for phrase in line.split("|")))


def _split_particle(verb: str) -> tuple[str, str]:
    head, underscore, particle = verb.partition("_")
    return head, f" {particle}" if underscore else ""
