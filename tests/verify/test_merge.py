"""A bundle is verified, then added whole: what contradicts itself or what is there adds nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from bench.config import sweep_manifest as manifest
from bench.data.toy_suite import make_toy_task
from bench.eval.suite_measures import measure_of
from bench.exchange import bundle_merge as merging
from bench.records import integrity
from bench.records.filesystem import write_atomically
from bench.records.record import RunRecord, parse_record, record_to_json
from bench.records.store import ResultStore, predictions_to_npz
from bench.verify import archive
from tests.support.bundles import NOISE, edited, rewritten, snapshot, unchanged
from tests.support.cli import Cli, records, refusal, stable_bytes
from tests.support.messages import missing_facts, numbers_in

Files = dict[str, bytes]
MERGE = ("merge", "local.zip", "--into", "target")
OTHER = ("merge", "other.zip", "--into", "target")
TWO = NOISE.replace("seed-1", "seed-2")
GRID = "sweeps/mini-unsee_architectures.json"


def refused(cli: Cli, *arguments: str) -> str:
    """What a merge prints that verification stops."""
    code, out, err = cli(*arguments)
    assert (code, err.count("\n")) == (1, 1), err
    assert missing_facts(err, "nothing was added") == []
    return out


def left_unchecked(out: str) -> list[str]:
    """What a command says that it didn't check."""
    return [line for line in out.splitlines() if line.startswith("not checked: ")]


def test_a_bundle_on_another_clone(work: Path, cli: Cli) -> None:
    code, out, err = cli(*MERGE)
    assert (code, err) == (0, "")
    assert numbers_in(out)[-1] == 5
    for form in ("text", "markdown", "csv", "json", "latex", "html"):
        asked = ("report", "--format", form)
        assert cli(*asked, "--results", "target")[1] == cli(*asked)[1], form
    code, out, _ = cli("verify", "target", "--plugin", "mine.py")
    (unrun,) = left_unchecked(out)
    assert (code, numbers_in(unrun)) == (0, [2])
    assert missing_facts(unrun, "options", "labels", "trainings", "mine.py") == []
    assert [path.name for path in (work / "target").iterdir()] == ["local"]
    shutil.move(work / "target", work / "there" / "results")
    assert stable_bytes(work / "there") == stable_bytes(work)
    assert manifest.load_manifests(work / "there" / "results" / "local") == manifest.load_manifests(
        work / "results" / "local"
    )


def test_a_merged_record_says_where_it_came_from(work: Path, cli: Cli) -> None:
    assert cli("merge", "local.zip", "--into", "results", "--campaign", "theirs")[0] == 0
    sha256 = hashlib.sha256((work / "local.zip").read_bytes()).hexdigest()
    found, before = records(work, "theirs"), records(work)
    assert len(found) == 5
    for name, record in found.items():
        timing = dict(record.timing)
        assert timing.pop("merged") == {"bundle": sha256, "campaign": "local"}
        assert timing.keys() == before[name].timing.keys()
    assert cli("verify", "--plugin", "mine.py")[0] == 0
    assert cli("bundle", "theirs", "--out", "again.zip", "--plugin", "mine.py")[0] == 0


def test_what_is_there_already_stays(work: Path, cli: Cli) -> None:
    assert cli(*MERGE)[0] == 0
    before = snapshot(work)
    code, out, _ = cli(*MERGE)
    assert (code, numbers_in(out)[-2:]) == (0, [0, 5])
    assert snapshot(work) == before
    code, out, _ = cli("merge", "local.zip", "--into", "results")  # the clone that it came from
    assert (code, numbers_in(out)[-2:]) == (0, [0, 5])
    shutil.rmtree(work / "target" / "local" / "mini" / "noise")
    (work / "target" / "local" / GRID).unlink()
    code, out, _ = cli(*MERGE)
    assert (code, numbers_in(out)[-2:]) == (0, [2, 3])
    assert snapshot(work) == before


