"""What a command imports, where it connects and what its environment may do to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from bench.cli.environment import set_environment
from bench.cli.main import _fetches_data
from tests.conftest import Bench
from tests.support.cli import Cli, refusal
from tests.support.hostile import EVIL, MARKER, everything
from tests.support.messages import missing_facts

TOY = ("--suite", "toy", "--workers", "1")
SHADOWS = ("bench", "click", "jinja2", "json", "multiprocessing", "numpy", "pandas", "typing", "vl_convert")


def plant(folder: Path, *modules: str) -> None:
    """Put into a results folder what Python, its packages and bench would take from a folder on the path."""
    for name in ("conftest", "sitecustomize", "usercustomize", "evil", *modules):
        (folder / f"{name}.py").write_text(EVIL)
    (folder / "evil.pth").write_text("import evil\n")
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bench.methods]\nevil = evil\n")
    for name, text in (("profiles/mini.toml", "summary = 1"), ("templates/report.html", "OWNED")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def console(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``bench`` as it is installed."""
    script = shutil.which("bench", path=str(Path(sys.executable).parent))
    assert script, "bench is not installed for this Python"
    environment = {**os.environ, **environment}
    command = [script, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_a_plug_in_among_records_is_refused_and_the_current_folder_is_not_imported(
    cli: Cli, bench: Bench, tmp_path: Path
) -> None:
    results = tmp_path / "results" / "local"
    results.mkdir(parents=True)
    plant(results)
    (tmp_path / "link.py").symlink_to(results / "evil.py")
    for file in ("results/local/evil.py", "link.py", "./results/../results/local/evil.py"):
        said = refusal(cli, "run", "--methods", "noise", *TOY, "--plugin", file)
        assert "lies in the results folder" in said
    plant(tmp_path, "click", "numpy", "pandas", "rich", "filelock", "textwrap", "decimal")
    listed = bench("list", "methods")  # python -m bench
    assert (listed.returncode, "simcse" in listed.stdout) == (0, True), listed.stderr
    assert not list(tmp_path.rglob(MARKER))


DATA_FOLDERS = ("nowhere", "file", "/dev/null", "/dev/zero", "/proc/self", "a\nb\x1b[2J", "~", ":")


@pytest.mark.slow
def test_nothing_in_a_results_folder_is_executed(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "noise,word_overlap", "--seeds", "1-2", *TOY, "--campaign", "camp")[0] == 0
    results = tmp_path / "results"
    figures = ("report", "--campaign", "camp", "--figures")
    code, clean, _ = cli(*figures, "clean")
    assert code == 0
    plant(results, *SHADOWS)
    (results / "bench").mkdir()
    (results / "bench" / "__init__.py").write_text(EVIL)
    here = ("--results", ".")
    report = console(results, *figures, "drawn", *here)
    assert (report.returncode, report.stdout) == (0, clean), report.stderr
    drawn = everything(results / "drawn")
    assert drawn == everything(tmp_path / "clean")
    assert len(drawn) >= 3  # pdf, png, svg
    asked = ("run", "--methods", "noise", "--seeds", "3-4", "--suite", "toy", "--workers", "2")
    run = console(results, *asked, *here)
    assert run.returncode == 0, run.stderr
    assert not list(tmp_path.rglob(MARKER))


def test_the_environment_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "PYTHONSAFEPATH")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for arguments in (["run", "--methods", "data,fetch"], ["--debug", "data", "verify"], ["data", "rtt"], []):
        with set_environment(offline=not _fetches_data(arguments)):
            assert [os.environ.get(name) for name in names] == ["1", "1", "1"]
    with set_environment(offline=not _fetches_data(["--debug", "data", "fetch", "sts7"])):
        assert [os.environ.get(name) for name in names] == [None, "1", "1"]
    assert not set(names) & set(os.environ)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # asks for a fetch, of mteb's data sets
    with set_environment(offline=not _fetches_data(["run"])):
        assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert os.environ["HF_HUB_OFFLINE"] == "0"


@pytest.mark.slow
def test_no_command_connects_anywhere(
    cli: Cli, model: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Any] = []

    def refuse(*arguments: object, **_: object) -> None:
        attempts.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    weights = load_file(model / "model.safetensors")
    binary = shutil.copytree(tiny_bert, model.parent / "binary")
    (binary / "model.safetensors").unlink()
    torch.save(weights, binary / "pytorch_model.bin")
    own = ("--backbone", str(tiny_bert))
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 443))
    assert attempts.pop()[0] == "example.org"
    for arguments in (
        ("run", "--methods", "untrained", *own, *TOY, "--probes", "all"),
        ("run", "--methods", f"ensemble:hf:{binary}+untrained", *TOY, "--dry-run"),
        ("run", "--methods", f"st:{model},hf:{binary}:avg,word_overlap", *TOY),
        ("report", "--format", "html", "--figures", "figures"),
        ("report", "--format", "latex"),
        ("list", "methods"),
        ("list", "suites"),
        ("show", "simcse"),
        ("probe", "untrained", *own, "--suite", "toy"),
        ("export", "untrained", *own, "--out", "exported"),
        ("check", "--reference", "results/local", "--results", "results"),
        ("stats",),
    ):
        code, _, err = cli(*arguments)
        assert code == 0, (arguments, err)
    for reference in ("hf:org/name", "st:org/name", "hf:gpt2:avg", "released:simcse_bert"):
        said = refusal(cli, "run", "--methods", reference, *TOY)
        assert "local cache" in said
        assert ("hf download" in said) is ("gpt2" not in reference)
    assert attempts == []
    assert cli("data", "fetch", "sts7", "--data", "data")[0] == 1
    assert "huggingface.co" in str(attempts)


@pytest.mark.slow
def test_a_task_of_the_hub_is_not_fetched_unasked(tmp_path: Path) -> None:
    log = tmp_path / "attempts"
    environment = {"HF_HUB_OFFLINE": "", "HF_HOME": str(tmp_path / "hf"), "BENCH_TEST_ATTEMPTS": str(log)}
    asked = ("run", "--methods", "noise", "--seeds", "1", "--suite", "mteb:STS17[en-en]")
    run = console(tmp_path, *asked, **environment)
    facts = ("local cache", "mteb/sts17-crosslingual-sts", "HF_HUB_OFFLINE=0")
    assert (run.returncode, missing_facts(run.stderr, *facts)) == (2, [])
    assert not log.exists()
    assert not list(tmp_path.glob("results/*/*"))  # refused before anything ran


@pytest.mark.parametrize(
    ("name", "value", "facts"),
    [
        *(("BENCH_DATA", value, ["SentEval data", "folder STS"]) for value in DATA_FOLDERS),
        ("BENCH_WORKERS", "many", ["'--workers'"]),
        ("BENCH_WORKERS", "\x1b[2J", ["'--workers'"]),
        ("BENCH_CHECKPOINTS", "/dev/null", ["local cache"]),
        ("HF_HUB_CACHE", "/dev/null/x", ["local cache"]),
    ],
)
def test_odd_variables(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, facts: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(name, value)
    suite = "sts7" if name == "BENCH_DATA" else "toy"
    method = "noise" if name == "BENCH_DATA" else "released:simcse_bert"
    assert missing_facts(refusal(cli, "run", "--methods", method, "--suite", suite), *facts) == []
    if name == "BENCH_DATA":
        assert missing_facts(refusal(cli, "data", "verify"), *facts) == []
