"""The measurements of tests over tasks: how a board is read, and the tests that are compared."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    names = ("coverage_tasks", "mteb_board")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


def write_revision(folder: Path, tasks: dict[str, tuple[str, str, str]], score: float) -> None:
    folder.mkdir(parents=True)
    (folder / "model_meta.json").write_text("{}", encoding="utf-8")
    for name, (_, subset, split) in tasks.items():
        wanted = {"hf_subset": subset or "default", "main_score": score}
        parts = [wanted, {"hf_subset": "other", "main_score": 0.0}] if subset else [wanted]
        (folder / f"{name}.json").write_text(json.dumps({"scores": {split: parts}}), encoding="utf-8")


def test_the_board_has_41_tasks_of_seven_types(scripts: SimpleNamespace) -> None:
    kinds = [kind for kind, _, _ in scripts.mteb_board.read_tasks().values()]
    counts = {kind: kinds.count(kind) for kind in kinds}
    assert counts == {
        "Classification": 8,
        "Retrieval": 10,
        "Clustering": 8,
        "Reranking": 2,
        "STS": 9,
        "PairClassification": 3,
        "Summarization": 1,
    }


def test_models_are_complete_in_one_revision_or_over_them(scripts: SimpleNamespace, tmp_path: Path) -> None:
    tasks = scripts.mteb_board.read_tasks()
    names = list(tasks)
    some, rest = ({name: tasks[name] for name in part} for part in (names[:30], names[30:]))
    write_revision(tmp_path / "org__whole" / "1", tasks, 0.5)
    write_revision(tmp_path / "org__two" / "1", some, 0.6)
    write_revision(tmp_path / "org__two" / "2", rest, 0.7)
    write_revision(tmp_path / "org__claims" / "1", some, 0.8)
    write_revision(tmp_path / "org__claims" / "external", tasks, 0.9)
    table, whole = scripts.mteb_board.read_board(tmp_path)
    assert (table.methods, whole) == (("org__two", "org__whole"), 1)
    assert table.values[0] == pytest.approx([60.0] * 30 + [70.0] * 11)
    assert table.values[1] == pytest.approx([50.0] * 41)
    table, whole = scripts.mteb_board.read_board(tmp_path, claims=True)
    assert (table.methods, whole) == (("org__claims", "org__two", "org__whole"), 1)
    assert table.values[0] == pytest.approx([80.0] * 30 + [90.0] * 11)


def test_one_type_is_a_paired_t(scripts: SimpleNamespace) -> None:
    gaps = np.random.default_rng(1).normal(0.3, size=9)
    difference, half, p = scripts.coverage_tasks.t_within_types(gaps, np.full(9, 1 / 9), ["sts"] * 9)
    expected = stats.ttest_1samp(gaps, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert (difference - half, difference + half, p) == pytest.approx((low, high, expected.pvalue))


def test_verdicts_are_counted_in_the_order_of_the_scores(scripts: SimpleNamespace) -> None:
    differs = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):  # in the order of the scores these are 2-1, 1-3 and 0-2
        differs[i, j] = differs[j, i] = True
    tests = SimpleNamespace(scores=np.array([1.0, 3.0, 2.0, 4.0]))
    counts = scripts.mteb_board.count_verdicts(differs, tests)
    assert counts == {"differ": 3, "neighbours_open": 2, "tied_with_first": 2}


def test_every_setting_of_a_pair_has_a_line(scripts: SimpleNamespace) -> None:
    lines = list(scripts.coverage_tasks.pairs(3))
    assert len(lines) == 39
    assert {"t", "percentile", "bootstrap t"} <= lines[0].keys()
