"""An item as a table: which numbers of the records stand where, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.papers.item_cells import lay_out_cells
from bench.papers.item_layout import ItemRecords, item_grid, matches_paper
from bench.papers.item_plan import PAPERS_BACKBONE
from bench.papers.paper_items import Item, load_items
from bench.records.record import RunRecord, Score
from bench.render.grid import DASH, Grid, Quoted, ScoreCell
from tests.support.messages import missing_facts

BASE = RunRecord("bert-base", "", "simcse", 1, {}, None, 1, "sts7", {}, "", "ok")


def record(method: str, seed: int | None, scores: Mapping[str, float], **more: Any) -> RunRecord:
    found = tuple(Score(task, "all", "spearman", value, 1) for task, value in scores.items())
    return replace(BASE, method=method, seed=seed, scores=found, **more)


def laid_out(item: Item, records: Mapping[str, Sequence[RunRecord]], **more: Any) -> Grid:
    found = ItemRecords("bert-base", records, (1, 2), campaign="c d", **more)
    return item_grid(item, lay_out_cells(item, "bert-base", PAPERS_BACKBONE), found)


def row(table: Grid, name: str, whose: str = "bench") -> tuple[Any, ...]:
    """Cells of a printed row, or of ours below it."""
    (at,) = (i for i, cells in enumerate(table.rows) if cells[0] == name)
    return table.rows[at + (whose == "bench")][2:]


def test_a_gain_is_the_mean_of_the_seeds_differences() -> None:
    without = [record("simcse", seed, {"avg": value}) for seed, value in ((1, 0.5), (2, 0.6), (3, 0.1))]
    also = [record("simcse[text=train+sick]", seed, {"avg": value}) for seed, value in ((2, 0.7), (1, 0.52))]
    table = laid_out(load_items()["tncse:table6"], {"simcse": without, "simcse[text=train+sick]": also})
    first, second, gain = row(table, "SimCSE")
    assert (first.n, second.n, gain.n) == (3, 2, 2)
    assert gain.mean == pytest.approx((0.02 + 0.1) / 2)
    assert gain.sd == pytest.approx(0.08 / 2**0.5)
    assert [cell.text for cell in row(table, "SimCSE", "paper")] == ["74.3", "75.9", "1.6"]
    assert table.header == ("method", "", "Wiki1M", "+ unlabelled SICKR", "gain")
    assert row(table, "TNCSE")[0] == ScoreCell(None, None, 0)
    assert "Not run yet: " in " ".join(table.notes)


def test_figures_of_another_backbone_are_grey_and_what_stands_alone_is_marked() -> None:
    item = load_items()["unsee:section1"]
    for comparable in (True, False):
        table = laid_out(item, {}, comparable=comparable)
        quoted = [cell for cells in table.rows for cell in cells if isinstance(cell, Quoted)]
        assert len(quoted) == 3
        assert {cell.grey for cell in quoted} == {not comparable}
        assert any("can't be compared" in note for note in table.notes) != comparable
        (alone,) = (cells for cells in table.rows if str(cells[0]).endswith(" *"))
        assert alone[1] == "paper"


def test_what_is_like_the_printed_ones() -> None:
    """Another backbone, other data or another text, and the two can't be compared."""
    item = load_items()["tncse:table5"]
    text = {"corpus": {"name": "wiki1m_for_simcse.txt", "sentences": 1_000_000}, "stages": {"simcse": {}}}
    own = replace(
        BASE,
        method="simcse[text=train+sick]",
        options={"text": "train+sick"},
        backbone={"name": "bert-base-uncased", "sha256": ""},
        tasks={"STSB": {"reference": True}},
        training=text,
        scores=(Score("avg", "all", "spearman", 0.5, 1),),
    )
    assert matches_paper(item, [own])
    for change in (
        {"backbone": {"name": "mini-bert", "sha256": ""}},
        {"tasks": {"STSB": {"reference": False}}},
        {"training": {**text, "corpus": {"name": "mine.txt", "sentences": 1_000_000}}},
    ):
        assert not matches_paper(item, [own, replace(own, **change)])


def test_misprints_are_marked_with_the_rows_that_they_touch() -> None:
    table = laid_out(load_items()["gradient_paradigm:table5"], {})
    marked = [cell.text for cells in table.rows for cell in cells if isinstance(cell, Quoted) and cell.sign]
    assert marked == ["78.34", "78.24"]
    assert missing_facts(" ".join(table.notes), "? Barlow Twins, VICReg", "Table 3") == []


