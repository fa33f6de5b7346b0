from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.data.data_source import DataSource
from bench.data.mteb_names import (
    MtebName,
    is_mteb,
    load_mteb_lists,
    parse_suite,
    parse_task,
    split_suites,
    suite_label,
)
from bench.data.published_tables import load_figures, published_rows
from bench.data.suites import SUITES, load_suite
from bench.errors import InputError
from bench.eval.mteb_scores import MtebEntry, metric_name, suite_scores
from bench.eval.mteb_setup import import_mteb, preserve_random_state
from bench.eval.mteb_tasks import MtebTask
from bench.eval.suite_measures import measure_of
from bench.records.record import Score
from tests.support.messages import check_error, missing_facts

SIZES = {
    "jtcse-classification": 45, "jtcse-reranking": 14, "jtcse-bitext": 15, "jtcse-sts22v2": 18, "sts3": 3,
    "tncse-classification": 30, "tncse-retrieval": 30, "tncse-reranking": 9, "tncse-sts17": 11,
    "tncse-sts22": 18,
}  # fmt: skip


@pytest.mark.parametrize("suite", SIZES)
def test_a_papers_suite_has_the_tasks_that_its_table_prints(suite: str) -> None:
    rows = published_rows(suite)
    assert len(rows) >= 10
    paper, section = rows[0].first.paper, rows[0].first.section
    assert suite.startswith(paper) or suite == "sts3"
    printed = [f.task for f in load_figures() if (f.paper, f.section) == (paper, section) and f.task != "avg"]
    tasks = [task.id for task in load_mteb_lists()[suite].tasks]
    assert tasks == list(dict.fromkeys(printed))
    assert {task for row in rows for task in row.figures} == {*tasks, "avg"}
    assert len(tasks) == SIZES[suite]
    assert SUITES.get(suite).tasks == tuple(tasks)


def test_the_versions_stand_beside_the_papers_figures() -> None:
    assert load_mteb_lists().keys() == {"unsee", "STS17", "STS22.v2", "MTEB(eng, v2)", *SIZES}
    assert len(measure_of("MTEB(eng, v2)").notes) == 1
    assert not missing_facts(measure_of("tncse-sts17").notes[1], "TNCSE's figures", "version of mteb")
    assert load_mteb_lists()["tncse-retrieval"].score == "map_at_10"
    assert len(load_mteb_lists()["unsee"].tasks) == 56


def test_tasks_are_parsed() -> None:
    assert parse_task("STS17") == MtebName("STS17", "STS17")
    long = "STS17[en-en+ko-ko]@test"
    assert parse_task(long) == MtebName(long, "STS17", ("en-en", "ko-ko"), "test")
    tasks = parse_suite("mteb:STS22.v2[en],PolEmo2.0-IN").tasks
    assert [(task.name, task.subsets) for task in tasks] == [("STS22.v2", ("en",)), ("PolEmo2.0-IN", ())]
    for text in ("", "A[", "A]b", "@test", "A@"):
        check_error(partial(parse_task, text), "expected NAME", kind=InputError)
    check_error(lambda: parse_suite("mteb:STS17, STS17"), "'STS17'", "twice", kind=InputError)


@pytest.mark.parametrize(
    "suites",
    [
        ("mteb:STS17,STS22.v2[en],BUCC", "sts7", "toy"),
        ("STS17", "mteb:BUCC,STS17", "MTEB(eng, v2)", "STS22.v2[en]"),
        ("sts7", "nothing", "local:a.toml", "mteb:A", "mteb:B", "unsee"),
    ],
)
def test_suites_are_split_at_the_right_commas(suites: tuple[str, ...]) -> None:
    assert split_suites(",".join(suites).replace(",BUCC", ", BUCC"), SUITES.names()) == suites


def test_records_name_no_folder() -> None:
    assert suite_label("local:some/where/mine.toml") == "local:mine"
    assert suite_label("mteb:STS17") == "mteb:STS17"
    assert all(map(is_mteb, ("local:x", "mteb:x", "unsee", "stsb-multi")))
    assert not is_mteb("sts7")
    for name in ("sts3", "stsb-multi", "mteb:STS17"):
        check_error(partial(load_suite, name, DataSource(Path())), f"'{name}'", "mteb", kind=InputError)


