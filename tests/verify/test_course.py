"""The course of a training: what contradicts itself or its options is found, and what nothing shows said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.records.record import RunRecord, parse_record
from bench.stages import planned_sentences
from bench.training.loop import order_batches
from bench.verify.stage_checks import check_training
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts, numbers_in
from tests.support.verified import found_by_verify

pytestmark = pytest.mark.campaigns
SOUND = Path(__file__).parents[2] / "results/mini-equal/mini-equal/simcse/seed-1/mini.json"
Stage = dict[str, Any]


def sound() -> RunRecord:
    """40 steps of 64 sentences, a dev evaluation every 10, the best at step 20; a loss of each step."""
    return parse_record(SOUND.read_text(), str(SOUND))


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A campaign of that record."""
    folder = tmp_path / "results" / "local" / "mini-equal" / "simcse" / "seed-1"
    shutil.copytree(SOUND.parent, folder)
    return folder / "mini.json"


def edited(**values: Any) -> RunRecord:
    record = sound()
    stage = {**record.training["stages"]["simcse"], **values}
    return replace(record, training={**record.training, "stages": {"simcse": stage}})


CURVE = [[10, 0.5], [20, 0.75], [30, 0.75], [40, 0.25]]
CHOSEN: Stage = {"dev_curve": CURVE, "selected_step": 20, "selected_dev": 0.75}


def faults_of_stage(values: Stage) -> list[tuple[str, ...]]:
    """Faults of the training, without those of scores beside it."""
    return [fault for fault in check_training(edited(**values)) if fault[0] != "score"]


UNCHOSEN: Stage = {"dev_curve": [], "selected_step": 40, "selected_dev": None}


@pytest.mark.parametrize("values", [CHOSEN, UNCHOSEN, {"loss_curve": [], "last_loss": 3.0}])
def test_a_stage_without_contradictions(values: Stage) -> None:
    assert faults_of_stage(values) == []


@pytest.mark.parametrize(
    ("values", "fact", "numbers"),
    [
        ({"selected_dev": 0.99}, "dev curve", [20, 0.99, 20, 0.6514703432945994]),
        (CHOSEN | {"selected_step": 30}, "dev curve", [30, 0.75, 20, 0.75]),
        (UNCHOSEN | {"selected_step": 20}, "dev curve", [20, 40]),
        ({"dev_curve": [[20, 0.7], [10, 0.5]], "selected_dev": 0.7}, "dev curve", [40]),
        ({"dev_curve": [[20, 0.7], [50, 0.5]], "selected_dev": 0.7}, "dev curve", [40]),
        ({"loss_curve": [[20, 0.5], [39, 0.25]]}, "loss curve", [39, 40]),
        ({"last_loss": 0.5}, "last loss", []),
    ],
)
def test_a_stage_that_contradicts_itself(values: Stage, fact: str, numbers: list[float]) -> None:
    ((check, what, _),) = faults_of_stage(values)
    assert check == "training"
    assert missing_facts(what, "stage simcse: ", fact) == []
    assert numbers_in(what) == numbers


def test_a_method_from_elsewhere_chooses_as_it_likes() -> None:
    odd = edited(selected_dev=0.99)
    assert list(check_training(replace(odd, name="theirs"))) == []
    member = {"method": "theirs", "version": 1, "options": {}}
    built = replace(odd, training={**odd.training, "members": {"x": member}})
    assert list(check_training(built)) == []
    assert len(list(check_training(odd))) == 1


def without_curves(stage: Stage) -> None:
    """A training of one step that fits itself."""
    stage.update(steps=2, sentences_seen=128, selected_step=1, selected_dev=0.99, last_loss=0.0)
    stage.update(dev_curve=[[1, 0.99], [2, 0.5]], loss_curve=[[1, 0.0], [2, 0.0]])


FIFTEENTH = {"dev_curve": [[15, 0.5]], "selected_step": 15, "selected_dev": 0.5}


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (without_curves, [("steps 2", 40), ("sentences_seen 128", 2560), ("dev curve", 10, 40)]),
        (lambda stage: stage.update(sentences_seen=2559), [("sentences_seen 2559", 2560)]),
        (lambda stage: stage.update(FIFTEENTH), [("dev curve", 10, 40)]),
        (lambda stage: stage.update(CHOSEN), []),  # scores that nothing shows
        (lambda stage: stage.update(selected_dev=0.99), [("step 20", 0.99, "dev curve")]),
    ],
)
def test_a_forged_course_is_found(
    cli: Cli, campaign: Path, change: Callable[[Stage], object], facts: list[tuple[object, ...]]
) -> None:
    assert found_by_verify(cli) == {}
    forge(campaign, lambda record: change(record["training"]["stages"]["simcse"]))
    place = "local/mini-equal/simcse/seed-1/mini.json: training: "
    lines = [line for line in cli("verify")[1].splitlines() if line.startswith(place)]
    missing = [missing_facts(line, "stage simcse", *each) for line, each in zip(lines, facts, strict=True)]
    assert missing == [[] for _ in facts]
    assert list(found_by_verify(cli).values()) == [{"training"}] * bool(facts)


def test_what_nothing_shows_is_said(cli: Cli, campaign: Path) -> None:
    other = campaign.parents[1] / "seed-2"
    shutil.copytree(SOUND.parents[1] / "seed-2", other)
    forge(campaign, lambda record: record["probes"]["alignment"].update(value=0.01))
    code, out, _ = cli("verify", "--format", "json")
    found = json.loads(out)
    assert (code, found["findings"]) == (0, [])
    recorded = {what: count for what, count in found["as_recorded"].items() if "suite's" not in what}
    assert (list(recorded.values()), found["unchecked"]) == ([2, 2, 2], {})
    assert missing_facts(" ".join(recorded), "losses", "dev scores", "seconds", "probes", "costs") == []
    forge(other / "mini.json", lambda record: record.update(probes={}))
    assert "as recorded: what probes found\n" in cli("verify")[1]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3, 7, 12])
@pytest.mark.parametrize(("count", "size"), [(10, 4), (12, 4), (4, 4), (5, 4), (9, 1)])
def test_sentences_are_those_of_the_batches(count: int, size: int, steps: int, drop_last: bool) -> None:
    config = {"batch_size": size, "epochs": 2, "steps": steps, "drop_last": drop_last}
    taken = partial(order_batches, count, size, 1, "text", drop_last=drop_last)()
    left = count // size if drop_last else -(-count // size)
    seen = sum(len(next(taken)) for _ in range(steps or 2 * left))
    assert planned_sentences(config, count) == seen
