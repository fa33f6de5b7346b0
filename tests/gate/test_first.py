"""Where numbers are due to be equal, and the first stage at which they aren't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.gate.divergence import CLOSE, LOSSES, REPEATS, find_first_change, find_version_differences
from bench.gate.judge import judge
from bench.gate.verdict import CellVerdict, Question, Status
from bench.gate.verdict_tables import describe_gate, format_gate_text
from bench.records.record import RunRecord
from tests.support.campaigns import make_record
from tests.support.gate_records import one
from tests.support.messages import missing_facts

STAGES = {
    "joint": {"dev_curve": [[4, 0.57]], "last_loss": 0.9, "steps": 4, "key": "a"},
    "sub1": {"dev_curve": [[20, 0.3]], "last_loss": 0.4, "steps": 20, "key": "b"},
}
CPU: dict[str, Any] = {"timing": {"processor": "another"}}
VERSION: dict[str, Any] = {"provenance": {"versions": {"torch": "3"}, "device": "cpu", "threads": 1}}


def record(value: float = 0.6, seed: int | None = 1, **changes: Any) -> RunRecord:
    base: dict[str, Any] = {
        "backbone": None,
        "provenance": {"versions": {"torch": "2"}, "device": "cpu", "threads": 1},
        "timing": {"processor": "one"},
        "training": {"stages": STAGES} if seed is not None else {},
        "predictions": {"file": "toy.npz", "sha256": f"{value!r}"},
    }
    made = make_record("noise", seed, {"T1": value}, suite="toy", corpus=None)
    return replace(made, **base | changes)


def stages(**changes: Any) -> dict[str, Any]:
    return {"training": {"stages": {role: {**STAGES[role], **changes.get(role, {})} for role in STAGES}}}


@pytest.mark.parametrize(
    ("now", "stage"),
    [
        (record(), None),
        (record(predictions={"file": "toy.npz", "sha256": "f"}), "similarities"),
        (record(0.6000000001, predictions=record().predictions), "scores"),
        (record(**stages(sub1={"last_loss": 0.4000000001})), "training of sub1"),
        (record(**stages(joint={"last_loss": 0.8}, sub1={"dev_curve": [[20, 0.31]]})), "training of sub1"),
        (record(**stages(joint={"last_loss": 0.8})), "training of joint"),
        (record(**stages(joint={"key": "other"})), None),  # asked for, not measured
    ],
)
def test_any_byte_on_equal_versions_and_cpu(now: RunRecord, stage: str | None) -> None:
    assert find_first_change([(record(), now)], {}) == (stage, None)
    assert find_first_change([(record(seed=2), record(seed=2)), (record(), now)], {}) == (stage, None)


@pytest.mark.parametrize("elsewhere", [CPU, VERSION])
def test_a_deterministic_cell_is_close_elsewhere(elsewhere: dict[str, Any]) -> None:
    then, now = record(seed=None), record(0.6001, None, **elsewhere)
    assert find_first_change([(then, now)], {then.place: CLOSE}) == (None, CLOSE)
    assert find_first_change([(then, now)], {then.place: 1.01 * CLOSE}) == ("similarities", None)
    assert find_first_change([(then, now)], {}) == ("similarities", None)  # nobody can tell how far it moved


def test_a_seed_repeats_on_another_cpu_with_equal_versions_alone() -> None:
    near, far = 0.6 - 0.9 * REPEATS, 0.6 - 1.1 * REPEATS
    assert find_first_change([(record(), record(near, **CPU))], {}) == (None, None)
    assert find_first_change([(record(), record(far, **CPU))], {}) == ("similarities", None)
    moved = stages(sub1={"last_loss": 0.4 * (1 + 1.1 * LOSSES)}, joint={"last_loss": 0.9001})
    assert find_first_change([(record(), record(0.6, **CPU, **moved))], {})[0] == "training of sub1"
    near_loss = stages(sub1={"last_loss": 0.4 * (1 + 0.9 * LOSSES)})
    assert find_first_change([(record(), record(0.6, **CPU, **near_loss))], {}) == (None, None)
    assert find_first_change([(record(), record(far, **CPU, **moved))], {})[0] == "training of sub1"
    assert find_first_change([(record(), record(far, **CPU, **VERSION))], {}) == (None, None)


COURSE: dict[str, Any] = {
    "dev_curve": [[4, 0.5], [8, 0.6], [12, 0.55]],
    "selected_dev": 0.6,
    "loss_curve": [[1, 3.0], [2, 2.5], [12, 1.0]],
    "gradient_norms": [4.0, None],
    "last_loss": 1.0,
}


def course(**changes: Any) -> dict[str, Any]:
    """The stages of a record whose only stage has measurements of its course."""
    return {"training": {"stages": {"simcse": {**COURSE, **changes}}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"selected_dev": 0.6 + 1.1 * REPEATS},  # chosen on other pairs
        {"dev_curve": [[4, 0.5 + 1.1 * REPEATS], [8, 0.6], [12, 0.55]]},
        {"dev_curve": [[4, 0.5], [8, 0.6]]},
        {"loss_curve": [[1, 3.0], [2, 2.5 * (1 + 1.1 * LOSSES)], [12, 1.0]]},
        {"gradient_norms": [8.0, None]},  # a loss x 2, which clipping hides from weights and losses
        {"gradient_norms": [4.0, 4.0]},
        {"gradient_norms": [4.0]},
    ],
)
def test_the_course_of_a_training_repeats_on_another_cpu(changes: dict[str, Any]) -> None:
    then, now = record(**course()), record(**course(**changes), **CPU)
    assert find_first_change([(then, now)], {}) == ("training of simcse", None)
    found = cell([then], [now])
    assert (found.status, found.stage) == (Status.CHANGED, "training of simcse")


def test_the_course_may_move_as_hardware_moves_it_and_older_records_lack_norms() -> None:
    near = course(
        dev_curve=[[4, 0.5 - 0.9 * REPEATS], [8, 0.6], [12, 0.55]],
        loss_curve=[[1, 3.0 * (1 - 0.9 * LOSSES)], [2, 2.5], [12, 1.0 + 0.5 * LOSSES]],
        gradient_norms=[4.0 * (1 + 0.9 * LOSSES), None],
    )
    then = record(**course())
    assert find_first_change([(then, record(**near, **CPU))], {}) == (None, None)
    older = course()
    del older["training"]["stages"]["simcse"]["gradient_norms"]
    for changes in ({}, CPU):
        assert find_first_change([(record(**older), record(**course(), **changes))], {}) == (None, None)


def test_a_strict_gate_fails_other_versions_unless_they_are_allowed() -> None:
    then = [record(0.6 + seed / 1000, seed) for seed in (1, 2, 3)]
    for value in (0.6, 0.6002, 0.62):  # equal, moved and improved
        now = [record(value + seed / 1000, seed, **VERSION) for seed in (1, 2, 3)]
        gates = {
            "strict": judge(then, now, strict=True),
            "allowed": judge(then, now, strict=True, allow_versions=True),
            "plain": judge(then, now),
        }
        for name, gate in gates.items():
            assert gate.exit_code == (name == "strict")
            assert (one(gate).status is Status.UNVERIFIED) == (name == "strict")
            assert one(gate).versions == ("torch then 2, now 3",)
            facts = ("torch then 2, now 3", "only averages", "points would not show")
            for said in (describe_gate(gate), format_gate_text(gate)):
                assert not missing_facts(" ".join(said.split()), *facts)
                assert ("accept others with --allow-versions" in said) == (name == "strict")


def test_other_versions_excuse_no_regression_and_leave_untrained_cells_alone() -> None:
    then, now = [record()], [record(0.5, **VERSION)]
    assert cell(then, now, allow_versions=True).status in (Status.REGRESSION, Status.UNCLEAR)
    fell = [record(0.5 + seed / 1000, seed, **VERSION) for seed in (1, 2, 3)]
    assert cell([record(0.6 + seed / 1000, seed) for seed in (1, 2, 3)], fell).status is Status.REGRESSION
    then, now = [record(seed=None)], [record(0.6000001, None, **VERSION)]
    found = cell(then, now, moved={then[0].place: 3e-7})
    assert (found.status, found.versions) == (Status.EQUAL, ())


def test_builds_and_patches_of_a_version_are_hardware() -> None:
    def made(torch: str, python: str) -> RunRecord:
        versions = {"versions": {"torch": torch}, "python": python, "device": "cpu", "threads": 1}
        return record(provenance=versions)

    then = made("2.13.0+cpu", "3.11.7")
    assert find_version_differences([then], [made("2.13.0", "3.11.14")]) == ()
    assert len(find_version_differences([then], [made("2.13.1+cpu", "3.12.0")])) == 2
    assert len(find_version_differences([then], [record()])) == 2  # Python is unknown there


def cell(then: list[RunRecord], now: list[RunRecord], **settings: Any) -> CellVerdict:
    return one(judge(then, now, strict=True, **settings))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("value", "status"), [(0.6001, Status.OK), (0.62, Status.IMPROVED)])
def test_changed_numbers_fail_a_strict_gate_alone(strict: bool, value: float, status: Status) -> None:
    for seed, question in ((None, Question.RECOMPUTE), (1, Question.RETRAIN)):
        gate = judge([record(seed=seed)], [record(value, seed)], strict=strict)
        found = one(gate)
        assert found.question == question
        assert (found.status, found.stage) == (Status.CHANGED if strict else status, "similarities")
        assert gate.exit_code == int(strict)
        assert not missing_facts(found.reasons, "equal versions", "in similarities")


def test_a_regression_stays_one_and_other_seeds_are_no_repetition() -> None:
    assert cell([record()], [record(0.5)]).status == Status.REGRESSION
    then, now = ([record(0.6 + s / 1000, s) for s in seeds] for seeds in ((1, 2, 3), (4, 5, 6)))
    found = cell(then, now)
    assert (found.status, found.stage) == (Status.OK, None)


def test_as_close_as_another_cpu_comes_is_equal() -> None:
    then, now = [record(seed=None)], [record(0.6000001, None, **CPU)]
    found = cell(then, now, moved={then[0].place: 3e-7})
    assert found.status == Status.EQUAL
    assert not missing_facts(found.reasons, "than 3e-07", "another CPU")
    found = cell(then, now, moved={then[0].place: 3e-3})
    assert (found.status, found.stage) == (Status.CHANGED, "similarities")
    assert not missing_facts(found.reasons, "numbers changed", "another CPU", "in similarities")


def test_a_changed_plugin_file_is_what_the_gate_judges() -> None:
    files = [{"plugins": {"noise": {"file": "mine.py", "sha256": sha}}} for sha in "12"]
    then, now = (record(provenance={**record().provenance, **file}) for file in files)
    assert cell([then], [now]).status == Status.EQUAL
    assert cell([then], [replace(now, scores=record(0.5).scores)]).status == Status.REGRESSION
