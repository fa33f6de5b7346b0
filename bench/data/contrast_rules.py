"""The rules of the contrast suite: from a sentence to a paraphrase, and to what no longer says the same.

Every rule is sure or silent: where its words, their neighbours or the sentence's form leave a doubt, there is
no item. Words are compared in lower case; a capital inside a sentence makes a name, which no rule touches.
``docs/contrast.md`` lists the rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.data.contrast_words import Sentence, Word, load_word_lists

RULES = 1
"""Raised when a rule or a word changes; part of every task's fingerprint."""
LEAST_WORDS, MOST_WORDS = 4, 40
_END = re.compile(r"\s*[.!]?\s*")
_VOWELS = tuple("aeiou")
_NOT_BY_SOUND = ("hour", "honest", "honor", "honour", "heir", "uni", "use", "eu", "one", "u.")


def is_plain(sentence: Sentence) -> bool:
    """True if the rules look at a sentence at all: 4 to 40 words, no question and no quotation."""
    return LEAST_WORDS <= len(sentence.words) <= MOST_WORDS and not re.search(r"[?\"“”`]|''", sentence.text)


def _article_fits(sentence: Sentence, place: int, new: str) -> bool:
    """True unless "a" or "an" before a word would have to change; doubtful sounds never fit."""
    before = sentence.words[place - 1] if place else ""
    if before not in ("a", "an"):
        return True
    return not new.startswith(_NOT_BY_SOUND) and new.startswith(_VOWELS) == (before == "an")


def _find_replacements(
    sentence: Sentence, entries: Mapping[str, tuple[Word, ...]]
) -> Iterator[tuple[int, str]]:
    """Every place where a list allows another word, with that word."""
    for place, old in enumerate(sentence.words):
        for word in entries.get(old, ()):
            before, after = sentence.near(place)
            met = before in word.after or after in word.before
            if (
                met == word.only
                and word.new not in sentence.words
                and _article_fits(sentence, place, word.new)
            ):
                yield place, word.new


def replace_synonym(sentence: Sentence, place: int | None = None) -> str | None:
    """The sentence with one word replaced by a synonym: that at ``place`` if it has one, else any.

    Which one follows from the sentence alone, by a hash: else every second item would say "guy" for "man".
    """
    found = list(_find_replacements(sentence, load_word_lists().synonyms))
    found = [one for one in found if one[0] == place] or found
    if not found:
        return None
    chosen, new = found[hashlib.sha256(sentence.text.encode()).digest()[0] % len(found)]
    return sentence.replaced({(chosen, chosen): new})


def insert_negation(sentence: Sentence) -> str | None:
    """The sentence with "not" behind its only auxiliary, a form of be or a modal.

    No item where anything else denies, quantifies or opens a clause, or where "can" or "will" may be a noun.
    """
    closed = load_word_lists().closed
    if any(map(sentence.has, ("negative", "quantified", "clauses"))):
        return None
    places = [place for place, word in enumerate(sentence.words) if word in closed["auxiliaries"]]
    if len(places) != 1 or not 0 < places[0] < len(sentence.words) - 1:
        return None
    (place,) = places
    word, (before, _) = sentence.words[place], sentence.near(place)
    nominal = word in closed["modals"] and (
        before in closed["determiners"] or before in closed["prepositions"]
    )
    if word not in closed["be"] | closed["modals"] or nominal or sentence.sign(place):
        return None
    return sentence.replaced({(place, place): f"{sentence.part(place, place)} not"})


def replace_antonym(sentence: Sentence) -> tuple[str, int] | None:
    """One word replaced by its antonym, which the sentence doesn't have; and which word it was."""
    if sentence.has("negative"):
        return None
    for place, new in _find_replacements(sentence, load_word_lists().antonyms):
        return sentence.replaced({(place, place): new}), place
    return None


_OTHER_NUMBERS = dict(
    zip(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
        ["four", "five", "six", "seven", "eight", "nine", "ten", "seven", "eight", "nine", "ten"],
        strict=True,
    )
)


