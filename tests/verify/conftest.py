"""A small campaign with a plug-in's method and a sweep, and its bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.cli.main import main
from bench.config import plugins
from bench.registry import METHODS, discover
from bench.verify import archive
from tests.support.cli import Cli

PLUGIN = '''
"""A method that says when its file is run."""
import os
from bench_test_methods import Noise
from bench.method_card import MethodCard
from bench.registry import add_method

with open(os.environ["LOADED"], "a") as stream:
    stream.write(f"{__file__}\\n")


@add_method
class Mine:
    card = MethodCard(name="mine", kind="test", summary="random vectors", version=1, needs_backbone=False)

    def build(self, context):
        return Noise(context.seed + 10)
'''
GRID = {
    "sweep": "unsee_architectures",
    "profile": "mini",
    "suites": ["toy"],
    "seeds": [1, 2],
    "points": [
        [row, "unsee_byol", f"unsee_byol[architecture={row}]"] for row in ("projection", "single_projection")
    ],
}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``results/local``, the plug-in ``mine.py`` and the campaign's bundle ``local.zip``."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "mine.py").write_text(PLUGIN)
    grid = folder / "results" / "local" / "sweeps" / "mini-unsee_architectures.json"
    grid.parent.mkdir(parents=True)
    grid.write_text(json.dumps(GRID, indent=1) + "\n")
    discover()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS, "_items", dict(METHODS._items))  # the plug-in is forgotten afterwards
        patch.setattr(plugins, "_FILES", {})
        patch.chdir(folder)
        patch.setenv("LOADED", str(folder / "loaded"))
        for line in (
            "run --methods noise,word_overlap,mine --seeds 1-2 --suite toy --plugin mine.py",
            "bundle local --out local.zip --plugin mine.py",
        ):
            with pytest.raises(SystemExit) as stopped:
                main(line.split())
            assert not stopped.value.code, line
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, the present one for ``cli``."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("loaded"))
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded"))
    return tmp_path


@pytest.fixture
def files(work: Path) -> dict[str, bytes]:
    """What the bundle holds, without its manifest."""
    return dict(archive.read_bundle(work / "local.zip").files)


@pytest.fixture
def results(cli: Cli) -> Cli:
    """Three seeds of a seeded method and a deterministic one on an embedded suite, unharmed."""
    code, _, err = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-3", "--suite", "toy")
    assert code == 0, err
    code, out, _ = cli("verify", "--format", "json")
    found = json.loads(out)
    assert (code, found["findings"], found["unchecked"]) == (0, [], {})
    assert (len(found["records"]), found["scores"]) == (4, 8)
    return cli
