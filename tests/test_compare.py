from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from bench.compare import compare
from bench.errors import NotComparableError
from bench.record import Score
from tests.test_cli import Cli, records


def test_it_says_what_the_seeds_show_and_what_not(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise,noise[scale=2]", "--seeds", "1-4", "--suite", "toy")
    code, out, err = cli("compare", "noise", "noise[scale=2.0]")
    assert (code, err) == (0, "")
    assert "4 and 4 seeds show no difference of noise and noise[scale=2.0]: +0.00 points" in out
    found = list(records(tmp_path).values())
    for record in found:
        if record.method == "noise":
            shifted = tuple(
                Score(s.task, s.subset, s.metric, min(1.0, s.value + 0.9), s.n) for s in record.scores
            )
            object.__setattr__(record, "scores", shifted)
    (comparison,) = compare(found, "noise", "noise[scale=2.0]")
    a, b = (
        [r.score("avg") or 0 for r in found if r.method == name] for name in ("noise", "noise[scale=2.0]")
    )
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert comparison.average.p == pytest.approx(expected.pvalue)
    assert comparison.average.low == pytest.approx(expected.confidence_interval().low)
    assert comparison.seeds == ((1, 2, 3, 4), (1, 2, 3, 4))
    assert comparison.verdict(0.95).startswith("noise is ahead: noise - noise[scale=2.0] = +")
    (other,) = compare(found, "noise[scale=2.0]", "noise")
    assert other.verdict(0.95).startswith("noise is ahead: noise[scale=2.0] - noise = -")


@pytest.mark.parametrize(
    ("first", "second", "code", "message"),
    [
        ("noise", "nois", 2, "unknown method 'nois'; expected one of collapsed, lone, noise, word_overlap"),
        ("noise", "noise", 2, "'noise' against itself"),
        ("noise", "collapsed", 2, "no suite has finished records of both noise and collapsed"),
        ("lone", "noise", 2, "lone has one finished seed; expected two seeds or more"),
    ],
)
def test_bad_comparisons(cli: Cli, first: str, second: str, code: int, message: str) -> None:
    cli("run", "--methods", "noise,collapsed,word_overlap", "--seeds", "1-2", "--suite", "toy")
    cli("run", "--methods", "lone=noise", "--seeds", "1", "--suite", "toy")
    got, out, err = cli("compare", first, second)
    assert (got, out) == (code, "")
    assert message in err


def test_other_data_and_other_specifications_are_not_compared(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise,noise[scale=2]", "--seeds", "1-2", "--suite", "toy")
    for field, value, message in (
        ("family", "other", "the seeds of noise were measured under different specifications"),
        ("tasks", {"TOY": {"sha256": "0"}}, "on different versions of the data"),
    ):
        found = list(records(tmp_path).values())
        object.__setattr__(next(r for r in found if r.method == "noise"), field, value)
        with pytest.raises(NotComparableError, match=message):
            compare(found, "noise", "noise[scale=2.0]")


def test_a_deterministic_method_is_a_fixed_score(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise,word_overlap", "--seeds", "1-4", "--suite", "toy")
    found = list(records(tmp_path).values())
    (one,) = compare(found, "noise", "word_overlap")
    (other,) = compare(found, "word_overlap", "noise")
    scores = [record.score("avg") or 0 for record in found if record.method == "noise"]
    (fixed,) = (record.score("avg") or 0 for record in found if record.method == "word_overlap")
    expected = stats.ttest_1samp(scores, fixed)
    assert (one.average.n_a, one.average.n_b) == (4, 1)
    assert one.average.p == pytest.approx(expected.pvalue)
    assert one.average.low == pytest.approx(expected.confidence_interval().low - fixed)
    assert (other.average.low, other.average.high) == (-one.average.high, -one.average.low)
    assert other.verdict(0.95).startswith("word_overlap is ahead: word_overlap - noise = +")
    assert "against one run without seed" in one.verdict(0.95)
