"""A small Glow on vectors (Kingma & Dhariwal 2018, as BERT-flow has it): an invertible map to a Gaussian."""

from __future__ import annotations

import math
from itertools import accumulate

import torch
from torch import Tensor, nn

from bench.errors import InputError

LOG_FACTOR = 3.0  # a scale is exp(3 l) of its parameter l
_TINY = 1e-6  # added to the deviation that an initial scale divides by
_WEIGHT_DEVIATION = 0.05


def check_flow_width(width: int, levels: int) -> None:
    """Raise InputError unless vectors of this width can be halved in each of the flow's levels."""
    most = (width & -width).bit_length() - 1  # factors 2
    if most < levels:
        raise InputError(
            f"a flow of {levels} levels can't halve {width} dimensions {levels} times",
            expected=f"a backbone whose dimensions are a multiple of {2**levels}",
            hint=f"give levels={most}" if most else None,
        )


class ActNorm(nn.Module):
    """(x + b) * exp(3 l), per channel; the first batch sets b and l so that it has mean 0 and variance 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, first: bool = False) -> Tensor:
        """Shift, then scale (n, width); with ``first`` the parameters are set from x."""
        if first:
            self._initialise(x)
        return (x + self.shift) * (LOG_FACTOR * self.log_scale).exp()

    @torch.no_grad()
    def _initialise(self, x: Tensor) -> None:
        mean = x.mean(0)
        deviation = (x - mean).square().mean(0).sqrt()
        self.shift.copy_(-mean)
        self.log_scale.copy_(-(deviation + _TINY).log() / LOG_FACTOR)

    def invert(self, z: Tensor) -> Tensor:
        """Return the x of a z."""
        return z * (-LOG_FACTOR * self.log_scale).exp() - self.shift

    def log_determinant(self) -> Tensor:
        """Return log |dz/dx|, a number."""
        return LOG_FACTOR * self.log_scale.sum()


class CouplingNet(nn.Module):
    """Two hidden layers with act norms and ReLU, and an output of zeros at first: (n, width) to the same."""

    def __init__(self, width: int, hidden: int, draws: torch.Generator) -> None:
        super().__init__()
        self.hidden = nn.ParameterList(
            _WEIGHT_DEVIATION * torch.randn(size, hidden, generator=draws) for size in (width, hidden)
        )
        self.norms = nn.ModuleList(ActNorm(hidden) for _ in self.hidden)
        self.output = nn.Parameter(torch.zeros(hidden, width))
        self.shift, self.log_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, first: bool = False) -> Tensor:
        """Compute the output; with ``first`` the act norms are set from x."""
        for weight, norm in zip(self.hidden, self.norms, strict=True):
            x = norm(x @ weight, first).relu()
        return (x @ self.output + self.shift) * (LOG_FACTOR * self.log_scale).exp()


class FlowStep(nn.Module):
    """Act norm, reversed channels, additive coupling: the second half gets a function of the first added."""

    def __init__(self, width: int, hidden: int, draws: torch.Generator) -> None:
        super().__init__()
        self.norm, self.net = ActNorm(width), CouplingNet(width // 2, hidden, draws)

    def forward(self, x: Tensor, first: bool = False) -> Tensor:
        """Compute the step; with ``first`` all act norms are set from x."""
        left, right = self.norm(x, first).flip(1).chunk(2, dim=1)
        return torch.cat((left, right + self.net(left, first)), dim=1)

    def invert(self, z: Tensor) -> Tensor:
        """Return the x of a z."""
        left, right = z.chunk(2, dim=1)
        normalised = torch.cat((left, right - self.net(left)), dim=1).flip(1)
        return self.norm.invert(normalised)


class Glow(nn.Module):
    """Levels of flow steps; after each but the last level the second half of the channels is finished.

    Weights and vectors are float64.

    Args:
        width: Dimensions H, a multiple of 2^levels (InputError).
        levels: Number of levels, at least 1.
        depth: Steps of a level.
        hidden: Width of the couplings' hidden layers.
        draws: Generator of the couplings' first weights.
    """

    def __init__(self, width: int, levels: int, depth: int, hidden: int, draws: torch.Generator) -> None:
        super().__init__()
        check_flow_width(width, levels)
        self.width, self.depth, self.count = width, depth, levels
        widths = [width >> number // depth for number in range(levels * depth)]
        self.steps = nn.ModuleList(FlowStep(size, hidden, draws) for size in widths)
        self.double()

    def forward(self, vectors: Tensor, first: bool = False) -> Tensor:
        """Return z, (n, H): the finished halves in the order of the levels, then the rest.

        With ``first`` all act norms are set from the vectors, at least two, one after the other.
        """
        x, finished = vectors.double(), list[Tensor]()
        for number, step in enumerate(self.steps):
            if number and number % self.depth == 0:
                x, half = x.chunk(2, dim=1)
                finished.append(half)
            x = step(x, first)
        latent: Tensor = torch.cat((*finished, x), dim=1)
        return latent

    def invert(self, z: Tensor) -> Tensor:
        """Return the vectors of (n, H) latent ones."""
        sizes = [self.width >> level for level in range(1, self.count)]
        *finished, x = torch.tensor_split(z, list(accumulate(sizes)), dim=1)
        for number, step in reversed([*enumerate(self._list_steps())]):
            x = step.invert(x)
            if number and number % self.depth == 0:
                x = torch.cat((x, finished.pop()), dim=1)
        return x

    def log_likelihood(self, vectors: Tensor) -> Tensor:
        """Return log p of each vector, (n,): log N(z; 0, I) + log |dz/dx|."""
        gaussian: Tensor = -0.5 * (self(vectors).square() + math.log(2 * math.pi)).sum(1)
        return gaussian + sum(step.norm.log_determinant() for step in self._list_steps())

    def _list_steps(self) -> list[FlowStep]:
        return [step for step in self.steps if isinstance(step, FlowStep)]
