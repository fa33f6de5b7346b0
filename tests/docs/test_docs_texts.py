"""What README and index say of the records, and what the page on data says of two training texts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from bench.config import profiles
from bench.data.training_data import profile_corpus
from bench.records.store import ResultStore
from bench.render.grid import SCALE
from bench.training.pretraining import read_documents
from tests.support.docs_commands import ROOT, TEXTS
from tests.support.messages import missing_facts

SECTION = TEXTS["data.md"].split("## The texts of minilm and minilm-lm")[1].split("\n## ")[0]
LINES = re.compile(r"^\| (\d+)-(\d+) \|", re.M)
PARTS = [
    [(int(a), int(b)) for a, b in LINES.findall(part)]
    for part in SECTION.split("`corpus/general.txt.xz` has")
]
HASHES = re.findall(r"`([0-9a-f]{64})`", SECTION)


@pytest.mark.campaigns
def test_the_range_of_simcse_in_the_text_is_that_of_the_records() -> None:
    records = ResultStore(ROOT / "results", "minilm-lm").records()
    scores = [SCALE * (r.score("avg") or 0) for r in records if r.method == "simcse" and r.suite == "sts7"]
    assert len(scores) == 8
    for name in ("README.md", "index.md"):
        assert missing_facts(TEXTS[name], f"between {min(scores):.1f} and {max(scores):.1f}") == [], name


@pytest.mark.campaigns
def test_the_parts_of_the_texts_are_whole_and_the_hashes_those_of_profile_and_records() -> None:
    for parts in PARTS:
        assert [first for first, _ in parts] == [1, *(last + 1 for _, last in parts[:-1])]
        assert f"{parts[-1][1]:,} lines" in TEXTS["data.md"]
    profile = profiles.load_profile("minilm-lm")
    first, last = profile.corpus["exclude_lines"]
    assert f"| {first}-{last} | WikiSplit" in SECTION
    assert profiles.load_profile("minilm").corpus["exclude_lines"] == [first, last]
    trained = {
        r.training["corpus"]["sha256"]: r.training["corpus"]["sentences"]
        for campaign in ("minilm", "minilm-lm")
        for r in ResultStore(ROOT / "results", campaign).records()
        if "corpus" in r.training
    }
    (own,) = trained.items()
    assert own == (HASHES[1], PARTS[0][-1][1] - (last - first + 1))
    assert f"its {own[1]:,} sentences" in SECTION
    assert HASHES[3] == profile.backbone["text"]


@pytest.mark.data
def test_the_texts_are_those_of_the_page(data_dir: Path) -> None:
    files = [data_dir / "corpus/wiki.txt", data_dir / "corpus/general.txt.xz"]
    assert [hashlib.sha256(file.read_bytes()).hexdigest() for file in files] == HASHES[::2]
    assert profile_corpus(profiles.load_profile("minilm-lm"), data_dir, "test").sha256 == HASHES[1]
    general = read_documents(files[1])
    assert (general.sha256, len(general.sentences)) == (HASHES[3], PARTS[1][-1][1])
