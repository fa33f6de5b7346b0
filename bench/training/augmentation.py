"""Texts made from a sentence's own tokens: repetition (ESimCSE), spans (cropping), edits (PCL), deletion."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

_WORD = re.compile(r"\w+|[^\w\s]")
RULES = ("released", "paper")
_MOST = 10
EDITS = ("sf", "rv", "de", "rp", "dp")
"""Released names: shuffled, reversed, some deleted, some repeated, and the row itself."""


def repetition_bound(length: int, rate: float, rule: str = "released") -> int:
    """Return the largest number of repeated subwords in a row of ``length`` ids.

    ``released``: c - 1 with c = min(10, floor(rate * n)), n = ``length``. ``paper``: max(2, floor(rate * N)),
    N = n - 2 subwords. Both are at most n - 2. Raises ValueError for an unknown rule.
    """
    subwords = max(0, length - 2)
    if rule == "released":
        return min(subwords, max(0, min(_MOST, int(rate * length)) - 1))
    if rule == "paper":
        return min(subwords, max(2, int(rate * subwords)))
    raise ValueError(f"rule {rule!r}; expected one of {', '.join(RULES)}")


def repeat_subwords(
    row: Sequence[int], rate: float, draw: torch.Generator, rule: str = "released"
) -> list[int]:
    """Return the row with some of its subwords repeated (Wu et al. 2022, ESimCSE: word repetition).

    r is uniform on 0 ... :func:`repetition_bound`; r distinct positions are drawn from 1 ... n - 2, so that
    both specials stay single. The row may exceed the maximal length. Raises ValueError for an unknown rule.
    """
    bound = repetition_bound(len(row), rate, rule)
    if not bound:
        return list(row)
    count = int(torch.randint(bound + 1, (), generator=draw))
    places = {1 + place for place in torch.randperm(len(row) - 2, generator=draw)[:count].tolist()}
    return [token for place, token in enumerate(row) for _ in range(2 if place in places else 1)]


def repeat_words(sentence: str, rate: float, draw: torch.Generator) -> str:
    """Return the sentence with some of its words repeated (ESimCSE's released ``dup_type=word``).

    Single blanks separate words. r is uniform on 0 ... c - 1, c = min(10, n, max(2, floor(rate n))) of n
    words; r distinct ones are drawn from all but the last. A rate of 0 repeats none, where the released code
    takes c = 2.
    """
    words = sentence.split(" ")
    if not rate or len(words) == 1:
        return sentence
    bound = min(_MOST, len(words), max(2, int(rate * len(words))))
    count = int(torch.randint(bound, (), generator=draw))
    twice = set(torch.randperm(len(words) - 1, generator=draw)[:count].tolist())
    return " ".join(f"{word} {word}" if place in twice else word for place, word in enumerate(words))


def span_length(units: int, length: int, share: float, shortest: int) -> int:
    """Return the units of a span: ``length``, or for 0 max(shortest, floor(share n + 1/2)) of n units.

    >>> [span_length(n, 0, 0.5, 3) for n in (4, 9, 20)], span_length(20, 2, 0.5, 3)
    ([3, 5, 10], 2)
    """
    return length or max(shortest, int(share * units + 0.5))


def draw_two_spans(units: int, size: int, draw: torch.Generator) -> tuple[slice, slice] | None:
    """Return two different spans of ``size`` neighbours, which may overlap; None where only one fits.

    Their places are drawn from the units - size + 1 (González-Márquez et al. 2025,
    MultOverlappingSentencesPairDataset).
    """
    places = units - size + 1
    if places < 2:
        return None
    first, second = torch.randperm(places, generator=draw)[:2].tolist()
    return slice(first, first + size), slice(second, second + size)


def split_sentences(text: str, shortest: int = 0, longest: int | None = None) -> list[str]:
    """Split at full stops into texts of ``shortest`` to ``longest`` characters, leading blanks counted.

    As released for cropping: abbreviations and numbers are split too, and the last text gets a full stop.

    >>> split_sentences("A dog ran. It was 3.5 years old. Then")
    ['A dog ran.', 'It was 3.', '5 years old.', 'Then.']
    >>> split_sentences("A dog ran. It was 3.5 years old. Then", 6, 10)
    ['A dog ran.', 'It was 3.']
    """
    parts = [part for part in text.split(".") if part.strip() and len(part) >= shortest]
    return [f"{part.strip()}." for part in parts if longest is None or len(part) <= longest]


def shuffle_subwords(row: Sequence[int], draw: torch.Generator) -> list[int]:
    """Return the row with its subwords in a random order; both specials keep their places."""
    inner = row[1:-1]
    order = torch.randperm(len(inner), generator=draw).tolist()
    return [row[0], *(inner[place] for place in order), row[-1]]


def reverse_subwords(row: Sequence[int]) -> list[int]:
    """Return the row with its subwords from the last to the first."""
    return [row[0], *row[-2:0:-1], row[-1]]


def delete_subwords(row: Sequence[int], share: float, draw: torch.Generator) -> list[int]:
    """Return the row without round(share * n) of its n subwords.

    Each is drawn by its place among the remaining, and the first subword equal to it is removed.
    """
    inner = list(row[1:-1])
    for _ in range(min(round(share * len(inner)), len(inner))):
        inner.remove(inner[_draw_index(len(inner), draw)])
    return [row[0], *inner, row[-1]]


def draw_kept(units: int, ratio: float, draw: torch.Generator) -> list[int]:
    """Return the places of the units that stay where each is deleted with probability ``ratio``, ascending.

    Of one or more units at least one stays: one drawn at random, where chance left none (Wang et al. 2021,
    TSDAE).
    """
    kept: list[int] = (torch.rand(units, generator=draw) > ratio).nonzero().flatten().tolist()
    return kept if kept or not units else [_draw_index(units, draw)]


def delete_words(sentence: str, ratio: float, draw: torch.Generator) -> str:
    """Return the sentence without its words that :func:`draw_kept` leaves out.

    Words are runs of letters and digits, and each other character. A blank stands before a word unless the
    sentence has none there: between neighbours that both stay, or before a punctuation mark.

    >>> delete_words("A dog (brown) ran.", 0.0, torch.Generator())
    'A dog (brown) ran.'
    """
    words = [*_WORD.finditer(sentence)]
    kept, text = draw_kept(len(words), ratio, draw), ""
    before = -1  # place of the word that was written last
    for place in kept:
        word = words[place]
        joined = place > 0 and words[place - 1].end() == word.start()
        if text and not (joined and (before == place - 1 or not word.group()[0].isalnum())):
            text += " "
        text, before = text + word.group(), place
    return text


def insert_subwords(row: Sequence[int], share: float, longest: int, draw: torch.Generator) -> list[int]:
    """Return the row with round(share * n) of its n subwords inserted again, each at a random place.

    Each is drawn from all subwords so far. The row grows to at most ``longest`` ids, specials included.
    """
    inner = list(row[1:-1])
    for _ in range(min(round(share * len(inner)), max(0, longest - len(row)))):
        token = inner[_draw_index(len(inner), draw)]
        inner.insert(_draw_index(len(inner) + 1, draw), token)
    return [row[0], *inner, row[-1]]


def edit_views(
    row: Sequence[int],
    share: float,
    longest: int,
    draw: torch.Generator,
    edits: Sequence[str] = ("sf", "rv", "de", "rp"),
) -> list[list[int]]:
    """Return edited views of a row, one for each of ``edits`` (:data:`EDITS`); a single subword stays.

    ``share`` of the subwords are deleted or repeated, 0 to 1; a lengthened row has at most ``longest`` ids. A
    row of one id, as a tokenizer without special tokens makes it, stays.
    """
    if len(row) < 2:
        return [list(row) for _ in edits]
    ways = {
        "sf": lambda: shuffle_subwords(row, draw),
        "rv": lambda: reverse_subwords(row),
        "de": lambda: delete_subwords(row, share, draw),
        "rp": lambda: insert_subwords(row, share, longest, draw),
        "dp": lambda: list(row),
    }
    return [ways[edit]() for edit in edits]


def _draw_index(count: int, draw: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=draw))
