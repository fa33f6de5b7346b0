"""The benchmarks' table, their clock, and a try of each script at a tiny size."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.cli.main import main as bench

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script as ``python benchmarks`` finds it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name: str) -> Any:
        path = ROOT / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize(
    ("kind", "given", "ratio", "goal", "met"),
    [
        ("faster", {"ours": 2.0, "peer": 7.0, "goal": 3.3}, 3.5, ">= 3.3", True),
        ("faster", {"ours": 2.0, "peer": 6.0, "goal": 3.3}, 3.0, ">= 3.3", False),
        ("faster", {"ours": 2.0, "peer": 6.0}, 3.0, "", None),
        ("bounded", {"ours": 3.0, "peer": 2.0, "goal": 1.6}, 1.5, "<= 1.6", True),
        ("bounded", {"ours": 4.0, "peer": 2.0, "goal": 1.6}, 2.0, "<= 1.6", False),
        ("within", {"ours": 179.0, "unit": "s", "goal": 180}, None, "<= 180 s", True),
        ("within", {"ours": 181.0, "unit": "s", "goal": 180}, None, "<= 180 s", False),
    ],
)
def test_a_claim(
    load: Any,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    given: dict[str, Any],
    ratio: float | None,
    goal: str,
    met: bool | None,
) -> None:
    claim = load("claim")
    made = getattr(claim, kind)("name", "what: peer", **given)
    assert (made.ratio, made.goal, made.met) == (ratio, goal, met)
    claim.show(False, made)
    assert capsys.readouterr().out == ""
    claim.show(True, made)
    line = capsys.readouterr().out
    assert set(json.loads(line)) == {"name", "what", "ours", "peer", "ratio", "unit", "goal", "met"}
    assert claim.parse(line) == made


@pytest.mark.parametrize("line", ["", "ours 1.5 s", "3", "[]", '{"benchmark": "stats", "ours": 3}'])
def test_other_output_is_not_a_claim(load: Any, line: str) -> None:
    assert load("claim").parse(line) is None


def test_the_table(load: Any) -> None:
    claim, driver = load("claim"), load("__main__")
    claims = [
        claim.faster("fast", "a: b", ours=1.5, peer=1234.5, goal=1000),
        claim.bounded("bound", "c: d", ours=0.01234, peer=0.01, unit="MB", goal=1.1),
        claim.within("limit", "e", ours=99.5, unit="s", goal=180),
    ]
    where, blank, *rows = driver.table(claims, ["broken, no luck"]).splitlines()
    assert where.startswith("20")
    assert "torch 2" in where
    assert "/" not in where.replace("_", "")
    assert [blank, rows[5], rows[6]] == ["", "", "Failed: broken, no luck."]
    assert rows[2:5] == [
        "| fast | a: b | 1.5 | 1,234 | CPU s | 823 | >= 1000 | **no** |",
        "| bound | c: d | 0.0123 | 0.01 | MB | 1.23 | <= 1.1 | **no** |",
        "| limit | e | 99.5 |  | s |  | <= 180 s | yes |",
    ]


def test_the_table_takes_its_place_between_the_marks(load: Any, tmp_path: Path) -> None:
    driver = load("__main__")
    texts = {
        "both.md": "before\n<!-- speed-table -->\nold\n<!-- /speed-table -->\nafter\n",
        "half.md": "before\n<!-- speed-table -->\nold\n",
        "none.md": "text\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    driver.place("new\nrows", [tmp_path / name for name in (*texts, "missing.md")])
    expected = texts | {"both.md": texts["both.md"].replace("old", "\nnew\nrows\n")}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == expected


def test_the_page_has_the_marks(load: Any) -> None:
    driver = load("__main__")
    content = driver.PAGES[0].read_text()
    assert content.index(driver.START) < content.index(driver.END)


def test_a_script_that_fails_is_said(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = load("__main__")
    line = json.dumps(vars(load("claim").within("a", "b", ours=1.0, unit="s", goal=2)))
    (tmp_path / "one.py").write_text(f"print('seen')\nprint({line!r})\nraise SystemExit('no luck')\n")
    monkeypatch.setattr(driver, "HERE", tmp_path)
    claims, reason = driver.run(driver.Script("one"), None, quick=False)
    assert [found.name for found in claims] == ["a"]
    assert reason == "no luck"


PARTS = {
    "alarms",
    "claim",
    "coverage_items",
    "coverage_rows",
    "coverage_seeds",
    "mutations",
}  # of scripts, no scripts themselves


def test_every_script_is_run(load: Any) -> None:
    named = {script.name for script in load("__main__").SCRIPTS}
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert scripts - named - PARTS == {"__main__", "mutants", "where", "ranks"}  # these make no claim
    assert named <= scripts


def test_the_clock_takes_inner_parts_out(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    class Work:
        def outer(self) -> str:
            spend(1)
            self.inner()
            spend(2)
            return "done"

        def inner(self) -> None:
            spend(4)

    where = load("where")
    clock = where.Clock()
    clock.watch(Work, "outer", "outer")
    clock.watch(Work, "inner", "inner")
    spend(8)
    assert Work().outer() == "done"
    with clock.part("rest"):
        spend(16)
    assert clock.seconds == {"rest": 24, "outer": 3, "inner": 4}
    assert clock.calls == {"outer": 1, "inner": 1, "rest": 1}
    found = {
        "benchmark": "where",
        "cpu_seconds": 31.0,
        "parts": {"hash": 4.0, "dev": 24.0},
        "calls": {"dev": 2},
    }
    assert where.shown(found).splitlines()[1].split()[:4] == ["dev", "24.00", "77.4%", "2"]


TINY = (
    *("transfer", "train_step", "compiled", "heap", "probes", "stats", "coverage", "gradient_probe"),
    *("report", "end_to_end", "cost_curves", "memory"),
)


def test_every_script_that_has_a_tiny_size_is_tried(load: Any) -> None:
    assert [script.name for script in load("__main__").SCRIPTS if script.quick is not None] == list(TINY)


@pytest.fixture
def here(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script would start as a process of its own runs in this one, which has loaded torch already."""
    start = subprocess.run

    def run(command: list[str], *, check: bool = False, **options: Any) -> Any:
        if command[0] != sys.executable or command[1] == "-c":  # git, and reports that must not load torch
            return start(command, check=check, **options)
        begin = load(Path(command[1]).stem).main if command[1] != "-m" else lambda: bench(command[3:])
        out, err, code = io.StringIO(), io.StringIO(), 0
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", command[1:])
            try:
                begin()
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else int(left.code is not None)
        assert not (check and code), err.getvalue()
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    seconds = count()  # one at each look
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=next(seconds), children_system=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_script_at_a_tiny_size(
    load: Any, here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """No figure is checked, so a busy machine changes nothing; a goal missed here is not a failure."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", name])
    with suppress(SystemExit):
        load("__main__").main()
    out, err = capsys.readouterr()
    assert "Failed" not in out, out
    assert f"| {name}" in out, err
