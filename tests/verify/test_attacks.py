"""An attacker's list: each edit of a results folder is caught by the command that should catch it."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.errors import InputError
from bench.records.store import predictions_to_npz
from tests.support.cli import Cli
from tests.support.forge import Edit, add_points, forge, forge_predictions
from tests.support.messages import missing_facts, numbers_in
from tests.support.verified import CAMPAIGN, NOISE, ONE, found_by_verify, where
from tests.verify.conftest import PLUGIN

ROOT = Path(__file__).parents[2]


def add_to_average(record: dict[str, Any]) -> None:
    record["scores"][-1]["value"] += 0.05


def leave_out(record: dict[str, Any]) -> None:
    del record["scores"][:-1]


READERS = (
    ("report",),
    ("compare", "noise", "word_overlap"),
    ("stats",),
    ("compare", "--show-items", "noise", "word_overlap"),
    ("verify", str(ONE), "--rerun"),
    ("probe",),
    ("check", "--reference", "results/local", "--results", "results"),
)


@pytest.mark.parametrize(
    ("edit", "seal", "checks"),
    [
        (add_points, "kept", {"seal", "score"}),
        (add_points, "stripped", {"unsealed", "score"}),
        (add_points, "recomputed", {"score"}),
        (add_to_average, "kept", {"seal", "average", "score"}),
        (add_to_average, "recomputed", {"average", "score"}),
        (leave_out, "recomputed", {"tasks", "score"}),
        (lambda record: record["options"].update(scale=2.0), "kept", {"seal", "key"}),
        (lambda record: record.update(schema=2), "kept", {"seal"}),
        (lambda record: record.update(schema=2), "stripped", {"unsealed"}),
        (lambda record: record.update(key="0" * 64), "kept", {"seal", "key"}),
        (lambda record: record.update(seed=7), "recomputed", {"place"}),
        (lambda record: record.update(method="word_overlap"), "recomputed", {"place", "method"}),
        (lambda record: record["tasks"]["TOY"].update(sha256="0" * 64), "recomputed", {"data"}),
        (lambda record: record.update(version=9), "recomputed", {"method"}),
    ],
)
def test_an_edited_record_is_found(results: Cli, edit: Edit, seal: str, checks: set[str]) -> None:
    forge(ONE, edit, seal)
    assert found_by_verify(results) == {where(ONE): checks}


@pytest.mark.parametrize("seal", ["kept", "stripped"])
@pytest.mark.parametrize("reader", READERS, ids=lambda words: words[0])
def test_every_command_refuses_what_was_changed(results: Cli, reader: tuple[str, ...], seal: str) -> None:
    forge(ONE, add_points, seal)
    code, _, err = results(*reader)
    assert code in (1, 2)
    assert missing_facts(err, ONE, "seal" if seal == "stripped" else "was changed") == []
    assert "Traceback" not in err


@pytest.mark.parametrize("reader", [*READERS[1:4], READERS[-1]], ids=lambda words: words[0])
def test_scores_that_predictions_contradict_win_no_comparison(results: Cli, reader: tuple[str, ...]) -> None:
    results(*reader)  # draws that are kept don't hide what was edited later
    forge(ONE, add_points, "recomputed")
    code, out, err = results(*reader)
    assert (code, missing_facts(err, ONE, "predictions give")) == (2, []), out


def test_predictions_of_another_seed(results: Cli) -> None:
    one, two = (NOISE / seed / "toy.npz" for seed in ("seed-1", "seed-2"))
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    assert found_by_verify(results) == {
        where(path.with_suffix(".json")): {"predictions"} for path in (one, two)
    }
    for path in (one, two):
        facts = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        forge(path.with_suffix(".json"), partial(dict.update, predictions=facts))
    assert found_by_verify(results) == {where(path.with_suffix(".json")): {"score"} for path in (one, two)}


def test_a_copied_seed_is_no_further_seed(results: Cli) -> None:
    copy = NOISE / "seed-4"
    shutil.copytree(NOISE / "seed-1", copy)
    assert found_by_verify(results)[where(copy / "toy.json")] >= {"place"}
    forge(copy / "toy.json", lambda record: record.update(seed=4), "recomputed")
    assert found_by_verify(results) == {where(copy / "toy.json"): {"copy"}}
    for reader in READERS[:4]:
        code, _, err = results(*reader)
        assert (code, "copy" in err) == (2, True), reader
    data = json.loads((copy / "toy.json").read_text())
    data["key"] = json.loads(ONE.read_text())["key"]
    (copy / "toy.json").write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    assert {"copy", "key", "seal"} <= found_by_verify(results)[where(copy / "toy.json")]


def test_a_copied_seed_in_another_form(results: Cli, tmp_path: Path) -> None:
    copy = NOISE / "seed-4"
    shutil.copytree(NOISE / "seed-1", copy)
    with zipfile.ZipFile(copy / "toy.npz", "a") as archive:  # with a text that nobody sees
        archive.comment = b"A man is playing a guitar. " * 1000
    digest = hashlib.sha256((copy / "toy.npz").read_bytes()).hexdigest()
    forge(copy / "toy.json", lambda record: record["predictions"].update(sha256=digest))
    forge(copy / "toy.json", lambda record: record.update(seed=4))
    assert found_by_verify(results) == {where(copy / "toy.json"): {"predictions"}}
    code, _, err = results("stats")
    assert (code, missing_facts(err, copy / "toy.npz", "of predictions")) == (2, [])
    code, out, _ = results("bundle", "local", "--out", "local.zip")
    assert (code, ": predictions: " in out, Path("local.zip").exists()) == (1, True, False)


def test_a_copied_seed_with_its_tasks_in_another_order(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "noise", "--seeds", "1", "--suite", "mini-contrast")[0] == 0
    path = tmp_path / NOISE / "seed-1" / "mini-contrast.json"
    file = path.with_suffix(".npz")
    assert found_by_verify(cli) == {}
    with np.load(file) as archive:
        values = {task: archive[task] for task in archive.files}
    assert list(values) == ["negation", "swap", "number", "antonym", "order"]
    file.write_bytes(predictions_to_npz(dict(reversed(values.items()))))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    forge(path, lambda record: record["predictions"].update(sha256=digest))
    assert found_by_verify(cli) == {where(path.relative_to(tmp_path)): {"predictions"}}


def test_a_record_in_another_methods_folder(results: Cli) -> None:
    moved = CAMPAIGN / "word_overlap" / "seed-1"
    shutil.move(NOISE / "seed-1", moved)
    assert found_by_verify(results) == {where(moved / "toy.json"): {"place"}}
    code, _, err = results("report")
    assert (code, "in another's place" in err) == (1, True)


def test_edited_gold_scores(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.data import toy_suite
    from bench.eval import rescoring

    real = toy_suite.make_toy_task()
    subset = real.subsets[0]
    flipped = type(subset)(subset.name, subset.first, subset.second, tuple(-gold for gold in subset.gold))
    other = type(real)(real.id, (flipped, *real.subsets[1:]))
    monkeypatch.setattr(rescoring, "_load_suite", lambda *asked: {other.id: other})
    assert {check for checks in found_by_verify(results).values() for check in checks} == {"data"}


def test_a_kept_encoder_is_the_one_that_its_record_is_of(results: Cli) -> None:
    source = Path(__file__).parents[2] / "results" / "reference" / "mini" / "promptbert_short.kept"
    kept = Path("results/local/mini") / source.name
    shutil.copytree(source, kept)
    assert found_by_verify(results) == {}
    config = kept / "no-seed" / "encoder" / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    (NOISE / "seed-1" / "encoder").mkdir()
    (NOISE / "seed-1" / "notes.txt").write_text("x")
    np.savez(NOISE / "seed-2" / "sts7.npz", a=np.zeros(2))
    strays = [NOISE / name for name in ("seed-1/encoder", "seed-1/notes.txt", "seed-2/sts7.npz")]
    assert found_by_verify(results) == {
        where(kept / "no-seed" / "mini.json"): {"weights"},
        **{where(path): {"stray"} for path in strays},
    }


def test_a_changed_plug_in(cli: Cli, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PLUGIN)
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded"))
    assert cli("run", "--methods", "mine", "--seeds", "1", "--suite", "toy", "--plugin", str(mine))[0] == 0
    assert missing_facts(cli("verify")[1], "mine.py", "not at hand") == []
    assert found_by_verify(cli, "--plugin", str(mine)) == {}
    mine.write_text(mine.read_text() + "# edited\n")
    assert found_by_verify(cli, "--plugin", str(mine)) == {"local/mini/mine/seed-1/toy.json": {"method"}}


@pytest.mark.slow
def test_records_of_an_older_bench_are_sealed_and_options_of_another_training_found(
    cli: Cli, tmp_path: Path
) -> None:
    campaign = shutil.copytree(ROOT / "results" / "reference", tmp_path / "results" / "reference")
    sound = campaign / "mini" / "esimcse_short" / "seed-1" / "mini.json"
    edited = campaign / "mini" / "esimcse_short" / "seed-2" / "mini.json"
    before = sound.read_bytes()
    assert found_by_verify(cli) == {}
    forge(sound, lambda record: record.update(schema=2), "stripped")
    forge(edited, add_points, "stripped")
    assert "bench verify --seal" in cli("compare", "esimcse_short", "untrained", "--campaign", "reference")[2]
    code, out, _ = cli("verify", "--seal")
    name, other = (where(path.relative_to(tmp_path)) for path in (sound, edited))
    assert (code, f"{name}: sealed" in out) == (1, True)
    assert sound.read_bytes() == before
    assert found_by_verify(cli) == {other: {"unsealed", "score"}}
    forge(sound, lambda record: record["options"].update(lr=record["options"]["lr"] / 2))
    assert found_by_verify(cli) == {other: {"unsealed", "score"}, name: {"stages"}}


def test_without_data_nothing_is_sealed(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_data(*asked: object) -> None:
        raise InputError("suite 'toy' needs evaluation data")

    forge(ONE, lambda record: None, "stripped")
    monkeypatch.setattr("bench.eval.rescoring._load_suite", no_data)
    code, out, _ = results("verify", "--seal")
    assert (code, "sealed" in out.replace("unsealed", "")) == (1, False)
    assert missing_facts(out, "not checked: scores", "suite 'toy'") == []


def test_what_is_printed(results: Cli, tmp_path: Path) -> None:
    forge(ONE, add_points)
    file = tmp_path / "verify.xml"
    code, out, _ = results("verify", "--junit", str(file))
    first, *_, last = out.splitlines()
    assert missing_facts(first, f"{where(ONE)}: score: ", "TOY all spearman") == []
    assert (code, numbers_in(last), "FAILED" in last) == (1, [4, 8, 2], True)
    (suite,) = ElementTree.fromstring(file.read_text())  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    code, out, _ = results("verify", "--format", "json")
    found = json.loads(out)
    assert set(found["checks"]) >= {finding["check"] for finding in found["findings"]} == {"score"}
    assert code == 1


def test_a_sample_is_repeated_to_the_last_digit(results: Cli) -> None:
    code, _, err = results("verify", "--rerun", "9", "--choose", "1")
    assert (code, err.count("equal to the")) == (0, 4)
    forge_predictions(ONE, lambda values: values[::-1])
    assert found_by_verify(results) == {}
    code, out, err = results("verify", "--rerun", "9")
    assert (code, missing_facts(out, f"{where(ONE)}: rerun: ", "2 scores")) == (1, [])


def test_no_records_and_hostile_names(cli: Cli, tmp_path: Path) -> None:
    assert "no records" in cli("verify", str(tmp_path))[2]
    (tmp_path / "results" / "\x1b[2J" / "mini" / "x" / "seed-1").mkdir(parents=True)
    (tmp_path / "results" / "\x1b[2J" / "mini" / "x" / "seed-1" / "toy.json").write_text("{}")
    code, out, err = cli("verify")
    assert (code, "\x1b" in out + err, "Traceback" in err) == (2, False, False)


@pytest.mark.parametrize(
    ("edit", "check", "advice"),
    [
        (lambda text: text.replace('"schema": 3', '"schema": 4'), "shape", "upgrade cse-bench"),
        (lambda text: "[]", "shape", "delete the file"),
        (lambda text: text.replace('"suite": ', '"suite":  '), "seal", "delete the file"),
    ],
)
def test_one_advice_a_finding_and_none_to_delete_what_is_whole(
    results: Cli, edit: Callable[[str], str], check: str, advice: str
) -> None:
    ONE.write_text(edit(ONE.read_text()))
    out = results("verify")[1]
    assert missing_facts(out, f"{where(ONE)}: {check}: ", advice) == []
    assert out.count("delete the file") == (advice != "upgrade cse-bench")


def test_no_file_outside_a_campaign_is_to_be_deleted(results: Cli, tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    for text in ("root:x:0:0", ONE.read_text().replace('"suite": ', '"suite":  ')):
        file.write_text(text)
        code, _, err = results("verify", str(file), "--rerun")
        assert (code, "other.txt: " in err, "delete" in err) == (2, True, False)
