"""Damaged input gives an answer or one clear error, never a traceback or a wrong number.

``FUZZ_CASES=5000 FUZZ_SEED=2 pytest tests/fuzz -k surface`` runs more cases.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cli import main as command_line
from bench.comparison.selection import format_seeds
from bench.config import profiles
from bench.config.method_ids import parse_copies, parse_methods, parse_override, parse_seeds, quote_value
from bench.config.run_spec import MethodRequest, RunSpec
from bench.data.mteb_names import parse_suite, split_suites
from bench.errors import BenchError, DataError
from bench.method_card import Option
from bench.nn.model_folder import ModelFolder
from bench.plan.cell import Cell
from bench.plan.cell_expansion import make_cells
from bench.probes import parse_probes
from bench.records.record import RunRecord, Score, parse_record, record_to_json
from bench.registry import discover
from bench.render import latex
from bench.render.formats import frame_csv, markdown_escape
from bench.render.template import _break_name
from bench.reports.record_groups import long_frame
from bench.stats.effect_sizes import interquartile_mean, probability_of_superiority
from bench.stats.item_statistics import item_difference, spearman_interval
from bench.stats.resampling import spearman_rows
from bench.stats.seeds import exact_permutation, one_sample, sign_flip, welch
from tests.fuzz import core
from tests.fuzz.campaigns import Campaigns, check_csv
from tests.fuzz.command_lines import CommandLines
from tests.fuzz.core import STEPS, RuleError
from tests.fuzz.data_files import DataFiles
from tests.fuzz.mutate import text_of
from tests.fuzz.plugin_files import PluginFiles
from tests.fuzz.published_figures import PublishedFigures
from tests.fuzz.toml_tables import TomlTables
from tests.support.campaigns import make_record

SURFACES: dict[str, tuple[Callable[[Path], core.Surface], int, int]] = {
    "cli": (CommandLines, 35, 417),
    "data": (DataFiles, 400, 1000),
    "records": (Campaigns, 25, 417),
    "toml": (TomlTables, 10, 167),
    "published": (PublishedFigures, 40, 133),
    "plugins": (PluginFiles, 30, 200),
}
"""Surfaces, and their cases in fast and in long tests."""
quick = settings(max_examples=25, derandomize=True, deadline=None, database=None)
many = settings(quick, max_examples=100)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for cases, which change directories, without data."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("size", ["slice", pytest.param("longer", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SURFACES)
def test_every_surface(name: str, size: str, quiet: Path) -> None:
    make, *counts = SURFACES[name]
    core.check_surface(make(quiet), counts[size == "longer"], 1 + (size == "longer"))


def test_a_case_is_the_same_in_any_order(quiet: Path) -> None:
    logs: dict[int, list[list[str]]] = {3: [], 7: []}
    for order in ((3, 7), (7, 3)):
        surface = DataFiles(quiet / str(order[0]))
        for case in order:
            logs[case].append([])
            surface.run(core.Dice(case), [core.Dice(case + 1)], logs[case][-1])
    assert all(first == again != [] for first, again in logs.values())
    assert logs[3] != logs[7]


def broken_list(monkeypatch: pytest.MonkeyPatch, callback: Callable[[], None]) -> None:
    monkeypatch.setitem(command_line.cli.commands, "list", click.Command("list", callback=callback))


def test_the_oracle_sees_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise errors.pop()

    errors = [ValueError("oops")] * 2
    broken_list(monkeypatch, broken)
    with pytest.raises(RuleError, match="ValueError: oops") as caught:
        core.bench("list")
    assert "in broken" in str(caught.value)  # the traceback
    for error in (BenchError("a"), click.UsageError("b")):
        errors.append(error)  # type: ignore[arg-type]
        assert core.bench("list").kind == core.REFUSED


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
def test_unclear_errors_are_seen(printed: str, code: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        click.echo(printed, err=True)
        raise SystemExit(code)

    broken_list(monkeypatch, command)
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


# specifications

_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,8}", fullmatch=True)
_VALUES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12)
SUITES = ("toy", "sts7", "mini", "mteb:STS17[en-en],STS22.v2[en]", "local:a/b.toml", "mteb:A,B@test")
OTHERS = (*SUITES, "alignment,uniformity", "all", "a=words.txt", "noise.scale=2")
VALUES = st.sampled_from(("x", "a,b", "a]b", "[c]", "k=v", "a, {mask} b", "b\\", "é", " a ", "a:b"))
NUMBERS = st.sampled_from((0.25, 1e-05, 3e-05, 0.1 + 0.2, 1e22, 5.0))
PARTS = st.integers(0, 98).map(str) | st.tuples(st.integers(0, 8), st.integers(0, 39)).map(
    "{0[0]}-{0[1]}".format
)


def damaged(text: str, steps: list[int]) -> str:
    for step in steps:
        text = text_of(text, core.Dice(step))
    return text


def value_of(option: Option) -> st.SearchStrategy[Any]:
    """Values of an option, most of them right."""
    if option.choices:
        return st.sampled_from(option.choices)
    kinds = ((bool, st.booleans()), (str, VALUES), (int, st.integers(0, 99)), (float, NUMBERS))
    return next(strategy for kind, strategy in kinds if isinstance(option.default, kind))


@st.composite
def requests(draw: st.DrawFn) -> str:
    """A method as it is typed."""
    card = draw(st.sampled_from([method.card for _, method in discover()]))
    chosen = [option for option in card.options if draw(st.integers(0, 4)) == 0]
    options = ",".join(f"{option.name}={draw(value_of(option))}" for option in chosen)
    alias, argument = draw(st.sampled_from(("", "", "mine="))), draw(st.sampled_from(("", ":avg", ":a/b=c")))
    return f"{alias}{card.name}{argument}" + (f"[{options}]" if options else "")


@given(st.lists(PARTS, min_size=1, max_size=4), STEPS)
@many
def test_seeds_come_back_from_how_they_are_written(parts: list[str], steps: list[int]) -> None:
    text = damaged(",".join(parts), steps)
    parsed = core.refused(lambda: parse_seeds(text))
    if isinstance(parsed, BenchError):
        return
    numbers: list[int] = []  # read by other means
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        numbers += range(int(low), int(high or low) + 1)
    assert list(parsed) == sorted(set(numbers))
    assert len(parsed) == len(numbers) > 0
    assert parse_seeds(format_seeds(parsed).split()[1]) == parsed


@given(st.lists(requests(), min_size=1, max_size=3), STEPS)
@many
def test_the_text_of_a_request_gives_that_request_again(texts: list[str], steps: list[int]) -> None:
    parsed = core.refused(lambda: parse_methods(damaged(", ".join(texts), steps)))
    if not isinstance(parsed, BenchError):
        assert all(parse_methods(request.text) == (request,) for request in parsed)
        assert parse_methods(",".join(request.text for request in parsed)) == parsed


def cell_of(text: str, overrides: list[str]) -> Cell:
    (request,) = parse_methods(text) if "," not in text or "[" in text else (MethodRequest(text, text),)
    spec = RunSpec((request,), (1,), "mini", overrides=tuple(map(parse_override, overrides)))
    card, profile = discover().get(request.name, where="here").card, profiles.load_profile("mini")
    return make_cells(request, card, spec, profile, "mini", ModelFolder(Path(), "backbone", "b" * 64), 1000)[
        0
    ]


@given(st.data(), STEPS)
@many
def test_a_canonical_id_asks_for_the_same_method_and_options(data: st.DataObject, steps: list[int]) -> None:
    cards = [method.card for _, method in discover()]
    plain = [card for card in cards if not (card.takes_path or card.takes_methods or card.auxiliaries)]
    card = data.draw(st.sampled_from(plain))
    options = [option for option in card.options if option.name != "match"]
    chosen = data.draw(st.lists(st.sampled_from(options), max_size=3, unique=True)) if options else []
    texts = [f"{card.name}.{option.name}={data.draw(value_of(option))}" for option in chosen]
    texts[:1] = [damaged(text, steps) for text in texts[:1]]
    cell = core.refused(lambda: cell_of(card.name, texts))
    if not isinstance(cell, BenchError):
        again = cell_of(cell.method, [])
        assert (again.method, again.options) == (cell.method, cell.options)


@given(st.sampled_from(OTHERS), STEPS, st.sampled_from(range(4)))
@many
def test_any_text_is_parsed_or_refused_in_one_line(text: str, steps: list[int], parser: int) -> None:
    parsers: tuple[Callable[[str], object], ...] = (
        lambda t: [parse_suite(name) for name in split_suites(t, {"toy", "sts7", "mini"})],
        *(parse_probes, lambda t: parse_copies([t]), parse_override),
    )
    core.refused(lambda: parsers[parser](damaged(text, steps)))


@given(_NAMES, st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4))
@quick
def test_any_option_value_comes_back_from_a_method_id(name: str, options: dict[str, str]) -> None:
    text = f"{name}[{','.join(f'{key}={quote_value(value)}' for key, value in options.items())}]"
    (request,) = parse_methods(text)
    assert (request.name, dict(request.options)) == (name, options)
    (outer,) = parse_methods(f"outer[inner={quote_value(text)},last=1]")
    assert dict(outer.options) == {"inner": text, "last": "1"}


# records and what is printed of them

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_LABELS = _TEXTS.filter(lambda text: text.isprintable() and bool(text.strip()))
_SCORES = st.floats(-1, 1)


@given(_LABELS, st.none() | st.integers(0, 10**6), st.lists(_SCORES, min_size=1, max_size=4), _TEXTS)
@quick
def test_records_survive_json(method: str, seed: int | None, values: list[float], note: str) -> None:
    scores = tuple(Score(f"T{i}", "all", "spearman", value, i + 1) for i, value in enumerate(values))
    made = make_record(method, seed, {f"T{i}": 0.5 for i in range(len(values))})
    record = replace(made, scores=scores, notes=(note,), options={note: note})
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
    markdown = markdown_escape(name)
    assert not {"<", ">", "\n"} & set(markdown)
    assert "|" not in markdown.replace("\\|", "")
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
        values = (d.difference, d.low, d.high, d.t, d.df, one.low, one.high, one.t)
        assert finite(*values, probability_of_superiority(a, b))
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
