"""A profile's backbone that is made on first use, and known by its recipe."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import profiles
from bench.data.corpus import make_corpus
from bench.errors import CellFailedError, DataError, InputError
from bench.exchange.offline_package import Packed
from bench.exchange.offline_package import _write_model as packed_model
from bench.execution import encoder_builder as making
from bench.nn.model_folder import RecipeModel
from bench.plan.backbones import backbone_shape, profile_backbone
from bench.plan.cell_expansion import profile_options
from bench.records.record import RunRecord, parse_record
from bench.records.store import ResultStore
from bench.registry import METHODS
from bench.training.masked_lm_training import MlmSettings
from bench.training.pretraining import train_mlm_head
from bench.verify.stage_checks import plan_rerun as planned_again
from tests.support.cli import Cli
from tests.support.messages import missing_facts

BASE = """
summary = "a language model for own"
suites = []
dev = "toy"
[backbone]
name = "mini-bert"
package = "bench.data.mini"
folder = "backbone"
[corpus]
file = "text.txt.xz"
[pretrain]
max_length = 16
steps = 100
batch_size = 4
lr = 1e-3
warmup = 0.1
mask = 0.15
weight_decay = 0.0
"""
OWN = """
summary = "made here"
note = "A note."
suites = ["toy"]
dev = "toy"
[backbone]
name = "own-lm"
profile = "base.toml"
steps = 2
from = "{of}"
text = "{text}"
[corpus]
world = "train"
[budget]
sentences = 16
evaluate_every = 8
equal = {{ batch_size = 8 }}
"""
LINES = [f"the {old} dog sees {count} houses" for old in ("old", "new") for count in range(2, 6)]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two profiles and a text, where the backbone isn't made yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "texts"))
    (tmp_path / "texts").mkdir()
    with lzma.open(tmp_path / "texts" / "text.txt.xz", "wt") as stream:
        stream.write("\n".join(LINES))
    (tmp_path / "base.toml").write_text(BASE)
    _write_own()
    return tmp_path


def _write_own(text: str = "") -> None:
    of = profile_backbone(profiles.load_profile("base.toml"), None).sha256
    text = text or make_corpus("text.txt.xz", LINES).sha256
    Path("own.toml").write_text(OWN.format(of=of, text=text))


@pytest.fixture(scope="module")
def made_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "lm"
    settings = MlmSettings(**{**tomllib.loads(BASE)["pretrain"], "steps": 2})
    backbone, text = profile_backbone(profiles.load_profile("mini"), None), make_corpus("text.txt.xz", LINES)
    train_mlm_head(backbone, text, settings, seed=1, out=out, command="bench pretrain")
    return out


def planned() -> RecipeModel:
    model = profile_backbone(profiles.load_profile("own.toml"), None)
    assert isinstance(model, RecipeModel)
    return model


def record_of(folder: Path, method: str) -> RunRecord:
    (path,) = (folder / "results" / "local" / "own").glob(f"{method}/*/toy.json")
    return parse_record(path.read_text(), str(path))


@pytest.mark.long
def test_a_run_makes_and_records_it_once(there: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", "--profile", "own.toml", "--methods", "untrained,diffcse", "--seeds", "1")
    code, out, err = cli(*words, "--dry-run")
    assert code == 0, err
    command = "bench pretrain --profile base.toml --steps 2 --seed 1 --threads 2 --data "
    assert not missing_facts(out, "own-lm, made first", command)
    assert not (there / "cache").exists()
    before = planned()
    assert (before.sha256, backbone_shape(profiles.load_profile("own.toml"), before)) == ("", (4, False))
    code, out, err = cli(*words)
    assert code == 0, err
    assert not missing_facts(err, "own-lm is made first", command)
    assert "A note." in out
    after = planned()
    assert (len(after.sha256), after.recipe, after.path) == (64, before.recipe, before.path)
    record = record_of(there, "diffcse")
    named = {"name": "own-lm", "sha256": after.sha256, "recipe": after.recipe}
    assert record.backbone == record.training["auxiliaries"]["generator"] == named
    assert record_of(there, "untrained").backbone == named
    assert backbone_shape(profiles.load_profile("own.toml"), after) == (4, False)
    code, _, err = cli(*words)
    assert (code, "made first" in err, missing_facts(err, "2 of 2", "done")) == (0, False, [])
    code, out, err = cli("verify", "results/local")
    assert code == 0, out + err

    # a reader who hasn't made it can check the keys of the stages too
    keys = {role: facts["key"] for role, facts in record.training["stages"].items()}
    shutil.rmtree(there / "cache")
    load = profiles.load_profile
    for name in ("load_profile", "load_shipped_profile"):  # as if it were shipped
        monkeypatch.setattr(profiles, name, lambda name: load("own.toml" if name == "own" else name))
    assert planned_again(record, None).keys == keys


def test_what_was_made_otherwise_is_refused(there: Path, cli: Cli, made_before: Path) -> None:
    path = planned().path
    shutil.copytree(made_before, path)
    assert planned().sha256
    facts = json.loads((path / "pretraining.json").read_text())
    (path / "pretraining.json").write_text(json.dumps({**facts, "seed": 2}))
    with pytest.raises(DataError, match="made from another"):
        planned()
    code, _, err = cli("run", "--profile", "own.toml", "--methods", "untrained")
    assert (code, "; remove " in err) == (2, True), err
    (path / "pretraining.json").write_text("[]")
    with pytest.raises(DataError, match=r"pretraining.json does not"):
        planned()


def test_changed_weights_are_other_bytes_of_the_same_recipe(there: Path, made_before: Path) -> None:
    shutil.copytree(made_before, planned().path)
    before = planned()
    with (before.path / "config.json").open("a") as stream:
        stream.write(" ")
    after = planned()
    assert (after.recipe, after.sha256 != before.sha256) == (before.recipe, True)


def test_weights_other_than_those_of_committed_records(there: Path, cli: Cli, made_before: Path) -> None:
    weights = hashlib.sha256((made_before / "model.safetensors").read_bytes()).hexdigest()
    shutil.copytree(made_before, planned().path)
    text = Path("own.toml").read_text()
    for named, warned in ((weights, False), (f"0{weights[1:]}" if weights[0] != "0" else "1" * 64, True)):
        made = f'[backbone.made]\nweights = "{named}"\nloss = [[2, 7.5]]\nmasked_accuracy = 0.1\n[corpus]'
        Path("own.toml").write_text(text.replace("[corpus]", made))
        code, _, err = cli("run", "--profile", "own.toml", "--methods", "untrained", "--force")
        missing = missing_facts(err, "own-lm: weights", weights[:12], named[:12])
        assert (code, not missing) == (0, warned), err
    Path("own.toml").write_text(text.replace("[corpus]", "[backbone.made]\nweights = 1\n[corpus]"))
    with pytest.raises(InputError, match=r"'backbone\.made\.loss'"):
        profiles.load_profile("own.toml")


def test_without_its_text_nothing_begins(there: Path, cli: Cli) -> None:
    (there / "texts" / "text.txt.xz").unlink()
    for options in ((), ("--dry-run",)):
        code, _, err = cli("run", "--profile", "own.toml", "--methods", "untrained", *options)
        assert (code, missing_facts(err, "own-lm", "text.txt.xz", "texts", "--data")) == (2, []), err
    assert not (there / "results").exists()


def test_another_text_is_refused(there: Path, made_before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_own(text="0" * 64)
    monkeypatch.setattr(making, "_run_pretraining", lambda model: shutil.copytree(made_before, model.path))
    with pytest.raises(DataError, match="made from another"):
        making.make_backbone(planned())


def test_a_failed_command_is_a_failed_cell(there: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: RecipeModel) -> None:
        raise CellFailedError("the backbone can't be made: exit code 1", where=model.name)

    monkeypatch.setattr(making, "_run_pretraining", fail)
    code, _, err = cli("run", "--profile", "own.toml", "--methods", "untrained,word_overlap")
    assert (code, missing_facts(err, "untrained on toy: FAILED", "exit code 1", "toy: avg")) == (1, [])
    (failed,) = (r for r in ResultStore(there / "results", "local").records() if r.status == "failed")
    assert failed.backbone == {"name": "own-lm", "sha256": "", "recipe": planned().recipe}


def test_a_cache_that_cannot_be_written_is_named(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", "base.toml")  # a file
    with pytest.raises(CellFailedError, match=r"base.toml/backbones: .*BENCH_CACHE"):
        making.make_backbone(planned())


def test_a_packed_one_keeps_its_recipe(there: Path, made_before: Path, tmp_path: Path) -> None:
    shutil.copytree(made_before, planned().path)
    place, sha256 = packed_model(planned(), tmp_path / "pack", True, Packed([]))
    assert sha256 == planned().sha256  # float16 before and after
    assert (tmp_path / "pack" / place / "pretraining.json").is_file()


def test_equal_terms_hold_for_every_method(there: Path) -> None:
    text = Path("own.toml").read_text() + "[methods.simcse]\nlr = 2e-4\n[methods.tncse]\nsub1.steps = 5\n"
    Path("own.toml").write_text(text)
    own = profiles.load_profile("own.toml")
    simcse = profile_options(METHODS.get("simcse").card, own)
    assert [simcse[name] for name in ("batch_size", "steps", "eval_every", "lr")] == [8, 2, 1, 2e-4]
    for batch, steps in ((4, 4), (16, 1)):  # a table's own batches read as much
        table = {"simcse": {"batch_size": batch}}
        assert profile_options(METHODS.get("simcse").card, replace(own, methods=table))["steps"] == steps
    card = METHODS.get("tncse").card
    twin = profile_options(card, own, {"batch_size": 4})
    names = ("steps", "sub1.steps", "sub2.steps", "sub2.batch_size")
    assert [twin[name] for name in names] == [4, 5, 2, 8]
    assert own.budget is not None
    assert not missing_facts(own.budget.text, "every 8", "batch_size 8")
    Path("own.toml").write_text(text.replace("batch_size = 8", "batch_size = 0"))
    with pytest.raises(InputError, match=r"'budget\.equal\.batch_size'"):
        profiles.load_profile("own.toml")
    assert replace(own.budget, equal={}).terms(card) == {}
