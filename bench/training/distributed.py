"""One batch on several processes: each encodes a share of its rows, and all see all vectors.

Let L(E, theta) be the loss of a batch's vectors E = (e_0, ..., e_{N-1}), e_r the share that process r
encodes, and of parameters theta that also reach it otherwise (a head, a second network). Its gradient is
sum_r (dL/de_r)(de_r/dtheta) + dL/dtheta. On process r :func:`gather_shares` passes N dL/de_r to its own
share, and all later steps are the same everywhere, so r finds g_r = N (dL/de_r)(de_r/dtheta) + dL/dtheta.
:func:`average_gradients` takes the mean of the g_r, which is the gradient of one process at the same batch.

Draws before and after the vectors come from streams that all processes share. The dropout of a share has its
own stream: equal ones would give both views of a sentence one mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.training.randomness import own_random_state

_PATIENCE = timedelta(minutes=30)
"""A process waits this long for the others: a dev evaluation or a teacher's first batch takes time."""


@dataclass
class Ranks:
    """This process among those that train together."""

    rank: int  # its number, from 0
    size: int  # number of processes
    device: str  # "cpu" or "cuda"
    draws: list[Tensor] = field(default_factory=list)  # states of the generators of its own share's dropout

    @property
    def where(self) -> str:
        """Device of tensors for the other processes."""
        return f"cuda:{torch.cuda.current_device()}" if self.device.startswith("cuda") else "cpu"


_ranks: list[Ranks] = []  # none, or this process's


def is_first_process() -> bool:
    """Test for the process that evaluates and writes."""
    return not _ranks or _ranks[0].rank == 0


def is_group() -> bool:
    """Return whether this process trains together with others."""
    return bool(_ranks)


@contextmanager
def join_process_group(rank: int, size: int, meeting: Path, device: str) -> Iterator[None]:
    """Be process ``rank`` of ``size`` within the block; NCCL on CUDA devices, one each, otherwise gloo.

    ``meeting`` is a new file on a disk that they share.
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
        dist.destroy_process_group()  # after a failure it could wait for ever
    finally:
        _ranks.clear()


def seed_draws(seed: int, stream: str) -> None:
    """Seed this process's own dropout stream from the run's seed and a stream's name."""
    for ranks in _ranks:
        with own_random_state(seed, f"{stream}/rank-{ranks.rank}", ranks.device):
            ranks.draws = get_random_states(ranks.device)


@dataclass(frozen=True)
class RowDeal:
    """This process's share of rows, and the places of all rows' vectors."""

    own: tuple[int, ...]  # numbers of the rows of this process's share
    place: tuple[int, ...]  # row i is row ``place[i]`` of the concatenated shares of all processes


def deal_rows(lengths: Sequence[int]) -> RowDeal:
    """Deal out rows in the order of their lengths, so that shares cost alike; a single process gets all.

    Copies of the longest row fill shares up to one size, and are dropped.
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
    """Let torch's global generators draw from this process's own stream while it encodes its share."""
    if not _ranks:
        yield
        return
    (ranks,) = _ranks
    shared = get_random_states(ranks.device)
    set_random_states(ranks.draws)
    try:
        yield
    finally:
        ranks.draws = get_random_states(ranks.device)
        set_random_states(shared)


def gather_shares(own: Tensor) -> Tensor:
    """Concatenate the shares of all processes, with gradient through the own one."""
    if not _ranks:
        return own
    gather: Callable[[Tensor, Ranks], Tensor] = _Gather.apply
    return gather(own, _ranks[0])


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the processes."""
    for ranks in _ranks:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for kind in dict.fromkeys(gradient.dtype for gradient in gradients):
            alike = [gradient for gradient in gradients if gradient.dtype == kind]
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
    """Sum a number over the processes."""
    if not _ranks:
        return number
    total = torch.tensor(number, dtype=torch.float64, device=_ranks[0].where)
    dist.all_reduce(total)
    return float(total)


class RandomState:
    """The states of torch's global generators, and of every process's own draws, for a checkpoint."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = str(device)

    def collect(self) -> list[list[Tensor]]:
        """Return the shared states, then those of each process; all processes call it."""
        states = [get_random_states(self._device)]
        for ranks in _ranks:
            gathered = [_gather_equal(state, ranks) for state in ranks.draws]
            states += [[*own] for own in zip(*gathered, strict=True)]
        return states

    def restore(self, data: list[list[Tensor]]) -> None:
        """Set the states."""
        shared, *draws = data
        set_random_states(shared)
        for ranks in _ranks:
            ranks.draws = draws[ranks.rank]


def _gather_equal(tensor: Tensor, ranks: Ranks) -> list[Tensor]:
    """Return a CPU tensor of every process."""
    own = tensor.to(ranks.where)
    parts = [torch.empty_like(own) for _ in range(ranks.size)]
    dist.all_gather(parts, own)
    return [part.cpu() for part in parts]


class _Gather(torch.autograd.Function):
    """Concatenates the shares of all processes; backward, N times the gradient of the own share."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks) -> Tensor:
        """Map (b, H) to (N b, H)."""
        ctx.ranks, ctx.rows = ranks, len(own)
        own = own.contiguous()
        parts = [torch.empty_like(own) for _ in range(ranks.size)]
        dist.all_gather(parts, own)
        parts[ranks.rank] = own
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Map (N b, H) to (b, H)."""
        (gradient,) = gradients
        start = ctx.ranks.rank * ctx.rows
        return gradient[start : start + ctx.rows] * ctx.ranks.size, None


def get_random_states(device: str) -> list[Tensor]:
    """Return the states of torch's global generators of the CPU and a device."""
    cuda = [torch.cuda.get_rng_state()] if device.startswith("cuda") else []
    mps = [torch.mps.get_rng_state()] if device.startswith("mps") else []
    return [torch.get_rng_state(), *cuda, *mps]


def set_random_states(states: Sequence[Tensor]) -> None:
    """Set states of :func:`get_random_states`."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        (torch.cuda if torch.cuda.is_available() else torch.mps).set_rng_state(state)
