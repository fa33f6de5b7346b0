"""``bench reproduce``: items end to end on mini, their layout, and what is there already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from bench.config import profiles
from bench.data.published_tables import PAPERS
from bench.data.released_checkpoints import load_checkpoints
from bench.papers.paper_items import Item, load_items
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts, numbers_in
from tests.support.released import hub_folder
from tests.support.shortened import shortened

MINI = ("--profile", "mini", "--seeds", "1", "--workers", "1")
BACKBONE = Path(str(resources.files("bench.data.mini") / "backbone"))
Table = dict[str, Any]


@pytest.fixture
def short() -> Iterator[None]:
    """Profile mini with a step a stage."""
    with shortened():
        yield


@pytest.fixture
def published(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mini's backbone in the place of every published checkpoint."""
    towers = [tower for known in load_checkpoints().values() for tower in known.towers]
    for name, commit in {(tower.hub, (tower.revision + 40 * "0")[:40]) for tower in towers if tower.hub}:
        hub_folder(hub, name, commit, BACKBONE)
    for folder in {tmp_path / "checkpoints" / tower.folder for tower in towers if tower.folder}:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(BACKBONE)
    monkeypatch.setenv("BENCH_CHECKPOINTS", str(tmp_path / "checkpoints"))


def printed(cli: Cli, *arguments: str, code: int = 0) -> list[Table]:
    """The tables that a call prints."""
    found, out, err = cli("reproduce", *arguments, "--format", "json")
    assert found == code, err
    tables: list[Table] = json.loads(out)
    return tables


def is_number(value: object) -> bool:
    """True for a mean over seeds, or what isn't a score as text."""
    return isinstance(value, dict) and value.get("mean") is not None


@pytest.fixture
def small(short: None) -> Iterator[None]:
    """Two methods an item, and pairs in the place of what mteb and classifiers measure."""
    load = profiles.load_profile

    def first_two(item: Item) -> Item:
        kept = [key for key, text in item.methods.items() if text][:2]
        return replace(item, methods={k: text if k in kept else "" for k, text in item.methods.items()})

    def only_pairs(name: str) -> profiles.Profile:
        profile = load(name)
        pairs = {
            suite: other if other == "mini-dev" else "mini" for suite, other in profile.stand_ins.items()
        }
        return replace(profile, stand_ins=pairs)

    with pytest.MonkeyPatch.context() as patch:  # undone before what it is on top of
        patch.setattr(profiles, "load_profile", only_pairs)
        for name, item in load_items().items():
            patch.setitem(load_items(), name, first_two(item))
        yield


OF_EACH_KIND = "tncse:figure5", "jtcse:table9", "unsee:section1", "gradient_paradigm:figure5"
"""An item of each paper, which together are tables, a sweep's curves and gradients."""
OF_WEEKS = ("tncse:figure5", "jtcse:table9", "gradient_paradigm:figure5")


@pytest.mark.slow
@pytest.mark.usefixtures("small", "published")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in OF_WEEKS else ()) for name in OF_EACH_KIND]
)
def test_an_item_runs_on_mini(name: str, cli: Cli) -> None:
    runs(cli, name, [load_items()[name]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "paper", [pytest.param(paper, marks=pytest.mark.long if paper == "jtcse" else ()) for paper in PAPERS]
)
@pytest.mark.usefixtures("short", "published")
def test_every_item_is_planned_and_has_its_layout(paper: str, cli: Cli) -> None:
    assert "to do" in cli("reproduce", paper, *MINI, "--dry-run")[1]
    tables = {table["title"]: table for table in printed(cli, paper, *MINI, "--show")}
    for item in items_of(paper):
        if not item.gradient:  # drawn from what was measured
            has_its_figures(item, tables)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "paper", [pytest.param(paper, marks=pytest.mark.long if paper == "jtcse" else ()) for paper in PAPERS]
)
@pytest.mark.usefixtures("short", "published")
def test_every_item_runs_on_mini_with_tasks_of_its_kind(paper: str, cli: Cli) -> None:
    runs(cli, paper, items_of(paper))


def items_of(paper: str) -> list[Item]:
    """A paper's items that have something to compute or to print."""
    return [item for item in load_items().values() if item.paper == paper and not item.nothing]


