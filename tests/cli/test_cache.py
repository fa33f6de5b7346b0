"""``bench cache list`` and ``clear``."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from bench.records.filesystem import hold_output, pretraining_lock
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

KEY, OTHER = "a" * 64, "b" * 64
FILES = {
    f"results/.stages/{KEY}/selected/model.safetensors": 3_000_000,
    f"results/.stages/{OTHER}/facts.json": 100_000,
    f"results/.stages/.checkpoints/{OTHER}.safetensors": 2_000_000,
    f"results/.stages/.checkpoints/.{OTHER}.safetensors.host.1.000000000000.tmp": 1_000_000,
    f"results/.vectors/{KEY}.npz": 500_000,
    "cache/backbones/mini-1/config.json": 100_000,
    "cache/backbones/mini-1-unfinished/config.json": 100_000,
    "cache/backbones/mini-1-checkpoint.safetensors": 700_000,
    "cache/backbones/.mini-1-checkpoint.safetensors.host.1.000000000000.tmp": 600_000,
}
OWN = [
    "results/.stages/notes.txt",
    "results/.vectors/mine.npz",
    "results/local/x.json",
    "cache/backbones/a.md",
]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    for name, size in {**FILES, **dict.fromkeys(OWN, 1)}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))


def present(tmp_path: Path) -> set[str]:
    return {name for name in FILES if (tmp_path / name).exists()}


def test_kinds_are_listed_with_their_sizes(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("cache", "list")
    assert code == 0, err
    rows = [line.split()[:3] for line in out.splitlines()]
    assert rows[:4] == [
        ["stages", "2", "3.1"],
        ["checkpoints", "4", "4.3"],
        ["vectors", "1", "0.5"],
        ["backbones", "2", "0.2"],
    ]
    assert rows[4] == ["total", "8.1", "MB"]
    assert str(tmp_path / "cache" / "backbones") in out
    out = cli("cache", "list", "vectors")[1]
    assert out.splitlines() == [f"vectors            0.5 MB  results/.vectors/{KEY}.npz", "total 0.5 MB"]
    assert cli("cache", "list", "--results", "none")[0] == 0


def test_named_kinds_are_cleared_and_nothing_else(cli: Cli, tmp_path: Path) -> None:
    assert cli("cache", "clear", "stages", "checkpoints", "--dry-run")[1].splitlines() == [
        "stages: 2 to remove, 3.1 MB",
        "checkpoints: 4 to remove, 4.3 MB",
    ]
    assert present(tmp_path) == set(FILES)
    assert cli("cache", "clear", "checkpoints")[1] == "checkpoints: 4 removed, 4.3 MB\n"
    assert present(tmp_path) == {name for name in FILES if "checkpoint" not in name}
    assert cli("cache", "clear", "--all")[0] == 0
    assert present(tmp_path) == set()
    assert all((tmp_path / name).exists() for name in OWN)


def test_what_is_in_use_stays(cli: Cli, tmp_path: Path) -> None:
    with FileLock(tmp_path / "results" / ".stages" / f".{OTHER}.lock"):
        code, out, err = cli("cache", "clear", "stages", "checkpoints")
    assert (code, out) == (0, "stages: 1 removed, 3.0 MB\ncheckpoints: 2 removed, 1.3 MB\n")
    assert err.count("stays: a process is making it") == 3
    (tmp_path / "results" / "local" / ".locks").mkdir()
    with FileLock(tmp_path / "results" / "local" / ".locks" / "mini.lock"):
        for words in (("--all",), ("--all", "--dry-run")):
            err = refusal(cli, "cache", "clear", *words, code=1)
            assert "a run computes a cell of campaign 'local'" in err
    assert (tmp_path / "results" / ".vectors" / f"{KEY}.npz").exists()


def test_links_are_removed_and_not_followed(cli: Cli, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    (tmp_path / "results" / ".stages" / ("c" * 64)).symlink_to(elsewhere)
    assert cli("cache", "clear", "stages")[0] == 0
    assert (elsewhere / "precious").exists()
    assert not (tmp_path / "results" / ".stages" / ("c" * 64)).is_symlink()


def test_kinds_or_all_are_needed(cli: Cli) -> None:
    code, _, err = cli("cache", "clear")
    assert (code, missing_facts(err, "KIND or --all", "stages, checkpoints, vectors, backbones")) == (2, [])
    assert "kinds and --all" in refusal(cli, "cache", "clear", "stages", "--all")
    assert cli("cache", "clear", "records")[0] == 2


def test_a_dry_run_and_a_pretraining_by_hand_leave_what_is_made(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "cache" / "backbones" / "mini-1"
    with hold_output(out, pretraining_lock(out)):
        for words in (("--dry-run",), ()):
            _, said, err = cli("cache", "clear", "checkpoints", "backbones", *words)
            assert ("backbones: 0 " in said, err.count("stays: a process is making it")) == (True, 4)
    assert {name for name in FILES if "backbones" in name} <= present(tmp_path)


def test_names_are_printed_without_controls(cli: Cli, tmp_path: Path) -> None:
    name = f"{KEY}\n\x1b]0;own\x07.safetensors"
    (tmp_path / "results" / ".stages" / ".checkpoints" / name).write_bytes(b"x")
    out = cli("cache", "list", "checkpoints")[1]
    assert (len(out.splitlines()), "\x1b" in out) == (6, False)
