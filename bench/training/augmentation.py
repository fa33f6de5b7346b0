"""Positives made from a sentence's own tokens or words: repetition (ESimCSE), spans (cropping)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

RULES = ("released", "paper")
_MOST = 10


def repetition_bound(length: int, rate: float, rule: str = "released") -> int:
    """Most subwords that may be repeated in a row of ``length`` ids; how many are is uniform from 0 to it.

    ``released``: c - 1 with c = min(10, floor(rate * n)), n = ``length``. ``paper``: max(2, floor(rate * N)),
    N = n - 2 subwords. Never more than the n - 2 subwords that there are.

    Raises:
        ValueError: an unknown rule.
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
    """Return the row with some of its subwords twice in a row (Wu et al. 2022, ESimCSE: word repetition).

    r is uniform on 0 ... :func:`repetition_bound`, both ends in; r distinct positions are drawn without
    replacement from 1 ... n - 2, so the two specials stay single. The result is not cut again.

    Args:
        row: n token ids, specials first and last.
        rate: Duplication rate, at least 0.
        draw: A generator of the run's own.
        rule: "released" or "paper".

    Raises:
        ValueError: an unknown rule.
    """
    bound = repetition_bound(len(row), rate, rule)
    if not bound:
        return list(row)
    count = int(torch.randint(bound + 1, (), generator=draw))
    places = {1 + place for place in torch.randperm(len(row) - 2, generator=draw)[:count].tolist()}
    return [token for place, token in enumerate(row) for _ in range(2 if place in places else 1)]


def repeat_words(sentence: str, rate: float, draw: torch.Generator) -> str:
    """Return the sentence with some of its words twice in a row (ESimCSE's released ``dup_type=word``).

    Words are what single blanks separate. r is uniform on 0 ... c - 1, c = min(10, n, max(2, floor(rate n)))
    of n words; r distinct ones are drawn from all but the last.

    Args:
        sentence: A sentence.
        rate: Duplication rate, at least 0; 0 repeats nothing, where the released code takes c = 2.
        draw: A generator of the run's own.
    """
    words = sentence.split(" ")
    if not rate or len(words) == 1:
        return sentence
    bound = min(_MOST, len(words), max(2, int(rate * len(words))))
    count = int(torch.randint(bound, (), generator=draw))
    twice = set(torch.randperm(len(words) - 1, generator=draw)[:count].tolist())
    return " ".join(f"{word} {word}" if place in twice else word for place, word in enumerate(words))


def span_length(units: int, length: int, share: float, shortest: int) -> int:
    """Units of a span: ``length``; where that is 0, max(shortest, floor(share n + 1/2)) of n units.

    >>> [span_length(n, 0, 0.5, 3) for n in (4, 9, 20)], span_length(20, 2, 0.5, 3)
    ([3, 5, 10], 2)
    """
    return length or max(shortest, int(share * units + 0.5))


def draw_two_spans(units: int, size: int, draw: torch.Generator) -> tuple[slice, slice] | None:
    """Return two different spans of ``size`` neighbours, which may overlap; None where there are not two.

    Their places are drawn from the units - size + 1 that there are, without replacement (González-Márquez et
    al. 2025, MultOverlappingSentencesPairDataset).

    Args:
        units: How many units the text has.
        size: Units of a span, at least 1.
        draw: A generator of the run's own.
    """
    places = units - size + 1
    if places < 2:
        return None
    first, second = torch.randperm(places, generator=draw)[:2].tolist()
    return slice(first, first + size), slice(second, second + size)


def split_sentences(text: str, shortest: int = 0, longest: int | None = None) -> list[str]:
    """Return what full stops end, of ``shortest`` to ``longest`` characters, blanks before it counted.

    As released for cropping: abbreviations and numbers are split too, and what follows the last full stop
    gets one.

    >>> split_sentences("A dog ran. It was 3.5 years old. Then")
    ['A dog ran.', 'It was 3.', '5 years old.', 'Then.']
    >>> split_sentences("A dog ran. It was 3.5 years old. Then", 6, 10)
    ['A dog ran.', 'It was 3.']
    """
    return [
        f"{part.strip()}."
        for part in text.split(".")
        if part.strip() and shortest <= len(part) and (longest is None or len(part) <= longest)
    ]
