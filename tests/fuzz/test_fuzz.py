"""Damaged input gives an answer or one clear error, never a traceback, never a wrong number.

``python -m tests.fuzz`` runs the same cases by the thousand; here is a slice of them, and properties of pure
functions.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cli import main as command_line
from bench.comparison.selection import format_seeds
from bench.config.method_ids import parse_methods, parse_seeds, quote_value
from bench.errors import BenchError, DataError
from bench.records.record import RunRecord, Score, parse_record, record_to_json
from bench.render import latex
from bench.render.formats import frame_csv, markdown_escape
from bench.render.template import _break_name
from bench.reports.records import long_frame
from bench.stats.effects import probability_of_superiority
from bench.stats.item_statistics import item_difference, spearman_interval
from bench.stats.resampling import spearman_rows
from bench.stats.seeds import exact_permutation, one_sample, sign_flip, welch
from bench.stats.summaries import interquartile_mean
from tests.fuzz import core
from tests.fuzz.campaigns import check_csv
from tests.fuzz.core import Failure, RuleError, run_case
from tests.fuzz.surfaces import SURFACES, cases_of
from tests.support.campaigns import make_record

SLICE = {"cli": 35, "spec": 90, "data": 90, "records": 25, "toml": 10, "published": 20, "plugins": 30}
quick = settings(max_examples=25, derandomize=True, deadline=None, database=None)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder to run cases in; they change directories, and read no data but their own."""
    monkeypatch.delenv("BENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    before = Path.cwd()
    yield tmp_path
    os.chdir(before)


def failures(name: str, folder: Path, seed: int, count: int) -> list[str]:
    surface = SURFACES[name](folder)
    outcomes = [run_case(surface, seed, number) for number in range(count)]
    assert len(set(map(str, outcomes))) > 1, "all cases had one outcome: they say nothing"
    return [str(outcome) for outcome in outcomes if isinstance(outcome, Failure)]


@pytest.mark.parametrize("name", sorted(SURFACES))
def test_a_slice_of_every_surface(name: str, quiet: Path) -> None:
    assert failures(name, quiet, 2, SLICE[name]) == []


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SURFACES))
def test_a_longer_slice_of_every_surface(name: str, quiet: Path) -> None:
    assert failures(name, quiet, 1, cases_of(2000)[name]) == []


def test_a_case_is_the_same_again_and_in_any_order(quiet: Path) -> None:
    logs: dict[int, list[list[str]]] = {3: [], 7: []}
    for order in ((3, 7), (7, 3)):
        surface = SURFACES["data"](quiet / str(order[0]))
        for number in order:
            logs[number].append([])
            dice = [core.Dice(1, "data", number, "step", step) for step in range(2)]
            surface.run(core.Dice(1, "data", number, "case"), dice, logs[number][-1])
    for first, again in logs.values():
        assert first
        assert first == again
    assert logs[3] != logs[7]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("oops"), "internal error, ValueError: oops"),
        (BenchError("a"), None),
        (click.UsageError("b"), None),
    ],
)
def test_the_oracle_sees_an_error_that_nobody_expected(
    error: Exception, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setitem(command_line.cli.commands, "list", click.Command("list", callback=broken))
    if said is None:
        assert core.bench("list").kind == core.REFUSED
        return
    with pytest.raises(RuleError, match=said) as caught:
        core.bench("list")
    assert "in broken" in str(caught.value)  # the traceback, to fix it by


@pytest.mark.parametrize(
    ("printed", "code", "what"),
    [
        ("Traceback (most recent call last):\n  x", 1, "exit code 1"),
        ("error: a\nerror: b", 2, "not one error"),
        ("error: a\nmore", 2, "not one error"),
        ("error: a\u202eb", 2, "can't be printed"),
        ("", 2, "without a reason"),
        ("error: a", 0, "with exit code 0"),
        ("x", 7, "exit code 7"),
    ],
)
def test_the_oracle_sees_unclear_errors(
    printed: str, code: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> None:
        click.echo(printed, err=True)
        raise SystemExit(code)

    monkeypatch.setitem(command_line.cli.commands, "list", click.Command("list", callback=command))
    with pytest.raises(RuleError, match=what):
        core.bench("list")


@pytest.mark.parametrize(
    ("good", "bad"), [("0.25", "0.26"), (",10,", ",11,"), ("spearman", "f1"), ("all,", "a,"), ("T,", "U,")]
)
def test_the_oracle_sees_a_wrong_number(good: str, bad: str) -> None:
    record = json.loads(record_to_json(make_record("m", 1, {"T": 0.25})))
    out = frame_csv(long_frame([parse_record(json.dumps(record), "x")], lambda _: "camp"))
    assert good in out
    check_csv(out, record)
    with pytest.raises(RuleError, match="csv has"):
        check_csv(out.replace(good, bad), record)


# specification

_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,8}", fullmatch=True)
_VALUES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12)


@given(_NAMES, st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4))
@quick
def test_any_option_value_comes_back_from_a_method_id(name: str, options: dict[str, str]) -> None:
    text = f"{name}[{','.join(f'{key}={quote_value(value)}' for key, value in options.items())}]"
    (request,) = parse_methods(text)
    assert (request.name, dict(request.options)) == (name, options)
    nested = f"outer[inner={quote_value(text)},last=1]"
    (outer,) = parse_methods(nested)
    assert dict(outer.options) == {"inner": text, "last": "1"}


