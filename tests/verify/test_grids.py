"""Grids of sweeps: a cell that is another method's, or none of the sweep's, is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override
from bench.config.spec import RunSpec
from bench.config.sweep_manifest import Manifest, save_manifest
from bench.config.sweeps import SWEEPS, Backbone
from bench.plan.cell_expansion import make_cells
from bench.registry import discover
from bench.verify.findings import Verification
from bench.verify.sweep_checks import verify_grids
from tests.support.cli import Cli
from tests.support.messages import missing_facts

CELL = ["4", "jtcse", "jtcse[caels=4]"]


def found(folder: Path, points: list[list[str]], profile: str = "mini") -> list[str]:
    """What is wrong with a grid of sweep caels."""
    rows = tuple((row, column, method) for row, column, method in points)
    save_manifest(Manifest("caels", profile, ("mini",), (1,), rows), folder / "camp")
    verified = Verification()
    verify_grids(folder / "camp", folder, verified)
    assert {(each.where, each.check) for each in verified.findings} <= {
        (f"camp/sweeps/{profile}-caels.json", "grid")
    }
    return [each.what for each in verified.findings]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["mini", "mini-equal"])
@pytest.mark.parametrize("override", [(), ("simcse.batch_size=8", "jtcse.lr=1e-3")])
def test_every_sweeps_own_grid_is_whole(tmp_path: Path, profile: str, override: tuple[str, ...]) -> None:
    spec = RunSpec((), (1,), profile, overrides=tuple(map(parse_override, override)))
    loaded = profiles.load_profile(profile)
    for name, sweep in SWEEPS.items():
        points = []
        for point in sweep.points(Backbone(4, True)):
            (request,) = parse_methods(point.method)
            card = discover().get(request.name).card
            cells = make_cells(request, card, spec, loaded, profile, None, 0, lambda load: None)
            points.append((point.row, point.column, cells[0].method))
        save_manifest(Manifest(name, profile, ("mini",), (1,), tuple(points)), tmp_path / "camp")
    verified = Verification()
    verify_grids(tmp_path / "camp", tmp_path, verified)
    assert (verified.findings, verified.unchecked) == ([], {})


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (["4", "jtcse", "jtcse[caels=2]"], "not of jtcse[caels=2]"),
        (["4", "jtcse", "jtcse"], "not of jtcse"),  # mini's own number is another
        (["4", "jtcse", "tncse"], "not of tncse"),
        (["4", "jtcse", "x=jtcse[caels=4]"], "not of x=jtcse[caels=4]"),
        (["4", "jtcse", "no]method["], "not of no]method["),
        (["4", "tncse", "jtcse[caels=4]"], "no cell '4', 'tncse'"),
        (["four", "jtcse", "jtcse[caels=4]"], "'four' is"),
    ],
)
def test_a_false_cell_is_found(tmp_path: Path, cell: list[str], what: str) -> None:
    (said,) = found(tmp_path, [["0", "jtcse", "jtcse[caels=0]"], cell])
    assert what in said


def test_what_is_the_same_said_otherwise_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, [["4", "jtcse", "jtcse[caels=4,lr=0.1]"]]) == []
    assert found(tmp_path, [CELL], "mini@0123abcd") == []


def test_a_profile_that_is_unknown_here_is_said(tmp_path: Path) -> None:
    save_manifest(Manifest("caels", "own", ("mini",), (1,), (("4", "jtcse", "jtcse"),)), tmp_path / "camp")
    verified = Verification()
    verify_grids(tmp_path / "camp", tmp_path, verified)
    assert verified.findings == []
    (unchecked,) = verified.unchecked
    assert missing_facts(unchecked, "defaults", "profile own") == []


def test_bench_verify_looks_at_grids(results: Cli, tmp_path: Path) -> None:
    file = tmp_path / "results/local/sweeps/mini-caels.json"
    grid = Manifest("caels", "mini", ("toy",), (1,), (("4", "jtcse", "noise"),))
    save_manifest(grid, tmp_path / "results/local")
    code, out, _ = results("verify")
    assert (code, out.count("grid: ")) == (1, 1)
    assert missing_facts(out, "local/sweeps/mini-caels.json: grid: ", "'4', 'jtcse'", "jtcse[caels=4]") == []
    file.write_text(json.dumps({"sweep": "caels"}))
    code, out, _ = results("verify")
    assert (code, missing_facts(out, "mini-caels.json: grid: ", "damaged")) == (1, [])
    assert out.count("run bench sweep") == 1
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere.json")
    assert "grid: a link" in results("verify")[1]
    file.unlink()
    assert results("verify")[0] == 0
