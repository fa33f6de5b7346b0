"""The rules of the contrast suite: from a sentence to a paraphrase, and to another meaning.

Any doubt about words, their neighbours or the sentence's form rules an item out. Words are compared in lower
case; a capital inside a sentence marks a name, which stays. ``docs/contrast.md`` lists the rules.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

RULES = 1  # raised when a rule or a word changes; part of every task's fingerprint
LEAST_WORDS, MOST_WORDS = 4, 40
_END = re.compile(r"\s*[.!]?\s*")
_VOWELS = tuple("aeiou")
_NOT_BY_SOUND = ("hour", "honest", "honor", "honour", "heir", "uni", "use", "eu", "one", "u.")

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
        """Return the signs between a word and the next, stripped."""
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


def is_plain(sentence: Sentence) -> bool:
    """Check for a sentence that the rules apply to: 4 to 40 words, a plain statement."""
    return LEAST_WORDS <= len(sentence.words) <= MOST_WORDS and not re.search(r"[?\"“”`]|''", sentence.text)


def _find_replacements(
    sentence: Sentence, entries: Mapping[str, tuple[Word, ...]]
) -> Iterator[tuple[int, str]]:
    """Yield every place where a list allows another word, with that word."""
    for place, old in enumerate(sentence.words):
        before, after = sentence.near(place)
        for word in entries.get(old, ()):
            fits = (before in word.after or after in word.before) == word.only
            article = sentence.words[place - 1] if place else ""
            if article in ("a", "an"):  # it has to stay; doubtful sounds fail
                vowel = word.new.startswith(_VOWELS)
                fits = fits and not word.new.startswith(_NOT_BY_SOUND) and vowel == (article == "an")
            if fits and word.new not in sentence.words:
                yield place, word.new


def replace_synonym(sentence: Sentence, place: int | None = None) -> str | None:
    """Replace one word by a synonym, at ``place`` if possible; a hash of the sentence chooses."""
    synonyms = list(_find_replacements(sentence, load_word_lists().synonyms))
    synonyms = [synonym for synonym in synonyms if synonym[0] == place] or synonyms
    if not synonyms:
        return None
    chosen, new = synonyms[hashlib.sha256(sentence.text.encode()).digest()[0] % len(synonyms)]
    return sentence.replaced({(chosen, chosen): new})


def insert_negation(sentence: Sentence) -> str | None:
    """Insert "not" behind the only auxiliary, in sentences of one clause that neither deny nor quantify."""
    closed = load_word_lists().closed
    if any(map(sentence.has, ("negative", "quantified", "clauses"))):
        return None
    places = [place for place, word in enumerate(sentence.words) if word in closed["auxiliaries"]]
    if len(places) != 1 or not 0 < places[0] < len(sentence.words) - 1:
        return None
    (place,) = places
    word, (before, _) = sentence.words[place], sentence.near(place)
    nominal = word in closed["modals"] and before in closed["determiners"] | closed["prepositions"]
    if word not in closed["be"] | closed["modals"] or nominal or sentence.sign(place):
        return None
    return sentence.replaced({(place, place): f"{sentence.part(place, place)} not"})


def replace_antonym(sentence: Sentence) -> tuple[str, int] | None:
    """Replace one word by its antonym, which the sentence lacks; return the place too."""
    if sentence.has("negative"):
        return None
    for place, new in _find_replacements(sentence, load_word_lists().antonyms):
        return sentence.replaced({(place, place): new}), place
    return None


_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_OTHER_NUMBERS = dict(zip(_WORDS, (*_WORDS[2:9], *_WORDS[5:9]), strict=True))


def change_number(sentence: Sentence) -> str | None:
    """Replace the only number, of 2 to 99: 2 more or less in words, 3 more or less in digits."""
    places = [
        place
        for place, word in enumerate(sentence.words)
        if word in _OTHER_NUMBERS or any(map(str.isdigit, word)) or word == "one"
    ]
    if len(places) != 1:
        return None
    word, span = sentence.words[places[0]], (places[0], places[0])
    if word in _OTHER_NUMBERS:
        return sentence.replaced({span: _OTHER_NUMBERS[word]})
    if not (word.isascii() and word.isdecimal() and len(word) <= 2 and word[0] != "0" and word != "1"):
        return None
    more = str(int(word) + 3)
    return sentence.replaced({span: more if len(more) == len(word) else str(int(word) - 3)})


@dataclass(frozen=True)
class _NounPhrase:
    """Places of the determiner and the head of a noun phrase."""

    first: int
    head: int


def _find_noun_phrase(sentence: Sentence, first: int, ends: Callable[[str], bool]) -> _NounPhrase | None:
    """Find the noun phrase at a place: determiner, at most two words, a head before a word of ``ends``."""
    closed = load_word_lists().closed
    if first >= len(sentence.words) or sentence.words[first] not in closed["determiners"]:
        return None
    for head in range(first + 1, min(first + 4, len(sentence.words))):
        word = sentence.words[head]
        is_closed = any(word in words for name, words in closed.items() if name != "plurals")
        if not word.isalpha() or word.endswith(("ing", "ed", "ly")) or is_closed:
            return None
        at_end = head + 1 == len(sentence.words) and _END.fullmatch(sentence.text[sentence.spans[head][1] :])
        if at_end and ends(""):
            return _NounPhrase(first, head)
        after = "" if head + 1 == len(sentence.words) or sentence.sign(head) else sentence.words[head + 1]
        if after and ends(after):
            return _NounPhrase(first, head)
        if sentence.sign(head):
            return None
    return None


def _is_plural(word: str) -> bool:
    return word in load_word_lists().closed["plurals"] or (word.endswith("s") and not word.endswith("ss"))


def _ends_phrase(word: str) -> bool:
    return not word or (word != "of" and word in load_word_lists().closed["prepositions"])


def _find_subject(sentence: Sentence) -> tuple[_NounPhrase, int] | None:
    """Find the first noun phrase, and the place behind it and its "is" (captions have none)."""
    closed = load_word_lists().closed
    phrase = _find_noun_phrase(sentence, 0, lambda word: word in closed["be"] or word.endswith("ing"))
    if phrase is None:
        return None
    after = sentence.words[phrase.head + 1]
    if after not in closed["be"]:
        return phrase, phrase.head + 1
    agrees = _is_plural(sentence.words[phrase.head]) == (after in ("are", "were"))
    return (phrase, phrase.head + 2) if agrees else None


def _exchange_phrases(sentence: Sentence, subject: _NounPhrase, other: _NounPhrase | None) -> str | None:
    """Exchange two different noun phrases of the same number, otherwise return None."""
    if other is None or any(sentence.sign(place) for place in range(other.first)):
        return None
    one, two = sentence.part(subject.first, subject.head), sentence.part(other.first, other.head)
    alike = _is_plural(sentence.words[subject.head]) == _is_plural(sentence.words[other.head])
    if not alike or one.split()[1:] == two.split()[1:]:
        return None
    return sentence.replaced({(subject.first, subject.head): two, (other.first, other.head): one})


def swap_roles(sentence: Sentence) -> str | None:
    """Exchange agent and patient of "is VERBing" or "is being VERBed by", except of symmetric verbs."""
    subject_and_verb, words = _find_subject(sentence), sentence.words
    if subject_and_verb is None:
        return None
    subject, verb = subject_and_verb
    behind = (*words[verb : verb + 3], "", "", "")
    first = len(words)
    if behind[0] == "being":
        if behind[1].endswith(("ed", "en", "cut")) and behind[2] == "by":
            first = verb + 3
    elif behind[0].endswith("ing") and behind[0] not in load_word_lists().closed["symmetric"]:
        first = verb + 1
    return _exchange_phrases(sentence, subject, _find_noun_phrase(sentence, first, _ends_phrase))


def swap_places(sentence: Sentence) -> str | None:
    """Exchange the noun phrases before and after a preposition that points one way (into, under)."""
    subject_and_place = _find_subject(sentence)
    if subject_and_place is None or sentence.has("negative"):
        return None
    subject, place = subject_and_place
    while place < len(sentence.words) and sentence.words[place] not in load_word_lists().closed["one_way"]:
        place += 1
    return _exchange_phrases(sentence, subject, _find_noun_phrase(sentence, place + 1, _ends_phrase))
