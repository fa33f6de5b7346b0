"""A training text that isn't there: the error says how to get it, where that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import profiles
from bench.data.training_data import profile_corpus
from bench.errors import DataError, InputError

OTHERS = "docs/data.md says what bench's own texts are, and how to take another"


def test_a_text_that_is_missing_is_named_and_only_wiki1m_has_a_command_that_gets_it(tmp_path: Path) -> None:
    profile = profiles.load_profile("bert-base")
    with pytest.raises(InputError) as without:
        profile_corpus(profile, None, "bench pretrain")
    assert str(without.value) == (
        "bench pretrain needs a training text; expected --corpus FILE, or --data DIR or BENCH_DATA; "
        "get it with: bench data fetch wiki1m --data data"
    )
    with pytest.raises(DataError) as caught:
        profile_corpus(replace(profile, corpus={"file": "own.txt"}), tmp_path, "simcse")
    assert str(caught.value) == f"{tmp_path}/own.txt: the training text is missing; {OTHERS}"
    with pytest.raises(InputError) as without:
        profile_corpus(profiles.load_profile("minilm"), None, "simcse", "stsb-dev")
    assert str(without.value).endswith(f"(its dev set is suite stsb-dev); {OTHERS}")
