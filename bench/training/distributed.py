"""One batch on several processes: each encodes a share of its rows, and all see all vectors.

Let L(E, theta) be the loss of a batch's vectors E = (e_0, ..., e_{N-1}), e_r the share that process r
encodes, and of parameters theta that also reach it otherwise (a head, a second network). Its gradient is
sum_r (dL/de_r)(de_r/dtheta) + dL/dtheta. On process r :func:`spread` passes N dL/de_r back into its own share
alone, and what comes after it is the same everywhere, so r finds g_r = N (dL/de_r)(de_r/dtheta) + dL/dtheta.
The mean of the g_r, which :func:`share_gradients` takes, is the gradient of one process at the same batch:
the second part counts once, whichever parameters it reaches.

Draws before and after the vectors come from the streams that all processes share; the dropout of a share has
a stream of its own (equal ones would give both views of a sentence one mask).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.encoder import FloatArray
from bench.training.randomness import own_random_state

Item = TypeVar("Item", bound=Sized)
_PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others: a dev evaluation or a teacher's first batch may lie between."""


@dataclass
class Ranks:
    """This process among those that train together.

    Args:
        rank: Its number, from 0.
        size: How many they are.
        device: "cpu" or "cuda".
        draws: States of the generators that its own share's dropout draws from.
    """

    rank: int
    size: int
    device: str
    draws: list[Tensor] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Where tensors for the others must lie."""
        return f"cuda:{torch.cuda.current_device()}" if self.device.startswith("cuda") else "cpu"


_ranks: list[Ranks] = []  # none, or this process's


def count_processes() -> int:
    """Processes that train together, 1 for a process of its own."""
    return _ranks[0].size if _ranks else 1


def is_first_process() -> bool:
    """True for the process that evaluates and writes; a process of its own is one."""
    return not _ranks or _ranks[0].rank == 0


@contextmanager
def join_process_group(rank: int, size: int, meeting: Path, device: str) -> Iterator[None]:
    """Be process ``rank`` of ``count_processes`` within the block; NCCL on CUDA devices, one each, else gloo.

    Args:
        rank: From 0; on CUDA the number of the device too.
        size: All of them.
        meeting: A file that isn't there yet, on a disk that they share.
        device: "cpu" or "cuda".
    """
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=meeting.absolute().as_uri(),
        rank=rank,
        world_size=size,
        timeout=_PATIENCE,
        device_id=torch.device("cuda", rank) if cuda else None,
    )
    _ranks.append(Ranks(rank, size, device))
    try:
        seed_draws(0, "dropout")
        yield
        dist.destroy_process_group()  # after a failure it could wait for the others for ever
    finally:
        _ranks.clear()


def seed_draws(seed: int, stream: str) -> None:
    """Give this process's share a dropout stream of its own, from the run's seed and a stream's name."""
    for ranks in _ranks:
        with own_random_state(seed, f"{stream}/rank-{ranks.rank}", ranks.device):
            ranks.draws = _get_random_states(ranks.device)


@dataclass(frozen=True)
class RowDeal:
    """How rows are dealt out: what this process encodes, and where the vectors of all end up.

    Args:
        own: Numbers of the rows of this process's share.
        place: Row i is row ``place[i]`` of the shares of all processes put one after the other.
    """

    own: tuple[int, ...]
    place: tuple[int, ...]


def deal_rows(lengths: Sequence[int]) -> RowDeal:
    """Deal out rows in the order of their lengths, so that shares cost alike; alone, all of them.

    Where their number is not a multiple of the processes', the longest is encoded once more than needed and
    left out.
    """
    if not _ranks:
        everything = tuple(range(len(lengths)))
        return RowDeal(everything, everything)
    (ranks,) = _ranks
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    order += order[-1:] * (-len(lengths) % ranks.size)
    share = len(order) // ranks.size
    place = [0] * len(lengths)
    for position, row in enumerate(order[: len(lengths)]):
        turn, rank = divmod(position, ranks.size)
        place[row] = rank * share + turn
    return RowDeal(tuple(order[ranks.rank :: ranks.size]), tuple(place))


