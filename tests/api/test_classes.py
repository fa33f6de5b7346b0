"""Method classes of a script or a notebook in place of a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench
from bench.registry import METHODS

SOURCE = """
import hashlib
import numpy as np
from bench.method_card import MethodCard

SIZE = 8


def to_vector(seed, sentence):
    digest = list(hashlib.sha256(f"{seed} {sentence}".encode()).digest())
    return np.random.default_rng(digest).normal(size=SIZE)


class Encoder:
    def __init__(self, seed):
        self.seed, self.dim, self.facts = seed, SIZE, {}

    def encode(self, sentences, batch_tokens=None, progress=None):
        rows = [to_vector(self.seed, sentence) for sentence in sentences]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), SIZE)


class Own:
    card = MethodCard(name="own", kind="method", summary="noise", version=1, needs_backbone=False)

    def build(self, context):
        return Encoder(context.seed)
"""
CALL = """
import bench

results = bench.run([Own, "noise"], seeds="1-2", suite="toy", workers=2)
print(results.missing, sorted(set(record.method for record in results.records)))
"""


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def class_without_source() -> Any:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(SOURCE, names)  # noqa: S102 - as a user may
    return names["Own"]


@pytest.mark.slow
def test_a_script_gives_a_class_to_worker_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SOURCE + CALL)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 ['noise', 'own']\n", "")
    records = [r for r in bench.results("results/local").records if r.method == "own"]
    assert all(record.provenance["plugins"]["own"]["code"] for record in records)


@pytest.mark.slow
def test_another_class_of_the_name_is_another_specification(tmp_path: Path) -> None:
    here = CALL.replace("workers=2", "workers=1")
    (tmp_path / "one.py").write_text(SOURCE + here)
    (tmp_path / "two.py").write_text(SOURCE.replace("SIZE = 8", "SIZE = 16") + here)
    (tmp_path / "three.py").write_text(SOURCE.replace("SIZE = 8", "SIZE = 8  # wide enough") + here)
    missing = {}
    for name in ("one", "two", "three"):
        command = [sys.executable, f"{name}.py"]
        missing[name] = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=300
        ).stdout[0]
    assert missing == {"one": "0", "two": "2", "three": "0"}


def test_a_class_without_source_runs_here_and_is_marked() -> None:
    before = METHODS.names()
    kind = class_without_source()
    results = bench.run(kind, seeds="1-2", suite="toy", workers=2)
    assert METHODS.names() == before
    assert results.missing == 0
    assert any("repeat" in note for record in results.records for note in record.notes)
    assert bench.run(kind, seeds="1-2", suite="toy").missing == 0
    another = bench.run(class_without_source(), seeds="1-2", suite="toy")  # nothing says that it is equal
    assert another.missing == 2


def test_a_class_is_checked() -> None:
    before = METHODS.names()
    frame = bench.check_method(class_without_source())
    assert METHODS.names() == before
    assert frame[frame.verdict == "failed"].check.tolist() == ["card"]
    assert "no equations" in frame.reason[0]
    assert len(frame) > 25


@pytest.mark.parametrize(
    ("kind", "word"),
    [(int, "not a method"), (type("Own", (), {"card": 3}), "not a method"), (None, "no method")],
)
def test_another_class_is_refused(kind: Any, word: str) -> None:
    with pytest.raises(bench.InputError, match=word):
        bench.run([kind])


NOTEBOOK = """
from bench.registry import add_method
Own = add_method(Own)
import bench
print(bench.run("own", seeds="1-2", suite="toy", workers=1).missing)
print(bench.dry_run("ensemble:own+noise", seeds=1, suite="toy").state.tolist())
"""


@pytest.mark.slow
def test_a_registered_class_is_known_by_its_name_and_code(tmp_path: Path) -> None:
    printed = {}
    for name, size in (("one", 8), ("two", 16)):
        (tmp_path / f"{name}.py").write_text(SOURCE.replace("SIZE = 8", f"SIZE = {size}") + NOTEBOOK)
        done = subprocess.run(
            [sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        printed[name] = done.stdout.splitlines(), done.stderr
    assert printed == {"one": (["0", "['to do']"], ""), "two": (["2", "['to do']"], "")}
