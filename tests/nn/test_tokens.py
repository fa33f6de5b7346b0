"""Token rows as tensors: padding, chunks, and how nested ones are sent to a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.nn.tokens import invert_order, move_to_device, pad_chunk, split_into_chunks, wrap_chunk

ROWS = [[2, 9, 7, 4], [2, 5], [2, 9, 9, 9, 8, 6]]


def test_rows_are_padded_on_the_right() -> None:
    ids, mask, attention = pad_chunk(ROWS[:2], 0)
    assert ids.tolist() == [[2, 9, 7, 4], [2, 5, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert attention is not None
    assert attention.shape == (2, 1, 1, 4)
    assert attention[:, 0, 0].tolist() == [[True] * 4, [True, True, False, False]]


def test_nothing_is_masked_where_nothing_is_padded_unless_a_mask_is_asked_for() -> None:
    assert pad_chunk([[2, 3], [4, 5]], 0).attention is None
    masked = pad_chunk([[2, 3], [4, 5]], 0, masked=True).attention
    assert masked is not None
    assert bool(masked.all())
    assert pad_chunk([[2, 3], [4, 5]], 0, multiple=8).ids.shape == (2, 8)
    assert pad_chunk([[2] * 8], 0, multiple=8).attention is None
    assert pad_chunk([[2] * 17], 0, multiple=8, room=20).ids.shape == (1, 20)
    assert pad_chunk([[2] * 21], 0, multiple=8, room=20).ids.shape == (1, 21)  # too long: the model says so


def test_a_mask_of_ones_and_none_say_the_same() -> None:
    ids = torch.tensor([[2, 3]])
    assert wrap_chunk(ids, None).attention is None
    assert wrap_chunk(ids, None).mask.tolist() == [[1, 1]]


def test_chunks_hold_at_most_their_budget_and_say_whose_rows_they_have() -> None:
    chunks, order = split_into_chunks(ROWS, 0, 8)
    assert order == [1, 0, 2]
    assert [chunk.ids.shape for chunk in chunks] == [(2, 4), (1, 6)]
    rows = [row for chunk in chunks for row in chunk.ids.tolist()]
    assert [
        rows[place][: len(row)] for place, row in zip(invert_order(order).tolist(), ROWS, strict=True)
    ] == ROWS
    whole, order = split_into_chunks(ROWS, 0, 0)
    assert order == [0, 1, 2]
    assert whole[0].ids.shape == (3, 6)


class Pair(NamedTuple):
    tensor: Tensor
    name: str


def test_nested_tensors_are_sent_and_all_else_stays() -> None:
    tree: dict[str, Any] = {
        "pair": Pair(torch.ones(2), "x"),
        "list": [torch.zeros(1), None, 3],
        "no": (True,),
    }
    assert move_to_device(tree, "cpu")["pair"].tensor is tree["pair"].tensor
    found = move_to_device(tree, "meta")
    assert found["pair"].tensor.is_meta
    assert found["list"][0].is_meta
    assert isinstance(found["pair"], Pair)
    assert found["list"][1:] == [None, 3]
    assert found["no"] == (True,)
