"""Shapes: a fault is named by its place, a sound value by none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import schema
from bench.schema import Block, ListOf, MapOf, Maybe, is_boolean, is_count, is_text

BLOCK = Block({"a": is_count}, {"b": ListOf(MapOf(is_text), least=1), "c": Maybe(is_boolean)}, closed=True)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": 1}, None),
        ({"a": 1, "b": [{}, {"x": "y"}], "c": None}, None),
        ({"a": -1}, "a"),
        ({"a": True}, "a"),
        ({"b": [{}]}, "a"),
        ({"a": 1, "z": 2}, "z"),
        ({"a": 1, "b": []}, "b"),
        ({"a": 1, "b": [{}, {"x": 3}]}, "b[1].x"),
        ({"a": 1, "b": [{}, []]}, "b[1]"),
        ({"a": 1, "c": 0}, "c"),
        ([1], "."),
    ],
)
def test_a_fault_is_named_by_its_place(value: Any, place: str | None) -> None:
    assert schema.find_fault(value, BLOCK) == place


@pytest.mark.parametrize("shape", [BLOCK, ListOf(is_text), MapOf(is_text), Maybe(is_boolean), is_boolean])
def test_a_value_that_is_wrong_itself_is_a_dot(shape: schema.Shape) -> None:
    assert schema.find_fault(3, shape) == "."


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, 0.5, "ü", None, True, {"b": []}]}, None),
        ({"a": [1, {"b": float("inf")}]}, "a[1].b"),
        ({"a": [1, {"b": 2**63}]}, "a[1].b"),
        ({"a": ["\ud800"]}, "a[0]"),
        ({"a": {"\ud800": 1}}, "a"),
        ({"\ud800": 1}, "."),
    ],
)
def test_what_cannot_be_written_again_is_named(value: Any, place: str | None) -> None:
    assert schema.find_unwritable(value) == place


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_lies_too_deep_is_named(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(schema.DEEPEST):
        value = wrap(value)
    assert schema.find_unwritable(value) is None
    assert schema.find_unwritable(value, schema.DEEPEST - 1) is not None
    place = schema.find_unwritable(wrap(value))
    assert place is not None
    assert place in (".".join(["a"] * schema.DEEPEST), "[0]" * schema.DEEPEST)