def test_kinds_of_task_and_metrics_at_ranks_are_read() -> None:
    scores = [("Retrieval", "mean", "main", 0.25), ("avg", "all", "main", 0.5)]
    means = tuple(Score(*each, 1) for each in scores)
    one = replace(BASE, method="unsee_byol", suite="unsee", scores=means)
    table = laid_out(load_items()["unsee:table1"], {"unsee_byol": [one]})
    cells = row(table, "UNSEE-BYOL")
    assert (cells[4].mean, cells[7].mean) == (0.25, 0.5)
    assert cells[0].mean is None

    ranked = [
        Score(task, "all", metric, value, 1)
        for task, values in (("A", (0.1, 0.2)), ("B", (0.3, 0.8)))
        for metric, value in zip(("map@1", "ndcg@10"), values, strict=True)
    ]
    found = replace(BASE, method="simcse", suite="tncse-retrieval", scores=tuple(ranked))
    table = laid_out(load_items()["jtcse:table6"], {"simcse": [found]})
    assert row(table, "MAP@1")[0].mean == pytest.approx(0.2)
    assert row(table, "NDCG@10")[0].mean == pytest.approx(0.5)
    assert row(table, "MAP@10")[0].mean is None
    assert row(table, "Avg.")[0].mean == pytest.approx(0.35)  # of the metrics that are there


def test_costs_and_probes_and_stages_are_printed_as_they_are() -> None:
    cost = {"cost": {"gmac": 4.0}}
    runs = [record("simcse", seed, {"avg": 0.5}, probes=cost) for seed in (1, 2)]
    table = laid_out(load_items()["jtcse:table7"], {"simcse": runs})
    ours = [cells for cells in table.rows if "12.5±0" in cells]
    assert len(ours) == 1  # eta: 50 points of 4 GMAC
    assert any("4±0" in cells for cells in table.rows)

    stages = {"joint": {"mean_cls_norm": [14.0, 16.0]}, "sub2": {}}
    normed = record("tncse[ltn_input=cls,sick=true]", 1, {"STSB": 0.4}, training={"stages": stages})
    table = laid_out(load_items()["tncse:figure5"], {"tncse[ltn_input=cls,sick=true]": [normed]})
    cells = dict(zip(table.header[1:], table.rows[0][1:], strict=True))
    assert next(cell for name, cell in cells.items() if "norm of [CLS]" in name) == "15"
    assert cells["tncse, STS-B test"] == ScoreCell(0.4, None, 1)


def test_a_stand_in_gives_its_average_for_one_task_alone() -> None:
    item = load_items()["tncse:table5"]
    one = record("tncse_single", 1, {"avg": 0.3}, suite="mini")
    stand_ins = {"sts7": "mini"}
    for alone, mean in ((frozenset({"sts7"}), 0.3), (frozenset[str](), None)):
        table = laid_out(item, {"tncse_single": [one]}, stand_ins=stand_ins, alone=alone)
        assert table.rows[1][3] == ScoreCell(mean, None, int(mean is not None))
        assert "mini for sts7." in " ".join(table.notes)


def test_what_is_impossible_failed_or_to_be_tested_is_said() -> None:
    why = {"jtcse[sick=true,caels=12]": "the backbone has 4 layers"}
    failed = replace(BASE, method="jtcse[caels=1,sick=True]", status="failed", reason="no luck")
    done = [record("jtcse[caels=2,sick=True]", seed, {"avg": 0.5}) for seed in (1, 2)]
    records = {"jtcse[sick=true,caels=1]": [failed], "jtcse[sick=true,caels=2]": done}
    table = laid_out(load_items()["jtcse:table9"], records, impossible=why)
    notes = " ".join(table.notes)
    assert missing_facts(notes, "run: jtcse[sick=true,caels=12]:", "4 layers") == []
    assert missing_facts(notes, "Failed: jtcse[caels=1,sick=True]", "seed 1: no luck") == []
    assert (
        missing_facts(notes, "--campaign 'c d'", "--profile bert-base", "--suite sts7", "significance") == []
    )
    assert DASH in [cell for cells in table.rows for cell in cells]
