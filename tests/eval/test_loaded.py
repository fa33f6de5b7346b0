"""A bench encoder as a model of mteb, with results in the public layout; data sets that mteb declares."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bench
from bench.data.mteb_names import load_mteb_lists, parse_task
from bench.encoder import Encoder
from bench.errors import InputError
from bench.eval import mteb_cache
from bench.eval.mteb_cache import check_cached_data, check_declared_data, declared_data_sets
from bench.eval.mteb_run import evaluate_mteb
from bench.eval.mteb_setup import silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task, load_mteb_suite
from bench.eval.public_encoder import LoadedEncoder
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.nn.model_metadata import read_model_card
from bench.nn.sum_encoder import SumEncoder
from tests.support.local_suite import write_local_suite
from tests.support.messages import missing_facts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mteb")]
TEXTS = ["A man is here.", "", "The doctor and the river"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[MtebTask]:
    return load_mteb_suite(f"local:{write_local_suite(tmp_path_factory.mktemp('local'))}")


def check_public_layout(results: Path) -> Any:
    """Check what embeddings-benchmark/results asks of a new folder; return the model's meta data.

    Transcribed from its tests: run_settings_check, correct_folder_structure, ensure_correct_metadata.
    """
    from mteb.models import ModelMeta
    from mteb.results import TaskResult
    from mteb.results.task_result import _expand_run_settings_entry

    (meta_file,) = results.glob("*/*/model_meta.json")
    said = json.loads(meta_file.read_text())
    meta = ModelMeta.model_validate_json_resolved(meta_file.read_text())
    folder = meta_file.parent
    assert folder == results / said["name"].replace(" ", "_").replace("/", "__") / said["revision"]
    assert re.fullmatch("[0-9a-f]{40}", said["revision"])
    assert "/" in said["name"]
    entries = [json.loads(line) for line in (folder / "run_settings.jsonl").read_text().splitlines()]
    covered = {key for entry in entries for key, _, _ in _expand_run_settings_entry(entry)}
    files = [file for file in folder.glob("*.json") if file.name != "model_meta.json"]
    for file in files:
        result = TaskResult.from_disk(file)
        assert file.stem == result.task_name
        assert result.mteb_version
        assert int(result.mteb_version.split(".")[0]) >= 2
        blocks = [(split, block) for split, found in result.scores.items() for block in found]
        assert {(result.task_name, split, block["hf_subset"]) for split, block in blocks} <= covered
    assert files
    return meta


@pytest.mark.long
@pytest.mark.parametrize("kind", ["one", "twin"])
def test_an_exported_encoder_is_a_model_of_mteb(
    kind: str, tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path, mteb: Any
) -> None:
    part = TransformerEncoder(tiny_bert, "avg")
    encoder = part if kind == "one" else SumEncoder([part, TransformerEncoder(tiny_bert, "cls")])
    about = {"license": "apache-2.0", "training_datasets": ["wiki.txt"]}
    export_encoder(encoder, tmp_path / "exp", "# A card\n", about)
    loaded = bench.load(tmp_path / "exp")
    assert isinstance(loaded, Encoder)
    np.testing.assert_allclose(loaded.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    if kind == "twin":
        assert len(loaded.parts) == 2
    cache = mteb.ResultCache(tmp_path / "cache")
    with silence_mteb():
        run = mteb.evaluate(loaded, [build_mteb_task(task) for task in tasks], cache=cache, co2_tracker=False)
    theirs = {result.task_name.removeprefix("Local-"): result.get_score() for result in run.task_results}
    found = evaluate_mteb(encoder, tasks, name="bench/exp", folder=tmp_path / "ours", about=about)
    ours = {score.task: score.value for score in found.scores if score.metric == "main_score"}
    assert theirs == pytest.approx({task.id: ours[task.id] for task in tasks}, abs=1e-6)
    whole, pooler = (sum(w.numel() for w in m.parameters()) for m in (part.model, part.model.pooler))
    for folder in (tmp_path / "cache" / "results", tmp_path / "ours" / "results"):
        meta = check_public_layout(folder)
        assert (meta.name, meta.embed_dim, meta.max_tokens) == ("bench/exp", 16, 40)
        assert (meta.license, meta.training_datasets) == ("apache-2.0", {"wiki.txt"})
        assert (meta.similarity_fn_name.value, meta.use_instructions) == ("cosine", False)
        if folder.parent.name == "cache":  # without the pooler, which isn't exported
            assert meta.n_parameters == (whole - pooler) * (1 + (kind == "twin"))
            table = part.model.get_input_embeddings().weight
            assert meta.n_embedding_parameters == table.numel() * (1 + (kind == "twin"))


def test_a_loaded_encoder_leaves_mteb_alone_until_it_is_asked(tiny_bert: Path, tmp_path: Path) -> None:
    export_encoder(TransformerEncoder(tiny_bert), tmp_path / "a model", "# A card\n")
    loaded = bench.load(tmp_path / "a model")
    assert "_model" not in vars(loaded)
    assert (loaded.dim, loaded.facts["pooling_from"], loaded.pooling) == (16, "bench.json", "cls")
    with pytest.raises(TypeError, match="'batch'"):
        loaded.encode(TEXTS, batch=3)
    with pytest.raises(TypeError, match="item 1 is a NoneType"):
        loaded.encode(["a", None])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a single"):
        loaded.encode(TEXTS[0])
    np.testing.assert_array_equal(loaded.encode(np.array(TEXTS)), loaded.encode(TEXTS))
    with pytest.raises(AttributeError, match="nothing"):
        _ = loaded.nothing
    before = repr(random.getstate()), torch.get_rng_state().tolist()
    meta = loaded.mteb_model_meta
    assert (repr(random.getstate()), torch.get_rng_state().tolist()) == before
    assert re.fullmatch(r"bench/a_model-[0-9a-f]{8}", meta.name)
    assert (meta.license, meta.training_datasets) == ("not specified", None)
    assert isinstance(loaded, LoadedEncoder)
    one, other = loaded.encode(TEXTS), loaded.encode(TEXTS[::-1])
    np.testing.assert_allclose(
        np.diag(loaded.similarity(one, other)), loaded.similarity_pairwise(one, other), atol=1e-6
    )


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: mit\ndatasets: [a, b]\n---\nx", {"license": "mit", "training_datasets": ["a", "b"]}),
        ("---\nlicense: [mit]\ndatasets: a\n---\n", {}),
        ("---\nlicense: 'a\n---\n", {}),
        ("---\n- a\n---\n", {}),
        ("no front matter", {}),
        (None, {}),
    ],
)
def test_what_a_card_says(card: str | None, expected: dict[str, Any], tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert read_model_card(tmp_path) == expected


def test_missing_data_sets_are_told_from_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "sets"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    suite = "mteb:STS17,BIOSSES,CQADupstackRetrieval"
    tasks = load_mteb_suite(suite)
    with pytest.raises(InputError) as caught:
        check_cached_data(suite, tasks)
    names = ("mteb/sts17-crosslingual-sts", "mteb/biosses-sts")
    facts = (f"--suite {suite}", "14 data sets", *names, "and 9 more", "HF_HUB_OFFLINE=0")
    assert not missing_facts(caught.value, *facts)
    check_declared_data(suite)  # only mteb has the parts of an aggregated task
    with pytest.raises(InputError, match="2 data sets"):
        check_declared_data("mteb:STS17,BIOSSES")
    (tmp_path / "sets" / "mteb___sts17-crosslingual-sts" / "en-en").mkdir(parents=True)
    (tmp_path / "hub" / "datasets--mteb--biosses-sts" / "snapshots").mkdir(parents=True)
    check_cached_data(suite, tasks[:2])
    check_declared_data("mteb:STS17,BIOSSES")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    check_cached_data(suite, tasks)
    check_declared_data("mteb:STS12")
    assert not mteb_cache.is_offline()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(load_mteb_lists()))
def test_data_sets_that_sources_declare_are_mtebs(name: str) -> None:
    asked = load_mteb_lists()[name].tasks
    declared = declared_data_sets(asked)
    if name == "unsee":  # it has a task that is made of others
        assert declared is None
    else:
        assert declared == [task.dataset[0] for task in load_mteb_suite(name)]


def test_what_sources_do_not_declare() -> None:
    for text in ("STS17[en-xx]", "STS17@dev", "STS18", "CQADupstackRetrieval", "STS17MultilingualVisualSTS"):
        assert declared_data_sets([parse_task(text)]) is None
    assert declared_data_sets([parse_task("STS17[en-en]@test")]) == ["mteb/sts17-crosslingual-sts"]
