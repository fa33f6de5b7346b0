"""Readers on hand-made files with every quirk, and on the real data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.data import senteval
from bench.data.suites import GROUPS, SUITES, check_reference, load_suite, reference_fingerprints
from bench.data.tasks import PairTask
from bench.errors import DataError, InputError
from tests.support.messages import check_error

FNWN = "STS/STS13-en-test/STS.{}.FNWN.txt"


def write(root: Path, file: str, content: str | bytes) -> Path:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def sts13(tmp_path: Path) -> Path:
    for name in senteval.STS_YEARS["STS13"]:
        write(tmp_path, f"STS/STS13-en-test/STS.input.{name}.txt", 'a "b\tc \nno  gold\tx\nd\x85e\tf\n')
        write(tmp_path, f"STS/STS13-en-test/STS.gs.{name}.txt", "5.0\n\n0\n")
    return tmp_path


def read(root: Path, task: str) -> Any:
    return senteval.SOURCES[task].read(root)


def check_refusal(root: Path, task: str, place: str, *facts: object) -> None:
    check_error(lambda: read(root, task), *facts, where=root / place, kind=DataError)


def test_sts_years(sts13: Path) -> None:
    task = read(sts13, "STS13")
    assert [s.name for s in task.subsets] == ["FNWN", "headlines", "OnWN"]
    first = task.subsets[0]
    # a quote is a character; only LF ends a line
    assert first.first == ('a "b', "d e")
    assert first.second == ("c", "f")
    assert first.gold == (5.0, 0.0)
    assert (task.pairs, first.last_line) == (6, 3)


def test_sts_errors_name_file_and_line(sts13: Path) -> None:
    gold, pairs = FNWN.format("gs"), FNWN.format("input")
    write(sts13, gold, "5.0\n\n")
    check_refusal(sts13, "STS13", f"{gold}:2", "3 lines", "STS.input.FNWN.txt")
    for score in ("five", "nan", "5.5"):
        write(sts13, gold, f"5.0\n\n{score}\n")
        check_refusal(sts13, "STS13", f"{gold}:3", f"'{score}'", "from 0 to 5")
    write(sts13, gold, "5.0\n\n0\n")
    write(sts13, pairs, "a\tc\nx\ty\nonly one\n")
    check_refusal(sts13, "STS13", f"{pairs}:3", "1 column", "expected 2")
    write(sts13, pairs, b"a\tc\nx\ty\n\xff\tz\n")
    check_refusal(sts13, "STS13", f"{pairs}:3", "not utf-8")
    (sts13 / pairs).unlink()
    check_refusal(sts13, "STS13", pairs, "is missing", "bench data fetch sts7")


def test_stsb_and_sick(tmp_path: Path) -> None:
    file = "STS/STSBenchmark/sts-test.csv"
    write(tmp_path, file, 'g\tf\t2012\t1\t2.5\tsays "hi\tb\ng\tf\t2012\t2\t5\tc \td\n')
    task = read(tmp_path, "STSB")
    assert list(task.all_pairs()) == [('says "hi', "b"), ("c", "d")]
    write(tmp_path, file, "g\tf\t2012\t1\t2.5\ta\tb\ng\tf\t2012\t2\t5\tc\n")
    check_refusal(tmp_path, "STSB", f"{file}:2", "6 column", "expected 7")
    sick = "SICK/SICK_test_annotated.txt"
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    write(tmp_path, sick, f"{header}\r\n1\tThe Man\tB\t4.5\tNEUTRAL\r\n")
    task = read(tmp_path, "SICKR")
    assert (list(task.all_pairs()), task.subsets[0].gold) == ([("The Man", "B")], (4.5,))
    write(tmp_path, sick, "1\tA\tB\t4.5\tNEUTRAL\n")
    check_refusal(tmp_path, "SICKR", f"{sick}:1", "header", "pair_ID")


def test_binary_tasks_are_latin1_and_count_blank_lines(tmp_path: Path) -> None:
    write(tmp_path, "CR/custrev.pos", b"caf\xe9 \n\nok\n")
    write(tmp_path, "CR/custrev.neg", b"bad\n")
    task = read(tmp_path, "CR")
    assert task.splits[0].first == ("café", "", "ok")
    assert task.splits[0].labels == ("1", "1", "1")
    assert task.counts == {"positive": 3, "negative": 1}


def test_sst_trec_mrpc(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(tmp_path, f"SST/binary/sentiment-{split}", "good film \t1\n")
        write(tmp_path, f"SST/fine/sentiment-{split}", "4 good film\n")
    for file in ("TREC/train_5500.label", "TREC/TREC_10.label"):
        write(tmp_path, file, b"DESC:manner How did caf\xe9 come : here ?\n")
    for split in ("train", "test"):
        rows = '\ufeffQuality\ta\tb\tc\td\n1\t2\t3\tsaid "x\ty\n'
        write(tmp_path, f"MRPC/msr_paraphrase_{split}.txt", rows)
    for name, label, sentence in (
        ("SST2", "1", "good film"),
        ("SST5", "4", "good film"),
        ("TREC", "DESC", "How did café come : here ?"),
        ("MRPC", "1", 'said "x'),
    ):
        task = read(tmp_path, name)
        assert (task.splits[0].labels, task.splits[0].first) == ((label,), (sentence,))
    mrpc = read(tmp_path, "MRPC")
    assert mrpc.splits[1].second == ("y",)
    write(tmp_path, "SST/binary/sentiment-dev", "good film\t2\n")
    check_refusal(tmp_path, "SST2", "SST/binary/sentiment-dev:1", "'2'", "0, 1")
    write(tmp_path, "TREC/TREC_10.label", "no type\n")
    check_refusal(tmp_path, "TREC", "TREC/TREC_10.label:1", "no question")


def test_every_difference_changes_the_fingerprint(sts13: Path) -> None:
    seen = {read(sts13, "STS13").sha256}
    changes = (
        (FNWN.format("input"), 'a "b\tc \nno  gold\tx\nd\x85e\tg\n'),
        (FNWN.format("gs"), "5.0\n\n0.1\n"),
        (FNWN.format("gs"), "5.0\n1\n0.1\n"),
    )
    for file, content in changes:
        write(sts13, file, content)
        seen.add(read(sts13, "STS13").sha256)
    assert len(seen) == 4
    before = read(sts13, "STS13").sha256
    write(sts13, FNWN.format("gs"), "5\n1.00\n0.1\n")  # the same numbers, written otherwise
    assert read(sts13, "STS13").sha256 == before


def test_folders_are_found(tmp_path: Path) -> None:
    check_error(lambda: senteval.find_root(tmp_path), "no SentEval data", kind=DataError)
    (tmp_path / "senteval" / "downstream" / "STS").mkdir(parents=True)
    for start in (tmp_path, tmp_path / "senteval", tmp_path / "senteval" / "downstream"):
        assert senteval.find_root(start).resolve() == tmp_path / "senteval" / "downstream"


def test_suites() -> None:
    assert SUITES.get("sts7").tasks == ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
    known = set(reference_fingerprints())
    assert known == set(senteval.SOURCES)
    assert set(GROUPS["sts7"]) | set(GROUPS["transfer7"]) == known
    _, (toy,) = load_suite("toy")
    assert (toy.pairs, sorted(set(toy.subsets[0].gold))) == (180, [0, 1, 2, 3, 4, 5])
    assert len(set(toy.all_pairs())) == 180
    check_error(lambda: load_suite("sts7"), "'sts7' needs", kind=InputError)


def test_a_shorter_or_edited_file_is_no_reference(sts13: Path) -> None:
    task = read(sts13, "STS13")
    facts = ("STS.input.FNWN.txt:3", "2 items", "189 items")
    check_error(lambda: check_reference(task, sts13), *facts, kind=DataError)
    edited = PairTask("STSB-dev", (replace(task.subsets[0], name="dev"),))
    reference_fingerprints()["STSB-dev"] = {**reference_fingerprints()["STSB-dev"], "parts": {"dev": 2}}
    try:
        check_error(lambda: check_reference(edited, sts13), "differ from the reference", kind=DataError)
    finally:
        reference_fingerprints.cache_clear()


@pytest.mark.data
def test_real_data_have_the_committed_fingerprints(data_dir: Path) -> None:
    """Remake ``fingerprints.json``."""
    root = senteval.find_root(data_dir)
    tasks = [source.read(root) for source in senteval.SOURCES.values()]
    found = {task.id: {"items": task.items, "sha256": task.sha256, "parts": task.counts} for task in tasks}
    assert found == reference_fingerprints()


def test_counts_of_the_reference_data() -> None:
    known = {name: facts["items"] for name, facts in reference_fingerprints().items()}
    counts = [known[name] for name in ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")]
    assert counts == [3108, 1500, 3750, 3000, 1186, 1379, 4927]
    assert (known["CR"], known["MPQA"], known["MR"], known["SUBJ"]) == (3775, 10606, 10662, 10000)
