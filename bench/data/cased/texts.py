"""Sentences in which case tells a name from a word: training text, graded pairs and a transfer task.

They guard the program, and measure no method: case, repeated pairs, ties, subsets of several sizes, sentences
of several lengths, and a last batch that is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from bench.data.corpus import Corpus, make_corpus
from bench.data.tasks import LabelledSplit, LabelledTask, PairSubset, PairTask

EMBEDDED_TEXT = "cased.txt"
PAIR_TASK, DEV_TASK, TRANSFER_TASK = "CASED", "CASED-dev", "CASED-name"
NAMES = ("Rose", "Bill", "Mark", "Grace", "Will", "Hope", "Frank", "May")
"""Each is a word too in small letters."""
_THINGS = ("a rose", "the bill", "a mark", "the grace", "a will", "some hope", "the turkey", "a march")
_ACTS = ("found", "kept", "lost", "drew", "named")
_PLACES = ("in Turkey", "in March", "near the Polish border", "at home", "on the way to the old town")
_ENDS = ("", " again", " and said nothing about it", " before anybody else in the house was awake")

Row = tuple[str, str, float]


@cache
def make_training_text() -> Corpus:
    """Return the training text: 90 distinct sentences, which no batch of 16 divides."""
    return make_corpus(EMBEDDED_TEXT, tuple(_write_sentence(number, number // 8) for number in range(90)))


@cache
def make_pair_task() -> PairTask:
    """Return the graded pairs: three subsets of 48, 24 and 9 pairs, the second with repeated pairs."""
    names = [row for number in range(8) for row in _grade_partners(number)]
    repeated = [row for number in range(8, 11) for row in _grade_partners(number)]
    short = [row for number in range(20, 22) for row in _grade_partners(number)]
    subsets = (
        _make_subset("names", names),
        _make_subset("repeated", [*repeated, *repeated[:6]]),
        _make_subset("short", short[:9]),
    )
    return PairTask(PAIR_TASK, subsets)


@cache
def make_dev_task() -> PairTask:
    """Return twelve pairs, so few that checkpoints tie."""
    rows = [*_grade_partners(32), *_grade_partners(68)]
    return PairTask(DEV_TASK, (_make_subset("dev", rows),))


@cache
def make_transfer_task() -> LabelledTask:
    """Return a task in two splits: is the word a name? Only its case tells."""
    splits = []
    for name, numbers in (("train", range(50)), ("test", range(50, 1000))):
        rows = [_label_sentence(number) for number in numbers]
        first, labels = zip(*rows, strict=True)
        splits.append(LabelledSplit(name, first, (), labels))
    return LabelledTask(TRANSFER_TASK, tuple(splits))


def _write_sentence(number: int, shift: int = 0) -> str:
    """Return a sentence; numbers up to 90 with ``shift`` number // 8 give distinct ones."""
    who = NAMES[number % len(NAMES)]
    act, thing = _ACTS[(number + shift) % len(_ACTS)], _THINGS[(number + 3 * shift) % len(_THINGS)]
    place = _PLACES[(number // 2 + shift) % len(_PLACES)]
    return f"{who} {act} {thing} {place}{_ENDS[(number + number // 4) % len(_ENDS)]}."


def _grade_partners(number: int) -> list[Row]:
    """Return a sentence with six partners, from its own words to others in another case."""
    sentence = _write_sentence(number)
    who, rest = sentence.split(" ", 1)
    other = NAMES[(number + 3) % len(NAMES)]
    return [
        (sentence, f"{who} also {rest}", 5.0),
        (sentence, f"{who} {_ACTS[(number + 1) % len(_ACTS)]} {rest.split(' ', 1)[1]}", 4.0),
        (sentence, f"{other} {rest}", 3.0),
        (sentence, f"The {who.lower()} {rest}", 2.0),
        (sentence, _write_sentence(number + 5), 1.0),
        (sentence, f"Nobody wanted the {who.lower()}.", 0.0),
    ]


def _make_subset(name: str, rows: Sequence[Row]) -> PairSubset:
    first, second, gold = zip(*rows, strict=True)
    return PairSubset(name, first, second, gold)


def _label_sentence(number: int) -> tuple[str, str]:
    who, other = NAMES[number % len(NAMES)], NAMES[(number + 1 + number // 3 % 7) % len(NAMES)]
    place = _PLACES[number // 2 % len(_PLACES)]
    act, end = _ACTS[number % len(_ACTS)], _ENDS[(number + number // 4) % len(_ENDS)]
    if number * (number + 1) // 2 % 3 == 0:
        return f"{other} {act} {who} {place}{end}.", "name"
    return f"{other} {act} {who.lower()} {place}{end}.", "word"