@contextmanager
def use_own_draws() -> Iterator[None]:
    """Where a share is encoded: torch's global generators draw from this process's own stream."""
    if not _ranks:
        yield
        return
    (ranks,) = _ranks
    shared = _get_random_states(ranks.device)
    _set_random_states(ranks.draws)
    try:
        yield
    finally:
        ranks.draws = _get_random_states(ranks.device)
        _set_random_states(shared)


def gather_shares(own: Tensor) -> Tensor:
    """The shares of all processes put one after the other, with gradient through the own one."""
    if not _ranks:
        return own
    gather: Callable[[Tensor, Ranks], Tensor] = _Gather.apply
    return gather(own, _ranks[0])


def encode_shares(rows: Sequence[Item], encode: Callable[[Sequence[Item]], Tensor]) -> Tensor:
    """Encode rows, each process its share, and return the vectors of all, with gradient through its own.

    Args:
        rows: B rows, the same on every process; see :func:`deal`.
        encode: From rows to a vector each, (b, H); it may draw from torch's global generators.

    Returns:
        (B, H), row i for ``rows[i]``: alone what ``encode`` says of all, together the same values up to
        rounding where it draws nothing.
    """
    if not _ranks:
        return encode(rows)
    share = deal_rows([len(row) for row in rows])
    with use_own_draws():
        own = encode([rows[i] for i in share.own])
    together = gather_shares(own)
    return together[torch.tensor(share.place, device=together.device)]


def encode_array_shares(items: Sequence[Item], encode: Callable[[Sequence[Item]], FloatArray]) -> FloatArray:
    """:func:`spread` for an encoder's arrays, float32 (B, H), without gradient; alone it is ``encode``."""
    if not _ranks:
        return encode(items)
    where = _ranks[0].where

    def tensors(share: Sequence[Item]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(encode(share))).to(where)

    with torch.no_grad():
        found: FloatArray = encode_shares(items, tensors).cpu().numpy()
    return found


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the processes; a process of its own keeps its gradients."""
    for ranks in _ranks:
        found = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for kind in dict.fromkeys(gradient.dtype for gradient in found):
            alike = [gradient for gradient in found if gradient.dtype == kind]
            flat = torch.cat([gradient.flatten() for gradient in alike])
            dist.all_reduce(flat)
            flat /= ranks.size
            start = 0
            for gradient in alike:
                gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
                start += gradient.numel()


def broadcast_from_first(compute: Callable[[], float]) -> float:
    """Let the first process compute a number, and return it on all."""
    if not _ranks:
        return compute()
    (ranks,) = _ranks
    number = torch.tensor(compute() if ranks.rank == 0 else 0.0, dtype=torch.float64, device=ranks.where)
    dist.broadcast(number, 0)
    return float(number)


def sum_over_processes(number: float) -> float:
    """Sum of a number over the processes."""
    if not _ranks:
        return number
    found = torch.tensor(number, dtype=torch.float64, device=_ranks[0].where)
    dist.all_reduce(found)
    return float(found)


class _Gather(torch.autograd.Function):
    """The shares of all processes, concatenated; backward, N times the gradient of the own share."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks) -> Tensor:
        """(b, H) to (N b, H)."""
        ctx.ranks, ctx.rows = ranks, len(own)
        own = own.contiguous()
        parts = [torch.empty_like(own) for _ in range(ranks.size)]
        dist.all_gather(parts, own)
        parts[ranks.rank] = own
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """(N b, H) to (b, H)."""
        (gradient,) = gradients
        start = ctx.ranks.rank * ctx.rows
        return gradient[start : start + ctx.rows] * ctx.ranks.size, None


def _get_random_states(device: str) -> list[Tensor]:
    cuda = [torch.cuda.get_rng_state()] if device.startswith("cuda") else []
    return [torch.get_rng_state(), *cuda]


def _set_random_states(states: Sequence[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)