def runs(cli: Cli, name: str, asked: list[Item]) -> None:
    """Run items, and look at their tables, at the list and at a second call."""
    tables = {table["title"]: table for table in printed(cli, name, *MINI)}
    assert "to do" not in cli("reproduce", name, *MINI, "--dry-run")[1]
    for item in asked:
        ours_are_numbers(item, has_its_figures(item, tables))
    names = {item.id for item in asked}
    counts = [row[3].split(" of ") for row in printed(cli, *MINI)[0]["rows"] if row[0] in names]
    assert counts
    assert [done for done, planned in (count for count in counts if count != ["-"]) if done != planned] == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "first", "filled"), [("unsee:table1", "bert_base", 8), ("tncse:table2", "simcse", 5)]
)
@pytest.mark.usefixtures("short")
def test_tasks_of_its_kind_fill_the_columns(
    name: str, first: str, filled: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = load_items()[name]
    kept = {key: text if key == first else "" for key, text in item.methods.items()}
    monkeypatch.setitem(load_items(), name, replace(item, methods=kept))
    (table,) = printed(cli, name, *MINI)
    cells = [cell for row in table["rows"] if "bench" in row for cell in row[2:]]
    assert len([cell for cell in cells if is_number(cell)]) == filled


def has_its_figures(item: Item, tables: dict[str, Table]) -> Table:
    """Return an item's table: every printed figure of its first backbone is there."""
    name = item.title.partition(":")[0] if item.gradient else item.title
    named = [t for title, t in tables.items() if title.startswith(f"{PAPERS[item.paper]}, {name}")]
    assert named, item.id
    cells = [cell for row in named[0]["rows"] for cell in row[1:]]
    texts = [cell["text"] for cell in cells if isinstance(cell, dict) and "text" in cell]
    wanted = [f.text for f in item.figures if item.settings or f.backbone in ("", item.backbones[0])]
    assert sorted(texts) == sorted(wanted), item.id
    return named[0]


def ours_are_numbers(item: Item, table: Table) -> None:
    """Below the printed figures stand ours."""
    if item.runs:
        ours = [row for row in table["rows"] if not any(isinstance(c, dict) and "text" in c for c in row)]
        assert ours, item.id
        assert any(is_number(cell) or cell not in ("-", "bench") for row in ours for cell in row[1:]), item.id


@pytest.mark.long
@pytest.mark.slow
def test_the_list_says_what_is_done_and_what_the_rest_costs(cli: Cli) -> None:
    (table,) = printed(cli)
    rows = {row[0]: row for row in table["rows"]}
    assert set(rows) == set(load_items())
    assert rows["tncse:table4"][1:4] == ["bert-base", "8", "0 of 8"]
    assert rows["tncse:table4"][4].endswith(" GPU h")
    assert rows["tncse:figure1"][4].startswith("nothing")
    assert rows["tncse:figure2"][4] == "a formula"
    code, out, _ = cli("reproduce")
    assert code == 0
    assert out.count("\n\n") == len(PAPERS) + 1
    assert all(item.title in out for item in load_items().values())
    (table,) = printed(cli, *MINI)
    rows = {row[0]: row for row in table["rows"]}
    assert rows["tncse:table4"][1:4] == ["mini", "8", "0 of 8"]
    assert numbers_in(rows["tncse:table4"][4]) == [0, 8]
    assert rows["jtcse:table9"][3] == "0 of 4"  # four numbers of layers divide mini's


@pytest.mark.long
@pytest.mark.usefixtures("short")
def test_an_item_in_the_papers_layout_and_again_from_its_records(cli: Cli) -> None:
    call = ("tncse:table5", "--profile", "mini", "--seeds", "1-2")
    code, out, err = cli("reproduce", *call, "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("tncse:table5: Table 5: ")
    assert "4 of 4" in out
    (table,) = printed(cli, *call)
    assert missing_facts(table["title"], "TNCSE, Table 5: ", "profile mini") == []
    assert table["header"] == ["task", "", "SimCSE", "TNCSE-Single"]
    paper, ours = table["rows"]
    assert paper[:2] == ["STS-B test", "paper"]
    assert [cell["text"] for cell in paper[2:]] == ["77.75", "78.37"]
    assert paper[2]["grey"]
    assert ours[:2] == ["", "bench"]
    assert [cell["n"] for cell in ours[2:]] == [2, 2]
    notes = " ".join(table["notes"])
    command = "--campaign reproduce", "--profile mini", "--suite mini", "--table"
    assert missing_facts(notes, *command, "mini for sts7.", "can't be compared") == []
    assert printed(cli, *call) == [table]
    assert printed(cli, *call, "--show") == [table]
    (listed,) = printed(cli, "--profile", "mini", "--seeds", "1-2")
    row = next(row for row in listed["rows"] if row[0] == "tncse:table5")
    assert row[3:5] == ["4 of 4", "-"]
    said = refusal(cli, "reproduce", *call, "--show", "--campaign", "other")
    assert missing_facts(said, "'other'", "of reproduce") == []
    # another seed is not there
    (more,) = printed(cli, "tncse:table5", "--profile", "mini", "--seeds", "3", "--show")
    assert [cell["n"] for cell in more["rows"][1][2:]] == [0, 0]
    assert "simcse[text=train+sick], tncse_single" in " ".join(more["notes"])


@pytest.mark.usefixtures("short")
def test_a_failed_cell_is_said_and_the_command_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("bench.methods.tncse_single.TNCSESingle.build", broken, raising=False)
    monkeypatch.setattr("bench.training.recipe.TrainedOnce.build", broken)
    code, out, err = cli("reproduce", "tncse:table5", *MINI)
    assert (code, missing_facts(err, "FAILED", "RuntimeError: no luck")) == (1, [])
    assert missing_facts(out, "Failed: simcse[text=train+sick]", "seed 1: RuntimeError: ") == []


def test_what_is_refused_and_a_campaign_that_is_shown(cli: Cli, tmp_path: Path) -> None:
    for asked, fact in (("tncse:tabel4", "'tncse:table4'"), ("tnsce", "'tncse'")):
        assert fact in refusal(cli, "reproduce", asked)
    for words, fact in (
        ("--suite mini", "--suite"),
        ("--check", "--check"),
        ("--seeds x", "a seed"),
        ("--profile mimi", "profile 'mimi'"),
        ("--seeds 1", "--data"),  # nothing is silently left out where a backbone or data aren't here
    ):
        assert fact in refusal(cli, "reproduce", "tncse:table4", *words.split())
    (tmp_path / "results" / "mine").mkdir(parents=True)
    call = ("tncse:table5", *MINI, "--show")
    said = refusal(cli, "reproduce", *call, "--campaign", "nope")
    assert missing_facts(said, "error: results: ", "'nope'", "of mine", "bench run") == []
    assert said == refusal(cli, "report", "--campaign", "nope")
    (tmp_path / "own.toml").write_text('campaign = "nope"\n')
    assert said == refusal(cli, "reproduce", *call, "--config", "own.toml")
    (table,) = printed(cli, *call)  # nothing was ever reproduced: the printed figures
    (empty,) = printed(cli, *call, "--campaign", "mine")
    assert empty["rows"] == table["rows"]


def test_help_says_its_own_defaults(cli: Cli) -> None:
    said = " ".join(cli("reproduce", "--help")[1].split())
    assert missing_facts(said, "paper's backbones", "[default: reproduce]") == []
    assert "default mini" not in said
    assert missing_facts(cli("run", "--help")[1], "default mini", "[default: local]") == []


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_watched_training_of_another_specification_is_refused(cli: Cli, tmp_path: Path) -> None:
    call = ("gradient_paradigm:figure7", *MINI)
    tables = printed(cli, *call)
    assert printed(cli, *call) == tables
    (tmp_path / "text.txt").write_text("".join(f"The {i} sentences are {i * i}.\n" for i in range(2000)))
    told = refusal(cli, "reproduce", *call, "--corpus", "text.txt")
    assert "another specification" in told


def test_settings_and_formulas_need_no_run(cli: Cli) -> None:
    (table,) = printed(cli, "gradient_paradigm:table6")
    assert [row[3]["text"] for row in table["rows"]][:5] == ["128", "1e-5", "0.30", "5e-2", "1.75"]
    assert all(row[6] == "" for row in table["rows"])
    (table,) = printed(cli, "tncse:suppl-table1-1")
    assert sum(row[6] != "" for row in table["rows"]) == 1
    (surface,) = printed(cli, "tncse:figure2", *MINI)
    assert surface["rows"][3][-1] == "0.000"
    code, out, err = cli("reproduce", "tncse:figure1")
    assert (code, out) == (0, "")
    assert "nothing" in err
