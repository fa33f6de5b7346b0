"""Sources of data: folder, world and fields of a specification; missing training texts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.config import profiles
from bench.config.run_spec import RunSpec
from bench.data.data_source import DEFAULT_SEED, NO_FOLDER, DataSource, World, data_folder
from bench.data.training_data import profile_corpus
from bench.errors import InputError
from tests.support.messages import check_error


def test_a_missing_text_is_named_and_wiki1m_has_a_command_that_gets_it(tmp_path: Path) -> None:
    profile = profiles.load_profile("bert-base")
    own = replace(profile, corpus={"file": "own.txt"})
    fetch = "bench data fetch wiki1m --data data"
    for chosen, folder, needed_by, facts in (
        (profile, None, ("bench pretrain",), ("bench pretrain", "--corpus FILE", "BENCH_DATA", fetch)),
        (own, tmp_path, ("simcse",), (f"{tmp_path}/own.txt", "is missing", "docs/data.md")),
        (profiles.load_profile("minilm"), None, ("simcse", "stsb-dev"), ("stsb-dev", "docs/data.md")),
    ):
        check_error(partial(profile_corpus, chosen, folder, *needed_by), *facts, kind=InputError)


def spec(**fields: object) -> RunSpec:
    return RunSpec((), (), "mini", **fields)  # type: ignore[arg-type]


def test_folder_world_and_acceptance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert DataSource.of_run(spec()) == NO_FOLDER == DataSource(None, False, DEFAULT_SEED)
    assert NO_FOLDER.world == World(DEFAULT_SEED)
    source = DataSource.of_run(spec(data=tmp_path, accept_data=True, world_seed=0))
    assert source == DataSource(tmp_path, accept_changed=True, world_seed=0)
    assert source.world == World(0)


def test_order_of_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_DATA", "")
    assert data_folder(None) is None
    Path("data").mkdir()
    assert data_folder(None) == Path("data")
    monkeypatch.setenv("BENCH_DATA", "elsewhere")
    assert data_folder(None) == Path("elsewhere")
    assert data_folder(tmp_path) == tmp_path
