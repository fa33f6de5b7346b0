"""The lines below a leaderboard whose methods trained on unequal terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.sections import table_grids
from bench.reports.tables.terms import budget_notes, weight_notes
from tests.support.campaigns import make_record

START = "Unequal budgets, in sentences that a method's longest training stage read: "


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
    assert budget_notes(records) == (f"{START}24,000 (mine), 9,600 (simcse, twin).",)
    assert budget_notes(records[::2]) == ()
    assert budget_notes(records[3:]) == ()


def test_a_last_batch_that_is_filled_up_is_no_other_budget() -> None:
    assert budget_notes([trained("a", (150, 64)), trained("b", (138, 70))]) == ()
    assert budget_notes([trained("a", (1, 64)), trained("b", (2, 64))]) == (f"{START}128 (b), 64 (a).",)


def test_long_lists_are_cut() -> None:
    same = [trained(f"same{n}", (10, 64)) for n in range(5)]
    others = [trained(f"other{n}", (20 + 10 * n, 64)) for n in range(5)]
    (note,) = budget_notes([*same, *others])
    assert note == (
        f"{START}3,840 (other4), 3,200 (other3), 2,560 (other2), ... 640 (same0, same1, same2 and 2 more)."
    )


def test_the_leaderboard_has_it(tmp_path: Path) -> None:
    records = [trained("simcse", (150, 64)), trained("mine", (375, 64))]
    for wanted, chosen in ((True, records), (False, records[:1])):
        (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "c"), chosen), "leaderboard")
        assert any(note.startswith(START) for note in grid.notes) is wanted


def test_other_bytes_of_a_made_backbone_are_named(tmp_path: Path) -> None:
    def made(method: str, seed: int, sha256: str, recipe: str | None = "r") -> RunRecord:
        backbone = {"name": "lm", "sha256": sha256 * 64} | ({"recipe": recipe} if recipe else {})
        return replace(make_record(method, seed, {"STSB": 0.5}), backbone=backbone)

    records = [made("simcse", 1, "a"), made("simcse", 2, "b"), made("mine", 1, "a")]
    said = (
        "The backbone was made on several kinds of processor, which give it other last bits: "
        f"{'a' * 12} (2 runs of 2 methods), {'b' * 12} (1 runs of 1 methods)."
    )
    assert weight_notes(records) == (said,)
    assert weight_notes(records[::2]) == weight_notes([made("x", 1, "a", None), made("y", 1, "b")]) == ()
    (grid,) = table_grids(make_campaign(ResultStore(tmp_path, "camp"), records), "leaderboard")
    assert said in grid.notes
