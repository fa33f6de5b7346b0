"""Missing training texts: the error says how to get them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import profiles
from bench.data.training_data import profile_corpus
from bench.errors import InputError
from tests.support.messages import missing_facts


def test_a_missing_text_is_named_and_wiki1m_has_a_command_that_gets_it(tmp_path: Path) -> None:
    profile = profiles.load_profile("bert-base")
    own = replace(profile, corpus={"file": "own.txt"})
    fetch = "bench data fetch wiki1m --data data"
    for chosen, folder, needed_by, facts in (
        (profile, None, ("bench pretrain",), ("bench pretrain", "--corpus FILE", "BENCH_DATA", fetch)),
        (own, tmp_path, ("simcse",), (f"{tmp_path}/own.txt", "is missing", "docs/data.md")),
        (profiles.load_profile("minilm"), None, ("simcse", "stsb-dev"), ("stsb-dev", "docs/data.md")),
    ):
        with pytest.raises(InputError) as caught:
            profile_corpus(chosen, folder, *needed_by)
        assert not missing_facts(caught.value, *facts)
