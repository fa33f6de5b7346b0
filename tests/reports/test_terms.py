"""The lines below a leaderboard whose methods trained on unequal terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.comparison.confounders import describe_confounders
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.record_groups import LAST_NOTE
from bench.reports.sections import table_grids
from bench.reports.tables.paper_tables import paper_tables
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


def test_a_last_batch_that_is_filled_up_is_no_other_budget() -> None:
    assert budget_notes([trained("a", (150, 64)), trained("b", (138, 70))]) == ()
    (note,) = budget_notes([trained("a", (1, 64)), trained("b", (2, 64))])
    assert note.endswith(": 128 (b), 64 (a).")


def test_long_lists_are_cut() -> None:
    same = [trained(f"same{n}", (10, 64)) for n in range(5)]
    others = [trained(f"other{n}", (20 + 10 * n, 64)) for n in range(5)]
    (note,) = budget_notes([*same, *others])
    assert numbers_in(note) == [3840, 3200, 2560, 640, 2]
    assert not missing_facts(note, "3,840 (other4),", "... 640 (same0,")


def test_the_leaderboard_has_it(tmp_path: Path) -> None:
    records = [trained("simcse", (150, 64)), trained("mine", (375, 64))]
    for wanted, chosen in ((True, records), (False, records[:1])):
        (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "c"), chosen), "leaderboard")
        assert any(note.startswith(START) for note in grid.notes) is wanted


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
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), records), "leaderboard")
    assert said in grid.notes


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
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), [rows[0], other]), "leaderboard")
    assert any("training text:" in note for note in grid.notes)


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
    (grid,) = table_grids(
        make_campaign(ResultStore(tmp_path, "camp"), [union, student, tuned]), "leaderboard"
    )
    assert said in grid.notes


def test_other_bytes_of_a_made_backbone_are_named(tmp_path: Path) -> None:
    def made(method: str, seed: int, sha256: str, recipe: str | None = "r") -> RunRecord:
        backbone = {"name": "lm", "sha256": sha256 * 64} | ({"recipe": recipe} if recipe else {})
        return replace(make_record(method, seed, {"STSB": 0.5}), backbone=backbone)

    records = [made("simcse", 1, "a"), made("simcse", 2, "b"), made("mine", 1, "a")]
    (said,) = weight_notes(records)
    assert said.endswith(f": {'a' * 12} (2 runs of 2 methods), {'b' * 12} (1 runs of 1 methods).")
    assert weight_notes(records[::2]) == weight_notes([made("x", 1, "a", None), made("y", 1, "b")]) == ()
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), records), "leaderboard")
    assert said in grid.notes


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
    assert said in table.caption
    one, other, without = (
        Group(record.method, (CampaignRun(store, record),)) for record in (records[0], records[2], untrained)
    )
    (line,) = (line for line in describe_confounders(one, without) if "chosen" in line)
    assert line.endswith(": simcse on STSB.")
    assert line in describe_confounders(other, one)
    assert not any("chosen" in line for line in describe_confounders(other, without))


def test_cpu_seconds_of_several_processors_are_said_to_be(tmp_path: Path) -> None:
    def on(method: str, seed: int, processor: str, seconds: float | None = 9.0) -> RunRecord:
        took = {} if seconds is None else {"training_cpu_seconds": {"simcse": seconds}}
        return replace(make_record(method, seed, {"STSB": 0.5}), timing={"processor": processor, **took})

    records = [on("simcse", 1, "old"), on("simcse", 2, "new"), on("mine", 1, "old")]
    (said,) = processor_notes(records)
    assert said.endswith(": old (2 runs of 2 methods), new (1 runs of 1 methods).")
    assert processor_notes(records[::2]) == processor_notes([*records[::2], on("none", 1, "new", None)]) == ()
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), records), "leaderboard")
    assert said in grid.notes
