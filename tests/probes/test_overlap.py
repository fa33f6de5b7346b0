from __future__ import annotations

import lzma
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.data.source import DataSource
from bench.data.suites import load_suite
from bench.data.tasks import PairSubset, PairTask
from bench.errors import DataError
from bench.probes.training_overlap import (
    audit_overlap,
    clean_score,
    read_training_lines,
    sentence_key,
    word_runs,
)
from bench.stats.item_statistics import spearman_interval

FIRST = ("A man sings.", "One two three four five six seven eight nine", "Short one", "...")
SUBSET = PairSubset("x", FIRST, ("a man sings", "other", "b", "c"), (1.0, 2.0, 3.0, 4.0))
TASK = PairTask("T", (SUBSET,))


@pytest.mark.parametrize(
    ("text", "exact", "key", "near"),
    [
        ("nothing of it", (8, 0, 4), (7, 0, 4), (7, 0, 4)),
        ("A man sings.", (8, 1, 3), (7, 1, 3), (7, 1, 3)),
        ("a MAN... sings", (8, 0, 4), (7, 1, 3), (7, 1, 3)),
        ("zero, ONE two three four five six seven eight ten", (8, 0, 4), (7, 0, 4), (7, 1, 3)),
        ("one two three four five six seven", (8, 0, 4), (7, 0, 4), (7, 0, 4)),
        ("!!!", (8, 0, 4), (7, 0, 4), (7, 0, 4)),  # texts without letters differ
        ("...", (8, 1, 3), (7, 1, 3), (7, 1, 3)),
    ],
)
def test_levels_by_hand(text: str, exact: object, key: object, near: object) -> None:
    overlaps = audit_overlap([text], [TASK])
    counts = {o.level: (o.sentences, o.touched_sentences, o.clean_pairs) for o in overlaps}
    assert counts == {"exact": exact, "key": key, "near": near}


def test_keys_and_runs() -> None:
    assert sentence_key("It's  4 O'clock, ÄÖ!") == "its4oclock"
    assert list(word_runs("a b c d e f g")) == []
    assert list(word_runs("a b, C d e f g h i")) == ["a b c d e f g h", "b c d e f g h i"]


def test_text_without_latin_letters_is_touched_at_every_level() -> None:
    task = PairTask("T", (PairSubset("all", ("你好", "再见"), ("早上", "晚上"), (1.0, 4.0)),))
    assert [found.clean_pairs for found in audit_overlap(["你好"], [task])] == [1, 1, 1]


def test_training_text(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.xz"
    plain.write_bytes(b"a  b \n\nc\r\nd")
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert list(read_training_lines(plain)) == list(read_training_lines(packed)) == ["a b", "c", "d"]
    plain.write_bytes(b"a\nb\n\xff\n")
    with pytest.raises(DataError, match=r"a.txt:3: .*utf-8"):
        list(read_training_lines(plain))
    packed.write_bytes(b"no xz")
    for path in (packed, tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="can't be read"):
            list(read_training_lines(path))


def test_clean_scores_and_none_under_fifty_pairs() -> None:
    rng = np.random.default_rng(1)
    gold = rng.normal(size=120)
    first = tuple(f"sentence {i}" for i in range(120))
    task = PairTask("T", (PairSubset("x", first, ("other",) * 120, tuple(gold)),))
    predictions = (gold + rng.normal(size=120)).astype(np.float32)
    for touched, n in ((70, 50), (71, 49), (0, 120)):
        overlap = next(o for o in audit_overlap(first[:touched], [task]) if o.level == "exact")
        score = clean_score(task, overlap, predictions)
        assert score.n == n
        if n < 50:
            assert (score.value, score.low, score.high) == (None, None, None)
        else:
            expected = stats.spearmanr(predictions[touched:], gold[touched:]).statistic
            assert score.value == pytest.approx(expected)
            assert (score.low, score.high) == spearman_interval(score.value or 0, n)


def test_interval_by_hand_and_its_limits() -> None:
    low, high = spearman_interval(0.77, 1379)
    half = 1.959963984540054 * math.sqrt((1 + 0.77**2 / 2) / 1376)
    assert low == pytest.approx(math.tanh(math.atanh(0.77) - half), abs=1e-12)
    assert high == pytest.approx(math.tanh(math.atanh(0.77) + half), abs=1e-12)
    assert spearman_interval(-0.77, 1379) == pytest.approx((-high, -low))
    assert spearman_interval(1.0, 10) == (1.0, 1.0)
    for rho, n, level in ((0.5, 3, 0.95), (1.1, 10, 0.95), (0.5, 10, 1.0)):
        with pytest.raises(ValueError, match="rho="):
            spearman_interval(rho, n, level)


def test_interval_covers_the_truth_at_its_level() -> None:
    rng = np.random.default_rng(2)
    r, n, draws = 0.6, 100, 2000
    truth = 6 / math.pi * math.asin(r / 2)  # Spearman of a bivariate normal
    x, other = rng.normal(size=(draws, 2, n)).swapaxes(0, 1)
    y = r * x + math.sqrt(1 - r * r) * other
    ranks = [values.argsort(1).argsort(1) - (n - 1) / 2 for values in (x, y)]
    intervals = [spearman_interval(rho, n) for rho in 12 * (ranks[0] * ranks[1]).sum(1) / (n**3 - n)]
    assert 0.935 < sum(low <= truth <= high for low, high in intervals) / draws < 0.965


@pytest.mark.slow
@pytest.mark.data
def test_counts_on_the_real_data(data_dir: Path) -> None:
    _, tasks = load_suite("sts7", DataSource(data_dir))
    lines = read_training_lines(data_dir / "corpus" / "sick_unlabelled.txt")
    sick = {(o.task, o.level): o for o in audit_overlap(lines, tasks)}
    for level, touched in (
        ("exact", {"SICKR": 3743, "STS12": 0, "STSB": 0}),
        ("key", {"SICKR": 3742, "STS12": 269, "STSB": 118, "STS15": 10}),
    ):
        assert {task: sick[task, level].touched_sentences for task in touched} == touched
    assert (sick["SICKR", "exact"].clean_pairs, sick["SICKR", "key"].clean_pairs) == (116, 116)
    wiki = audit_overlap(read_training_lines(data_dir / "corpus" / "wiki.txt"), tasks)
    assert sum(o.touched_sentences for o in wiki if o.level == "exact") == 0
    near = {o.task: o.touched_sentences for o in wiki if o.level == "near" and o.touched_sentences}
    assert near == {"STS15": 1, "STS16": 2}
