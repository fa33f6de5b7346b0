"""``--device mps``: refused in one line where torch sees none, and with what MPS doesn't have."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner

import bench
from bench.cli.options import check_device, make_spec, run_options
from bench.config.spec import RunSpec
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
    "command",
    [
        "run --methods noise --suite toy",
        "run --methods noise --suite toy --dry-run",
        "sweep pooling --dry-run",
        "tune simcse --values 1e-5,3e-5 --corpus text.txt --dev toy",
        "encode untrained --input text.txt --out vectors.npy",
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


def test_load_checks_the_device_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device mps: torch sees no MPS device"):
        bench.load(tmp_path, device="mps")


def test_an_mps_device_that_is_there_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
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
    _, _, err = cli("run", "--methods", "noise", "--per-gpu", "2", "--device", "mps")
    assert missing_facts(err, "--per-gpu", "Ray", "--workers") == []


def spec_of(*arguments: str) -> RunSpec:
    """The specification of ``bench run`` with these options."""
    found = []

    @click.command()
    @run_options
    def command(**options: Any) -> None:
        found.append(make_spec({**options, "methods": "noise", "seeds": "1"}))

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    (spec,) = found
    return spec


def test_one_worker_is_the_default_on_mps() -> None:
    assert spec_of("--device", "mps").workers == 1
    assert spec_of("--device", "mps", "--workers", "3").workers == 3


def test_every_device_option_and_the_record_have_the_same_devices() -> None:
    choices = {tuple(option.type.choices) for option in every_option() if option.name == "device"}  # type: ignore[attr-defined]
    (fact,) = (fact for fact in FACTS if fact.name == "device")
    assert choices == {fact.choices} == {("cpu", "cuda", "mps")}


def test_the_record_names_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M9")
    assert collect_provenance(device="mps", threads=1)["device"] == "mps Apple M9"