def task(name: str, kind: str, score: str) -> MtebTask:
    return MtebTask(MtebName(name, name), kind, score, ("data", "1"), ("test",))


def rounded(scores: tuple[Score, ...]) -> list[tuple[str, str, str, float, int]]:
    return [(s.task, s.subset, s.metric, round(s.value, 9), s.n) for s in scores]


def test_scores_of_one_kind_share_their_metric() -> None:
    tasks = [task("a", "STS", "cosine_spearman"), task("b", "STS", "cosine_spearman")]
    languages = (("en", 0.5, 3), ("de", 0.7, 5))
    entries = {
        "a": [MtebEntry("test", name, {"cosine_spearman": x}, n) for name, x, n in languages],
        "b": [MtebEntry("test", "default", {"cosine_spearman": 0.2}, 4)],
    }
    assert rounded(suite_scores(tasks, entries)) == [
        ("a", "all", "spearman", 0.6, 8),
        ("a", "en", "spearman", 0.5, 3),
        ("a", "de", "spearman", 0.7, 5),
        ("b", "all", "spearman", 0.2, 4),
        ("avg", "all", "spearman", 0.4, 2),
    ]


def test_scores_of_several_kinds_have_main_scores_and_an_average_a_kind() -> None:
    tasks = [task("a", "STS", "cosine_spearman"), task("b", "Classification", "accuracy")]
    splits = {"dev": 0.2, "test": 0.4}
    entries = {
        "a": [MtebEntry("test", "default", {"cosine_spearman": 0.5}, 3)],
        "b": [MtebEntry(split, "en", {"accuracy": value}, 2) for split, value in splits.items()],
    }
    assert rounded(suite_scores(tasks, entries)) == [
        ("a", "all", "main_score", 0.5, 3),
        ("a", "all", "spearman", 0.5, 3),
        ("b", "all", "main_score", 0.3, 4),
        ("b", "all", "accuracy", 0.3, 4),
        ("b", "dev/en", "accuracy", 0.2, 2),
        ("b", "test/en", "accuracy", 0.4, 2),
        ("STS", "mean", "main_score", 0.5, 1),
        ("Classification", "mean", "main_score", 0.3, 1),
        ("avg", "all", "main_score", 0.4, 2),
    ]


def test_retrieval_has_fifteen_metrics() -> None:
    names = [f"{m}_at_{k}" for m in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 3, 5, 10)]
    values = {name: n / 100 for n, name in enumerate(names)}
    tasks = [task("a", "Retrieval", "map_at_10"), task("b", "Retrieval", "map_at_10")]
    scores = suite_scores(tasks, {t.id: [MtebEntry("test", "default", values, 2)] for t in tasks})
    of_a = {s.metric: s.value for s in scores if s.task == "a"}
    assert of_a == {metric_name(n): v for n, v in values.items() if "_at_3" not in n}
    assert len(of_a) == 15
    averages = [s for s in scores if s.task == "avg"]
    assert averages[0] == Score("avg", "all", "map@10", values["map_at_10"], 2)
    assert {s.metric: s.value for s in averages} == pytest.approx(of_a)


def test_mteb_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    checks: list[Callable[[], object]] = [import_mteb]
    checks += [partial(measure_of(name).check, []) for name in ("mini-mteb", "local:x.toml")]
    for check in checks:
        check_error(check, "mteb", "pip install 'cse-bench[mteb]'", kind=InputError)


def test_all_three_random_states_are_kept() -> None:
    def draws(seed: int) -> tuple[float, float, float]:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        return rest()

    def rest() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002, S311

    draws(1)
    expected = rest()
    draws(1)
    with pytest.raises(ZeroDivisionError), preserve_random_state():
        draws(42)[1 // 0]
    assert rest() == expected


def test_the_random_state_of_mps_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    restored: list[torch.Tensor] = []
    before = torch.arange(3)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: before)
    monkeypatch.setattr(torch.mps, "set_rng_state", restored.append)
    with preserve_random_state():
        assert not restored
    assert restored == [before]
