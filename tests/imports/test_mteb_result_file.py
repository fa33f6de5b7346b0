"""Forms of mteb's result files, and what makes one unusable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.imports.mteb_files import read_json_file
from bench.imports.mteb_result_file import NO_REVISION, ResultFile, parse_result_file
from tests.support.mteb_results import STS12_REVISION, result, wanted_task


def parse(content: Any, *subsets: str, **options: Any) -> ResultFile:
    return parse_result_file("a/STS12.json", "0" * 64, content, wanted_task("STS12", *subsets, **options))


def values(file: ResultFile) -> list[float]:
    return [entry.scores["cosine_spearman"] for entry in file.entries]


def test_the_present_form() -> None:
    file = parse(result("STS12", 0.71, date=1776177366.04))
    assert (values(file), file.problem, file.other_main) == ([0.71], "", "")
    assert (file.data_revision, file.version) == (STS12_REVISION, "2.10.0")
    assert file.date == "2026-04-14T14:36:06.040000+00:00"


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2026-07-30T17:45:15.777Z", "2026-07-30T17:45:15.777000+00:00"),
        ("2026-07-30T17:45:15+02:00", "2026-07-30T15:45:15+00:00"),
        ("yesterday", ""),
        (float("inf"), ""),
        (10**400, ""),
        (True, ""),
        (None, ""),
    ],
)
def test_dates(date: Any, expected: str) -> None:
    assert parse(result("STS12", 0.7, date=date)).date == expected


@pytest.mark.parametrize("stated", [None, "None", "", 3, "dataset revision not available"])
def test_no_data_revision(stated: Any) -> None:
    assert parse(result("STS12", 0.7, data=stated)).data_revision == NO_REVISION


OLD: dict[str, dict[str, Any]] = {
    "nested": {"test": {"cos_sim": {"spearman": 0.7, "pearson": 0.6}, "evaluation_time": 2.5}},
    "nested in a subset": {"test": {"default": {"cos_sim": {"spearman": 0.7}}, "evaluation_time": 2.5}},
    "with a main score": {"test": {"main_score": 0.7, "cos_sim": {"spearman": 0.1}}},
    "of several splits": {"test": {"cos_sim": {"spearman": 0.7}}, "dev": {"cos_sim": {"spearman": 0.2}}},
}


@pytest.mark.parametrize("form", OLD)
@pytest.mark.parametrize("version", [{"mteb_version": "1.1.2.dev0"}, {"mteb_version": "0.0.2"}, {}])
def test_the_form_before_version_1_11(form: str, version: dict[str, str]) -> None:
    file = parse({"mteb_dataset_name": "STS12", **version, **OLD[form]})
    assert (values(file), file.problem) == ([0.7], "")


@pytest.mark.parametrize("version", ["1.11.0", "2.10.0", None, "unknown"])
def test_the_old_form_of_a_later_version_is_refused(version: Any) -> None:
    file = parse({"mteb_dataset_name": "STS12", "mteb_version": version, **OLD["nested"]})
    assert (file.entries, file.problem) == ((), "it has no scores in a known form")


def test_a_data_revision_without_an_end() -> None:
    file = parse(result("STS12", 0.7, data="a" * 1000))
    assert file.problem == "its data revision has 100 characters or more"


def test_an_old_metric_by_another_name_is_missing() -> None:
    """mteb's reranking was "map", now "map_at_1000": its own conversion gives no main score either."""
    file = parse({"mteb_dataset_name": "STS12", "test": {"map": 0.6, "mrr": 0.7}})
    assert file.problem == "main_score of test/default is missing"


def test_subsets_in_the_task_s_order() -> None:
    content = result("STS12", 0.1, subset="fr")
    content["scores"]["test"] += [{"main_score": s, "hf_subset": n} for s, n in ((0.2, "en"), (0.3, "de"))]
    file = parse(content, "en", "fr")
    assert [(entry.subset, entry.scores["cosine_spearman"]) for entry in file.entries] == [
        ("en", 0.2),
        ("fr", 0.1),
    ]


def test_the_main_score_wins_over_its_metric() -> None:
    file = parse(result("STS12", 0.7, cosine_spearman=0.6))
    assert (values(file), file.other_main) == ([0.7], "another metric")
    file = parse(result("STS12", 0.7, cosine_spearman=0.6, euclidean_spearman=0.7, dot_spearman=0.7))
    assert (values(file), file.other_main) == ([0.7], "dot_spearman")


