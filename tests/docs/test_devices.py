"""The table of two devices takes seeds, not rows, for its units."""

from __future__ import annotations

import json
import re
from pathlib import Path

import devices
import pytest
from scipy import stats

from tests.support.messages import missing_facts

Scores = dict[str, dict[int, float]]


def side(luck: dict[int, float], rows: int) -> Scores:
    """Rows a point apart, whose seeds have one luck, as where they share draws."""
    return {f"row-{i}": {seed: 60.0 + i + value for seed, value in luck.items()} for i in range(rows)}


@pytest.mark.parametrize("rows", [2, 40])
def test_more_rows_of_the_same_seeds_are_no_more_evidence(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    first, second = {1: -0.4, 2: 0.1, 3: -0.3}, {1: 0.0, 2: 0.3, 3: -0.1, 4: 0.2}
    sides = {"a": side(first, rows), "b": side(second, rows)}
    monkeypatch.setattr(devices, "_averages", lambda _, name: sides[name])
    said = devices.table(Path("results"), "a, b")
    test = stats.ttest_rel([*first.values()], [*second.values()][:3])
    low, high = test.confidence_interval()
    facts = ("-0.27 points", f"[{low:+.2f}, {high:+.2f}]", f"p = {test.pvalue:.2f}")
    assert missing_facts(said, *facts, f"{rows} rows", "1: -0.40, 2: -0.20,") == []
    assert len(re.findall(r"^\| `row-", said, re.MULTILINE)) == rows


def test_what_a_seed_does_on_both_devices_hides_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    luck = {1: -4.0, 2: 0.0, 3: 4.0, 4: 9.0}
    sides = {"a": side({1: -4.51, 2: -0.49, 3: 3.5, 4: 8.52}, 3), "b": side(luck, 3)}
    monkeypatch.setattr(devices, "_averages", lambda _, name: sides[name])
    said = devices.table(Path("results"), "a,b")
    assert re.search(r"-0\.50 points, .*\[-0\.5\d, -0\.4\d\], p = 0\.00", said)


def test_a_row_with_too_few_seeds_is_left_out_and_one_that_differs_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    luck = {1: -0.1, 2: 0.0, 3: 0.1}
    sides = {"a": side(luck, 3), "b": side(luck, 3)}
    sides["a"]["row-1"] = {seed: score + 5 for seed, score in sides["a"]["row-1"].items()}
    del sides["b"]["row-2"][3]
    monkeypatch.setattr(devices, "_averages", lambda _, name: sides[name])
    said = devices.table(Path("results"), "a,b")
    assert ("| `row-2`" in said, "1 (`row-1`)" in said) == (False, True)


def test_compiled_steps_are_a_row_each_beside_the_default(tmp_path: Path) -> None:
    seconds = {"chunks": 0.04, "one chunk": 0.05, "inductor": 0.032, "graphs": 0.01}
    facts: dict[str, object] = {"benchmark": "compiled simcse", "precision": "bf16", "batch": 64}
    facts |= {f"seconds {side}": each for side, each in seconds.items()}
    facts |= {f"share {side}": 0.001 / each for side, each in seconds.items()}
    lines = (json.dumps({"benchmark": "busy simcse"}), "a line", json.dumps(facts))
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    rows = [line for line in devices.compiled_table(tmp_path / "log").splitlines() if "bf16" in line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    figures = [("40.0", "1.00", "2.5%"), ("50.0", "0.80", "2.0%"), ("32.0", "1.25", "3.1%")]
    assert [tuple(row[-3:]) for row in cells] == [*figures, ("10.0", "4.00", "10.0%")]
    assert all({"simcse", "bf16", "64"} <= set(row) for row in cells)
