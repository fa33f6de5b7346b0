"""Cropping: spans, sentences, steps against an independent transcription, its options, training."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.method_card import OptionValue
from bench.training.augmentation import draw_two_spans, span_length, split_sentences
from bench.training.randomness import generator
from tests.support.steps import count_losses, nce_by_loops, objective_of, same_step
from tests.support.training import options_of, train_alone

TEXT = [
    "The doctor is reading a book to the children on the hill.",
    "two",
    "The woman sings. A farmer is on the hill. It is late. The man is reading a song. Ok",
    "",
    "the man is singing a song",
    "A child is here. A doctor is there. The farmer reads a book",
]


@pytest.mark.parametrize(
    ("units", "length", "share", "shortest", "size"),
    [
        (20, 0, 0.5, 3, 10),
        (5, 0, 0.5, 3, 3),  # half a unit is one
        (0, 0, 0.5, 3, 3),
        (9, 0, 1.0, 1, 9),
        (9, 2, 0.5, 3, 2),  # a length counts as it is
    ],
)
def test_how_long_a_span_is(units: int, length: int, share: float, shortest: int, size: int) -> None:
    assert span_length(units, length, share, shortest) == size


def test_spans_are_two_different_places_and_all_pairs_are_as_likely() -> None:
    draw, found = generator(1, "spans"), Counter[tuple[int, int]]()
    for _ in range(2400):
        spans = draw_two_spans(6, 3, draw)
        assert spans is not None
        assert [span.stop - span.start for span in spans] == [3, 3]
        found[spans[0].start, spans[1].start] += 1
    assert set(found) == {(i, j) for i in range(4) for j in range(4) if i != j}
    spread = math.sqrt(2400 / 12 * 11 / 12)
    assert all(abs(count - 200) <= 5 * spread for count in found.values())
    assert draw_two_spans(4, 3, draw) in ((slice(0, 3), slice(1, 4)), (slice(1, 4), slice(0, 3)))
    assert [draw_two_spans(n, 3, draw) for n in (0, 2, 3)] == [None] * 3


def test_sentences_end_at_full_stops_and_have_their_length() -> None:
    text = "One two. Three 4.5 six? Seven.. Eight "
    assert split_sentences(text) == ["One two.", "Three 4.", "5 six? Seven.", "Eight."]
    assert split_sentences(text, 7, 8) == ["One two.", "Three 4.", "Eight."]  # the blanks around it count
    assert split_sentences(text, 8, 12) == ["Three 4.", "5 six? Seven."]
    assert split_sentences(" . ") == []


def rows_by_hand(tokenizer: Any, number: int, options: dict[str, Any], epoch: int = 0) -> list[list[int]]:
    """Both views of a text, written from the description: lists, one draw of two places."""
    text, read = TEXT[number], partial(tokenizer, truncation=True, max_length=options["max_length"])
    ids = read(text)["input_ids"]
    pieces: list[Any] = {"token": ids[1:-1], "word": text.split()}.get(options["unit"], [])
    if options["unit"] == "sentence":
        low, high = options["shortest_sentence"], options["longest_sentence"]
        pieces = [p.strip() + "." for p in text.split(".") if p.strip() and low <= len(p) <= high]
    size = options["length"] or max(options["shortest"], math.floor(options["share"] * len(pieces) + 0.5))
    if options["views"] == "dropout" or len(pieces) <= size:
        return [ids, ids]
    draw, views = generator(1, f"augment/crop/{epoch}/{number}"), []
    for place in torch.randperm(len(pieces) - size + 1, generator=draw).tolist()[:2]:
        span = pieces[place : place + size]
        views.append(
            [ids[0], *span, ids[-1]] if options["unit"] == "token" else read(" ".join(span))["input_ids"]
        )
    return [views[0], views[0]] if options["views"] == "dropout_span" else views


def vector(made: Any, row: list[int], pooling: str) -> Tensor:
    """Of one row alone: the mean of its states, the specials' among them, or the first."""
    states: Tensor = made.encoder(input_ids=torch.tensor([row])).last_hidden_state[0]
    return sum(states[i] for i in range(len(row))) / len(row) if pooling == "avg" else states[0]  # type: ignore[return-value]


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"views": "dropout"},
    {"views": "dropout_span"},
    {"unit": "token"},
    {"unit": "sentence", "length": 2, "shortest_sentence": 10, "longest_sentence": 30},
    {"unit": "sentence", "share": 0.2, "shortest": 1, "shortest_sentence": 0},
    {"length": 4},
    {"share": 0.8},
    {"share": 0.1, "shortest": 2},
    {"train_pooling": "cls"},
    {"tau": 0.2},
    {"max_length": 7},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_step_equals_a_transcription(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Loss and gradients: each view alone in a forward of its own."""
    made, batch, tokenizer = objective_of("crop", tiny_bert, TEXT, **changes)
    options: dict[str, Any] = options_of("crop", **{"max_length": 20, **changes})
    pairs = [rows_by_hand(tokenizer, number, options) for number in range(len(TEXT))]
    assert [list(made.views(number, row, 0)) for number, row in batch] == pairs
    later = [rows_by_hand(tokenizer, number, options, 1) for number in range(len(TEXT))]
    assert [list(made.views(number, row, 1)) for number, row in batch] == later
    assert all(len(row) <= options["max_length"] for pair in pairs for row in pair)
    z, positives = ([vector(made, pair[side], options["train_pooling"]) for pair in pairs] for side in (0, 1))
    same_step(made, made(batch), nce_by_loops(z, positives, options["tau"]), rel=1e-8, least=30)


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    assert count_losses(partial(objective_of, "crop", tiny_bert, TEXT), CHANGES) == len(CHANGES)
    made, rows, _ = objective_of("crop", tiny_bert, TEXT)
    assert made.views(*rows[1], 0) == (rows[1][1], rows[1][1])  # one word: its own two views


def test_an_epoch_draws_its_spans_anew(tiny_bert: Path) -> None:
    made, rows, _ = objective_of("crop", tiny_bert, TEXT, max_length=36)
    first, second = ([chunk.ids.tolist() for chunk in made.prepare(rows).chunks] for _ in range(2))
    made.seen = 0
    assert [chunk.ids.tolist() for chunk in made.prepare(rows).chunks] == first != second


def test_the_vectors_that_are_trained_are_scored(tmp_path: Path, tiny_bert: Path) -> None:
    train = partial(train_alone, "crop", tiny_bert, tmp_path)
    mean, cls = train(), train(train_pooling="cls")
    assert mean.score(pooling="cls") != mean.score()
    assert cls.score(pooling="cls") == pytest.approx(cls.facts["selected_dev"], abs=1e-6)
    assert train(views="dropout_span").losses != mean.losses
