"""Clusters of test items that share a sentence, the sampling units of statistics over items.

Two sentences are equal but for case, blanks and punctuation: encoders score them alike, and data sets copied
from one another differ in blanks and full stops.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

VERSION = 1
"""Raised when the clusters of the same texts change; part of the hash of kept draws."""

Texts = Sequence[Sequence[str]]
"""The texts of each item, and marks of its sources from :func:`mark_source`."""
_SOURCE = "\0source"


def mark_source(name: str, number: int) -> str:
    """Return a text for items from one source, such as the translations of a pair; no sentence equals it.

    >>> cluster_items([[("a", mark_source("row", 1)), ("b",)], [("c", mark_source("row", 1))]])[1].tolist()
    [0]
    """
    return f"{_SOURCE} {name} {number}"


def identify_sentence(sentence: str) -> str:
    """Return a sentence in one case without blanks and punctuation; one of punctuation stays whole.

    A mark of a source stays as it is.

    >>> identify_sentence("A man is playing.") == identify_sentence("a man  is playing")
    True
    >>> identify_sentence("?!")
    '?!'
    """
    if sentence.startswith(_SOURCE):
        return sentence
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(filter(_is_kept, folded)) or folded


def _is_kept(char: str) -> bool:
    """True for letters with their vowel signs and accents, digits and symbols."""
    return char.isalnum() or unicodedata.category(char)[0] in "MS"


def cluster_items(parts: Sequence[Texts | int]) -> list[NDArray[np.intp]]:
    """Return (items,) numbers of clusters for each part; shared sentences link items, over parts too.

    A part may be the number of its items, if their texts are unknown: each is then a cluster. Numbers count
    from 0 in the order of the clusters' first items.

    >>> first = [("a b", "c"), ("d", "e"), ("A  B.", "f")]
    >>> [labels.tolist() for labels in cluster_items([first, [("g", "h"), ("e", "i")], 2])]
    [[0, 1, 0], [2, 1], [3, 4]]
    """
    parents: list[int] = []
    numbers: dict[str, int] = {}
    sentence_of_item: list[int] = []
    for part in parts:
        if isinstance(part, int):
            alone = range(len(parents), len(parents) + part)
            parents.extend(alone)
            sentence_of_item.extend(alone)
            continue
        for texts in part:
            sentences = [_number_sentence(text, numbers, parents) for text in texts]
            roots = [_find_root(parents, number) for number in sentences]
            for root in roots:
                parents[root] = min(roots)
            sentence_of_item.append(sentences[0])
    clusters: dict[int, int] = {}
    labels = []
    for number in sentence_of_item:
        labels.append(clusters.setdefault(_find_root(parents, number), len(clusters)))
    sizes = [part if isinstance(part, int) else len(part) for part in parts]
    ends = np.cumsum(sizes)[:-1]
    return np.split(np.array(labels, dtype=np.intp), ends)


def _number_sentence(text: str, numbers: dict[str, int], parents: list[int]) -> int:
    """Return the number of a sentence; a new one is the root of its own tree."""
    number = numbers.setdefault(identify_sentence(text), len(parents))
    if number == len(parents):
        parents.append(number)
    return number


def _find_root(parents: list[int], number: int) -> int:
    """Return the root of a sentence's tree, its smallest number, and halve the way to it."""
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = parents[number]
    return number
