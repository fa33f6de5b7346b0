"""What a record says of its stages, read back from a file: in the order of their names there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.records.record import (
    RunRecord,
    count_training_sentences,
    distinct_stages,
    last_stages,
    parse_record,
    record_to_json,
    sum_training_seconds,
)
from bench.records.store import ResultStore
from bench.reports.tables.sweep_tables import stage_curves
from tests.support.campaigns import make_record
from tests.support.docs_commands import ROOT


def record(**keys: str) -> RunRecord:
    """A record with stages of these roles and keys, a curve of its own each; members' have "__" for "/"."""
    of: dict[str, Any] = {}
    made = make_record("m", 1, {"STSB": 0.7})
    (stage,) = made.training["stages"].values()
    for place, (name, key) in enumerate(keys.items()):
        own = {"key": key * 64, "sentences_seen": 100, "dev_curve": [[10, place / 10]]}
        of[name.replace("__", "/")] = {**stage, **own}
    timing = {**made.timing, "training_cpu_seconds": dict.fromkeys(of, 2.5)}
    made = replace(made, training={**made.training, "stages": of}, timing=timing)
    return parse_record(record_to_json(made), "x")


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        ({"simcse": "a"}, ["simcse"]),
        ({"sub1": "a", "sub2": "b", "joint": "c"}, ["joint"]),
        ({"rankcse": "c", "teacher1__simcse": "a", "teacher2__simcse": "b"}, ["rankcse"]),
        ({"distill": "d", "teacher__joint": "c", "teacher__sub1": "a", "teacher__sub2": "b"}, ["distill"]),
        ({"sub1": "a", "sub2": "b"}, ["sub1", "sub2"]),  # an ensemble, which both end
        ({"a__joint": "c", "b__simcse": "d"}, []),  # a union trains nothing itself
    ],
)
def test_the_stages_that_end_a_training(keys: dict[str, str], last: list[str]) -> None:
    made = record(**keys)
    assert list(last_stages(made)) == last
    roles = [name.replace("__", "/") for name in keys]
    assert stage_curves([made], "dev_curve") == [[[10, roles.index(role) / 10]] for role in last]


def test_a_committed_twin_shows_its_joint_stage() -> None:
    twins = [r for r in ResultStore(ROOT / "results", "mini").records() if r.method == "tncse"]
    assert len(twins) == 5
    for twin in twins:
        assert stage_curves([twin], "dev_curve") == [twin.training["stages"]["joint"]["dev_curve"]]


def test_a_stage_that_members_share_counts_once() -> None:
    made = record(a__joint="c", a__sub1="s", a__sub2="t", b__joint="d", b__sub1="s", b__sub2="t")
    assert list(distinct_stages(made)) == ["a/joint", "a/sub1", "a/sub2", "b/joint"]
    assert (count_training_sentences(made), sum_training_seconds(made)) == (400, 10.0)
    assert count_training_sentences(record(sub1="a", sub2="b")) == 200
