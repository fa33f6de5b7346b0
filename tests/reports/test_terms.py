"""Lines below a leaderboard on unequal terms, and supervised rows, which stand apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.comparison.confounders import describe_confounders
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, sort_runs_by_seed
from bench.records.record import RunRecord, is_supervised, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import group_figures
from bench.reports.method_family import SUPERVISED
from bench.reports.record_groups import LAST_NOTE, SUPERVISED_GROUP
from bench.reports.report import render_report
from bench.reports.sections import table_grids
from bench.reports.tables.leaderboard import all_leaderboards
from bench.reports.tables.paper_tables import paper_tables
from bench.reports.tables.suite_tables import sts7_grids
from bench.reports.tables.training_setup import (
    budget_notes,
    member_notes,
    processor_notes,
    selection_notes,
    setting_notes,
    text_notes,
    weight_notes,
)
from tests.support.campaigns import make_record
from tests.support.messages import missing_facts, numbers_in

START = "Unequal budgets, "


def trained(method: str, *stages: tuple[int, int]) -> RunRecord:
    """A record of stages (steps, batch size)."""
    record = make_record(method, 1, {"STSB": 0.5})
    (stage,) = record.training["stages"].values()
    made = {
        str(number): {**stage, "key": f"{method}{number}", "steps": steps, "sentences_seen": steps * size}
        for number, (steps, size) in enumerate(stages)
    }
    return replace(record, training={**record.training, "stages": made}, timing={"training_cpu_seconds": {}})


def leaderboard_notes(tmp_path: Path, records: Sequence[RunRecord]) -> Sequence[str]:
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), records), "leaderboard")
    return grid.notes


def test_other_budgets_are_named_the_most_first() -> None:
    records = [
        trained("simcse", (150, 64)),
        trained("mine", (375, 64)),
        trained("twin", (150, 64), (20, 64)),
        make_record("word_overlap", None, {"STSB": 0.4}, corpus=None),
    ]
    (note,) = budget_notes(records)
    assert note.startswith(START)
    assert note.endswith(": 24,000 (mine), 9,600 (simcse, twin).")
    assert budget_notes(records[::2]) == ()
    assert budget_notes(records[3:]) == ()
    # a last batch that is filled up is no other budget
    assert budget_notes([trained("a", (150, 64)), trained("b", (138, 70))]) == ()
    (note,) = budget_notes([trained("a", (1, 64)), trained("b", (2, 64))])
    assert note.endswith(": 128 (b), 64 (a).")
    same = [trained(f"same{n}", (10, 64)) for n in range(5)]
    others = [trained(f"other{n}", (20 + 10 * n, 64)) for n in range(5)]
    (note,) = budget_notes([*same, *others])
    assert numbers_in(note) == [3840, 3200, 2560, 640, 2]
    assert not missing_facts(note, "3,840 (other4),", "... 640 (same0,")


def test_the_leaderboard_has_it(tmp_path: Path) -> None:
    records = [trained("simcse", (150, 64)), trained("mine", (375, 64))]
    for wanted, chosen in ((True, records), (False, records[:1])):
        assert any(note.startswith(START) for note in leaderboard_notes(tmp_path, chosen)) is wanted


def reads(method: str, *texts: Mapping[str, object]) -> RunRecord:
    """A record whose stages read texts of their own."""
    record = make_record(method, 1, {"STSB": 0.5})
    (stage,) = record.training["stages"].values()
    stages = {str(number): {**stage, "text": text} for number, text in enumerate(texts)}
    return replace(record, training={**record.training, "stages": {**record.training["stages"], **stages}})


A, B = ({"name": f"{name}.txt", "sha256": name * 64} for name in "ab")


def test_other_text_is_named(tmp_path: Path) -> None:
    records = [
        make_record("simcse", 1, {"STSB": 0.5}),
        reads("twin", B, A),
        reads("single", {"name": "wiki.txt + sick.txt", "sha256": "c" * 64}),
        reads("taught", {"name": "nli.csv", "pairs": 3, "sha256": "d" * 64}),
        reads("jtcse", A, B),
    ]
    (said,) = text_notes(records)
    assert said.endswith(": a.txt, b.txt (twin, jtcse), wiki.txt + sick.txt (single).")
    assert text_notes([records[0], records[3]]) == ()
    assert said in leaderboard_notes(tmp_path, records)


def test_rows_of_another_setting_are_named(tmp_path: Path) -> None:
    def of(method: str, seed: int | None = 1, **training: object) -> RunRecord:
        record = make_record(method, seed, {"STSB": 0.5})
        return replace(record, training=record.training | training)

    rows = [of("simcse"), of("mine"), of("mine", 2), of("released", corpus=B), of("untrained", None)]
    untrained = replace(rows[4], training={})
    assert setting_notes([*rows[:4], untrained]) == ()
    other, bf16 = of("other", corpus=B), of("half", precision="bf16")
    (said,) = setting_notes([*rows, bf16, untrained])
    assert not missing_facts(
        said, "in training precision:", "fp32 (simcse, mine,", "released and 1", "bf16 (half)"
    )
    (said,) = setting_notes([*rows, other])
    assert not missing_facts(said, "in training text:", "(simcse, mine, untrained)", "bbbbbbbb (other)")
    evaluated = replace(of("again"), evaluation={"precision": "bf16", "version": 1})
    (said,) = setting_notes([rows[0], evaluated])
    assert not missing_facts(said, "in precision:", "fp32 (simcse)", "bf16 (again)")
    assert any("training text:" in note for note in leaderboard_notes(tmp_path, [rows[0], other]))


def test_another_form_of_a_member_is_named(tmp_path: Path) -> None:
    def row(method: str, options: dict[str, object], **members: Mapping[str, object]) -> RunRecord:
        record = make_record(method, 1, {"STSB": 0.5}, options=options)
        return replace(record, training={**record.training, "members": members})

    partner = {"method": "infocse", "options": {"lr": 7e-6, "mask": 0.4}}
    union = row("union", {}, uc=partner, twin={"method": "twin", "options": {"steps": 3}})
    student = row("student", {}, teacher={"method": "union", "options": {}, "members": {"uc": partner}})
    tuned, twin = row("infocse", {"lr": 1e-4, "mask": 0.4}), row("twin", {"steps": 3})
    (said,) = member_notes([union, student, tuned, twin])
    assert said.endswith(": union (infocse with lr=7e-06), student (infocse with lr=7e-06).")
    also = row("infocse[lr=7e-6]", {"lr": 7e-6, "mask": 0.4})
    assert member_notes([union, student, tuned, twin, also]) == member_notes([union, twin]) == ()
    assert said in leaderboard_notes(tmp_path, [union, student, tuned])


def test_weights_and_processors_that_differ_are_named(tmp_path: Path) -> None:
    def made(method: str, seed: int, sha256: str, recipe: str | None = "r") -> RunRecord:
        backbone = {"name": "lm", "sha256": sha256 * 64} | ({"recipe": recipe} if recipe else {})
        return replace(make_record(method, seed, {"STSB": 0.5}), backbone=backbone)

    records = [made("simcse", 1, "a"), made("simcse", 2, "b"), made("mine", 1, "a")]
    (said,) = weight_notes(records)
    assert said.endswith(f": {'a' * 12} (2 runs of 2 methods), {'b' * 12} (1 runs of 1 methods).")
    assert weight_notes(records[::2]) == weight_notes([made("x", 1, "a", None), made("y", 1, "b")]) == ()
    assert said in leaderboard_notes(tmp_path, records)

    def on(method: str, seed: int, processor: str, seconds: float | None = 9.0) -> RunRecord:
        took = {} if seconds is None else {"training_cpu_seconds": {"simcse": seconds}}
        return replace(make_record(method, seed, {"STSB": 0.5}), timing={"processor": processor, **took})

    records = [on("simcse", 1, "old"), on("simcse", 2, "new"), on("mine", 1, "old")]
    (said,) = processor_notes(records)
    assert said.endswith(": old (2 runs of 2 methods), new (1 runs of 1 methods).")
    assert processor_notes(records[::2]) == processor_notes([*records[::2], on("none", 1, "new", None)]) == ()
    assert said in leaderboard_notes(tmp_path, records)


def test_checkpoints_chosen_on_what_is_evaluated_are_named(tmp_path: Path) -> None:
    def of(method: str, dev: str = "d", sha256: str = "d", curve: bool = True) -> RunRecord:
        record = make_record(method, 1, {"STSB": 0.5})
        points = [[1, 0.5], [2, 0.4]] if curve else []
        stages = {role: {**stage, "dev_curve": points} for role, stage in record.training["stages"].items()}
        training = {**record.training, "stages": stages, "dev": {"task": "STSB", "sha256": dev}}
        tasks = {"STSB": {"sha256": sha256, "reference": True}}
        return replace(record, training=training, tasks=tasks)

    records = [of("simcse"), of("tncse"), of("apart", dev="e"), of("short", curve=False)]
    untrained = replace(of("untrained"), training={})
    (said,) = selection_notes([*records, untrained])
    assert said.endswith(": STSB (simcse, tncse).")
    assert selection_notes([*records[2:], untrained]) == ()
    last = [replace(record, notes=(LAST_NOTE,)) for record in records]
    assert selection_notes(last) == ()
    store = ResultStore(tmp_path, "camp")
    campaign = make_campaign(store, [*records, untrained])
    (grid,) = table_grids(campaign, "leaderboard")
    assert said in grid.notes
    (table,) = paper_tables(campaign)
    assert said in table.sentences
    one, other, without = (
        Group(record.method, (CampaignRun(store, record),)) for record in (records[0], records[2], untrained)
    )
    (line,) = (line for line in describe_confounders(one, without) if "chosen" in line)
    assert line.endswith(": simcse on STSB.")
    assert line in describe_confounders(other, one)
    assert not any("chosen" in line for line in describe_confounders(other, without))


PAIRS = {"name": "nli_for_simcse.csv", "sha256": "d" * 64, "pairs": 275_601}
NOTE = "Supervised, so not ranked with the others: "


def runs(method: str, base: float, spread: float = 0.01, **changes: object) -> list[RunRecord]:
    made = [
        make_record(method, seed, {"STS12": base + spread * (seed % 3), "STSB": base}) for seed in range(1, 5)
    ]
    return [replace(one, **changes) for one in made]  # type: ignore[arg-type]


def learned(records: list[RunRecord], **of_stage: object) -> list[RunRecord]:
    """The same with a stage that learned from pairs, of its own or of a member."""
    found = []
    for one in records:
        stages = {f"teacher/{role}": {**stage, **of_stage} for role, stage in one.training["stages"].items()}
        seconds = {"training_cpu_seconds": dict.fromkeys(stages, 12.5)}
        found.append(replace(one, training={**one.training, "stages": stages}, timing=seconds))
    return found


def source(records: list[RunRecord], store: ResultStore, **changes: object) -> Campaign:
    return replace(make_campaign(store, records), **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "local")


PLAIN = [*runs("b", 0.70), *runs("a", 0.60), *runs("c", 0.69)]
TOP = learned(runs("mine", 0.90), text=PAIRS)  # an alias
FLAGGED = [replace(one, training={**one.training, "supervised": True}) for one in runs("plug", 0.95)]


def test_both_ways_to_say_it_survive_the_file() -> None:
    for one in (TOP[0], FLAGGED[0]):
        assert is_supervised(parse_record(record_to_json(one), "x"))
    assert not any(map(is_supervised, PLAIN))
    copies = learned(runs("x", 0.5), text={"name": "a", "sha256": "b", "paired": True})
    assert not any(map(is_supervised, copies))


def test_nothing_said_of_the_others_depends_on_them(store: ResultStore) -> None:
    (alone,) = all_leaderboards(source(PLAIN, store))
    (with_them,) = all_leaderboards(source([*TOP, *PLAIN, *FLAGGED], store, all_rows=True))
    assert [row.method for row in with_them.rows] == ["b", "c", "a", "plug", "mine"]
    assert with_them.rows[:3] == alone.rows
    assert (with_them.bold, with_them.tests) == (alone.bold, alone.tests)
    assert alone.tests
    for row in with_them.rows[3:]:
        assert (row.ranked, row.rank, row.aside, row.group) == (False, None, SUPERVISED, SUPERVISED_GROUP)
        assert not any(cell.mark or cell.sign for cell in row.cells.values())
    (note,) = (note for note in with_them.notes if note not in alone.notes)
    assert not missing_facts(note, f"{NOTE}plug, mine (", "--rank-supervised")


def test_they_are_ranked_where_that_is_asked_for(store: ResultStore) -> None:
    (table,) = all_leaderboards(source([*TOP, *PLAIN, *FLAGGED], store, rank_supervised=True))
    assert [row.method for row in table.rows] == ["plug", "mine", "b", "c", "a"]
    assert all(row.ranked and row.rank for row in table.rows)
    assert not any(note.startswith(NOTE) for note in table.notes)
    (table,) = all_leaderboards(source([*TOP, *FLAGGED], store))  # of them alone
    assert [(row.method, row.rank) for row in table.rows] == [("plug", None), ("mine", None)]
    assert not table.tests


def test_figures_and_tests_leave_them_out(store: ResultStore) -> None:
    every = [*TOP, *PLAIN, *FLAGGED]
    (figure,) = group_figures(source(every, store))
    assert "mine" not in str(figure)
    (figure,) = group_figures(source(every, store, rank_supervised=True))
    assert "mine" in str(figure)
    assert render_report(source(every, store), "csv", "significance") == render_report(
        source(PLAIN, store), "csv", "significance"
    )
    (grid,) = sts7_grids(source(every, store, all_rows=True))
    assert grid.groups[-1][1].endswith(SUPERVISED_GROUP)


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "html"])
def test_every_format_has_the_footnote(store: ResultStore, form: str) -> None:
    assert NOTE in render_report(source([*TOP, *PLAIN], store, all_rows=True), form)
    plain = render_report(source([*TOP, *PLAIN], store), form)
    assert "Set aside: 1 supervised" in plain or form == "html"  # the page lists all rows


def test_the_caption_of_a_paper_says_why_a_row_stands_apart(store: ResultStore) -> None:
    every = [*TOP, *PLAIN, *FLAGGED]
    order = ("mine", "plug", "b", "c", "a")
    (table,) = paper_tables(source(every, store, given=order, named=order))
    assert table.fit_caption()[0].endswith(f" {NOTE}mine, plug.")
    assert any(f"{NOTE}mine, plug (" in remark for remark in table.remarks)
    (table,) = paper_tables(source(every, store, rank_supervised=True))
    assert not any(NOTE in sentence for sentence in table.sentences)
    (table,) = paper_tables(source(every, store, baseline="mine"))
    assert not missing_facts(" ".join(table.remarks), "mine can't be the baseline", "supervised")


def test_daggers_against_one_say_why_there_are_none(store: ResultStore) -> None:
    (table,) = all_leaderboards(source([*TOP, *PLAIN], store, baseline="mine"))
    assert not missing_facts(table.notes, "mine can't be", "(supervised)")
    failed = [replace(one, status="failed", scores=()) for one in TOP]
    (table,) = all_leaderboards(source([*failed, *PLAIN], store, baseline="mine"))
    assert not missing_facts(table.notes, "mine can't be", "finished run")
    copied = learned(runs("copied", 0.8), text={"name": "a", "sha256": "b", "paired": True})
    copies = [replace(one, world={"seed": 1}) for one in copied]
    (table,) = all_leaderboards(source([*copies, *PLAIN], store, baseline="copied"))
    assert not missing_facts(table.notes, "copied can't be", "own paraphrases")


def test_json_says_who_is_ranked(store: ResultStore) -> None:
    (table,) = json.loads(render_report(source([*TOP, *PLAIN], store), "json"))
    assert {row["method"]: row["ranked"] for row in table["rows"]} == {
        "b": True, "c": True, "a": True, "mine": False,
    }  # fmt: skip


def test_a_comparison_says_so(store: ResultStore) -> None:
    def group(records: list[RunRecord]) -> Group:
        return Group(records[0].method, tuple(sort_runs_by_seed(CampaignRun(store, one) for one in records)))

    top, plain, flagged = group(TOP), group(PLAIN[:4]), group(FLAGGED)
    one = describe_confounders(top, plain)[0]
    assert (describe_confounders(plain, top)[0], missing_facts(one, "mine is supervised", "and b is")) == (
        one,
        [],
    )
    assert not missing_facts(describe_confounders(top, flagged)[0], "Both are supervised", "mine and plug")
    assert not any("supervised" in line for line in describe_confounders(plain, group(PLAIN[4:8])))
