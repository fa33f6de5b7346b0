"""Statistics over items of a suite whose tasks share sentences, from records to words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.comparison import item_bootstrap
from bench.comparison.campaign_intervals import compute_record_intervals
from bench.comparison.comparison import Comparison, compare
from bench.comparison.item_bootstrap import CampaignRun, RunDraws, draw_items, draws_path, read_draws
from bench.comparison.selection import Group
from bench.comparison.wording import describe_comparison
from bench.data.sentence_clusters import cluster_items
from bench.data.tasks import PairSubset, PairTask
from bench.errors import BenchError
from bench.eval.sts import score_suite
from bench.records.store import ResultStore
from bench.reports.tables.comparison_tables import checkpoint_grid, comparison_grid
from bench.stats.argument_checks import make_generator
from bench.stats.clustered_tests import clustered_test
from bench.stats.item_statistics import draw_suite, percentile_interval
from bench.stats.item_units import SuiteUnits
from bench.stats.variance_components import variance_components
from tests.support.campaigns import make_record

DRAWS = 200


def make_task(name: str, firsts: list[str], seconds: list[str]) -> PairTask:
    gold = tuple(make_generator(1, name).normal(size=len(firsts)).round(1).tolist())
    return PairTask(name, (PairSubset("all", tuple(firsts), tuple(seconds), gold),))


def make_tasks() -> tuple[PairTask, ...]:
    """Two tasks with hubs and a common sentence, and one of its own in which no pair shares any."""
    hubs = [f"hub {i // 4}" for i in range(60)]
    chains = ["hub 3", "hub 7", *[f"link {i // 2}" for i in range(40)]]
    return (
        make_task("STS12", hubs, [f"leaf {i}" for i in range(60)]),
        make_task("STS13", chains, [f"end {i}" for i in range(42)]),
        make_task("STS14", [f"one {i}" for i in range(50)], [f"other {i}" for i in range(50)]),
    )


TASKS = make_tasks()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[CampaignRun]:
    """Three seeds of two methods."""
    monkeypatch.setattr(item_bootstrap, "load_record_tasks", lambda *_: {task.id: task for task in TASKS})
    monkeypatch.setattr(
        item_bootstrap, "load_sound_predictions", lambda store, record, _: store.predictions(record)
    )
    return make_runs(tmp_path, TASKS)


def make_runs(folder: Path, tasks: tuple[PairTask, ...]) -> list[CampaignRun]:
    store, found = ResultStore(folder, "camp"), []
    for method, noise in (("good", 0.6), ("poor", 0.8)):
        for seed in (1, 2, 3):
            rng = make_generator(seed, method)
            predictions = {}
            for task in tasks:
                gold = np.array(task.subsets[0].gold)
                predictions[task.id] = (gold + noise * rng.normal(size=len(gold))).astype(np.float32)
            record = make_record(method, seed, dict.fromkeys(predictions, 0.5))
            facts = {
                task.id: {"sha256": task.sha256, "reference": True, "pairs": task.pairs} for task in tasks
            }
            record = replace(record, scores=score_suite(tasks, predictions), tasks=facts)
            found.append(CampaignRun(store, store.write(record.place, record, predictions)))
    return found


def drawn(runs: list[CampaignRun]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    values = [one.values for one in draw_items(runs, draws=DRAWS)]
    return np.stack(values, axis=1).astype(np.float64)


def compared(runs: list[CampaignRun]) -> Comparison:
    sides = Group("good", tuple(runs[:3])), Group("poor", tuple(runs[3:]))
    return compare(*sides, draw=lambda chosen: draw_items(chosen, draws=DRAWS))


def test_draws_are_those_of_clusters_over_linked_tasks(runs: list[CampaignRun]) -> None:
    labels = cluster_items([list(task.all_pairs()) for task in TASKS])
    gold = {task.id: task.subsets[0].gold for task in TASKS}
    predictions = {
        f"{number}": {task.id: run.store.predictions(run.record)[task.id] for task in TASKS}
        for number, run in enumerate(runs)
    }
    clusters = dict(zip(gold, labels, strict=True))
    linked = draw_suite(
        {name: {task: of[task] for task in ("STS12", "STS13")} for name, of in predictions.items()},
        {task: gold[task] for task in ("STS12", "STS13")},
        make_generator(1, "items/STS12"),
        DRAWS,
        {task: clusters[task] for task in ("STS12", "STS13")},
    )
    alone = draw_suite(
        {name: {"STS14": of["STS14"]} for name, of in predictions.items()},
        {"STS14": gold["STS14"]},
        make_generator(1, "items/STS14"),
        DRAWS,
    )
    expected = np.concatenate([linked.draws, alone.draws], axis=2)
    np.testing.assert_allclose(drawn(runs), expected, atol=1e-7)
    summary = next(iter(draw_items(runs, draws=DRAWS))).summary
    assert [(task.items, task.clusters, task.largest) for task in summary.tasks.values()] == [
        (60, 15, 4),
        (42, 22, 2),
        (50, 50, 1),
    ]
    assert [group.tasks for group in summary.linked] == [("STS12", "STS13"), ("STS14",)]
    assert (summary.clusters, summary.known, summary.shared) == (85, True, True)


def test_kept_draws_know_their_clusters(runs: list[CampaignRun], monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = draw_items(runs, draws=DRAWS)
    said: list[str] = []
    kept = read_draws(runs[0], DRAWS, say=said.append)
    assert kept is not None
    assert (kept.summary, said, kept.units, kept.tasks) == (first.summary, [], None, None)
    np.testing.assert_array_equal(kept.values, first.values)
    path = draws_path(runs[0], DRAWS)
    monkeypatch.setattr(item_bootstrap, "CLUSTERS", 2)
    assert draws_path(runs[0], DRAWS) != path
    assert read_draws(runs[0], DRAWS) is None


def test_draws_of_other_clusters_are_computed_again(
    runs: list[CampaignRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_bootstrap, "cluster_items", lambda parts: cluster_items([*map(len, parts)]))
    item_bootstrap._make_units.cache_clear()
    plain = drawn(runs)
    monkeypatch.undo()
    item_bootstrap._make_units.cache_clear()
    monkeypatch.setattr(item_bootstrap, "load_record_tasks", lambda *_: {task.id: task for task in TASKS})
    monkeypatch.setattr(
        item_bootstrap, "load_sound_predictions", lambda store, record, _: store.predictions(record)
    )
    clustered = drawn(runs)
    np.testing.assert_array_equal(plain[:, :, 2], clustered[:, :, 2])  # of pairs that share nothing
    assert np.abs(plain[:, :, :2] - clustered[:, :, :2]).max() > 0.01


def test_a_comparison_takes_clusters_and_says_so(runs: list[CampaignRun]) -> None:
    found = compared(runs)
    level = found.item_level
    assert level is not None
    assert level.components is not None
    gold = {task.id: task.subsets[0].gold for task in TASKS}
    labels = cluster_items([list(task.all_pairs()) for task in TASKS])
    predictions = {
        side: {task: np.stack([run.store.predictions(run.record)[task] for run in of]) for task in gold}
        for side, of in (("a", runs[:3]), ("b", runs[3:]))
    }
    sample = draw_suite(predictions, gold, make_generator(1, "x"), 4000, dict(zip(gold, labels, strict=True)))
    assert level.components.items == pytest.approx(variance_components(sample, "a", "b").items, rel=0.25)
    assert [(test.n, test.clusters) for test in level.tasks.values()] == [
        (60, 15),
        (42, 22),
        (50, None),
        (152, 85),
    ]
    pair = level.checkpoints[0]
    assert (set(pair.williams), set(pair.steiger), set(pair.clustered)) == (
        {"STS14"},
        {"STS14"},
        {"STS12", "STS13"},
    )
    one, other = (side["STS13"][0] for side in predictions.values())
    assert pair.clustered["STS13"] == clustered_test(one, other, gold["STS13"], labels[1])
    grid = checkpoint_grid(found)
    assert grid is not None
    assert grid.header[-4:] == ("bootstrap", "Williams", "Steiger", "by clusters")
    lines = " ".join(describe_comparison(found))
    assert "85 clusters" in lines
    assert "152 pairs" in lines
    assert "t test by clusters" in lines


def test_two_checkpoints_have_a_column_by_clusters(runs: list[CampaignRun]) -> None:
    one, other = Group("good#1", (runs[0],), single=True), Group("poor#1", (runs[3],), single=True)
    found = compare(one, other, draw=lambda chosen: draw_items(chosen, draws=DRAWS))
    grid = comparison_grid(found)
    column = grid.header.index("by clusters")
    assert [row[column] == "-" for row in grid.rows] == [False, False, True, True]
    assert [row[grid.header.index("Williams")] == "-" for row in grid.rows] == [True, True, False, True]


def test_record_intervals_allow_for_few_clusters(runs: list[CampaignRun]) -> None:
    found = list(compute_record_intervals(runs, 0.95, lambda chosen: draw_items(chosen, draws=DRAWS), print))
    values, units = drawn(runs)[:, 0], found[0].units
    assert found[0].intervals is not None
    assert units is not None
    effective = {task.id: units.tasks[task.id].effective for task in TASKS}
    assert effective["STS12"] == 15
    for column, (task, number) in enumerate(effective.items()):
        expected = percentile_interval(values[:, column], 0.95, number if task != "STS14" else None)
        assert found[0].intervals[task] == pytest.approx(expected)
    groups = {group.tasks: group.effective for group in units.linked}
    number = 9 / (4 / groups["STS12", "STS13"] + 1 / groups["STS14",])
    assert found[0].intervals["avg"] == pytest.approx(percentile_interval(values.mean(1), 0.95, number))


def test_too_few_clusters_give_no_statistics_over_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task("STS12", [f"hub {i // 30}" for i in range(60)], [f"leaf {i}" for i in range(60)])
    monkeypatch.setattr(item_bootstrap, "load_record_tasks", lambda *_: {"STS12": task})
    monkeypatch.setattr(
        item_bootstrap, "load_sound_predictions", lambda store, record, _: store.predictions(record)
    )
    few = make_runs(tmp_path, (task,))
    with pytest.raises(BenchError, match=r"60 items of STS12 .* 2\.0 clusters.*at least 10"):
        list(draw_items(few, draws=DRAWS))
    found = compared(few)
    assert found.item_level is None
    assert "2.0 clusters" in (found.item_reason or "")
    assert found.headline.speaks_for == "seeds"


def test_runs_of_other_clusters_are_not_subtracted(runs: list[CampaignRun]) -> None:
    def draw(chosen: Sequence[CampaignRun]) -> Iterator[RunDraws]:
        for number, of_run in enumerate(draw_items(chosen, draws=DRAWS)):
            plain = SuiteUnits.independent({task.id: [task.pairs] for task in TASKS}).summary
            yield replace(of_run, summary=plain) if number == 4 else of_run

    found = compare(Group("good", tuple(runs[:3])), Group("poor", tuple(runs[3:])), draw=draw)
    assert found.item_level is None
    assert "different clusters" in (found.item_reason or "")


def test_a_forged_units_block_is_refused(runs: list[CampaignRun]) -> None:
    list(draw_items(runs, draws=DRAWS))
    path = draws_path(runs[0], DRAWS)
    with np.load(path) as archive:
        facts, values = json.loads(archive["facts"].tobytes()), archive["draws"]
    facts["units"]["tasks"]["STS12"] |= {"clusters": 60, "largest": 1, "effective": 60.0}
    facts["units"]["clusters"] = 130
    text = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, facts=text, draws=values)
    said: list[str] = []
    assert read_draws(runs[0], DRAWS, say=said.append) is None
    assert "computed again" in said[0]
