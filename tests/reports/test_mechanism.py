"""Rank correlations: probes against scores over methods, and one setting against another."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.data import published_tables
from bench.errors import InputError, NotComparableError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.render.grid import Grid, Quoted, ScoreCell
from bench.render.latex import escape_latex
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import order_figures, suite_figures
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables import method_order
from bench.reports.tables.probe_correlations import (
    Relation,
    Rho,
    all_relations,
    count_independent,
    mechanism_grids,
)
from bench.stats.coverage import find_coverage
from bench.stats.item_statistics import spearman_interval
from tests.support.campaigns import HOSTILE, make_record
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in
from tests.support.standings import campaign

ROOT = Path(__file__).parents[2]
ENERGIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
AVERAGES = (0.5, 0.7, 0.6, 0.9, 0.8, 0.85)
UNIFORM = (-2.0, -2.5, -2.1, -2.4, -2.6, -2.2)


def record(
    method: str,
    energy: float,
    average: float,
    uniform: float | None = -2.0,
    seed: int = 1,
    pooling: str = "cls",
) -> RunRecord:
    probes: dict[str, object] = {
        "version": 1,
        "data": {"tasks": {"T": {}}, "sentences": 3},
        "cls_energy": {"value": energy, "pooling": pooling},
    }
    if uniform is not None:
        probes["uniformity"] = {"value": uniform}
    return make_record(method, seed, {"STSB": average}, probes=probes)


def six(averages: Sequence[float] = AVERAGES) -> list[RunRecord]:
    sides = zip(ENERGIES, averages, UNIFORM, strict=True)
    return [record(f"m{i}", *values) for i, values in enumerate(sides)]


def source_of(records: Sequence[RunRecord], **more: object) -> Campaign:
    return replace(make_campaign(ResultStore(Path("nowhere"), "camp"), records), **more)  # type: ignore[arg-type]


def energy(records: Sequence[RunRecord], **more: object) -> Relation:
    return next(one for one in all_relations(source_of(records, **more)) if one.quantity == "E_CLS")


def test_the_correlations_by_scipy() -> None:
    found = energy(six())
    xy, xz, yz = (
        stats.spearmanr(*pair).statistic
        for pair in ((ENERGIES, AVERAGES), (ENERGIES, UNIFORM), (AVERAGES, UNIFORM))
    )
    partial = (xy - xz * yz) / ((1 - xz**2) * (1 - yz**2)) ** 0.5
    assert found.rho.value == pytest.approx(xy)
    assert found.partial.value == pytest.approx(partial)
    assert found.with_uniformity == pytest.approx(xz)
    for rho, value, n in ((found.rho, xy, 6), (found.partial, partial, 5)):  # one held fixed
        low, high = spearman_interval(value, n)
        assert rho.low == pytest.approx(low)
        assert rho.high == pytest.approx(high)
    (grid,) = mechanism_grids(source_of(six()))
    assert not missing_facts(grid.title, "T, 3 sentences;", "sts7, profile mini")
    assert [row[:3] for row in grid.rows] == [("E_CLS", "6", "6"), ("uniformity", "6", "6")]
    assert grid.rows[0][3] == f"{xy:+.2f}"
    assert grid.rows[1][5:] == ("-", "-", "-")
    rows = (
        find_coverage("rank correlation", 6, 6, xy).measured,
        find_coverage("partial rank correlation", 6, 6, partial, design="normal, z 0.5").measured,
    )
    (note,) = (note for note in grid.notes if "simulations" in note)
    assert not missing_facts(note, *(f"{100 * row:.0f}%" for row in rows), "(n = 5), ", "fixed (n = 5)")


def test_a_point_is_a_method_not_a_run() -> None:
    more = record("m5", 0.8, 0.97, -2.4, seed=2)
    point = energy([*six(), more]).points["m5"]
    assert (point.value, point.score, point.uniformity) == pytest.approx((0.7, 0.91, -2.3))
    assert energy([*six(), more]).rho == energy(six([*AVERAGES[:5], 0.91])).rho


@pytest.mark.parametrize(
    ("energies", "averages", "rho"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 1, 1, 1), (1, 2, 3, 4), None),
        ((1, 2, 3, 4), (1, 1, 1, 1), None),
        ((1, 2, 3, 4), (1, 2, 3, 4), 1.0),
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 1.0),  # 1 - 2e-16 in floating point
        ((1, 2, 3, 4), (4, 3, 2, 1), -1.0),
    ],
)
def test_no_rho_and_no_interval(
    energies: tuple[float, ...], averages: tuple[float, ...], rho: float | None
) -> None:
    pairs = enumerate(zip(energies, averages, strict=True))
    records = [record(f"m{i}", x, y / 10, -2.0 - i) for i, (x, y) in pairs]
    found = energy(records)
    assert found.rho == Rho(rho)
    assert found.partial == Rho(None)  # fewer than five, or in the order of uniformity
    (grid,) = mechanism_grids(source_of(records))
    assert grid.rows[0][4:7] == ("-", "-", "-")
    assert any(note.startswith("No rho: it takes 4") for note in grid.notes)


def test_methods_that_share_stages_count_as_one() -> None:
    records = six()
    records[1].training["stages"]["teacher/simcse"] = {"key": "m0 1"}
    records[2].training["stages"]["sub"] = {"key": "m1 1"}
    found = energy(records)
    assert (len(found.points), found.independent) == (6, 4)
    assert found.rho.value == energy(six()).rho.value
    assert (found.rho.low, found.rho.high) == spearman_interval(found.rho.value or 0, 4)
    assert found.partial.value is not None
    assert found.partial.low is None  # that takes five
    records[3].training["stages"]["sub"] = {"key": "m0 1"}
    assert energy(records).rho.low is None
    (grid,) = mechanism_grids(source_of(records))
    assert any(note.startswith("An interval takes 4") and note.endswith(" 5.") for note in grid.notes)
    assert count_independent([]) == 0
    assert count_independent(map(frozenset, (["a"], ["b"], ["c"], ["a", "c"]))) == 2
    assert count_independent([frozenset()] * 3) == 3


def test_who_is_left_out_and_why() -> None:
    bare = replace(make_record("bare", 1, {"STSB": 0.3}), probes={})
    labelled = record("labelled", 0.9, 0.99)
    labelled.training["supervised"] = True
    mean, unknown = record("mean", 0.9, 0.1, pooling="avg"), record("unknown", 0.9, 0.1, pooling="")
    scorer = record("scorer", 0.9, 0.2)
    scorer.probes.update(cls_energy={"missing": "no vectors"}, uniformity={"missing": "no vectors"})
    records = [*six(), bare, labelled, mean, unknown, scorer]
    left_out = energy(records).left_out
    reasons = {"bare": "no probes", "labelled": "labels", "mean": "pools avg", "unknown": "not known"}
    assert [name for name in reasons if reasons[name] not in left_out.pop(name)] == []
    assert left_out == {"scorer": "no vectors"}
    assert (energy(records).rho, energy(records).partial) == (energy(six()).rho, energy(six()).partial)
    assert "labelled" in energy(records, rank_supervised=True).points
    (grid,) = mechanism_grids(source_of(records))
    assert grid.rows[1][1] == "8"  # uniformity is every pooling's
    assert not missing_facts(grid.notes, "E_CLS: mean (it", "all rows: bare (it")


def test_uniformity_and_sentences_are_those_of_all_methods() -> None:
    found = energy([*six(), record("m6", 0.7, 0.4, None)])
    assert len(found.points) == 7
    assert (found.partial, found.with_uniformity) == (Rho(None), None)
    records = six()
    records[2].probes["data"] = {"tasks": {"T": {}}, "sentences": 4}
    with pytest.raises(NotComparableError, match="different sentences"):
        mechanism_grids(source_of(records))


def test_one_method_and_hostile_names() -> None:
    (grid,) = mechanism_grids(source_of(six()[:1]))
    assert [row[1:4] for row in grid.rows] == [("1", "1", "-")] * 2
    records = [record(name, 0.1 * i, 0.5 + 0.05 * i, pooling=HOSTILE[0]) for i, name in enumerate(HOSTILE)]
    page = render_report(source_of(records), "html")
    section = page[page.index('<section id="mechanism"') :]
    assert "pools &lt;script&gt;document" in section
    assert "<script>document" not in page


def test_the_figure_has_the_points_of_the_table() -> None:
    (figure,) = (one for one in suite_figures(source_of(six())) if one.name.endswith("-energy"))
    assert [series.x for series in figure.series] == [(value,) for value in ENERGIES]
    assert not missing_facts(figure.note, "rho +0.77", "95% interval [")


BERT = "bert-base"
FIVE = ("a", "b", "c", "d", "e")
CHEAP, DEAR = (0.1, 0.2, 0.3, 0.4, 0.5), (0.55, 0.75, 0.65, 0.95, 0.85)
PRINTED = ("simcse", "esimcse", "diffcse", "rankcse", "tncse")


def runs(
    profile: str, averages: dict[str, float], *, seeds: Sequence[int | None] = (1, 2, 3), **more: Any
) -> list[RunRecord]:
    """Seeds of each method that hardly differ: all methods are told apart."""
    return [
        make_record(method, seed, {"STSB": value + 1e-4 * (seed or 0)}, profile=profile, **more)
        for method, value in averages.items()
        for seed in seeds
    ]


def two(first: Sequence[float] = CHEAP, second: Sequence[float] = DEAR, **more: Any) -> list[RunRecord]:
    """Five methods in two profiles."""
    both = (("cheap", first), ("dear", second))
    return [one for name, xs in both for one in runs(name, dict(zip(FIVE, xs, strict=True)), **more)]


def tables(tmp_path: Path, records: Sequence[RunRecord], **more: Any) -> tuple[Grid, Grid]:
    first, second = table_grids(campaign(tmp_path, *records, **more), "order")
    return first, second


def said(grid: Grid, start: str) -> str:
    """The note that begins so."""
    (note,) = (note for note in grid.notes if note.startswith(start))
    return note


def test_two_settings_by_hand(tmp_path: Path) -> None:
    grid, methods = tables(tmp_path, two())
    # ranks 1 2 3 4 5 against 1 3 2 5 4: rho = 1 - 6 * 4 / (5 * 24), 8 of 10 pairs in the same order
    low, high = spearman_interval(0.8, 5)
    assert grid.rows == (
        ("cheap, sts7", "dear, sts7", "5", "5", "+0.80", f"[{low:+.2f}, {high:+.2f}]", "+0.60", "8 of 10"),
    )
    assert methods.header == ("method", "cheap, sts7", "dear, sts7")
    cells = {row[0]: [cell.sign for cell in row[1:] if isinstance(cell, ScoreCell)] for row in methods.rows}
    assert cells == {
        "e": [" (1)", " (2)"],
        "d": [" (2)", " (1)"],
        "c": [" (3)", " (4)"],
        "b": [" (4)", " (3)"],
        "a": [" (5)", " (5)"],
    }
    assert list(cells) == ["e", "d", "c", "b", "a"]
    assert not any(note.startswith(("Fewer", "Left out", "published", "No rho")) for note in grid.notes)


def test_only_pairs_that_both_tell_apart_count(tmp_path: Path) -> None:
    noisy = [
        replace(one, scores=tuple(replace(s, value=s.value + 0.3 * (one.seed or 0)) for s in one.scores))
        if (one.profile, one.method) == ("dear", "d")
        else one
        for one in two()
    ]
    grid, _ = tables(tmp_path, noisy)
    # d is told from none of the four others; b and c are told apart, the other way round
    assert grid.rows[0][-1] == "5 of 6"
    grid, _ = tables(tmp_path, two(seeds=(1,)))
    assert grid.rows[0][2:] == ("5", "5", "+0.80", "[-0.46, +0.99]", "+0.60", "-")
    assert said(grid, "Nothing could be tested").endswith(": cheap, sts7; dear, sts7.")


@pytest.mark.parametrize(
    ("averages", "row", "note"),
    [
        (CHEAP, ("+1.00", "-", "+1.00", "10 of 10"), "No interval: rho is 1 or -1, or fewer than 4 groups"),
        (tuple(1 - x for x in CHEAP), ("-1.00", "-", "-1.00", "0 of 10"), "No interval: rho is"),
        ((0.5,) * 5, ("-", "-", "-", "-"), "No rho: all averages of one setting are equal."),
        # equal but for rounding: a and b are a tie, and no longer 1
        ((0.3, 0.1 + 0.2, 0.5, 0.6, 0.7), ("+0.97", None, "+0.95", None), ""),
    ],
)
def test_ends_and_ties(tmp_path: Path, averages: tuple[float, ...], row: tuple[str, ...], note: str) -> None:
    grid, methods = tables(tmp_path, two(second=averages))
    assert all(want in (None, cell) for want, cell in zip(row, grid.rows[0][4:], strict=True))
    assert any(text.startswith(note) for text in grid.notes)
    ranks = [cell.sign for row in methods.rows if isinstance(cell := row[2], ScoreCell)]
    if averages[0] == averages[1]:
        assert ranks == [" (1)"] * 5
    elif averages[0] == 0.3:
        assert ranks == [" (1)", " (2)", " (3)", " (4)", " (4)"]


def test_fewer_than_four_methods_in_common(tmp_path: Path) -> None:
    records = [*two(), *runs("third", {"a": 0.3, "b": 0.2, "c": 0.4})]
    grid, methods = tables(tmp_path, records)
    assert len(grid.rows) == 1
    assert not missing_facts(
        said(grid, "Fewer than 4"), ": cheap, sts7 and", "; dear, sts7 and", "third, sts7 (3)."
    )
    assert "third, sts7" not in methods.header
    with pytest.raises(InputError, match="--table order, campaign camp: no two settings"):
        tables(tmp_path, [one for one in records if one.method in "abc"])


def test_published_averages_by_their_names(tmp_path: Path) -> None:
    averages = dict(zip(PRINTED, (0.1, 0.2, 0.3, 0.5, 0.4), strict=True))
    records = [
        *runs("mini", averages),
        *runs("mini", {"whitening": 0.05, "word_overlap": 0.01, "mine": 0.9}, seeds=(None,), corpus=None),
    ]
    grid, methods = tables(tmp_path, records)
    # 66.28 76.25 78.27 78.49 79.58 80.10 are printed in this order
    assert grid.rows[0] == ("mini, sts7", "published, bert-base", "6", "6", "+1.00", "-", "+1.00", "15 of 15")
    assert [row[:3] for row in grid.rows[1:]] == [
        ("mini, sts7", "published, roberta-base", "6"),
        ("published, bert-base", "published, roberta-base", "6"),
    ]
    shown = {row[0]: row[2:] for row in methods.rows}
    assert shown["whitening"] == (Quoted("66.28", False, " (6)"), Quoted("61.73", False, " (6)"))
    assert shown.keys() == {*PRINTED, "whitening"}  # the others stand in one setting
    assert "median" in said(grid, "published: ")


def test_tables_that_print_others_give_their_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = published_tables.published_rows("sts7")
    table, readme = (line for line in lines if line.first.method == "jtcse" and line.first.backbone != BERT)
    assert (table.figures["avg"].text, readme.figures["avg"].text) == ("79.94", "79.95")
    records = runs("mini", {method: 0.1 * place for place, method in enumerate((*PRINTED, "jtcse"))})

    def figure() -> Quoted:
        _, methods = tables(tmp_path, records)
        (found,) = (row[-1] for row in methods.rows if row[0] == "jtcse")
        assert isinstance(found, Quoted)
        return found

    assert figure() == Quoted("79.94", False, " [a] (1)")  # the footnote says that its mean is another
    other = replace(table, figures={"avg": replace(table.figures["avg"], paper="tncse", text="79.97")})
    monkeypatch.setattr(method_order, "published_rows", lambda suite: (*lines, other))
    assert figure().text == "79.955"


def test_which_methods_are_compared(tmp_path: Path) -> None:
    plain, more = two(), []
    for profile in ("cheap", "dear"):
        learned = runs(profile, {"taught": 0.99})
        more += [replace(one, training={**one.training, "supervised": True}) for one in learned]
        more += runs(profile, {"hf:x": 0.98}, seeds=(None,), name="hf", corpus=None)
        more += runs(profile, {"word_overlap": 0.01}, seeds=(None,), corpus=None)
    copied = runs("cheap", {"edfse": 0.97})
    for one in copied:
        one.training["stages"]["simcse"]["text"] = {"name": "x", "sha256": "c" * 64, "paired": True}
    more += [replace(one, world={"seed": 1}) for one in copied] + runs("dear", {"edfse": 0.2})
    grid, _ = tables(tmp_path, [*plain, *more])
    assert grid.rows[0][2] == "6"
    for name in ("cheap, sts7", "dear, sts7"):
        assert f"Left out of {name}, {method_order.SUPERVISED}: taught." in grid.notes
        assert f"Left out of {name}, {method_order.NOT_OURS}: hf:x." in grid.notes
    assert any(note.endswith(f"{method_order.PARAPHRASED}: edfse.") for note in grid.notes)
    grid, methods = tables(tmp_path, [*plain, *more], rank_supervised=True)
    assert grid.rows[0][2] == "7"
    assert methods.rows[0][0] == "taught"


def test_variants_suites_and_the_order_given(tmp_path: Path) -> None:
    averages = dict(zip(PRINTED, CHEAP, strict=True))
    records = [
        *runs("mini", averages),
        *runs("mini", {"tncse[sick=True]": 0.9, "simcse[lr=1]": 0.9}),
        *runs("mini", {"mine": 0.9, "mine[text=x]": 0.8}),
    ]
    grid, methods = tables(tmp_path, records)
    assert grid.rows[0][2] == "5"
    assert not missing_facts(said(grid, "mini, sts7:"), "printed tncse,", "not tncse[sick=True].")
    assert {row[0] for row in methods.rows} == set(PRINTED)
    records = [*two(), *runs("dear", dict(zip(FIVE, CHEAP, strict=True)), suite="toy")]
    grid, methods = tables(tmp_path, records, given=("b", "a", "c", "e", "d"), known=9, names={"b": "B!"})
    assert [row[:2] for row in grid.rows] == [
        ("cheap, sts7", "dear, sts7"),
        ("cheap, sts7", "dear, toy"),
        ("dear, sts7", "dear, toy"),
    ]
    assert said(grid, "Of one profile").endswith(" dear.")
    assert said(grid, "5 of 9 methods")
    assert [row[0] for row in methods.rows] == ["B!", "a", "c", "e", "d"]


def test_two_figures_of_the_pairs_with_most_methods(tmp_path: Path) -> None:
    made = order_figures(campaign(tmp_path, *two()))
    assert [(one.name, one.section) for one in made] == [("order-cheap-sts7-dear-sts7", "order")]
    first = made[0].series[0]
    assert (first.name, *first.x, *first.y) == ("a", pytest.approx(10.02), pytest.approx(55.02))
    assert numbers_in(made[0].note.replace("%", "")) == [5, 0.8, 95, -0.46, 0.99]
    records = [one for p in "uvwx" for one in runs(p, dict(zip(FIVE, CHEAP, strict=True)), seeds=(1,))]
    records += runs("y", {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}, seeds=(1,))
    made = order_figures(campaign(tmp_path, *records))
    assert [one.name for one in made] == [f"order-{a}-sts7-{b}-sts7" for a, b in ("uv", "uw")]
    assert "2 of 10 pairs" in made[0].note
    found = suite_figures(campaign(tmp_path, *two()))
    assert {one.section for one in found if one.title.startswith("Score and training")} == {"efficiency"}


def test_hostile_names(tmp_path: Path) -> None:
    averages = {name: 0.1 * place for place, name in enumerate(HOSTILE)}
    profiles = ("<b>cheap", "a & 50% _b_")
    records = [one for p in profiles for one in runs(p, averages, seeds=(1, 2))]
    source = campaign(tmp_path, *records)
    page, latex = render_report(source, "html"), render_report(source, "latex", "order")
    part = page[page.index('<section id="order"') :]
    part = part[: part.index("</section>")]
    assert "&lt;script&gt;document.title" in part
    assert not [mark for mark in ("<script>", "<img", "<b>cheap") if mark in part]
    assert part.count("<figure ") == 1
    assert escape_latex(profiles[1]) in latex
    assert "\\input{x}" not in latex
    assert "<b>" not in latex


def test_csv_and_json(tmp_path: Path) -> None:
    source = campaign(tmp_path, *two())
    rows = list(csv.DictReader(io.StringIO(render_report(source, "csv", "order"))))
    assert [(row["row"], row["column"], row["text"]) for row in rows[:4]] == [
        ("cheap, sts7", "setting B", "dear, sts7"),
        ("cheap, sts7", "methods", "5"),
        ("cheap, sts7", "independent", "5"),
        ("cheap, sts7", "rho", "+0.80"),
    ]
    (cell,) = (row for row in rows if (row["row"], row["column"]) == ("e", "cheap, sts7"))
    assert float(cell["value"]) == pytest.approx(0.5002)
    assert (cell["n"], cell["text"]) == ("3", " (1)")
    grid, methods = json.loads(render_report(source, "json", "order"))
    assert grid["rows"][0][:5] == ["cheap, sts7", "dear, sts7", "5", "5", "+0.80"]
    assert methods["rows"][0][1]["mean"] == pytest.approx(0.5002)


@pytest.fixture
def stored(tmp_path: Path) -> None:
    """Campaigns cheap and dear where commands look."""
    for one in two():
        store = ResultStore(tmp_path / "results", one.profile)
        weights = {"name": one.profile, "sha256": hashlib.sha256(one.profile.encode()).hexdigest()}
        one = replace(one, backbone=weights)  # else one key would have two results
        store.write(one.place, one, {"STSB": np.full(10, one.seed, np.float32)})


@pytest.mark.usefixtures("stored")
def test_campaigns_joined_and_filtered(cli: Cli) -> None:
    def ask(*arguments: str, campaign: str = "cheap,dear") -> tuple[int, str, str]:
        return cli("report", "--campaign", campaign, "--table", "order", *arguments)

    code, out, err = ask()
    assert (code, err) == (0, "")
    assert "8 of 10" in out
    code, out, _ = ask("--methods", "a,b,c,d", "--details")
    assert code == 0
    assert not missing_facts(out, "4 of 5 methods", "--methods")
    for arguments in (("--profile", "dear"), ("--methods", "a,b,c")):
        code, _, err = ask(*arguments)
        assert code == 2
        assert "no two settings" in err
    assert ask("--suite", "sts7")[0] == 0
    assert ask(campaign="dear")[0] == 2
    code, out, _ = ask("--columns", "rho,agree")
    assert [line.split() for line in out.splitlines()[2:5:2]] == [
        ["setting", "A", "rho", "agree"],
        ["cheap,", "sts7", "+0.80", "8", "of", "10"],
    ]
