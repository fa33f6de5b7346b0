"""Published checkpoints: the table, their resolution in a local hub, published figures beside measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bench.baselines.released import find_tower_folder
from bench.data.published_tables import published_rows
from bench.data.released_checkpoints import (
    ReleasedCheckpoint,
    ReleasedTower,
    find_checkpoint,
    load_checkpoints,
)
from bench.data.toy_suite import make_toy_task
from bench.errors import InputError
from bench.eval.sts import predict_similarities
from bench.nn.backbone import TransformerEncoder
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.released import hub_folder


def test_every_checkpoint_names_a_published_row() -> None:
    rows = {(line.first.method, line.first.backbone, line.first.section) for line in published_rows("sts7")}
    released = {row for row in rows if row[2] == "sts7_released_checkpoints"}
    named = {(entry.method, entry.backbone) for entry in load_checkpoints().values()}
    assert {(method, backbone) for method, backbone, _ in released} <= named
    assert named <= {(method, backbone) for method, backbone, _ in rows}


@pytest.mark.parametrize("entry", load_checkpoints().values(), ids=lambda entry: entry.name)
def test_every_entry_can_be_looked_for(entry: ReleasedCheckpoint) -> None:
    assert all(tower.hub or tower.folder for tower in entry.towers)
    assert len(entry.towers) == {"tncse": 2, "jtcse": 2, "tncse_uc": 3, "jtcse_uc": 3}.get(entry.method, 1)
    assert (entry.pooling == "mask") == bool(entry.template)
    weights = {tower.weight for tower in entry.towers}
    assert weights == {1.0} or sum(sorted(weights)) == pytest.approx(1)
    assert entry.sick == entry.method.startswith(("tncse", "jtcse"))


def test_an_unknown_or_missing_checkpoint_says_what_to_do(cli: Cli, hub: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_checkpoint("tncse_brt")
    assert not missing_facts(caught.value, "'tncse_brt'", "'tncse_bert'")
    for method, facts in (
        ("released", ("checkpoint ''",)),
        ("released:tncse_bert", ("released:tncse_bert", "TNCSE_BERT_CKPT/BERT_1", "BENCH_CHECKPOINTS=DIR")),
        ("released:jtcse_d_bert", ("'UCASzty/JTCSE_BERT_D'", "dfb46e9", "hf download UCASzty/JTCSE_BERT_D")),
    ):
        code, _, err = cli("run", "--methods", method, "--suite", "toy")
        assert code == 2
        assert not missing_facts(err, *facts)


def test_folder_first(hub: Path, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tower = ReleasedTower(folder="A/B", hub="org/name", revision="abc1234")
    pinned = hub_folder(hub, "org/name", "abc1234" + 33 * "0", tiny_bert)
    hub_folder(hub, "org/name", 40 * "f", tiny_bert)
    assert find_tower_folder(tower, "here") == pinned
    (tmp_path / "A" / "B").mkdir(parents=True)
    monkeypatch.setenv("BENCH_CHECKPOINTS", str(tmp_path))
    assert find_tower_folder(tower, "here") == tmp_path / "A" / "B"
    assert find_tower_folder(ReleasedTower(hub="org/name", revision="abc1234"), "here") == pinned


@pytest.fixture
def towers(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TNCSE's download."""
    monkeypatch.setenv("BENCH_CHECKPOINTS", str(tmp_path / "download"))
    for number in (1, 2):
        shutil.copytree(tiny_bert, tmp_path / "download" / "TNCSE_BERT_CKPT" / f"BERT_{number}")


def test_a_released_twin(cli: Cli, hub: Path, tmp_path: Path, tiny_bert: Path, towers: None) -> None:
    code, _, err = cli("run", "--methods", "released:tncse_bert", "--suite", "toy")
    assert code == 0, err
    (file,) = (tmp_path / "results/local/mini").glob("released_tncse_bert-*/no-seed/toy.json")
    record = json.loads(file.read_text())
    assert (record["method"], record["seed"]) == ("released:tncse_bert", None)
    facts = record["provenance"]["encoder"]
    assert facts["checkpoint"] == "TNCSE_BERT_CKPT/BERT_1+TNCSE_BERT_CKPT/BERT_2"
    first, second = facts["weights_sha256"].split("+")
    assert first == second
    _, _, err = cli("run", "--methods", f"hf:{tiny_bert}:cls", "--suite", "toy")
    (one,) = (tmp_path / "results/local/mini").glob("tiny-bert-*/no-seed/toy.json")
    values = [json.loads(path.read_text())["scores"][0]["value"] for path in (file, one)]
    assert values[0] == pytest.approx(values[1], abs=1e-6)  # the same tower twice has the same cosines
    # published figures are those of sts7: put this record there
    for suffix in (".json", ".npz"):
        shutil.copy(file.with_suffix(suffix), file.with_name(f"sts7{suffix}"))
    forge(file.with_name("sts7.json"), lambda record: record.update(suite="sts7"))
    code, out, err = cli("report", "--suite", "sts7", "--format", "json", "--table", "published")
    assert code == 0, err
    (table,) = json.loads(out)
    kinds = [row[0] for row in table["rows"]]
    assert kinds[0] == "ours"
    assert any("TNCSE, Repository README" in kind for kind in kinds)
    assert "ours - published" in kinds
    assert "79.58" in out


@pytest.mark.slow
def test_the_unions_weights(cli: Cli, hub: Path, tmp_path: Path, tiny_bert: Path, towers: None) -> None:
    hub_folder(hub, "ffgcc/InfoCSE-bert-base", 40 * "a", tiny_bert)
    code, _, err = cli("run", "--methods", "released:tncse_uc_bert", "--suite", "toy")
    assert code == 0, err
    (file,) = (tmp_path / "results/local/mini").glob("released_tncse_uc_bert-*/no-seed/toy.json")
    assert json.loads(file.read_text())["provenance"]["encoder"]["weights"] == "0.3+0.3+0.7"


@pytest.mark.slow
def test_a_template_reaches_the_encoder(tiny_bert: Path, hub: Path, cli: Cli, tmp_path: Path) -> None:
    hub_folder(hub, "royokong/unsup-PromptBERT", 40 * "b", tiny_bert)
    code, _, err = cli("run", "--methods", "released:promptbert_bert", "--suite", "toy")
    assert code == 0, err
    (file,) = (tmp_path / "results/local/mini").glob("released_promptbert_bert-*/no-seed/toy.npz")
    encoder = TransformerEncoder(tiny_bert, "mask", template=load_checkpoints()["promptbert_bert"].template)
    expected = predict_similarities(encoder, [make_toy_task()])["TOY"]
    with np.load(file) as found:
        assert np.allclose(found["TOY"], expected, rtol=0, atol=1e-6)
