"""An encoder's items against its reference's: intervals, verdicts, and what they can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from bench.errors import DataError
from bench.gate.item_judge import ItemPair, judge_items, smallest_detectable_item_drop
from bench.gate.verdict import Question
from bench.records.record import RunRecord
from bench.stats.argument_checks import make_generator
from tests.support.gate_records import OTHER, OTHER_DATA, average, one, record
from tests.support.item_draws import mean_draws
from tests.support.messages import missing_facts

Array = NDArray[np.float64]
ITEMS, DRAWS = 400, 400
OLD, NEW = ({"name": name, "sha256": name * 64} for name in "ab")
THERE: dict[str, Any] = {
    "provenance": {"versions": {"torch": "2.1"}, "device": "cpu", "threads": 1},
    "timing": {"processor": "two"},
}


def encoder(values: Sequence[float], weights: dict[str, str] = NEW, **changes: Any) -> RunRecord:
    """A record of these tasks; the predictions' hash is that of the values."""
    predictions = {"file": "toy.npz", "sha256": str(hash(tuple(values)))}
    base = {"method": "mine", "name": "hf", "backbone": weights, "predictions": predictions}
    return record([float(value) for value in values], None, **base | changes)


def pair(then: Array, now: Array, **changes: Any) -> ItemPair:
    """Both encoders' values of the (tasks, items), as scores and in common draws."""
    one, other = encoder(then.mean(1), OLD), encoder(now.mean(1), **changes)
    tasks = enumerate(zip(then, now, strict=True))
    both = np.stack([mean_draws(np.stack(t), make_generator(1, f"{n}"), DRAWS) for n, t in tasks], axis=2)
    return ItemPair(one, other, (both[:, 0], both[:, 1]), moved=float(np.abs(then - now).max()))


def values(fall: float, sd: float = 0.1, tasks: int = 2, seed: int = 1, items: int = ITEMS) -> Any:
    """Items of two encoders whose scores fall by this on average; ``sd`` is that of their differences."""
    random = np.random.default_rng(seed)
    then = 0.6 + 0.2 * random.normal(size=(tasks, items))
    noise = random.normal(size=(tasks, items))
    noise -= noise.mean(1, keepdims=True)
    return then, then - fall + sd * noise


@pytest.mark.parametrize(
    ("fall", "sd", "status", "code"),
    [
        (0.02, 0.1, "regression", 1),
        (0.02, 0.8, "unclear", 0),
        (0.004, 0.01, "ok", 0),  # the interval lies above 0, but it is less than the tolerance
        (-0.02, 0.1, "improved", 0),
        (-0.02, 0.8, "ok", 0),
        (-0.004, 0.01, "ok", 0),
    ],
)
def test_paired_items_decide(fall: float, sd: float, status: str, code: int) -> None:
    gate = judge_items([pair(*values(fall, sd))])
    cell = one(gate)
    assert (cell.status, gate.exit_code, gate.tested, cell.question) == (status, code, 1, Question.ITEMS)
    assert (cell.key, cell.seeds, cell.new_seeds) == (("mini", "mine", "toy"), (None,), (None,))
    assert cell.test == "items' bootstrap"
    assert list(cell.drops) == ["T1", "T2", "avg"]
    assert all(drop.drop == pytest.approx(fall) for drop in cell.drops.values())
    assert average(cell).reference == pytest.approx(0.6, abs=0.05)
    assert (cell.stage, cell.limit) == (None, None)


def test_the_interval_is_that_of_common_draws() -> None:
    """Both encoders' scores vary by a point with the items; their difference by a tenth of it."""
    then, now = values(0.01, 0.02)
    found = pair(then, now)
    assert found.draws is not None
    was, is_now = (np.asarray(side).mean(1) for side in found.draws)
    assert was.std() > 5 * (was - is_now).std()
    drop = average(one(judge_items([found])))
    assert (drop.low, drop.high) == pytest.approx(tuple(np.quantile(was - is_now, [0.025, 0.975])))
    assert (drop.p or 0) < 0.001
    scipys = stats.bootstrap(((then - now).mean(0),), np.mean, method="percentile", n_resamples=2000, rng=1)
    assert (drop.low, drop.high) == pytest.approx(tuple(scipys.confidence_interval), abs=3e-4)


def suites(*pairs: ItemPair) -> list[ItemPair]:
    """Each pair as a suite of its own."""
    return [
        replace(p, then=replace(p.then, suite=f"s{n}"), now=p.now and replace(p.now, suite=f"s{n}"))
        for n, p in enumerate(pairs)
    ]


