from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, choose_runs
from bench.data.tasks import PairSubset, PairTask
from bench.data.toy_suite import make_toy_task
from bench.errors import InputError
from bench.eval import rescoring
from bench.eval.item_changes import class_changes, rank_changes, score_changes
from bench.eval.measure import ItemChange
from bench.records.store import ResultStore
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

ESCAPES = "\x1b[31m red \u202e [bold]\x07"


def test_ranks_run_from_the_most_alike_and_ties_share_theirs() -> None:
    texts = [(low, low.upper()) for low in "abcdef"]
    gold = [5.0, 4.0, 4.0, 2.0, 1.0, 0.0]
    a = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.5], dtype=np.float32)  # ranks 1 2 3 4 5.5 5.5
    b = np.array([0.9, 0.1, 0.7, 0.8, 0.5, 0.4], dtype=np.float32)  # ranks 1 6 3 2 4 5
    found = rank_changes(texts, gold, a, b, 3)
    assert found[0] == ItemChange(2, "+4", "2\n0.800", "6\n0.100", "2.5\n4", ("b", "B"))
    assert [(item.number, item.change) for item in found[1:]] == [(4, "-2"), (5, "-1.5")]
    assert len(rank_changes(texts, gold, a, b, 100)) == 6


def test_other_classes_stand_in_the_order_of_what_they_change() -> None:
    texts = [(low,) for low in "abcde"]
    found = class_changes(texts, list("xxyyz"), list("xyyxx"), list("xxxzy"), 9)
    assert [(item.number, item.change, item.one, item.other, item.gold) for item in found] == [
        (2, "right in B", "y", "x", "x"),
        (3, "right in A", "y", "x", "y"),
        (4, "wrong in both", "x", "z", "y"),
        (5, "wrong in both", "x", "y", "z"),
    ]
    first = class_changes(texts, list("xxyyz"), list("xyyxx"), list("xxxzy"), 2)
    assert [item.number for item in first] == [2, 3]


def test_scores_that_are_the_same_are_left_out() -> None:
    found = score_changes([("a",), ("b",), ("c",)], [0.5, 1.0, 0.25], [0.5, 0.0, 0.75], 9)
    assert [(item.number, item.change, item.one, item.other) for item in found] == [
        (2, "-1.000", "1.000", "0.000"),
        (3, "+0.500", "0.250", "0.750"),
    ]


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> ResultStore:
    cli("run", "--methods", "noise,other=noise[scale=2],word_overlap", "--seeds", "1-2", "--suite", "toy")
    return ResultStore(tmp_path / "results", "local")


def test_it_shows_the_pairs_on_screen_and_writes_nothing(
    cli: Cli, store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, out, err = cli(
        "compare", "--show-items", "noise", "word_overlap", "--seed", "2", "--task", "TOY", "-n", "4"
    )
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert not missing_facts(out, "TOY (180 pairs)", "noise, seed 2", "B = word_overlap")
    chosen = [r for r in store.records() if (r.method, r.seed) in (("noise", 2), ("word_overlap", None))]
    a, b = (store.predictions(record)["TOY"] for record in chosen)
    change = stats.rankdata(-b) - stats.rankdata(-a)
    task = make_toy_task()
    (subset,) = task.subsets
    order = sorted(range(180), key=lambda i: -abs(change[i]))[:4]
    lines = [line for line in out.splitlines()[4:-1] if line.strip()]
    for i, upper, lower in zip(order, lines[::2], lines[1::2], strict=True):
        rank_a, rank_b, rank_gold = (f"{stats.rankdata(-np.asarray(v))[i]:g}" for v in (a, b, subset.gold))
        assert upper.split()[:4] == [f"{change[i]:+g}", rank_a, rank_b, rank_gold]
        assert lower.split()[:3] == [f"{a[i]:.3f}", f"{b[i]:.3f}", f"{subset.gold[i]:g}"]
        assert upper.rstrip().endswith(subset.first[i])
        assert lower.rstrip().endswith(subset.second[i])


def test_five_pairs_of_every_task_and_the_lowest_common_seed(cli: Cli, store: ResultStore) -> None:
    code, out, _ = cli("compare", "--show-items", "noise", "other")
    assert code == 0
    assert not missing_facts(out, "noise, seed 1", "other, seed 1")
    assert out.count("+0 ") == 5  # the same runs twice: no rank moves
    assert cli("compare", "--show-items", "noise", "word_overlap", "--task", "TOY")[1].count("0.") > 20


def test_sentences_cannot_steer_the_terminal(
    cli: Cli, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (subset,) = make_toy_task().subsets
    first = tuple(ESCAPES for _ in subset.first)
    evil = {"TOY": PairTask("TOY", (PairSubset("all", first, subset.second, subset.gold),))}
    monkeypatch.setattr(rescoring, "load_record_tasks", lambda record, data: evil)
    monkeypatch.setenv("COLUMNS", "200")
    out = cli("compare", "--show-items", "noise", "word_overlap", "-n", "1")[1]
    assert r"\x1b[31m red \u202e [bold]\x07" in out
    assert not set(out) & {"\x1b", "\u202e", "\x07"}


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("noise other --task TOI", ("unknown task 'TOI'", "did you mean 'TOY'", "one of TOY")),
        ("noise other --seed 9", ("finished seed 9", "for noise", "one of 1, 2")),
        ("noise nois", ("unknown method 'nois'",)),
        ("noise#1 noise#1", ("'noise#1' against itself",)),
        ("noise other -n 0", ("0 is not in the range",)),
    ],
)
def test_bad_arguments(cli: Cli, store: ResultStore, arguments: str, facts: tuple[str, ...]) -> None:
    assert not missing_facts(refusal(cli, "compare", "--show-items", *arguments.split()), *facts)


def test_which_runs_are_chosen(store: ResultStore) -> None:
    every = [CampaignRun(store, record) for record in store.records()]
    noise, other, fixed = (
        Group(name, tuple(run for run in every if run.record.method == name))
        for name in ("noise", "other", "word_overlap")
    )
    second = Group("other#2", other.runs[1:], single=True)

    def seeds(a: Group, b: Group, seed: int | None = None) -> list[int | None]:
        return [run.record.seed for run in choose_runs(a, b, seed, "bench compare")]

    assert seeds(noise, other) == [1, 1]
    assert seeds(noise, other, 2) == [2, 2]
    assert seeds(noise, second) == [2, 2]
    assert seeds(fixed, noise) == [None, 1]
    assert seeds(fixed, fixed) == [None, None]
    assert seeds(Group("noise#1", noise.runs[:1], single=True), second) == [1, 2]
    with pytest.raises(InputError, match=r"other#2.*finished seed 1.*one of 2"):
        seeds(noise, second, 1)
    with pytest.raises(InputError, match=r"no seed in common.*noise one of 1, 2"):
        seeds(noise, Group("x#7", (CampaignRun(store, replace(other.runs[0].record, seed=7)),), single=True))
