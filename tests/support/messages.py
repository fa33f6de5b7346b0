"""Facts of a message or an output: tests hold these, so that its sentences can be reworded."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from bench.errors import BenchError

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


def numbers_in(text: str) -> list[float]:
    """All numbers of a text, in order.

    >>> numbers_in("6 of 1,006 cells to run; p < 0.05")
    [6.0, 1006.0, 0.05]
    """
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def missing_facts(text: object, *facts: object) -> list[str]:
    """The facts (a value, a place, a name, an option, a key word) that a text or an error lacks.

    >>> missing_facts("--lr: -1 is negative; expected above 0", "--lr", -1, "0.5")
    ['0.5']
    """
    whole = " ".join(str(text).split())
    return [str(fact) for fact in facts if str(fact) not in whole]


def check_error(
    call: Callable[[], object], *facts: object, where: object = None, kind: type[BenchError] = BenchError
) -> BenchError:
    """Return the error that a call raises; it holds these facts and, where given, this place."""
    with pytest.raises(kind) as caught:
        call()
    assert where is None or caught.value.where == str(where)
    assert not missing_facts(caught.value, *facts)
    return caught.value
