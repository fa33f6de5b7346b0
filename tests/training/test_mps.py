"""What runs on MPS, on a stand-in for it: no float64, no missing kernel, the CPU's losses and results.

Where torch finds a Mac's GPU all of it runs there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.probes import PROBES
from tests.support.on_device import differ, names_of, ours, run_parts
from tests.support.standin.guard import compiler

REAL = torch.backends.mps.is_available()
CLOSE = 1e-5
"""Largest relative difference of a loss, and of a result as a share of its largest number."""
PARTS = ("faults", "methods", "lowered", "variants", "works", "command")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not REAL and (compiler() is None or torch.version.cuda is not None),
        reason="the stand-in device needs a C++ compiler and a CPU build of torch",
    ),
]


DEVICE = ["--device", "mps", "--fp32", *["--real"][: int(REAL)]]


@pytest.mark.long
def test_a_command_runs_there_and_faults_are_refused(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path) -> None:
    faults, command = run_parts(tmp_path, tiny_bert, tiny_mlm, *DEVICE, "faults", "command")
    check_command(command)
    if not REAL:
        check_faults(faults)


@pytest.mark.long
def test_methods_probes_and_evaluations_give_on_mps_what_they_give_on_the_cpu(
    tmp_path: Path, tiny_bert: Path, tiny_mlm: Path
) -> None:
    """All in one process, which takes seconds to start."""
    parts = run_parts(tmp_path, tiny_bert, tiny_mlm, *DEVICE, *PARTS)
    faults, methods, rest, variants, works, command = parts
    assert names_of([*methods, *rest]) == ours()
    results = {work["name"]: work["device"].get("result") for work in works}
    assert {f"probe/{name}" for name in PROBES} | {"encode/cls", "transfer/exact"} <= results.keys()
    assert results["random state"] == [True, False, True]
    wrong = [line for entry in (*methods, *rest, *variants) if (line := wrong_loss(entry))]
    wrong += [line for entry in works if (line := wrong_result(entry))]
    assert not wrong, "\n".join(wrong)
    check_command(command)
    if not REAL:
        check_faults(faults)


def check_command(found: dict[str, Any]) -> None:
    """A record says where it was made, and has a key of its own there."""
    assert found["cpu"]["device"] == "cpu"
    assert found["mps"]["device"].startswith("mps ")
    assert found["cpu"]["key"] != found["mps"]["key"]


def wrong_loss(found: dict[str, Any]) -> str | None:
    """What is wrong with a stage's losses or dev scores."""
    name, cpu, device = found["name"], found["cpu"], found["device"]
    if "error" in cpu or "error" in device:
        return f"{name}: {device.get('error')} (on the CPU: {cpu.get('error')})"
    expected, losses = np.array(cpu["losses"]), np.array(device["losses"])
    away = float(np.max(np.abs(losses - expected) / np.abs(expected)))
    near = np.allclose(device["dev"], cpu["dev"], rtol=0, atol=5e-3)
    if len(losses) == 3 and away <= CLOSE and near:
        return None
    return (
        f"{name}: losses {losses}, dev {device['dev']}; on the CPU {expected}, {cpu['dev']}; {away:.1e} away"
    )


def wrong_result(found: dict[str, Any]) -> str | None:
    """What is wrong with a probe, an evaluation, a pretraining."""
    name, cpu, device = found["name"], found["cpu"], found["device"]
    if "error" in cpu or "error" in device:
        return f"{name}: {device.get('error')} (on the CPU: {cpu.get('error')})"
    away = differ(cpu["result"], device["result"])
    return f"{name}: {away:.1e} away from the CPU's result" if away > CLOSE else None


def check_faults(found: dict[str, Any]) -> None:
    """Each planted fault is refused, and what is none isn't."""
    refused = {name: sides["device"].get("error", "").split(":")[0] for name, sides in found.items()}
    assert {name: error for name, error in refused.items() if error} == {
        "mixed": "MixedDevicesError",
        "numpy": "TypeError",
        "generator": "MixedDevicesError",
        "eigenvalues": "MissingKernelError",
        "float64": "TypeError",
        "prepared float64": "MixedDevicesError",
    }
    assert not any("error" in sides["cpu"] for sides in found.values())
    for name, sides in found.items():
        losses = sides["device"].get("losses")
        same = losses == pytest.approx(sides["cpu"]["losses"], rel=CLOSE)
        assert same is (name != "dropout" and not refused[name]), name