def test_suites_are_corrected_together() -> None:
    three = suites(pair(*values(0.01, 0.13)), pair(*values(0.02, 0.1, seed=2)), pair(*values(0.001, seed=3)))
    gate = judge_items(three)
    assert gate.tested == 3
    assert one(judge_items(three[:1])).status == "regression"
    assert [cell.status for cell in gate.cells] == ["unclear", "regression", "ok"]
    first = average(gate.cells[0])
    assert three[0].draws is not None
    differences = np.subtract(*three[0].draws).mean(1)
    ends = np.quantile(differences, [0.025 / 3, 1 - 0.025 / 3])
    assert (first.low, first.high) == pytest.approx(tuple(ends))
    assert first.adjusted_p == pytest.approx(3 * (first.p or 0))
    tasks = [cell.drops[task] for cell in gate.cells for task in ("T1", "T2")]
    expected = multipletests([task.p for task in tasks], method="holm")[1]
    assert [task.adjusted_p for task in tasks] == pytest.approx(list(expected))
    assert all(task.low is None for task in tasks)


def test_an_equal_suite_takes_no_part_in_the_correction() -> None:
    then, now = values(0.01, 0.13)
    equal = pair(then, then, weights=OLD)
    gate = judge_items(suites(pair(then, now), equal))
    assert (gate.tested, [cell.status for cell in gate.cells]) == (1, ["regression", "equal"])
    assert not missing_facts(gate.cells[1].reasons, "reference's own")
    assert average(gate.cells[1]).drop == 0
    other = one(judge_items([pair(then, then)]))
    assert (other.status, missing_facts(other.reasons, "other weights")) == ("equal", [])


@pytest.mark.parametrize(
    ("fall", "status"), [(0.006, "regression"), (0.004, "ok"), (-0.006, "improved"), (-0.004, "ok")]
)
def test_where_items_cant_be_drawn_the_tolerance_decides(fall: float, status: str) -> None:
    made = replace(pair(*values(fall, 0.8)), draws=None, why="no predictions are kept")
    gate = judge_items([made])
    cell = one(gate)
    assert (cell.status, cell.test, cell.sees, gate.tested) == (status, None, 0.005, 0)
    assert not missing_facts(cell.reasons, "tolerance alone decides", "no predictions")
    assert (average(cell).low, average(cell).p, average(cell).adjusted_p) == (None, None, None)


def test_failed_and_missing() -> None:
    then = encoder([0.6], OLD)
    failed = encoder([0.6], status="failed", scores=(), predictions=None, reason="BenchError: equal")
    gate = judge_items(suites(ItemPair(then, failed), ItemPair(then, None)))
    assert ([cell.status for cell in gate.cells], gate.exit_code) == (["failed", "missing"], 1)
    assert not missing_facts(gate.cells[0].reasons, "BenchError: equal")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name": "st"}, "method then hf, now st"),
        ({"options": {"scale": 2.0}}, "option scale then 1.0, now 2.0"),
        ({"version": 2}, "method version then 1, now 2"),
        ({"tasks": OTHER_DATA}, "data T1 then 000000000000, now 111111111111"),
        ({"evaluation": {"version": 2}}, "version of the evaluation then 1, now 2"),
        ({"evaluation": {"precision": "bf16"}}, "precision then fp32, now bf16"),
        ({"world": {"seed": 2}}, "world seed then not set, now 2"),
    ],
)
def test_other_than_weights_do_not_compare(changes: dict[str, Any], line: str) -> None:
    then = encoder([0.6], OLD)
    for value in (0.6, 0.1):  # equal numbers too
        gate = judge_items([ItemPair(then, encoder([value], **changes))])
        assert (one(gate).status, one(gate).reasons, gate.exit_code) == ("different", (line,), 3)


def test_a_methods_file_may_change_as_weights_do() -> None:
    plugins = {"plugins": {"hf": {"file": "mine.py", "sha256": "c" * 64}}}
    made = pair(*values(0.02), provenance=plugins)
    assert one(judge_items([made])).status == "regression"


def own(changes: dict[str, Any], by: float, **more: Any) -> ItemPair:
    """The reference's own weights, whose similarities moved by this."""
    then, _ = values(0.0)
    return replace(pair(then, then + by, weights=OLD, **changes), **more)


