"""Items against printed figures, registry and profiles, and as tables: every planted error is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from bench.config.run_spec import RunSpec
from bench.config.sweeps import Backbone
from bench.data.published_tables import load_figures
from bench.errors import DataError, InputError
from bench.papers import item_checks
from bench.papers import paper_items as read
from bench.papers.item_cells import compare_hyperparameters, lay_out_cells, parse_quantity
from bench.papers.item_checks import check_item, check_papers
from bench.papers.item_layout import ItemRecords, item_grid, matches_paper
from bench.papers.item_plan import PAPERS_BACKBONE, plan_item
from bench.papers.paper_compute import resolve_options
from bench.papers.paper_items import Item, load_items, select_items
from bench.records.record import RunRecord, Score
from bench.render.grid import DASH, Grid, Quoted, ScoreCell
from tests.support.cli import Cli
from tests.support.messages import missing_facts, numbers_in


def test_nothing_is_found_and_every_stored_figure_stands_in_an_item(cli: Cli) -> None:
    code, out, _ = cli("reproduce", "--check")
    assert (code, numbers_in(out)) == (0, [len(load_items()), len(load_figures())])
    assert len(load_items()) > 50


def changed(name: str, entry: str, value: str | None) -> Item:
    """An item with another entry in a table ("TABLE: KEY", or a key of its methods), or without it."""
    table, _, key = entry.rpartition(": ")
    table = table or "methods"
    entries = {k: v for k, v in getattr(load_items()[name], table).items() if k != key}
    given: dict[str, Any] = {table: entries if value is None else entries | {key: value}}
    return replace(load_items()[name], **given)


CHANGED = (  # an item's table with another entry (None: without it), and what is found
    ("tncse:table4", "tncse loss=nce", "tncse[icnce=false,ictn=false]", "a, b, train; the paper's is"),
    ("tncse:table6", "simcse data=wiki1m", "simcse[text=train+sick]", "train+sick; the paper's is wiki1m"),
    ("tncse:table3", "simcse", "ensemble:simcse[text=a+sick]+simcse[text=a+sick]", "on 1 translated"),
    (
        "tncse:table4",
        "tncse loss=nce",
        "tncse[sick=true,nce=false,ictn=false]",
        "loss than Table 4 bert-base",
    ),
    ("jtcse:table9", "jtcse cael=1", "jtcse[sick=true,caels=2]", "cael than Table IX bert-base jtcse cael=1"),
    (
        "tncse:suppl-table2-1",
        "tncse pooling=avg",
        "tncse[sick=true,pooling=cls]",
        "pooling than Suppl. Table",
    ),
    (
        "gradient_paradigm:table5",
        "m_mhe terms=gd",
        "m_mhe[r=false]",
        "terms than Table 5 bert-base m_mhe",
    ),
    ("tncse:table5", "tncse_single", None, "printed 'tncse_single'"),
    ("tncse:table5", "tncse_single", "tncse_sngle", "unknown method"),
    ("tncse:table5", "tncse_single", "tncse_single[x=1]", "no option 'x'"),
    ("tncse:suppl-table1-1", "differs: tncse_d learning_rate", "it is so", "explained as different"),
    ("tncse:suppl-table1-1", "settings: tncse seed", None, "printed tncse seed"),
    ("tncse:suppl-table1-1", "settings: tncse learning_rate", "tncse.rate", "no option 'rate'"),
)
REPLACED: tuple[tuple[str, dict[str, Any], str], ...] = (  # an item with other fields
    ("tncse:figure5", {"set": "", "texts": {"*": "wiki1m+sickr_unlabelled"}}, "a, b, train; the paper's"),
    ("tncse:table2", {"suites": ("tncse-sts17",)}, "suite of 'tncse-sts22/avg'"),
    ("tncse:table4", {"suites": ("sts8",)}, "no suite 'sts8'"),
    ("tncse:figure6", {"probes": ("alignment",)}, "probe of 'probe:uniformity/value'"),
    ("tncse:figure6", {"backbones": ("bert",)}, "profile 'bert'"),
    ("tncse:table1", {"columns": ()}, "one cell for both"),
    ("tncse:table4", {"nothing": "x"}, "'nothing' is given"),
    ("tncse:suppl-table1-1", {"differs": {}}, "batch_size is 64, here 256"),
)
PLANTED = [
    *((changed(*case), said) for *case, said in CHANGED),
    *((replace(load_items()[name], **fields), said) for name, fields, said in REPLACED),
    (Item("tncse", "x", "X"), "nothing is run"),
]


@pytest.mark.parametrize(("item", "said"), PLANTED, ids=str)
def test_a_planted_error_is_found(item: Item, said: str) -> None:
    found = check_item(item)
    assert any(said in line for line in found), found
    assert all(line.startswith(item.id) for line in found)


def test_a_figure_that_stands_nowhere_and_a_profile_that_changes_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = {name: item for name, item in load_items().items() if name != "tncse:table5"}
    monkeypatch.setattr(item_checks, "load_items", lambda: MappingProxyType(left))
    lost = [line for line in check_papers() if "missing from all" in line]
    assert len(lost) == 2
    assert all("Table 5 bert-base" in line for line in lost)

    real = resolve_options

    def slower(method: str, profile: str) -> object:
        found = dict(real(method, profile))
        return found | {"lr": 1.0} if method == "tncse_d" else found

    monkeypatch.setattr("bench.papers.item_cells.resolve_options", slower)
    found = check_item(load_items()["tncse:suppl-table1-1"])
    assert len([line for line in found if "tncse_d" in line and "here 1" in line]) == 2


ON_SICK = {
    "tncse": ("table4", "figure5", "figure4"),
    "jtcse": ("table9", "table10", "table11", "figure8", "figure6"),
}
"""Ablations that train on SICK: read in the papers, not in the items."""


@pytest.mark.parametrize("name", [f"{paper}:{item}" for paper, items in ON_SICK.items() for item in items])
def test_the_twins_of_these_ablations_see_sick(name: str) -> None:
    made = plan_item(load_items()[name], RunSpec((), (1,), "bert-base"), "bert-base")
    methods = (request.text for request in made.spec.methods)
    twins = [method for method in methods if method.startswith(("tncse", "jtcse"))]
    assert twins
    assert [method for method in twins if resolve_options(method, "bert-base")["sick"] is not True] == []


def test_gradients_and_grids_of_other_backbones() -> None:
    for number in ("5", "7", "8", "9"):
        found = [i for n, i in load_items().items() if n.startswith(f"gradient_paradigm:figure{number}")]
        assert found
        assert {method.partition("[")[0] for item in found for method in item.gradient} == {"paradigm"}
    item = load_items()["tncse:figure5"]
    rows = {dict(place.row)["row"] for place in lay_out_cells(item, "bert-base", PAPERS_BACKBONE)}
    assert rows == {str(n) for n in range(7)}
    assert {dict(p.row)["row"] for p in lay_out_cells(item, "x", Backbone(3, False))} == {"0", "1", "2", "3"}


def test_settings_that_several_methods_share_are_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    item = load_items()["unsee:appendix-a"]
    shared = next(
        s for s in compare_hyperparameters(item) if s.figure.metric == "learning_rate" and "," in s.option
    )
    assert shared.equal
    assert shared.option.count("unsee_") == 4
    other = {"unsee_vicreg": {"lr": 1.0}}
    real = resolve_options
    monkeypatch.setattr(
        "bench.papers.item_cells.resolve_options",
        lambda method, profile: {**real(method, profile), **other.get(method, {})},
    )
    assert not next(s for s in compare_hyperparameters(item) if s.option == shared.option).equal


def test_layers_and_pooler_say_what_a_backbone_cannot_have(tiny_bert: Path) -> None:
    spec = RunSpec((), (1,), "mini")
    caels = plan_item(load_items()["jtcse:table9"], spec, "mini")
    assert {tuple(numbers_in(why)) for why in caels.impossible.values()} == {(4,)}
    assert (len(caels.spec.methods), len(caels.impossible)) == (4, 3)
    pooled = plan_item(load_items()["tncse:suppl-table2-1"], spec, "mini")
    assert ["pooler" in why for why in pooled.impossible.values()] == [True]
    assert not plan_item(load_items()["jtcse:table9"], spec, "bert-base").impossible
    other = plan_item(load_items()["jtcse:table9"], replace(spec, backbone=str(tiny_bert)), "mini")
    assert len(other.spec.methods) == 3  # 0, 1 and 3 of 3 layers
    assert (other.label[:5], caels.label) == ("mini@", "mini")


def test_names_on_the_command_line_and_quantities() -> None:
    assert [item.paper for item in select_items("unsee")] == ["unsee"] * len(select_items("unsee"))
    assert select_items("tncse:table4")[0].name == "table4"
    several = select_items("tncse:table6, unsee:table1,tncse:table6")
    assert [item.id for item in several] == ["tncse:table6", "unsee:table1"]
    for asked, meant in (("tncse:tabel4", "'tncse:table4'"), ("jtcs", "'jtcse'")):
        with pytest.raises(InputError, match=meant):
            select_items(asked)
    for text in ("avg", "/avg", "sts7/", "probes:x", ""):
        with pytest.raises(DataError, match="quantity"):
            parse_quantity(text, "here")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[table1]\n", r"'table1\.title' is missing"),
        ("[table1]\ntitle = 'x'\nmethod = {}\n", "method' is missing"),
        ("[table1]\ntitle = 'x'\nsuites = 'sts7'\n", "suites' is missing"),
        ("[table1", "unreadable"),
    ],
)
def test_a_damaged_file_of_items_is_refused(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tncse.toml").write_text(text)
    monkeypatch.setattr("bench.papers.paper_items.resources.files", lambda package: tmp_path)
    with pytest.raises(DataError, match=said):
        read._read_paper("tncse")


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
