"""Hostile records and names: they write nothing out of place, run nothing and name no file to be read."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli.main import main
from bench.execution.stage_cache import is_complete_stage
from bench.records.store import ResultStore
from tests.support.campaigns import make_record
from tests.support.cli import Cli, records, refusal
from tests.support.forge import forge
from tests.support.hostile import MARKER, PICKLE, Hostile, as_zip, everything
from tests.support.messages import missing_facts
from tests.support.training import arguments

RUN = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished records of a method without torch."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.raises(SystemExit) as stopped:
        main([*RUN, "--results", str(folder)])
    assert not stopped.value.code
    return folder


@pytest.fixture
def campaign(finished: Path, tmp_path: Path) -> Path:
    """A copy of them where the command looks."""
    return shutil.copytree(finished, tmp_path / "results") / "local"


def change(campaign: Path, seal: str = "recomputed", **values: Any) -> Path:
    """Change the record of seed 1 in its place, and seal it again: nothing about a seal is secret."""
    path = campaign / "mini" / "noise" / "seed-1" / "toy.json"
    forge(path, lambda record: record.update(values), seal)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--campaign", "../evil"), "--campaign: '../evil'"),
        (("--campaign", ".."), "--campaign: '..'"),
        (("--methods", "../../x=noise"), "is no"),
        (("--methods", "x/../y=noise"), "is no"),
        (("--suite", "../../toy"), "suite '../../toy'"),
        (("--suite", "local:\x1b[2J.toml"), "'local:\\x1b[2J.toml'"),
        (("--profile", "../../mini"), "profile '../../mini'"),
        (("--probes", "../x"), "../x"),
        (("--methods", "hf:a/../../b"), "local cache"),
        (("--methods", "hf:https://evil.example/x"), "local cache"),
        (("--methods", "released:../../x"), "'../../x'"),
    ],
)
def test_names_are_no_paths(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(path.name for path in tmp_path.parent.iterdir())
    assert message in refusal(cli, *RUN, *arguments)
    assert everything(tmp_path) == {}
    assert sorted(path.name for path in tmp_path.parent.iterdir()) == before


def test_a_local_task_is_no_path(cli: Cli, tmp_path: Path) -> None:
    for name in ("../../evil", "/etc/evil", "a/b", "..", "a\x00b", "\x1b[2J"):
        lines = ("[[task]]", f"name = {json.dumps(name)}", 'type = "sts"', 'file = "x.tsv"')
        (tmp_path / "x.toml").write_text("\n".join(lines))
        said = refusal(cli, *RUN, "--suite", "local:x.toml")
        assert missing_facts(said, "x.toml, task 1", "name = ") == []


@pytest.mark.parametrize(
    ("values", "seal"),
    [
        ({"method": "../../../evil"}, "recomputed"),
        ({"profile": "../.."}, "recomputed"),
        ({"suite": "../../../../evil"}, "recomputed"),
        ({"seed": 2}, "recomputed"),
        ({"suite": "toy\x00"}, "kept"),  # no record, whatever its seal
        ({"method": "noise\x1b[2J"}, "kept"),
        ({"method": "\N{RIGHT-TO-LEFT OVERRIDE}esion"}, "kept"),
    ],
)
@pytest.mark.parametrize(
    "command", [("report", "--format", "html"), ("stats",), ("compare", "noise#1", "noise#2")]
)
def test_a_record_stands_where_it_says_or_is_refused(
    cli: Cli, campaign: Path, tmp_path: Path, values: dict[str, Any], seal: str, command: tuple[str, ...]
) -> None:
    change(campaign, seal, **values)
    before = everything(tmp_path)
    said = refusal(cli, *command, code=1 if command[0] == "report" else 2)
    assert "seed-1/toy.json: " in said
    assert ("another's place" if seal == "recomputed" else "not a run record") in said
    assert everything(tmp_path) == before


def test_predictions_are_read_beside_their_record_alone(cli: Cli, campaign: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.npz"
    with np.load(campaign / "mini" / "noise" / "seed-1" / "toy.npz") as own:
        np.savez(outside, TOY=own["TOY"][::-1])
    digest = hashlib.sha256(outside.read_bytes()).hexdigest()
    change(campaign, predictions={"file": "../../../../../outside.npz", "sha256": digest})
    said = refusal(cli, "compare", "--show-items", "noise#1", "noise#2")
    assert missing_facts(said, "seed-1/toy.npz: ", "belong to") == []


@pytest.mark.parametrize("kind", ["pickle", "bomb"])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_predictions_are_never_unpickled_nor_unpacked(
    cli: Cli, campaign: Path, tmp_path: Path, kind: str
) -> None:
    file = campaign / "mini" / "noise" / "seed-1" / "toy.npz"
    evil = np.array([Hostile(tmp_path / "x")], dtype=object)
    np.savez_compressed(file, TOY=evil if kind == "pickle" else np.zeros(10_000_000, dtype=np.float32))
    change(campaign, predictions={"file": "toy.npz", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()})
    said = refusal(cli, "compare", "--show-items", "noise#1", "noise#2")
    assert missing_facts(said, "seed-1/toy.npz: ", "ValueError") == []
    assert not (tmp_path / MARKER).exists()


def test_kept_vectors_are_never_unpickled(cli: Cli, tmp_path: Path) -> None:
    cli(*RUN, "--keep-vectors")
    (first, second) = sorted((tmp_path / "results" / ".vectors").glob("*.npz"))
    was = {name: record.scores for name, record in records(tmp_path).items()}
    assert len(was) == 2
    np.savez(first, vectors=np.array([Hostile(tmp_path / "x")], dtype=object), sha256=np.array("x"))
    np.savez_compressed(second, vectors=np.zeros((360, 8), dtype=np.float32), sha256=np.array("x"))
    assert cli(*RUN, "--keep-vectors", "--campaign", "again")[0] == 0
    assert {name: record.scores for name, record in records(tmp_path, "again").items()} == was
    assert not (tmp_path / MARKER).exists()


def test_a_farm_of_links_is_read_as_what_it_is(cli: Cli, campaign: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    (campaign / "mini").rename(away)
    (campaign / "mini").symlink_to(away)  # a folder on another disk
    (campaign / "loop").symlink_to(campaign)
    before = everything(away)
    assert cli("report", "--format", "html")[0] == 0
    (campaign / "mini" / "other").symlink_to(away / "noise")
    assert cli("report")[2].count("another's place") == 2
    (away / "other").unlink()
    assert everything(away) == before


FARAWAY = "../../../../../evil"


@pytest.mark.slow
def test_figures_stay_in_their_folder(cli: Cli, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "local")
    for method in (FARAWAY, "a/b", "--><script>x</script>"):
        for seed in (1, 2):
            record = make_record(method, seed, {"STSB": 0.5}, name=method, profile=FARAWAY, suite=FARAWAY)
            store.write(record.place, record, None)
    probes = {"density": {"groups": [{"low": 0, "high": 1}], "curves": [[0.5] * 101]}}
    probed = [{"profile": FARAWAY, "method": FARAWAY, "seed": 1, "probes": probes}]
    (store.root / "probes.json").write_text(json.dumps(probed))
    (store.root / "gradient").mkdir()
    (store.root / "gradient" / "gradient-grid.csv").write_text(f"mu_pos,mu_neg,x/{FARAWAY}\n0,0,1\n")
    (tmp_path / "figures" / "gradient-x").mkdir(parents=True)  # or the path would lead nowhere
    before = sorted(path.name for path in tmp_path.parent.iterdir())
    code, _, err = cli("report", "--figures", "figures")
    assert code == 0, err
    drawn = {path for path in everything(tmp_path) if not path.startswith("results/")}
    assert len(drawn) >= 9
    assert {path.rpartition("/")[0] for path in drawn} == {"figures"}
    assert sorted(path.name for path in tmp_path.parent.iterdir()) == before
    assert not any(b"<script" in (tmp_path / path).read_bytes() for path in drawn)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"suite": "local:/etc/hostname"}, "came from a file"),
        ({"suite": "local:x"}, "--suite local:FILE.toml"),
        ({"provenance": {"device": "evil", "threads": 1}}, "device 'evil'"),
        ({"provenance": {"device": "cpu", "threads": 10**9}}, "expected 1 to 256"),
        ({"provenance": {"device": "cpu"}}, "threads 'None'"),
        ({"provenance": {}}, "device 'None'"),
        ({"name": "hf", "method": "hf:/etc"}, "expected --model FOLDER"),
        ({"name": "os.system"}, "os.system"),
        ({"profile": "../../mini"}, "'../../mini'"),
    ],
)
def test_a_record_names_no_file_to_read(
    cli: Cli, campaign: Path, values: dict[str, Any], message: str
) -> None:
    path = change(campaign, **values)
    (campaign.parents[1] / "x").write_text("no TOML")
    assert message in refusal(cli, "verify", str(path), "--rerun")


@pytest.mark.slow
def test_a_stage_that_came_with_records_is_never_unpickled(
    cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path
) -> None:
    run = arguments(tiny_bert, corpus)
    assert cli(*run)[0] == 0
    found = list((tmp_path / "results" / ".stages").glob("*/selected/model.safetensors"))
    assert found
    for weights in found:
        stage = weights.parents[1]
        weights.unlink()
        as_zip(weights.parent)
        (stage / "MANIFEST.json").unlink()
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in everything(stage).items()}
        (stage / "MANIFEST.json").write_text(json.dumps(sums))
        assert is_complete_stage(stage)
    shutil.rmtree(tmp_path / "results" / "local")
    code, _, err = cli(*run)
    assert (code, f"selected: this model {PICKLE}" in err) == (1, True), err
    assert not list(tmp_path.rglob(MARKER))
