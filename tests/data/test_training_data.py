"""A training text that isn't there: the error says how to get it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.training import profile_corpus
from bench.errors import DataError, InputError
from bench.request import profiles
from tests.support.cli import Cli


@pytest.mark.parametrize("name", ["bert-base", "roberta-base"])
def test_a_missing_wiki1m_names_the_command_that_gets_it(tmp_path: Path, name: str) -> None:
    profile = profiles.load(name)
    with pytest.raises(DataError) as caught:
        profile_corpus(profile, tmp_path, "simcse")
    assert str(caught.value) == (
        f"{tmp_path}/corpus/wiki1m_for_simcse.txt: the training text is missing; "
        f"get it with: bench data fetch wiki1m --data {tmp_path}"
    )
    with pytest.raises(InputError) as without:
        profile_corpus(profile, None, "bench pretrain")
    assert str(without.value) == (
        "bench pretrain needs a training text; expected --corpus FILE, or --data DIR or BENCH_DATA; "
        "get it with: bench data fetch wiki1m --data data"
    )


def test_another_text_has_no_such_hint(tmp_path: Path) -> None:
    profile = replace(profiles.load("bert-base"), corpus={"file": "own.txt"})
    with pytest.raises(DataError) as caught:
        profile_corpus(profile, tmp_path, "simcse")
    assert str(caught.value) == f"{tmp_path}/own.txt: the training text is missing"


def test_the_papers_profile_names_all_that_an_empty_data_folder_lacks(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    code, out, err = cli("run", "--methods", "diffcse", "--profile", "bert-base", "--dry-run", "--data", "d")
    assert (code, out) == (2, "")
    assert err == (
        "error: 4 inputs are missing or wrong: "
        "profile bert-base: 'google-bert/bert-base-uncased' is neither a folder nor a model in the local "
        "cache; download it first with: hf download google-bert/bert-base-uncased"
        " | d/corpus/wiki1m_for_simcse.txt: the training text is missing; "
        "get it with: bench data fetch wiki1m --data d"
        " | diffcse.generator: 'distilbert/distilbert-base-uncased' is neither a folder nor a model in the "
        "local cache; download it first with: hf download distilbert/distilbert-base-uncased"
        " | d: no SentEval data here; expected a folder STS, SICK, MR or TREC in it, or in downstream/ or "
        "senteval/downstream/ below it; bench data fetch sts7 gets it\n"
    )