def change_number(sentence: Sentence) -> str | None:
    """The only number, of 2 to 99, replaced by another: 2 more or less in words, 3 more or less in digits."""
    found = [
        (place, word)
        for place, word in enumerate(sentence.words)
        if word in _OTHER_NUMBERS or any(sign.isdigit() for sign in word) or word == "one"
    ]
    if len(found) != 1:
        return None
    ((place, word),) = found
    if word in _OTHER_NUMBERS:
        return sentence.replaced({(place, place): _OTHER_NUMBERS[word]})
    if not (word.isascii() and word.isdecimal() and len(word) <= 2 and word[0] != "0" and word != "1"):
        return None
    more = int(word) + 3
    return sentence.replaced({(place, place): str(more if len(str(more)) == len(word) else int(word) - 3)})


def _is_closed(word: str) -> bool:
    """True for a word that no noun phrase has behind its determiner."""
    return any(word in words for name, words in load_word_lists().closed.items() if name != "plurals")


@dataclass(frozen=True)
class _NounPhrase:
    """A noun phrase: the places of its determiner and of its head."""

    first: int
    head: int


def _find_noun_phrase(sentence: Sentence, first: int, ends: Callable[[str], bool]) -> _NounPhrase | None:
    """The noun phrase that begins at a place: a determiner, at most two words, and a head before an end.

    Args:
        sentence: The sentence.
        first: Place of the determiner.
        ends: Whether the word behind the head ends a noun phrase; of the sentence's end "".
    """
    closed = load_word_lists().closed
    if first >= len(sentence.words) or sentence.words[first] not in closed["determiners"]:
        return None
    for head in range(first + 1, min(first + 4, len(sentence.words))):
        word = sentence.words[head]
        if not word.isalpha() or word.endswith(("ing", "ed", "ly")) or _is_closed(word):
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
    """The noun phrase that a sentence begins with, and the place behind it, or behind the "is" behind it.

    A form of be agrees with the noun; without one a verb in -ing follows, as in captions.
    """
    closed = load_word_lists().closed

    def ends(word: str) -> bool:
        return word in closed["be"] or word.endswith("ing")

    found = _find_noun_phrase(sentence, 0, ends)
    if found is None:
        return None
    after = sentence.words[found.head + 1]
    if after not in closed["be"]:
        return found, found.head + 1
    agrees = _is_plural(sentence.words[found.head]) == (after in ("are", "were"))
    return (found, found.head + 2) if agrees else None


def _exchange_phrases(sentence: Sentence, subject: _NounPhrase, other: _NounPhrase | None) -> str | None:
    """The sentence with two noun phrases in each other's place; None unless they differ, in one number."""
    if other is None or any(sentence.sign(place) for place in range(other.first)):
        return None
    one, two = sentence.part(subject.first, subject.head), sentence.part(other.first, other.head)
    alike = _is_plural(sentence.words[subject.head]) == _is_plural(sentence.words[other.head])
    if not alike or one.split()[1:] == two.split()[1:]:
        return None
    return sentence.replaced({(subject.first, subject.head): two, (other.first, other.head): one})


def swap_roles(sentence: Sentence) -> str | None:
    """Who does it and to whom it is done trade places: "DET noun is VERBing DET noun", "is being VERBed by".

    The second noun phrase ends the sentence or stands before a preposition. Verbs whose two sides may trade
    places (meeting, kissing) give no item.
    """
    found, words = _find_subject(sentence), sentence.words
    if found is None:
        return None
    subject, verb = found
    if words[verb : verb + 1] == ("being",):
        passive = words[verb + 1 : verb + 2] and words[verb + 1].endswith(("ed", "en", "cut"))
        first = verb + 3 if passive and words[verb + 2 : verb + 3] == ("by",) else len(words)
    else:
        active = words[verb : verb + 1] and words[verb].endswith("ing")
        sure = active and words[verb] not in load_word_lists().closed["symmetric"]
        first = verb + 1 if sure else len(words)
    return _exchange_phrases(sentence, subject, _find_noun_phrase(sentence, first, _ends_phrase))


def swap_places(sentence: Sentence) -> str | None:
    """The noun phrases before and after a preposition that points one way (into, under) trade places."""
    found = _find_subject(sentence)
    if found is None or sentence.has("negative"):
        return None
    subject, place = found
    while place < len(sentence.words) and sentence.words[place] not in load_word_lists().closed["one_way"]:
        place += 1
    return _exchange_phrases(sentence, subject, _find_noun_phrase(sentence, place + 1, _ends_phrase))
