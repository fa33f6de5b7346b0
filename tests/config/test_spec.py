from __future__ import annotations

import pickle
from functools import partial

import pytest

from bench.config.method_ids import parse_methods, parse_override, parse_seeds
from bench.errors import InputError, suggest_name
from tests.support.messages import check_error


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-5", (1, 2, 3, 4, 5)), ("1,3,7-9", (1, 3, 7, 8, 9)), ("7", (7,)), ("0", (0,)), (" 2 , 1 ", (1, 2))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("5-1", ["'5-1' falls", "1-5 or 1,3,7-9", "write 1-5"]),
        ("", ["'' in ''"]),
        ("1,,2", ["'' in '1,,2'"]),
        ("a", ["'a' in 'a'"]),
        ("-1", ["'-1' in '-1'"]),
        ("1.5", ["'1.5' in '1.5'"]),
        ("1-3,2", ["seed 2", "twice"]),
        ("1-99999", ["too many", "10000"]),
    ],
)
def test_bad_seeds(text: str, facts: list[str]) -> None:
    check_error(lambda: parse_seeds(text), *facts, where="--seeds", kind=InputError)


def test_methods() -> None:
    one, two, three, four = parse_methods("simcse, untrained:avg,x[a=1,b=c=d],ours=st:/models/a=b")
    assert (one.name, one.argument, one.options, one.alias) == ("simcse", None, (), None)
    assert (two.name, two.argument) == ("untrained", "avg")
    assert (three.name, three.options) == ("x", (("a", "1"), ("b", "c=d")))
    assert (four.alias, four.name, four.argument) == ("ours", "st", "/models/a=b")
    (path,) = parse_methods("hf:/models/x=1:avg")
    assert (path.alias, path.name, path.argument) == (None, "hf", "/models/x=1:avg")


@pytest.mark.parametrize(
    "text", ["", "a,,b", "a[", "a]", "a[b]", "a[=1]", "st:", "a b", "../x", "al/ias=st:x"]
)
def test_bad_methods(text: str) -> None:
    check_error(lambda: parse_methods(text), where="--methods", kind=InputError)


def test_overrides() -> None:
    assert (parse_override("tncse.lr=1e-5").stage, parse_override("tncse.sub1.lr=1").stage) == (None, "sub1")
    parsed = parse_override("untrained.template=a=b")
    assert (parsed.method, parsed.option, parsed.value) == ("untrained", "template", "a=b")
    for text in ("x", "x=1", "a.b.c.d=1", "a..b=1", ".b=1"):
        check_error(partial(parse_override, text), kind=InputError)


def test_suggestions() -> None:
    for name, names, near in (
        ("untraind", ["untrained", "hf"], "untrained"),
        ("SimCSE", ["esimcse", "simcse"], "simcse"),
        ("A", ["a", "A"], "a"),
        ("mean", ["mask", "avg"], "avg"),
    ):
        assert suggest_name(name, names) == f"did you mean '{near}'?"
    assert suggest_name("zzz", ["untrained", "hf"]) is None
    assert suggest_name("mean", ["mask"]) is None


def test_errors_survive_pickling_with_all_parts() -> None:
    error = InputError("what", where="here", expected="that", hint="do")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is InputError
    assert str(again) == str(error) == "here: what; expected that; do"