@pytest.mark.parametrize(
    ("metrics", "other"),
    [
        ({"map": 0.7, "mrr": 0.8}, "map"),
        ({"map_at_1000": 0.7, "map": 0.7}, ""),
        ({"map_at_1000": 0.700001, "map": 0.6}, ""),
        ({}, ""),  # bench's own exports of imported rows
        ({"map_at_20": 0.7, "mrr": 0.8}, ""),
        ({"map": 0.6, "mrr": 0.8}, ""),
        ({"map_at_1000": 0.6, "mrr_at_10": 0.7}, "mrr_at_10"),
        ({"map_at_1000": 0.6, "m\x1b": 0.7}, "m\\x1b"),
    ],
)
def test_a_main_score_of_another_metric(metrics: dict[str, float], other: str) -> None:
    content = result("STS12", 0.7)
    entry = content["scores"]["test"][0]
    del entry["cosine_spearman"]
    entry.update(metrics)
    wanted = wanted_task(score="map_at_1000", main="map_at_1000")
    assert parse_result_file("a", "", content, wanted).other_main == other


def test_another_metric() -> None:
    wanted = wanted_task(score="cosine_pearson")
    content = result("STS12", 0.7, cosine_pearson=0.5)
    file = parse_result_file("a", "", content, wanted)
    assert file.entries[0].scores == {"cosine_pearson": 0.5}
    del content["scores"]["test"][0]["cosine_pearson"]
    problem = "cosine_pearson of test/default is missing (did you mean 'cosine_spearman'?)"
    assert parse_result_file("a", "", content, wanted).problem == problem


def test_metrics_of_retrieval_come_along() -> None:
    content = result("STS12", 0.7, ndcg_at_10=0.4, map_at_10=float("nan"), precision_at_1="0.5")
    assert parse(content).entries[0].scores == {"cosine_spearman": 0.7, "ndcg_at_10": 0.4}


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (None, "missing"),
        (float("nan"), "nan, not from -1 to 1"),
        (float("inf"), "inf, not from -1 to 1"),
        (71.3, "71.3, not from -1 to 1"),
        (-1.5, "-1.5, not from -1 to 1"),
        (10**400, "huge, not from -1 to 1"),
        ("0.7", "not a number but str"),
        (True, "not a number but bool"),
        ([0.7], "not a number but list"),
    ],
)
def test_values_that_are_no_scores(score: Any, reason: str) -> None:
    file = parse(result("STS12", score))
    assert (file.entries, file.problem) == ((), f"main_score of test/default is {reason}")


def test_a_negative_correlation_is_a_score() -> None:
    assert values(parse(result("STS12", -0.017))) == [-0.017]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task_name": "STS13"}, "it states the task 'STS13'"),
        ({"task_name": "STS12\x1b[2J"}, r"it states the task 'STS12\\x1b[2J'"),
        ({"task_name": None}, "it states the task ''"),
        ({"scores": None}, "it has no scores in a known form"),
        ({"scores": []}, "it has no scores in a known form"),
        ({"scores": {"test": {}}}, "split test has no list of scores"),
        ({"scores": {"test": [3]}}, "split test has no list of scores"),
        ({"scores": {"dev": []}}, "it lacks test/default"),
    ],
)
def test_other_contents(change: dict[str, Any], reason: str) -> None:
    file = parse(result("STS12", 0.7) | change)
    assert (file.entries, file.problem) == ((), reason)


@pytest.mark.parametrize("content", [[], 3, None, "text"])
def test_no_object(content: Any) -> None:
    assert parse(content).problem == "it isn't a result of mteb"


def test_a_subset_twice() -> None:
    content = result("STS12", 0.7)
    content["scores"]["test"] *= 2
    assert parse(content).problem == "test/default occurs 2 times"


def test_missing_subsets_are_counted() -> None:
    assert parse(result("STS12", 0.7), "a", "b", "default", "c", "d").problem == (
        "it lacks 4 of 5 parts: test/a, test/b, test/c, ..."
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"{", "isn't valid JSON"),
        (b"\xff\xfe{", "isn't valid JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "isn't valid JSON"),
        (b"", "isn't valid JSON"),
    ],
    ids=["deep", "unfinished", "no utf-8", "digits", "empty"],
)
def test_contents_that_are_no_json(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        read_json_file(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


def test_a_file_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.imports.mteb_files.MOST_BYTES", 1 << 20)
    (tmp_path / "a.json").write_text(json.dumps("a" * (1 << 20)))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_json_file(tmp_path / "a.json")
