"""A killed, interrupted or doubled run loses nothing finished and corrupts nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_cli import records, stable_bytes

RUN = (
    sys.executable,
    "-m",
    "bench",
    "run",
    "--suite",
    "toy",
    "--methods",
    "noise[wait=0.15]",
    "--seeds",
    "1-6",
)


def start(folder: Path, *extra: str, new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUN, *extra],
        cwd=folder,
        env={**os.environ, "NOISE_LOG": str(folder / "log")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_session,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    error = process.communicate(timeout=120)[1]
    return process.returncode, error


def wait_for_records(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(folder.glob("results/*/*/*/*/*.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def undisturbed(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    assert finish(start(folder))[0] == 0
    return stable_bytes(folder)


def test_sigkill_then_resume_gives_the_undisturbed_bytes(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path)
    process = start(tmp_path)
    wait_for_records(tmp_path, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = records(tmp_path)
    assert 2 <= len(finished) < 6
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/*/*/*/*/*.json")}
    code, error = finish(start(tmp_path))
    assert code == 0, error
    assert stable_bytes(tmp_path) == expected
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert not list(tmp_path.glob("results/*/*/*/*/.*"))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigint_is_clean(tmp_path: Path, workers: str) -> None:
    process = start(tmp_path, "--workers", workers)
    wait_for_records(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    code, error = finish(process)
    assert code == 130
    assert "interrupted; finished cells are kept" in error
    assert "Traceback" not in error
    assert 1 <= len(records(tmp_path)) < 6


def test_ctrl_c_reaches_parent_and_workers_and_is_clean(tmp_path: Path) -> None:
    process = start(tmp_path, "--workers", "2", new_session=True)
    wait_for_records(tmp_path, 1)
    os.killpg(process.pid, signal.SIGINT)
    code, error = finish(process)
    assert (code, "Traceback" in error, "interrupted" in error) == (130, False, True)


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    first, second = start(shared), start(shared, "--workers", "2")
    assert [finish(first)[0], finish(second)[0]] == [0, 0]
    assert stable_bytes(shared) == expected
    built = sorted((shared / "log").read_text().splitlines())
    assert built == [f"noise {seed}" for seed in range(1, 7)]  # no cell twice


def test_a_killed_parent_leaves_no_worker(tmp_path: Path) -> None:
    process = start(tmp_path, "--workers", "2", new_session=True)
    wait_for_records(tmp_path, 1)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while True:
        try:
            os.killpg(process.pid, 0)  # any process of the group left?
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
