"""One key has one result: rows of other names can't hold other numbers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.records.integrity import HARDWARE_TOLERANCE, find_record_clashes
from bench.records.record import RunRecord, parse_record
from tests.support.cli import Cli
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts
from tests.support.verified import CAMPAIGN, NOISE, ONE, found_by_verify, where

READERS = (
    ("report",),
    ("compare", "noise", "word_overlap"),
    ("stats",),
    ("compare", "--show-items", "noise", "Noise"),
    ("probe",),
)


def rename(record: dict[str, Any], **facts: Any) -> None:
    record.update(facts)


def add_row(source: Path, method: str) -> Path:
    """Copy one method's folder to a row of another name, with its seal."""
    row = CAMPAIGN / method
    shutil.copytree(source, row)
    for path in sorted(row.glob("*/*.json")):
        forge(path, partial(rename, method=method))
    return row


def move_score(record: RunRecord, points: float, **facts: Any) -> RunRecord:
    scores = [replace(score, value=score.value + points / 100) for score in record.scores]
    return replace(record, scores=tuple(scores), **facts)


def test_rows_of_two_names_may_hold_one_run(results: Cli) -> None:
    add_row(NOISE, "Noise")
    assert found_by_verify(results) == {}
    assert results("report")[0] == 0


@pytest.mark.parametrize("method", ["Noise", "mine"])
def test_another_name_hides_no_second_result(results: Cli, method: str) -> None:
    row = add_row(NOISE, method)
    path = row / "seed-1" / "toy.json"
    forge_predictions(path, lambda values: values[::-1])
    assert found_by_verify(results) == {where(path): {"result"}, where(ONE): {"result"}}
    for reader in READERS:
        code, _, err = results(*reader)
        assert (code, missing_facts(err, "two results", "seed-1")) == (2, []), reader
        assert "Traceback" not in err
    code, out, _ = results("bundle", "local", "--out", "local.zip")
    assert (code, ": result: " in out, Path("local.zip").exists()) == (1, True, False)


def test_another_name_hides_no_second_result_from_a_merge(results: Cli, tmp_path: Path) -> None:
    assert results("bundle", "local", "--out", "local.zip")[0] == 0
    shutil.move(NOISE, CAMPAIGN / "mine")
    for path in sorted((CAMPAIGN / "mine").glob("*/toy.json")):
        forge(path, partial(rename, method="mine"))
        forge_predictions(path, lambda values: values[::-1])
    code, _, err = results("merge", "local.zip", "--into", "results")
    assert (code, missing_facts(err, "two results", "nothing was added")) == (2, [])
    assert not NOISE.exists()


def test_another_profile_hides_no_second_result(results: Cli) -> None:
    folder = Path("results/local/other/noise/seed-1")
    shutil.copytree(NOISE / "seed-1", folder)
    forge(folder / "toy.json", partial(rename, profile="other"))
    assert found_by_verify(results) == {}
    forge_predictions(folder / "toy.json", lambda values: values[::-1])
    assert found_by_verify(results) == {where(folder / "toy.json"): {"result"}, where(ONE): {"result"}}


def test_a_seed_copied_to_another_name_is_no_further_seed(results: Cli) -> None:
    row = add_row(NOISE / "seed-1", "twin/seed-9")
    path = row / "toy.json"
    forge(path, partial(rename, method="twin", seed=9))
    assert found_by_verify(results) == {where(path): {"copy"}}
    code, _, err = results("report")
    assert (code, missing_facts(err, "equal to the byte", "seed-9")) == (2, [])


def test_another_cpu_excuses_what_was_measured(results: Cli) -> None:
    one = parse_record(ONE.read_text(), str(ONE))
    twin = replace(one, method="mine")
    elsewhere = {**one.timing, "processor": "another processor"}
    small = 50 * HARDWARE_TOLERANCE  # in points, half of what is allowed

    def clashes(other: RunRecord) -> list[str]:
        return [clash.check for clash in find_record_clashes([one, other])]

    assert clashes(twin) == []
    assert clashes(move_score(twin, small)) == ["result"]
    assert clashes(move_score(twin, small, timing=elsewhere)) == []
    assert clashes(move_score(twin, -small, timing=elsewhere)) == []
    assert clashes(move_score(twin, 4 * small, timing=elsewhere)) == ["result"]
    assert clashes(move_score(twin, np.nan, timing=elsewhere)) == ["result"]
    assert clashes(replace(twin, status="failed", scores=())) == []
    hidden = [one, twin, move_score(replace(one, method="third"), 4 * small, timing=elsewhere)]
    assert [clash.second.method for clash in find_record_clashes(hidden)] == ["third"]


def test_the_gate_takes_neither_of_two_results(results: Cli) -> None:
    shutil.copytree("results/local", "results/new")
    path = Path("results/new/mini/mine/seed-1/toy.json")
    shutil.copytree(Path("results/new/mini/noise/seed-1"), path.parent)
    forge(path, partial(rename, method="mine"))
    forge_predictions(path, lambda values: values[::-1])
    arguments = ("check", "--reference", "results/local", "--results", "results", "--campaign", "new")
    code, out, err = results(*arguments)
    assert code in (1, 2), out
    assert "two results" in out + err


def test_copies_of_one_method_under_one_file_stay_named(results: Cli) -> None:
    copy = NOISE / "seed-4"
    shutil.copytree(NOISE / "seed-1", copy)
    forge(copy / "toy.json", partial(rename, seed=4))
    code, out, _ = results("verify", "--format", "json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["check"], "delete the copy" in finding["hint"]) == (1, "copy", True)


def test_one_key_has_one_result_in_all_campaigns(results: Cli) -> None:
    other = Path("results", "other", "mini")
    shutil.copytree(CAMPAIGN, other)
    assert found_by_verify(results) == {}
    path = other / "noise" / "seed-1" / "toy.json"
    forge_predictions(path, lambda values: values[::-1])
    assert found_by_verify(results) == {where(path): {"result"}, where(ONE): {"result"}}
    forge(path, lambda record: record["timing"].update(processor="Xeon"))  # another machine's may differ
    assert found_by_verify(results) == {}
