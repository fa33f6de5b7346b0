"""A repetition on other versions or hardware excuses small differences, and none that hardware can't make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import InputError
from bench.execution.repetition import RerunDifference, rerun_record
from bench.records.record import RunRecord
from bench.verify import rerun_sample
from bench.verify.findings import Verification
from tests.support.cli import Cli
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts, numbers_in
from tests.support.verified import WORDS, found_by_verify, where

STAGES = {"stages": {"train": {"sentences_seen": 64}}}
HOSTILE = "\x1b]0;x\x07\x1b[2J\x1b[1;1H0 findings\nresults: nothing wrong"


def elsewhere(path: Path, processor: str = "Xeon") -> None:
    """Let a record say that it was made on another processor, which is part of no key."""
    forge(path, lambda record: record["timing"].update(processor=processor))


def test_another_cpu_excuses_no_made_up_predictions(results: Cli) -> None:
    forge_predictions(WORDS, lambda values: values[::-1])
    elsewhere(WORDS)
    assert found_by_verify(results) == {}
    code, out, _ = results("verify", "--rerun", "9")
    assert (code, out.count(": rerun: ")) == (1, 1)
    facts = f"{where(WORDS)}: rerun: ", f"excuse {rerun_sample.UNTRAINED_BOUND}", "2 scores", "hardware that"
    assert missing_facts(out, *facts) == []


def test_what_hardware_changes_is_said_and_no_finding(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def slightly(record: RunRecord, **given: Any) -> Any:
        found, now = real(record, **given)
        return [RerunDifference("scores", "TOY all spearman", 0.5, 0.5000001), *found], now

    real = rerun_record
    monkeypatch.setattr(rerun_sample, "rerun_record", slightly)
    elsewhere(WORDS)
    code, out, err = results("verify", str(WORDS), "--rerun", "1")
    facts = "within 0.006 points", WORDS.name, "1 scores", "1e-07"
    assert (code, missing_facts(err, *facts), "1 of 1 cells repeated" in out) == (0, [], True), out


def made(**facts: Any) -> RunRecord:
    """A finished record of a method of bench's own."""
    record = RunRecord("mini", "untrained", "untrained", 1, {}, None, None, "toy", {}, "", "ok")
    return replace(record, timing={"processor": "EPYC"}, **facts)


def found(then: RunRecord, now: RunRecord, *scores: tuple[str, float | None, float | None]) -> list[str]:
    """What is wrong of a repetition that gave those scores."""
    verified, differences = Verification(), [RerunDifference("scores", *each) for each in scores]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rerun_sample, "rerun_record", lambda record, data: (differences, now))
        rerun_sample.repeat_sample(verified, [("x.json", then)], 1, None, lambda line: None)
    assert len(verified.findings) + len(verified.unrepeated) + len(verified.repeated) == 1
    return [finding.what for finding in verified.findings]


@pytest.mark.parametrize(
    ("facts", "name", "bound"),
    [
        ({}, "avg all spearman", 0.001),
        ({}, "STS12 MSRpar spearman", 0.001),
        ({}, "TREC all accuracy", 0.05),
        ({"evaluation": {"precision": "bf16"}}, "avg all spearman", 0.05),
        ({"backbone": {"name": "made", "sha256": "1" * 64}}, "avg all spearman", 0.05),
        ({"training": STAGES}, "avg all spearman", 0.5),
        ({"training": STAGES}, "avg all spearman_last", 0.5),
        ({"provenance": {"plugins": {"untrained": {"module": "x"}}}}, "avg all spearman", 0.5),
    ],
)
def test_how_far_a_score_may_differ_elsewhere(facts: dict[str, Any], name: str, bound: float) -> None:
    now = made(**facts)
    then = replace(now, timing={"processor": "Xeon"})
    if now.backbone:
        then = replace(then, backbone={"name": "made", "sha256": "2" * 64})
    assert found(then, now, (name, 0.3, 0.3 + 0.99 * bound)) == []
    far = name, 0.3 + 1.2 * bound, 0.3
    (what,) = found(then, now, ("X all spearman", 0.1, 0.1 + bound / 2), far)
    assert missing_facts(what, name, f"by {1.2 * bound:.2g}", f"excuse {bound}", "2 scores") == []


def test_a_task_of_what_was_trained_is_held_to_no_bound() -> None:
    now = made(training=STAGES)
    then = replace(now, timing={"processor": "Xeon"})
    assert found(then, now, ("STS13 OnWN spearman", 0.1, 0.9), ("avg all spearman", 0.5, 0.6)) == []


@pytest.mark.parametrize("facts", [{}, {"training": STAGES}])
def test_a_score_that_one_side_lacks_is_a_finding_everywhere(facts: dict[str, Any]) -> None:
    now = made(**facts)
    then = replace(now, timing={"processor": "Xeon"})
    (what,) = found(then, now, ("TOY all spearman", 0.5, None))
    assert missing_facts(what, "TOY all spearman", "the record alone", "Xeon, now EPYC") == []
    assert numbers_in(what) == [1]
    (what,) = found(then, now, ("avg all spearman", 0.5, 0.5001), ("TOY all spearman", None, 0.5))
    assert missing_facts(what, "TOY all spearman", "the repetition alone", "Xeon, now EPYC") == []
    assert numbers_in(what) == [1, 0.0001, 1]


def test_no_record_steers_the_terminal(results: Cli) -> None:
    forge_predictions(WORDS, lambda values: values[::-1])
    elsewhere(WORDS, HOSTILE)
    code, out, err = results("verify", str(WORDS), "--rerun", "1")
    assert (code, "\x1b" in out + err, "\x07" in out + err) == (1, False, False)
    assert r"\x1b]0;x\x07\x1b[2J\x1b[1;1H0 findings\nresults:" in err
    assert len(err.splitlines()) == 2


def test_a_repetition_of_nothing_is_not_passed(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(record: RunRecord, **given: Any) -> Any:
        if record.name == "noise":
            return real(record, **given)
        raise InputError("the backbone own isn't here")

    real = rerun_record
    monkeypatch.setattr(rerun_sample, "rerun_record", refuses)
    code, out, _ = results("verify", str(WORDS), "--rerun", "1")
    facts = f"not repeatable here: {WORDS.name}", "backbone own", "0 of 1", "nothing found wrong"
    assert (code, missing_facts(out, *facts), "nothing wrong" in out) == (3, [], False), out
    code, out, _ = results("verify", "--rerun", "99")  # some others could
    assert (code, "FAILED" in out) == (3, False), out
    facts = f"not repeatable here: {where(WORDS)}", "backbone own", "3 of 4", "1 cells not repeatable here"
    assert missing_facts(out, *facts) == []