def test_nothing_is_written_before_all_can_be(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def sealed(record: RunRecord) -> RunRecord:
        if record.seed == 2:
            raise RecursionError
        return integrity.seal_record(record)

    monkeypatch.setattr(merging, "seal_record", sealed)
    assert "RecursionError" in refusal(cli, *MERGE, code=1)
    assert not list(work.glob("target/local/*/*/*/*"))


def test_a_sweeps_grid_gets_the_seeds_of_both(work: Path, cli: Cli) -> None:
    shutil.copytree(work / "results", work / "target")
    grid = work / "target" / "local" / GRID
    theirs = json.loads(grid.read_text())
    grid.write_text(json.dumps(theirs | {"seeds": [0, 7], "suites": ["mini"]}))
    for _ in range(2):  # merged again, it stays
        assert cli(*MERGE)[0] == 0
        found = json.loads(grid.read_text())
        assert found["seeds"] == sorted({0, 7, *theirs["seeds"]})
        assert found["suites"] == ["mini", *(suite for suite in theirs["suites"] if suite != "mini")]
        assert found["points"] == theirs["points"]


@pytest.mark.parametrize("lost", [Path.unlink, lambda path: path.write_bytes(b"x")])
def test_predictions_that_are_lost_come_back(work: Path, cli: Cli, lost: Callable[[Path], object]) -> None:
    assert cli(*MERGE)[0] == 0
    with unchanged(work):
        for name in ("mine/seed-1", "word_overlap/no-seed"):
            lost(work / "target" / "local" / "mini" / name / "toy.npz")
        code, out, err = cli(*MERGE)
        assert (code, err) == (0, "")
        note, count = out.splitlines()[-2:]
        assert missing_facts(note, 2, "mini/mine/seed-1/toy.npz", "mini/word_overlap/no-seed/toy.npz") == []
        assert numbers_in(count) == [0, 5]
    assert "lost" not in cli(*MERGE)[1]


def test_predictions_of_a_record_that_is_replaced_meanwhile_stay_lost(
    work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*MERGE)[0] == 0
    path = work / "target" / "local" / "mini" / "noise" / "seed-1" / "toy.json"
    path.with_suffix(".npz").unlink()
    real = ResultStore.prepare

    def meanwhile(store: ResultStore) -> None:
        path.write_bytes(edited(path.read_bytes(), lambda data: data["provenance"].update(bench="9")))
        real(store)

    monkeypatch.setattr(ResultStore, "prepare", meanwhile)
    assert missing_facts(refusal(cli, *MERGE, code=3), "noise/seed-1/toy.json", "another process") == []
    assert not path.with_suffix(".npz").exists()


def test_a_conflict_adds_nothing(work: Path, cli: Cli, files: Files) -> None:
    shutil.copytree(work / "results", work / "target")
    shutil.rmtree(work / "target" / "local" / "mini" / "word_overlap")
    for seed in (1, 2):
        path = work / "target" / "local" / "mini" / "noise" / f"seed-{seed}" / "toy.json"
        path.write_bytes(edited(path.read_bytes(), lambda data: data["provenance"].update(bench="9")))
    grid = work / "target" / "local" / GRID
    grid.write_text(grid.read_text().replace("projection", "online_projection"))
    with unchanged(work):
        err = refusal(cli, *MERGE, code=3)
        places = [f"mini/noise/seed-{seed}/toy.json" for seed in (1, 2)]
        assert missing_facts(err, *places, GRID, "nothing was added") == []
    assert cli(*MERGE, "--campaign", "theirs")[0] == 0


def test_a_copy_of_what_is_there_under_another_seed(work: Path, cli: Cli, files: Files) -> None:
    shutil.copytree(work / "results", work / "target")
    for ending in (".json", ".npz"):
        content = files[f"{NOISE}{ending}"]
        three = edited(content, lambda data: data.update(seed=3)) if ending == ".json" else content
        files[f"{NOISE.replace('seed-1', 'seed-3')}{ending}"] = three
        del files[f"{NOISE}{ending}"]
    rewritten(work, files)
    with unchanged(work):
        facts = "target/local/mini/noise/seed-3/toy.json", "mini/noise/seed-1/toy.json", "nothing was added"
        assert missing_facts(refusal(cli, *OTHER), *facts) == []


def test_seeds_of_another_specification(work: Path, cli: Cli) -> None:
    for folder, method, seed in (("results", "n=noise", "1"), ("target", "n=noise[scale=2.0]", "2")):
        run = ("run", "--methods", method, "--seeds", seed, "--suite", "toy", "--campaign", "x")
        assert cli(*run, "--results", folder)[0] == 0
    assert cli("bundle", "x", "--out", "x.zip")[0] == 0
    with unchanged(work):
        code, _, err = cli("merge", "x.zip", "--into", "target")
        assert (code, err.count("\n")) == (3, 1)


def test_a_damaged_campaign_is_left_alone(work: Path, cli: Cli) -> None:
    shutil.copytree(work / "results", work / "target")
    path = work / "target" / "local" / "mini" / "noise" / "seed-1" / "toy.json"
    path.write_text(path.read_text().replace("0", "1", 1))
    with unchanged(work):
        assert missing_facts(refusal(cli, *MERGE), path.relative_to(work), "record was changed") == []


@pytest.mark.parametrize("above", ["../../../away/x", "WORK/away/x"])
def test_a_grid_leads_nowhere_else(work: Path, cli: Cli, files: Files, above: str) -> None:
    (work / "away" / "x").mkdir(parents=True)
    profile = f"{above.replace('WORK', str(work))}/mini"
    files[GRID] = files[GRID].replace(b'"mini"', json.dumps(profile).encode())
    rewritten(work, files)
    (work / "results/local" / GRID).write_bytes(files[GRID])
    before = snapshot(work)
    for bundle in ("other.zip", "results/local"):
        out = refused(cli, "merge", bundle, "--into", "target")
        assert missing_facts(out, f"{GRID}: grid: ", "damaged", "unsee_architectures") == []
        assert snapshot(work) == before


def test_a_campaign_is_no_results_folder(work: Path, cli: Cli) -> None:
    with unchanged(work):
        err = refusal(cli, "merge", "local.zip", "--into", "results/local")
        assert missing_facts(err, "--into", "results/local", "campaign's folder") == []
        err = refusal(cli, "merge", "local.zip", "--into", "mine.py")
        assert missing_facts(err, "mine.py/.merge", "Not a directory") == []
        assert "'../x'" in refusal(cli, *MERGE, "--campaign", "../x")


def better(data: dict[str, Any]) -> None:
    for score in data["scores"]:
        score["value"] = min(1.0, score["value"] + 0.05)


Change = Callable[[Files], object]


def change_record(change: Callable[[dict[str, Any]], object], *, sealed: bool = True) -> Change:
    def apply(files: Files) -> None:
        data = json.loads(files[f"{NOISE}.json"])
        change(data)
        text = f"{json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)}\n".encode()
        files[f"{NOISE}.json"] = edited(files[f"{NOISE}.json"], change) if sealed else text

    return apply


def without_predictions(files: Files) -> None:
    del files[f"{NOISE}.npz"]
    change_record(better)(files)
    change_record(lambda data: data.update(predictions=None))(files)


def swap(files: Files) -> None:
    files[f"{NOISE}.npz"], files[f"{TWO}.npz"] = files[f"{TWO}.npz"], files[f"{NOISE}.npz"]


def copy_seed(files: Files) -> None:
    for ending in (".json", ".npz"):
        files[f"{NOISE.replace('seed-1', 'seed-9')}{ending}"] = files[f"{NOISE}{ending}"]


def pickled(files: Files) -> None:
    np.savez(buffer := io.BytesIO(), TOY=np.array([print], dtype=object))
    files[f"{NOISE}.npz"] = buffer.getvalue()
    digest = hashlib.sha256(files[f"{NOISE}.npz"]).hexdigest()
    change_record(lambda data: data["predictions"].update(sha256=digest))(files)


def other_cell(files: Files) -> None:
    files[GRID] = files[GRID].replace(b"architecture=projection", b"architecture=online_projection")


FOUND: dict[str, tuple[Change, str]] = {
    "a score": (change_record(better, sealed=False), "seal: "),
    "a score, sealed again": (change_record(better), "score: "),
    "the average": (change_record(lambda d: d["scores"][-1].update(value=0.9)), "average: "),
    "an option": (change_record(lambda d: d["options"].update(scale=2.0), sealed=False), "key: "),
    "the seed": (change_record(lambda d: d.update(seed=7)), "place: "),
    "predictions of another seed": (swap, "predictions: "),
    "a seed that is copied": (copy_seed, "place: "),
    "objects among predictions": (pickled, "predictions: "),
    "no predictions": (without_predictions, "predictions: "),
    "the plug-in": (lambda files: files.update({"plugins/mine.py": b"x = 1\n"}), "method: mine.py"),
    "a record that is none": (lambda files: files.update({f"{NOISE}.json": b"[]"}), "shape: "),
    "a fact that lies too deep": (
        change_record(lambda d: d["provenance"].update(x=json.loads(600 * "[" + 600 * "]")), sealed=False),
        "'provenance.x[0][0]",
    ),
    "a grid that is none": (lambda f: f.update({GRID: b"[]"}), f"{GRID}: grid: "),
    "a grid of another name": (
        lambda f: f.update({"sweeps/x.json": f.pop(GRID)}),
        "sweeps/x.json: grid: ",
    ),
    "a grid of other methods": (other_cell, "grid: cell 'projection'"),
    "predictions of nothing": (lambda f: f.update({f"{NOISE}x.npz": b"x"}), "toyx.npz: stray: "),
}


REFUSED: dict[str, tuple[Change, str]] = {
    "a plug-in more": (lambda f: f.update({"plugins/more.py": b""}), "names 'plugins/more.py'"),
    "a plug-in less": (lambda f: f.pop("plugins/mine.py"), "'plugins/mine.py', which"),
    "a profile less": (lambda f: f.pop("profiles/mini.toml"), "'profiles/mini.toml', which"),
    "a profile more": (lambda f: f.update({"profiles/x.toml": b""}), "names 'profiles/x.toml'"),
    "a test sentence": (
        lambda f: f.update({"report.txt": f"{next(iter(make_toy_task().all_pairs()))[0]}\n".encode()}),
        "'report.txt' quotes",
    ),
    "no records": (lambda f: [f.pop(name) for name in list(f) if name.startswith("records/")], "no records"),
}


@pytest.mark.parametrize("case", [*FOUND, *REFUSED])
def test_what_verification_finds_and_what_is_refused(work: Path, cli: Cli, files: Files, case: str) -> None:
    change, message = (FOUND | REFUSED)[case]
    change(files)
    rewritten(work, files)
    with unchanged(work):
        assert message in (refused if case in FOUND else refusal)(cli, *OTHER)


def test_scores_that_nobody_here_can_check(
    work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, files: Files
) -> None:
    from bench.data.data_source import data_folder

    monkeypatch.delenv("BENCH_DATA", raising=False)
    assert data_folder(None) is None
    name = NOISE.replace("toy", "sts7")
    values = np.load(work / "results" / "local" / "mini" / "noise" / "seed-1" / "toy.npz")["TOY"]
    files[f"{name}.npz"] = predictions_to_npz(dict.fromkeys(SEVEN, values))
    digest = hashlib.sha256(files[f"{name}.npz"]).hexdigest()

    def as_sts7(data: dict[str, Any]) -> None:
        facts = {"pairs": 180, "reference": False, "sha256": "0" * 64}
        data.update(suite="sts7", tasks=dict.fromkeys(SEVEN, facts))
        data["predictions"].update(file="sts7.npz", sha256=digest)
        score = {"subset": "all", "metric": "spearman", "value": 0.5, "n": 180}
        data.update(scores=[{"task": task, **score} for task in SEVEN] + [{**score, "task": "avg", "n": 7}])

    files[f"{name}.json"] = edited(files[f"{NOISE}.json"], as_sts7)
    rewritten(work, files)
    with unchanged(work):
        assert missing_facts(refusal(cli, *OTHER), "'sts7'", "--data DIR") == []


SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")


def test_another_profile_is_said(work: Path, cli: Cli, files: Files) -> None:
    rewritten(work, {**files, "profiles/mini.toml": b"x = 1\n"})
    code, out, _ = cli(*OTHER)
    assert (code, missing_facts(out, "note: profile mini")) == (0, [])
    assert "note: " not in cli(*MERGE)[1]


def forged(work: Path, files: Files, name: str) -> None:
    """Make predictions that are the gold scores, and everything else to fit them."""
    task = make_toy_task()
    predictions = {"TOY": np.asarray(task.subsets[0].gold, dtype=np.float32)}
    record = parse_record(files[f"{name}.json"].decode(), "test")
    scores = measure_of("toy").rescore([task], predictions, record)
    store = ResultStore(work, "scratch")
    written = store.write(record.place, record, predictions)
    files[f"{name}.npz"] = store.path(record.place).with_suffix(".npz").read_bytes()
    files[f"{name}.json"] = edited(
        record_to_json(written).encode(),
        lambda data: data.update(scores=[vars(score) for score in scores]),
    )
    shutil.rmtree(store.root)


def test_a_whole_forgery_is_found_by_repeating(work: Path, cli: Cli, files: Files) -> None:
    forged(work, files, "records/mini/word_overlap/no-seed/toy")
    rewritten(work, files)
    with unchanged(work):
        code, out, err = cli(*OTHER, "--rerun", "9")
        assert (code, "word_overlap/no-seed/toy.json: rerun: " in out) == (1, True)
        assert "nothing was added" in err
    assert cli(*OTHER)[0] == 0  # nobody can tell from the file alone, which the page says


def test_a_plug_in_that_is_named_runs_from_a_private_copy(work: Path, cli: Cli) -> None:
    code, out, err = cli(*MERGE, "--rerun", "9", "--run-plugin", "mine.py")
    assert (code, missing_facts(out, "5 of 5"), len(left_unchecked(out))) == (0, [], 1), err
    (loaded,) = {Path(line) for line in (work / "loaded").read_text().splitlines()}
    assert loaded.name == "mine.py"
    assert not loaded.is_relative_to(work)
    assert not loaded.parent.exists()


def test_a_forged_plug_in_cell_is_found_when_it_may_run(work: Path, cli: Cli, files: Files) -> None:
    forged(work, files, "records/mini/mine/seed-2/toy")
    rewritten(work, files)
    code, out, _ = cli(*OTHER, "--rerun", "9", "--run-plugin", "mine.py")
    assert (code, "mine/seed-2/toy.json: rerun: " in out) == (1, True)
    assert not (work / "target").exists()


def test_repeating_runs_only_plug_ins_that_are_named(work: Path, cli: Cli) -> None:
    with unchanged(work):
        named = ("--run-plugin", "other.py")
        unknown = refusal(cli, *MERGE, "--rerun", "1", *named)
        assert missing_facts(unknown, "--run-plugin", "'other.py'", "mine.py") == []
        assert missing_facts(refusal(cli, *MERGE, *named), "--run-plugin", "--rerun N") == []
    with unchanged(work):
        code, out, err = cli(*MERGE, "--rerun", "9")
    assert code == 3
    assert missing_facts(out, "not checked: repetition", "mine.py: --run-plugin", "(2)", "3 of 5") == []
    assert missing_facts(err, "3 of 5 cells", "nothing was added", "without --rerun") == []
    assert out.count("not repeatable here: mini/mine/seed-") == 2
    assert (err.count("equal to the"), "forge" in out + err) == (3, False)
    assert not (work / "loaded").exists()
    code, out, err = cli(*MERGE, "--rerun", "3")
    assert (code, "3 of 3 cells repeated" in out, "5 records added" in out) == (0, True, True), err


def test_a_merge_that_is_stopped_goes_on(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("merge", "local.zip", "--into", "whole")[0] == 0
    whole = {name: content for name, content in snapshot(work / "whole").items() if ".locks" not in name}
    real, moments = write_atomically, 0
    for stop in (1, 2, 3, 10, 11):
        calls = 0

        def stopping(path: Path, payload: bytes, stop: int = stop) -> None:
            nonlocal calls
            calls += 1
            if calls == stop:
                raise KeyboardInterrupt
            real(path, payload)

        with monkeypatch.context() as patch:
            patch.setattr("bench.exchange.bundle_merge.write_atomically", stopping)
            code, _, err = cli(*MERGE)
        if code == 0:
            break
        assert (code, len(err.split("\n")), "interrupted" in err) == (130, 3, True)  # click begins a line
        moments += 1
        assert not (work / "target" / merging.STAGING).exists()
        for record in (work / "target").glob("*/*/*/*/*.json"):  # whatever is there is whole
            assert record.with_suffix(".npz").exists()
        assert cli(*MERGE)[0] == 0
        found = snapshot(work / "target")
        assert {name: content for name, content in found.items() if ".locks" not in name} == whole
        shutil.rmtree(work / "target")
    assert moments == 4  # before anything, between predictions and record, between records, before the last


KILLED = """
import os, signal, sys
from bench.exchange import bundle_merge
from bench.cli.main import main

real, left = bundle_merge.write_atomically, [4]
def dying(path, payload):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, payload)
bundle_merge.write_atomically = dying
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_merge_that_is_killed_goes_on(work: Path, cli: Cli) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, *MERGE], cwd=work, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (work / "target" / ".merge" / "work" / "local").is_dir()
    assert len(list((work / "target").glob("local/*/*/*/*.json"))) == 1
    assert cli(*MERGE)[0] == 0
    assert [path.name for path in (work / "target").iterdir()] == ["local"]
    assert len(list((work / "target").glob("local/*/*/*/*.json"))) == 5
    assert cli("verify", "target", "--plugin", "mine.py")[0] == 0


def test_one_merge_at_a_time_in_a_folder_of_its_own(work: Path, cli: Cli) -> None:
    folder = work / "target" / merging.STAGING
    folder.mkdir(parents=True)
    with FileLock(folder / "lock"):
        assert missing_facts(refusal(cli, *MERGE), "target", "another merge") == []
    assert cli(*MERGE)[0] == 0
    assert not folder.exists()
    (work / "elsewhere" / "work").mkdir(parents=True)
    (work / "elsewhere" / "work" / "precious").touch()
    folder.symlink_to(work / "elsewhere")
    with unchanged(work):
        assert missing_facts(refusal(cli, *MERGE), "target/.merge", "a link") == []


def test_a_full_disk(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, payload: bytes) -> None:
        raise OSError(28, os.strerror(28), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("bench.exchange.bundle_merge.write_atomically", full)
        err = refusal(cli, *MERGE, code=1)
    assert missing_facts(err, "mine/seed-1/toy.json", "can't be written", "No space left") == []
    assert not list((work / "target").glob("local/*/*/*/*.json"))
    assert cli(*MERGE)[0] == 0


def test_the_limits_hold_for_what_is_made_too() -> None:
    assert archive.MOST_BYTES >= archive.LARGEST_FILE
    assert archive.MOST_FILES < 2**16  # beyond that a zip is of another form
    assert archive.MOST_BYTES < 2**31


@pytest.mark.parametrize("name", ["CON", "aux.txt", "simcse."])
def test_a_new_row_that_not_every_system_can_hold_is_refused(
    work: Path, cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.plan import plan as names

    monkeypatch.setattr(names, "check_new_name", lambda *args, **more: None)  # as before there was a check
    line = f"run --methods noise,{name}=word_overlap --seeds 1 --suite toy --campaign old"
    assert cli(*line.split())[0] == 0
    code, _, err = cli("bundle", "old", "--out", "old.zip")
    assert code == 0, err
    code, _, err = cli("merge", "old.zip", "--into", "new")
    assert (code, "bundle" in err) == (2, True), err
    assert not list(Path("new").rglob("*.json"))
