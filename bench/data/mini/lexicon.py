"""The words of the mini world and their forms."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Concept:
    """Words that mean the same: synonyms, base forms or whole phrases; perhaps a more general word."""

    words: tuple[str, ...]
    general: str = ""


@dataclass(frozen=True)
class Frame:
    """An action and its possible objects."""

    verb: Concept
    objects: tuple[Concept, ...]


@dataclass(frozen=True)
class Topic:
    """Agents, actions and places of one part of the world."""

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
        """Return the plural of a noun."""
        return self.plurals.get(noun) or _add_s(noun)

    def third(self, verb: str) -> str:
        """Return the third person singular present."""
        head, particle = _split_particle(verb)
        return _add_s(head) + particle

    def gerund(self, verb: str) -> str:
        """Return the -ing form."""
        head, particle = _split_particle(verb)
        if head in self.doubled:
            return head + head[-1] + "ing" + particle
        if head.endswith("e") and not head.endswith("ee"):
            head = head[:-1]
        return head + "ing" + particle

    def preterite(self, verb: str) -> str:
        """Return the simple past."""
        return self._past_form(verb, 0)

    def participle(self, verb: str) -> str:
        """Return the past participle."""
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
    frames = [
        Frame(_parse_words(f["verbs"]), tuple(map(_parse_words, f["objects"]))) for f in table["frames"]
    ]
    agents, places = map(_parse_words, table["agents"]), map(_parse_phrases, table["places"])
    return Topic(name, tuple(table["subjects"].split()), tuple(agents), tuple(places), tuple(frames))


def _parse_words(line: str) -> Concept:
    words, _, general = line.partition(">")
    return Concept(tuple(words.split()), general.strip())


def _parse_phrases(line: str) -> Concept:
    return Concept(tuple(phrase.strip() for phrase in line.split("|")))


def _add_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _split_particle(verb: str) -> tuple[str, str]:
    head, underscore, particle = verb.partition("_")
    return head, f" {particle}" if underscore else ""