@given(st.sets(st.integers(0, 500) | st.integers(0, 10**9 - 1), min_size=1, max_size=40))
@quick
def test_seeds_come_back_from_how_they_are_written(seeds: set[int]) -> None:
    parsed = parse_seeds(",".join(map(str, seeds)))
    assert parsed == tuple(sorted(seeds))
    assert parse_seeds(format_seeds(parsed).split()[1]) == parsed


# records and what is printed of them

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_LABELS = _TEXTS.filter(lambda text: text.isprintable() and bool(text.strip()))
_SCORES = st.floats(-1, 1)


@given(_LABELS, st.none() | st.integers(0, 10**6), st.lists(_SCORES, min_size=1, max_size=4), _TEXTS)
@quick
def test_a_record_comes_back_from_its_json(
    method: str, seed: int | None, values: list[float], note: str
) -> None:
    scores = tuple(Score(f"T{i}", "all", "spearman", value, i + 1) for i, value in enumerate(values))
    record = replace(
        make_record(method, seed, {f"T{i}": 0.5 for i in range(len(values))}),
        scores=scores,
        notes=(note,),
        options={note: note},
    )
    again = parse_record(record_to_json(record), "x")
    assert again == record
    assert [math.copysign(1, s.value) for s in again.scores] == [math.copysign(1, v) for v in values]


@given(
    st.sampled_from(sorted(json.loads(record_to_json(make_record("m", 1, {"A": 0.5}))))),
    st.recursive(
        st.none() | st.booleans() | st.floats() | _TEXTS, lambda s: st.lists(s) | st.dictionaries(_TEXTS, s)
    ),
)
@quick
def test_any_json_is_a_record_or_refused_in_one_line(name: str, data: object) -> None:
    good = json.loads(record_to_json(make_record("m", 1, {"A": 0.5})))
    text = json.dumps({**good, name: data})
    assert isinstance(core.refused(lambda: parse_record(text, "here"), "here"), RunRecord | DataError)


@given(_LABELS, _SCORES)
@quick
def test_csv_holds_any_method_name_and_every_digit(method: str, value: float) -> None:
    text = frame_csv(long_frame([make_record(method, 1, {"A": value})], lambda _: "camp"))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["task"] for row in rows] == ["A", "avg"]
    assert {row["method"] for row in rows} in ({method}, {f"'{method}"})  # no text is a formula
    assert float(rows[0]["value"]) == value


@given(_TEXTS)
@quick
def test_no_markup_comes_out_of_a_name(name: str) -> None:
    cell = str(_break_name(name))
    assert "<" not in cell.replace("<wbr>", "")
    assert html.unescape(cell.replace("<wbr>", "")).isprintable()
    found = markdown_escape(name)
    assert not {"<", ">", "\n"} & set(found)
    assert "|" not in found.replace("\\|", "")
    bare = latex.escape_latex(name.encode("ascii", "ignore").decode())
    for char in "&%$#_{}^~":  # escaped, or named with a backslash
        bare = bare.replace(f"\\{char}", "")
    assert not set("&%$#_~^\n") & set(bare)


# statistics

_RUNS = st.lists(_SCORES, min_size=2, max_size=7)


def finite(*values: float | None) -> bool:
    return all(value is None or math.isfinite(value) for value in values)


@given(_RUNS, _RUNS, st.sampled_from((0.5, 0.95, 0.999)))
@quick
def test_no_statistic_of_seeds_is_nan(a: list[float], b: list[float], level: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d, one = welch(a, b, level), one_sample(a, b[0], level)
        exact = exact_permutation(a, b)
        flip = sign_flip((a * 6)[:6], (b * 6)[:6], same_order=True)
        assert finite(
            d.difference, d.low, d.high, d.t, d.df, one.low, one.high, one.t, probability_of_superiority(a, b)
        )
    slack = 1e-12
    for test in (d, one):
        assert test.low - slack <= test.difference <= test.high + slack
    for p, least in ((d.p, 0), (one.p, 0), (exact.p, exact.minimum_p), (flip.p, flip.minimum_p)):
        assert least <= p <= 1
    assert min(a) - slack <= interquartile_mean([a]) <= max(a) + slack


@given(st.lists(st.tuples(_SCORES, _SCORES), min_size=4, max_size=30), st.floats(0.5, 0.999))
@quick
def test_no_statistic_of_items_is_nan(pairs: list[tuple[float, float]], level: float) -> None:
    first, second = zip(*pairs, strict=True)
    if len(set(first)) > 1 and len(set(second)) > 1:
        rho = float(spearman_rows(first, second)[0])
        low, high = spearman_interval(rho, len(pairs), level)
        assert -1 <= low <= rho <= high <= 1
    else:
        with pytest.raises(ValueError, match="are equal"):
            spearman_rows(first, second)
    d = item_difference(np.subtract(first, second), 0.0, len(pairs), level)
    assert finite(d.low, d.high)
    assert 0 < d.minimum_p <= d.p <= 1
