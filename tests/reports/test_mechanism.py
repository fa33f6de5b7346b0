"""The table mechanism: what is probed against the score, over methods, with uniformity held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from bench.errors import NotComparableError
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.report import render_report
from bench.reports.tables.mechanism import all_relations, mechanism_grids
from bench.reports.tables.relation import Relation, Rho, count_independent
from bench.stats.coverage import find_coverage
from bench.stats.item_statistics import spearman_interval
from tests.support.campaigns import HOSTILE, make_record
from tests.support.messages import missing_facts

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


def campaign(records: Sequence[RunRecord], **more: object) -> Campaign:
    return replace(make_campaign(ResultStore(Path("nowhere"), "camp"), records), **more)  # type: ignore[arg-type]


def energy(records: Sequence[RunRecord], **more: object) -> Relation:
    return next(one for one in all_relations(campaign(records, **more)) if one.quantity == "E_CLS")


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
    (grid,) = mechanism_grids(campaign(six()))
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
    (grid,) = mechanism_grids(campaign(records))
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
    (grid,) = mechanism_grids(campaign(records))
    assert any(note.startswith("An interval takes 4") and note.endswith(" 5.") for note in grid.notes)


def test_groups_by_hand() -> None:
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
    (grid,) = mechanism_grids(campaign(records))
    assert grid.rows[1][1] == "8"  # uniformity is every pooling's
    assert not missing_facts(grid.notes, "E_CLS: mean (it", "all rows: bare (it")


def test_uniformity_that_one_method_lacks_is_not_held_fixed() -> None:
    found = energy([*six(), record("m6", 0.7, 0.4, None)])
    assert len(found.points) == 7
    assert (found.partial, found.with_uniformity) == (Rho(None), None)


def test_other_sentences_are_refused() -> None:
    records = six()
    records[2].probes["data"] = {"tasks": {"T": {}}, "sentences": 4}
    with pytest.raises(NotComparableError, match="different sentences"):
        mechanism_grids(campaign(records))


def test_one_method_and_hostile_names() -> None:
    (grid,) = mechanism_grids(campaign(six()[:1]))
    assert [row[1:4] for row in grid.rows] == [("1", "1", "-")] * 2
    records = [record(name, 0.1 * i, 0.5 + 0.05 * i, pooling=HOSTILE[0]) for i, name in enumerate(HOSTILE)]
    page = render_report(campaign(records), "html")
    section = page[page.index('<section id="mechanism"') :]
    assert "pools &lt;script&gt;document" in section
    assert "<script>document" not in page


def test_the_figure_has_the_points_of_the_table() -> None:
    (figure,) = (one for one in suite_figures(campaign(six())) if one.name.endswith("-energy"))
    assert [series.x for series in figure.series] == [(value,) for value in ENERGIES]
    assert not missing_facts(figure.note, "rho +0.77", "95% interval [")
