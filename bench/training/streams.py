"""Random streams: every draw of a run comes from (seed, stream), never from global state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def stream_seed(seed: int, stream: str) -> int:
    """A 63-bit seed for a named stream of a run's seed; streams are independent of each other."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str) -> torch.Generator:
    """A CPU generator of a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, stream))


@contextmanager
def own_random_state(seed: int, stream: str, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generators for a block and put them back: dropout takes no generator."""
    kind, devices = torch.device(device).type, list[int]()
    if kind == "cuda":
        devices = [torch.cuda.current_device()]
    elif kind == "mps":
        devices = [0]
    with torch.random.fork_rng(devices=devices, device_type=kind if devices else "cuda"):
        torch.manual_seed(stream_seed(seed, stream))
        yield
