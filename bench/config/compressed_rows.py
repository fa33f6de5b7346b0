"""Rows of compressed vectors beside those of the methods: ``--dims`` and ``--quantize`` of ``bench run``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from bench.config.method_ids import parse_method
from bench.config.run_spec import ALL_METHODS, MethodRequest
from bench.errors import InputError

_Value = TypeVar("_Value", int, str)
KINDS = ("int8", "binary")


def add_compressed_rows(
    methods: Sequence[MethodRequest], dims: str | None, kinds: str | None
) -> tuple[MethodRequest, ...]:
    """Return the methods, each followed by its rows ``compressed[of=METHOD,...]``.

    Args:
        methods: The requests of ``--methods``.
        dims: Numbers of first dimensions, such as "64,128"; one row each.
        kinds: Some of "int8,binary"; one row each, of all dimensions.

    Raises:
        InputError: a number or name of another kind, one twice, or ``all`` among the methods.
    """
    forms = [(f"{number}d", f"dims={number}") for number in _read_dims(dims)]
    forms += [(kind, f"dtype={kind}") for kind in _read_kinds(kinds)]
    if not forms:
        return tuple(methods)
    if any(request.name == ALL_METHODS for request in methods):
        hint = "name the methods whose vectors are compressed"
        raise InputError("all methods at once", where="--dims or --quantize", hint=hint)
    rows: list[MethodRequest] = []
    for request in methods:
        rows.append(request)
        plain = request.text.partition("=")[2] if request.alias else request.text
        for suffix, option in forms:
            alias = f"{request.alias}-{suffix}=" if request.alias else ""
            rows.append(
                parse_method(f"{alias}compressed[of={plain.strip()},{option}]", "--dims or --quantize")
            )
    return tuple(rows)


def _read_dims(text: str | None) -> list[int]:
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdecimal() and int(part) > 0):
            expected = "whole numbers from 1, such as 64,128,256"
            raise InputError(f"'{part}' is no number of dimensions", where="--dims", expected=expected)
    return _refuse_repeated([int(part) for part in parts], "--dims")


def _read_kinds(text: str | None) -> list[str]:
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in KINDS:
            raise InputError(f"'{part}'", where="--quantize", expected=f"{' or '.join(KINDS)}, or both")
    return _refuse_repeated(parts, "--quantize")


def _refuse_repeated(values: list[_Value], where: str) -> list[_Value]:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise InputError(f"'{twice}' is there twice", where=where)
    return values
