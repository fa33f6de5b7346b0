"""The options that commands share, among them ``--device mps``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner

import bench
from bench.cli.options import check_device, make_spec, run_options
from bench.cli.strict_options import StrictOption
from bench.errors import InputError
from bench.records.environment import collect_provenance
from bench.records.fingerprint import FACTS
from tests.support.cli import Cli, every_option
from tests.support.messages import missing_facts


@pytest.fixture(autouse=True)
def without_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine one without MPS, on a Mac too."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("arguments", "cores", "environment", "workers"),
    [
        ("", 8, None, 2),
        ("", 1, None, 1),
        ("--threads 4", 4, None, 1),
        ("--threads 4", 8, None, 2),
        ("--threads 16", 8, None, 1),
        ("--device cuda", 8, None, 0),  # as many as its memory holds
        ("--device mps", 8, None, 1),
        ("--device mps --workers 3", 8, None, 3),
        ("", 8, "5", 5),
        ("--workers 7", 1, "5", 7),
    ],
)
def test_workers_that_nobody_named_depend_on_device_and_cores(
    arguments: str, cores: int, environment: str | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    found = []

    @click.command()
    @run_options
    def command(**options: Any) -> None:
        found.append(make_spec({**options, "methods": "noise", "seeds": "1"}).workers)

    result = CliRunner().invoke(command, arguments, env={"BENCH_WORKERS": environment})
    assert result.exit_code == 0, result.output
    assert found == [workers]


def test_every_option_has_a_help_and_is_given_once_or_is_said_to_be_repeatable() -> None:
    for option in every_option():
        known = isinstance(option, StrictOption) or option.name in ("help", "version")
        assert known, f"{option.opts}: made by click.option, not by bench.cli.options"
        assert option.help, option.opts
        assert not option.multiple or "epeatable" in option.help or option.opts == ["--copy"], option.opts


@pytest.mark.parametrize(
    "command",
    [
        "run --methods noise --suite toy",
        "run --methods noise --suite toy --dry-run",
        "sweep pooling --dry-run",
        "tune simcse --values 1e-5,3e-5 --corpus text.txt --dev toy",
        "export untrained --vectors text.txt --out vectors.npy",
        "export untrained --out folder",
        "probe untrained --probes modulus",
        "gradient simcse --corpus text.txt --dev toy --out gradients",
        "pretrain --profile mini --out model",
        "data rtt --pivots fr --corpus text.txt --out copies",
    ],
)
def test_a_machine_without_mps_is_one_clear_line_and_exit_2(cli: Cli, command: str) -> None:
    Path("text.txt").write_text("A dog.\nA cat.\n" * 40)
    code, out, err = cli(*shlex.split(command), "--device", "mps", as_is=True)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert missing_facts(err, "--device mps: ", "no MPS device", "--device cpu") == []


def test_load_checks_the_device_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="device mps: torch sees no MPS device"):
        bench.load(tmp_path, device="mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    check_device("mps")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("run --train-precision bf16", "fp32"),
        ("run --train-precision tf32", "fp32"),
        ("run --train-precision bf16-weights", "fp32"),
        ("run --precision bf16", "fp32"),
        ("run --precision fp16", "fp32"),
        ("run --compile inductor", "none"),
        ("run --compile graphs", "none"),
        ("run --ranks 2", "--ranks 1"),
        ("run --executor ray", "--executor local, or --device cpu"),
        ("pretrain --profile mini --out model --precision bf16", "fp32"),
    ],
)
def test_what_mps_does_not_have_is_one_clear_line_and_exit_2(cli: Cli, command: str, expected: str) -> None:
    option = command.partition("--")[2] if command.startswith("run") else "precision bf16"
    given = [] if command.startswith("pretrain") else ["--methods", "noise", "--suite", "toy"]
    code, out, err = cli(*shlex.split(command), *given, "--device", "mps", as_is=True)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert missing_facts(err, f"error: --{option}", "MPS", f"expected {expected}") == []


def test_per_gpu_is_for_a_ray_cluster(cli: Cli) -> None:
    code, _, err = cli("run", "--methods", "noise", "--per-gpu", "2", "--device", "mps")
    assert (code, missing_facts(err, "--per-gpu", "Ray", "--workers")) == (2, [])


def test_every_device_option_and_the_record_have_the_same_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = {tuple(option.type.choices) for option in every_option() if option.name == "device"}  # type: ignore[attr-defined]
    (fact,) = (fact for fact in FACTS if fact.name == "device")
    assert choices == {fact.choices} == {("cpu", "cuda", "mps")}
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M9")
    assert collect_provenance(device="mps", threads=1)["device"] == "mps Apple M9"
