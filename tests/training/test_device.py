"""All that runs on a device, on a stand-in for one: the CPU's results, nothing mixed up, few reads.

Where there is a GPU of CUDA or a Mac's, all of it runs there; reads are counted on the stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.probes import PROBES
from tests.support.modules import left_out
from tests.support.on_device import differ, names_of, ours, run_parts
from tests.support.standin.guard import compiler

REAL = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(REAL.values()) and (compiler() is None or torch.version.cuda is not None),
        reason="the stand-in device needs a C++ compiler and a CPU build of torch",
    ),
]
FP32, BF16 = 1e-5, 0.1
"""Tolerances of losses, relative. In bf16 the two sides round elsewhere (autocast's lists differ, and the
fused attention), at a size where weights are large."""
FAINT = 1e-5
COARSE = {
    "encode/bf16": 0.05,
    "encode/pooler": 5e-5,  # a tanh of numbers much larger than what it gives
    "pretrain/bf16": 0.01,
    "add_head/bf16": 0.01,
    "gradient": 1e-3,  # after a training
}
"""Tolerances of results, as a share of the largest number."""
READS = {
    "probe/cls_energy": 1,  # all layers together
    "probe/modulus": 2,  # [CLS] and pooler, every 32 batches
    "probe/attention_sink": 5,  # all layers; final punctuation; length, tokens and weights of a map
    "probe/sum": 2 * (1 + 2 + 5),  # of two towers
    "probe/denoised": 1,
    "fits/two classes": 5,  # every 8 iterations, of the preconditioners and of all fits, and the weights
    "fits/three classes": 7,
    "transfer/exact": 6,
    "transfer/sgd": 12 * (3 + 1),  # of each of 12 fits 3 rounds, and the weights
    "pretrain/fp32": 1,  # its curve of losses
    "pretrain/bf16": 1,
    "add_head/fp32": 2,  # and the accuracy
    "add_head/bf16": 2,
    "gradient": 1,  # the vectors of both views
    "random state": 7,  # each draw
}
"""Reads of the device in all, beyond those of encoding."""
FAULTS = {
    "none": (1, 0),
    "dropout": (1, 0),
    "item": (2, 0),
    "branch": (2, 0),
    "boolean index": (3, 0),  # its gradient's too
    "eigenvalues": (2, 0),
    "list to device": (1, 1),
    "unpinned": (1, 1),
    "index from a list": (1, 2),  # its gradient's too
    "blocking": (1, 1),
    "float64": (1, 0),
    "prepared float64": (1, 0),
}
"""Reads and pageable copies of a step with a planted fault."""
REFUSED = {"mixed": "MixedDevicesError", "numpy": "TypeError", "generator": "MixedDevicesError"}
REFUSED_ON_MPS = {"eigenvalues": "MissingKernelError", "float64": "TypeError"}
Run = Callable[..., list[Any]]


@pytest.fixture
def on_device(tmp_path: Path, tiny_bert: Path, tiny_mlm: Path) -> Run:
    """Run parts in a process of its own, which takes seconds to start, and return what each one found."""

    def run(device: str, *parts: str) -> list[Any]:
        how = ["--device", device, *["--real"][: int(REAL[device])], *["--fp32"][: int(device == "mps")]]
        return run_parts(tmp_path, tiny_bert, tiny_mlm, *how, *parts)

    return run


def times(step: Sequence[Any], kind: str) -> int:
    return sum(entry[3] for entry in step if entry[0] == kind)


def places(steps: Sequence[Sequence[Any]]) -> str:
    found = {tuple(entry[:3]) for step in steps for entry in step if entry[1] not in ("an event", "batches")}
    return "".join(f"\n    {kind}: {what} at {place}" for kind, what, place in sorted(found))


def complaints(
    found: Mapping[str, Any], counted: bool, coarse: Mapping[str, float] | None = None
) -> Iterator[str]:
    """What is wrong with a method's stage, or with a probe, an evaluation, a pretraining."""
    name, cpu, device = found["name"], found["cpu"], found["device"]
    if "error" in cpu or "error" in device:
        yield f"{name}: {device.get('error')} (on the CPU: {cpu.get('error')})"
        return
    if coarse is None:
        yield from stage_complaints(name, cpu, device, counted)
    else:
        yield from work_complaints(name, cpu, device, counted, coarse.get(name, FAINT))


def stage_complaints(name: str, cpu: Any, device: Any, counted: bool) -> Iterator[str]:
    precise = "bf16" not in name
    expected, losses = np.array(cpu["losses"]), np.array(device["losses"])
    away = float(np.max(np.abs(losses - expected) / np.abs(expected)))
    if not len(losses) == len(device["steps"]) == 3 or away > (FP32 if precise else BF16):
        yield f"{name}: losses {device['losses']}, on the CPU {cpu['losses']}: {away:.1e}"
    if not np.allclose(device["dev"], cpu["dev"], rtol=0, atol=5e-3 if precise else 5e-2):
        yield f"{name}: dev scores {device['dev']}, on the CPU {cpu['dev']}"
    counts = [(times(step, "read"), times(step, "pageable")) for step in device["steps"]]
    if counted and counts != [(1, 0)] * len(counts):
        yield f"{name}: reads and pageable copies {counts}{places(device['steps'])}"


