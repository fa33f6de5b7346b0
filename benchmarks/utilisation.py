"""How much of a device's matrix products a training step makes use of (model FLOPs utilisation).

Counted are the operations of the real tokens: no padding, nothing that is computed twice, a product and a
sum as two. Forward, a row of T tokens takes ``T * layers * (2 * (4 * H * H + 2 * H * I) + 4 * T * H)`` in an
encoder of hidden size H and intermediate size I; backward twice that. Embeddings, heads, losses, the
optimiser and JTCSE's cross stream aren't counted, and all of the last layer is, whatever a loss reads of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from claim import Claim, bounded

PRECISIONS = ("fp32", "tf32", "bf16")
PUBLISHED = {
    "H200 NVL": {"bf16": 835.5, "tf32": 417.5, "fp32": 60.0},
    "H200": {"bf16": 989.5, "tf32": 494.5, "fp32": 67.0},
    "H100 NVL": {"bf16": 835.5, "tf32": 417.5, "fp32": 60.0},
    "H100 PCIe": {"bf16": 756.0, "tf32": 378.0, "fp32": 51.0},
    "H100": {"bf16": 989.5, "tf32": 494.5, "fp32": 67.0},
    "A100": {"bf16": 312.0, "tf32": 156.0, "fp32": 19.5},
}
"""TFLOP/s of NVIDIA's data sheets, without sparsity; the first name that the device's name has counts."""


@dataclass(frozen=True)
class Peak:
    """What a device's matrix products reach.

    Args:
        rate: Operations a second.
        what: Where the number comes from.
    """

    rate: float
    what: str


def operations(lengths: Iterable[int], config: Any) -> int:
    """Operations of a forward and a backward pass over rows of real tokens.

    Args:
        lengths: Tokens of each row.
        config: Of the transformer; read are hidden_size, intermediate_size and num_hidden_layers.
    """
    hidden, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    token = 2 * (4 * hidden * hidden + 2 * hidden * inner)
    total: int = 3 * sum(length * layers * (token + 4 * length * hidden) for length in lengths)
    return total


def peak(device: str, precision: str) -> Peak:
    """The published peak of a known GPU, else the fastest of some square products, measured now."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        for known, rates in PUBLISHED.items():
            if all(word in name for word in known.split()):
                return Peak(rates[precision] * 1e12, f"{known}'s published peak in {precision}")
    return Peak(measured_peak(device, precision), f"this machine's matrix products in {precision}, measured")


def measured_peak(device: str, precision: str, size: int | None = None, rounds: int = 8) -> float:
    """Operations a second of the fastest of some products of square matrices.

    Args:
        device: "cpu" or "cuda".
        precision: "bf16" multiplies bfloat16, others float32.
        size: Rows and columns; None chooses for the device.
        rounds: How many products, after a first one that isn't counted.
    """
    size = size or (8192 if device == "cuda" else 1024)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    matrix = torch.randn(size, size, dtype=dtype, device=device)
    best = float("inf")
    for number in range(rounds + 1):
        wait(device)
        begin = clock(device)
        for _ in range(4):
            matrix @ matrix
        wait(device)
        if number:
            best = min(best, clock(device) - begin)
    return 4 * 2 * size**3 / best


def clock(device: str) -> float:
    """CPU seconds on a CPU, which other processes may share; the wall clock's on a GPU."""
    return time.perf_counter() if device == "cuda" else time.process_time()


def wait(device: str) -> None:
    """Let a GPU finish what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def busy(step: Callable[[], object]) -> dict[str, float]:
    """What a GPU does in a step: kernels and copies, the milliseconds they take, and the step's by the clock.

    The clock's are of a step that isn't watched. Where the device's are much less, it waits for the host.

    Args:
        step: Does one; what it leaves on the device is waited for.
    """
    from torch.profiler import ProfilerActivity, profile

    def once() -> float:
        wait("cuda")
        begin = clock("cuda")
        step()
        wait("cuda")
        return clock("cuda") - begin

    wall = min(once() for _ in range(5))
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        once()
    there = [event for event in seen.events() if str(event.device_type) == "DeviceType.CUDA"]
    device = sum(event.time_range.elapsed_us() for event in there) / 1e3
    return {"kernels": len(there), "device_ms": round(device, 2), "wall_ms": round(wall * 1e3, 2)}


def utilisation(name: str, what: str, *, done: float, seconds: float, limit: Peak) -> Claim:
    """A row of the table: operations a second, and how much of the peak they are.

    Args:
        name: The row's name.
        what: What was measured.
        done: Operations, of :func:`operations`.
        seconds: What they took, of :func:`clock`; on a CPU of as many threads as the peak had.
        limit: The device's peak.
    """
    said = f"{what}, operations of the real tokens, forward and backward: {limit.what}"
    return bounded(name, said, ours=done / seconds / 1e9, peer=limit.rate / 1e9, unit="GFLOP/s")


def share(claim: Claim) -> str:
    """What a row of :func:`utilisation` says, in a line."""
    what, _, of = claim.what.partition(": ")
    return f"{claim.name}: {claim.ratio:.1%} of {claim.peer:,.0f} GFLOP/s, {of} ({what})"