@pytest.mark.parametrize(
    ("changes", "by", "strict", "status", "stage"),
    [
        ({}, 1e-6, False, "ok", "similarities"),
        ({}, 1e-6, True, "changed", "similarities"),
        ({}, 0.02, True, "changed", "similarities"),  # for the better
        ({}, 0.02, False, "improved", "similarities"),
        ({}, -0.02, True, "regression", "similarities"),
        (THERE, 1e-6, True, "equal", None),
        (THERE, 1e-6, False, "equal", None),
        (THERE, 2e-3, True, "changed", "similarities"),
        (THERE, 2e-3, False, "ok", "similarities"),
        ({"provenance": OTHER}, 1e-6, True, "equal", None),
        ({"provenance": OTHER}, 2e-3, True, "changed", "similarities"),  # nothing is trained
    ],
)
def test_the_references_own_weights_give_its_numbers(
    changes: dict[str, Any], by: float, strict: bool, status: str, stage: str | None
) -> None:
    made = own(changes, by)
    gate = judge_items([made], strict=strict)
    cell = one(gate)
    assert (cell.status, cell.stage) == (status, stage)
    assert gate.strict == strict
    assert gate.exit_code == (status in ("changed", "regression"))
    assert not missing_facts(cell.reasons[0], "reference's own")
    assert made.now is not None
    other = judge_items([replace(made, now=replace(made.now, backbone=NEW))], strict=True)
    assert one(other).status in ("ok", "improved", "regression")


def test_scores_that_move_where_similarities_do_not() -> None:
    """As another metric does; on another machine it isn't equal either."""
    same = {"predictions": own({}, 0.0).then.predictions}
    for changes in ({}, THERE):
        cell = one(judge_items([own(changes | same, 0.003, moved=0.0)], strict=True))
        assert (cell.status, cell.stage) == ("changed", "scores")


def test_similarities_that_move_where_the_average_does_not() -> None:
    for moved, status, stage in ((2e-3, "changed", "similarities"), (1e-4, "equal", None)):
        cell = one(judge_items([own(THERE, 1e-6, moved=moved)], strict=True))
        assert (cell.status, cell.stage) == (status, stage)


def test_versions_and_hardware_are_warnings() -> None:
    gate = judge_items([pair(*values(0.02), **THERE)])
    assert (len(gate.warnings), missing_facts(gate.warnings, "CPU then one")) == (1, [])


@pytest.mark.long
def test_a_drop_of_that_size_fails_with_the_chance_that_is_said() -> None:
    """Over samples of items, at a tolerance below and above what the items show; half of it fails less."""
    gates = 150
    for tolerance in (0.0, 0.005, 0.03):
        truth = max(tolerance, 1.96 * 0.1 / 300**0.5) + 0.8416 * 0.1 / 300**0.5  # the error is known here
        failed, said = {1.0: 0, 0.5: 0}, []
        for number in range(gates):
            random = np.random.default_rng(number)
            then = 0.6 + 0.2 * random.normal(size=(1, 300))
            noise = 0.1 * random.normal(size=(1, 300))
            for share in failed:
                gate = judge_items([pair(then, then - share * truth + noise)], tolerance=tolerance)
                failed[share] += gate.exit_code
            said.append(one(gate).sees)
        assert np.mean(said) == pytest.approx(truth, rel=0.03)  # type: ignore[arg-type]
        assert failed[1.0] / gates == pytest.approx(0.8, abs=2.5 * (0.16 / gates) ** 0.5)
        assert failed[0.5] / gates < 0.45


def test_an_equal_suite_sees_no_better_than_if_the_next_encoder_shared_nothing() -> None:
    then, now = values(0.01, 0.05)
    equal, moved = (one(judge_items([pair(then, new)])).sees or 0.0 for new in (then, now))
    error = 2**0.5 * 0.2 / (2 * ITEMS) ** 0.5
    assert equal == pytest.approx((1.96 + 0.8416) * error, rel=0.1)
    assert moved < equal
    second = judge_items(suites(pair(then, now), pair(then, then))).cells[1]
    assert (second.sees or 0.0) > equal  # one of two that changed, if it did


def test_it_is_never_below_the_tolerance() -> None:
    made = pair(*values(0.01, 1e-9))
    assert smallest_detectable_item_drop(made, 0.95, 0.005) == pytest.approx(0.005)


def test_bad_pairs_are_refused() -> None:
    made = pair(*values(0.01))
    assert made.now is not None
    lacking = replace(made, now=replace(made.now, scores=made.now.scores[1:]))
    with pytest.raises(DataError, match=r"new record of mine .* T1"):
        judge_items([lacking])
    assert made.draws is not None
    with pytest.raises(ValueError, match="draws have shapes"):
        judge_items([replace(made, draws=(made.draws[0], np.asarray(made.draws[1])[:50]))])
    was, is_now = (np.asarray(side)[:, :1] for side in made.draws)
    with pytest.raises(ValueError, match="draws of 1 tasks; expected 2"):
        judge_items([replace(made, draws=(was, is_now))])
    assert judge_items([]).exit_code == 0