def work_complaints(name: str, cpu: Any, device: Any, counted: bool, most: float) -> Iterator[str]:
    away = differ(cpu["result"], device["result"])
    if away > most:
        yield f"{name}: the result is {away:.1e} away from the CPU's"
    if not counted:
        return
    *steps, rest = device["steps"]
    if any(times(step, "read") for step in steps):
        yield f"{name}: reads in a step{places(steps)}"
    own = [*steps[1:], rest]  # a model that is made for a training goes there in the first step's time
    if any(times(step, "pageable") for step in own):
        yield f"{name}: pageable copies{places(own)}"
    reads, encoding = times(rest, "read"), times(rest, "encoding")
    if reads - encoding != READS.get(name, 0):
        yield f"{name}: {reads} reads, {encoding} of them by encoding{places([rest])}"


def agree(found: Sequence[Any], check: Callable[[Any], Iterator[str]]) -> None:
    wrong = [line for entry in found for line in check(entry)]
    assert not wrong, "\n".join(wrong)


def check_stages(found: Sequence[Any]) -> None:
    losses = {entry["name"]: entry["device"].get("losses") for entry in found}
    for name, of_name in losses.items():
        stage, _, precision = name.rpartition("/")
        assert precision == "fp32" or of_name != losses[f"{stage}/fp32"], name
    agree(found, partial(complaints, counted=not REAL["cuda"]))


@pytest.mark.long
@pytest.mark.minutes
def test_methods_train_there_as_on_the_cpu_and_wait_once_a_step(on_device: Run) -> None:
    (found,) = on_device("cuda", "methods")
    assert len(ours() - left_out() - names_of(found)) == 0
    assert {entry["name"].rpartition("/")[2] for entry in found} == {"fp32", "bf16", "bf16-weights"}
    check_stages(found)


@pytest.mark.long
def test_every_method_trains_there_in_every_precision(on_device: Run) -> None:
    found = [entry for part in on_device("cuda", "methods", "lowered") for entry in part]
    assert names_of(found) == ours()
    check_stages(found)


@pytest.mark.long
def test_works_give_there_what_they_give_on_the_cpu(on_device: Run) -> None:
    (found,) = on_device("cuda", "works")
    given = {entry["name"]: entry["device"].get("result") for entry in found}
    assert {f"probe/{name}" for name in PROBES} | set(READS) | set(COARSE) <= given.keys()
    for work in ("pretrain", "add_head"):
        assert given[f"{work}/bf16"] != given[f"{work}/fp32"]
    agree(found, partial(complaints, counted=not REAL["cuda"], coarse=COARSE))


@pytest.mark.long
def test_methods_probes_and_evaluations_give_on_mps_what_they_give_on_the_cpu(on_device: Run) -> None:
    methods, rest, variants, works = on_device("mps", "methods", "lowered", "variants", "works")
    assert names_of([*methods, *rest]) == ours()
    results = {work["name"]: work["device"].get("result") for work in works}
    assert {f"probe/{name}" for name in PROBES} | {"encode/cls", "transfer/exact"} <= results.keys()
    assert results["random state"] == [True, False, True]
    agree([*methods, *rest, *variants], partial(complaints, counted=False))
    agree(works, partial(complaints, counted=False, coarse={}))


@pytest.mark.long
def test_a_record_says_that_it_was_made_on_mps(on_device: Run) -> None:
    (found,) = on_device("mps", "command")
    assert found["cpu"]["device"] == "cpu"
    assert found["mps"]["device"].startswith("mps ")
    assert len({found["cpu"]["key"], found["mps"]["key"]}) == 2


@pytest.mark.long
@pytest.mark.parametrize("device", REAL)
def test_each_planted_fault_is_refused_or_counted(on_device: Run, device: str) -> None:
    if REAL[device]:
        pytest.skip("of the stand-in alone")
    (found,) = on_device(device, "faults")
    errors = {name: sides["device"].get("error", "").split(":")[0] for name, sides in found.items()}
    on_mps = REFUSED_ON_MPS | {"prepared float64": "MixedDevicesError"} if device == "mps" else {}
    assert {name: error for name, error in errors.items() if error} == REFUSED | on_mps
    assert not any("error" in sides["cpu"] for sides in found.values())
    for name, sides in found.items():
        same = sides["device"].get("losses") == pytest.approx(sides["cpu"]["losses"], rel=FP32)
        assert same is (name != "dropout" and not errors[name]), name  # the device draws its own dropout
    for name, counts in FAULTS.items() if device == "cuda" else ():
        for step in found[name]["device"]["steps"]:
            assert (times(step, "read"), times(step, "pageable")) == counts, (name, step)
            for kind, what, place, _ in step:
                own = "bench/training/loop.py" if what == "an event" else "faults.py"
                assert own in place or place == "backward", (kind, what, place)
