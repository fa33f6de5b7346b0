"""Many L2-regularised logistic regressions over rows of one matrix, solved together.

Preconditioned nonlinear conjugate gradients, all fits in step: two matrix products an iteration for all of
them. A fit's preconditioner is the Hessian of all the data at their own optimum for its regularisation, one a
grid value. A large fold differs little from all the data, so it takes about a dozen iterations.

On CUDA the host reads the fits' gradients every _LOOK_EVERY iterations, and the weights at the end. Finished
fits stand still until then, and a line search always takes _BLIND_STEPS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.errors import BenchError
from bench.nn.tokens import send_tensor

TOLERANCE = 1e-6  # largest norm of the gradient that a fit may end with
MOST_ITERATIONS = 2_000
_PILOT_ROUNDS, _PILOT_ITERATIONS, _PILOT_TOLERANCE = 3, 12, 1e-4
_SETTLED = 2  # iterations after which the preconditioners stay as they are
_PRECONDITIONER_ROWS = 16_384  # more rows only cost time
_MOST_BLOCKS = 16  # columns with a Hessian block of their own
_CHUNK = 65_536  # numbers of a chunk, small enough for the cache
_MOST_NUMBERS = 40_000_000  # fits x columns x rows that are held at a time
_FLAT = 0.1  # share of the slope that a line search may leave
_LINE_STEPS = 60
_LOOK_EVERY, _BLIND_STEPS = 8, 4  # on CUDA

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Solution:
    """Fits of a :class:`LogisticSolver`."""

    weights: NDArray[np.float64]  # float64 (fits, classes, dim + 1), the bias last
    gradients: NDArray[np.float64]  # float64 (fits,), norm of the gradient, bias included
    iterations: int  # iterations of the slowest fit


class LogisticSolver:
    """Logistic regressions on rows of one feature matrix, each to its optimum.

    Features are (n, dim) of any float type, labels 0 to classes - 1. It computes in float64 on "cpu" or
    "cuda"; with "mps", which lacks float64, on the CPU. NaN or infinite features raise BenchError.

    >>> solver = LogisticSolver(np.array([[-1.0], [1.0]]), np.array([0, 1]), 2)
    >>> solution = solver.fit([np.arange(2)], [0.1])
    >>> np.round(solution.weights[0, :, 0], 3).tolist()  # w and -w; sigmoid(-2 w) = 0.1 w
    [-1.064, 1.064]
    """

    def __init__(
        self, features: NDArray[np.floating], labels: NDArray[np.integer], classes: int, device: str = "cpu"
    ) -> None:
        if not np.isfinite(features).all():
            raise BenchError("the features are not finite")
        raw = torch.from_numpy(np.asarray(features, dtype=np.float64))
        self.x = send_tensor(torch.cat([raw, torch.ones(len(raw), 1, dtype=torch.float64)], dim=1), device)
        target = np.eye(classes)[:, labels] if classes > 2 else np.asarray(labels)[None].astype(np.float64)
        self.target = send_tensor(torch.from_numpy(target), device)
        self._grid: list[float] = []
        self._pilot = torch.empty(0), torch.empty(0)

    def fit(self, rows: Sequence[Rows], regs: Sequence[float], tolerance: float = TOLERANCE) -> Solution:
        """Minimise mean cross-entropy + reg / 2 (|W|^2 + |b|^2) for each fit, SentEval's objective.

        ``rows`` are the training rows of each fit; the first call's are the data of the preconditioners. A
        gradient whose norm stays above the tolerance raises BenchError.
        """
        if not set(regs) <= set(self._grid):
            self._grid = sorted(set(regs))
            everything = np.unique(np.concatenate(rows))
            pilot_rows = [everything] * len(self._grid)
            self._pilot = _fit_pilot(_Problem.over(self.x, self.target, pilot_rows, self._grid), everything)
        start, inverses = self._pilot
        size = max(1, _MOST_NUMBERS // self.target.numel())
        parts: list[tuple[Tensor, Tensor, int]] = []
        for begin in range(0, len(rows), size):
            chunk = slice(begin, begin + size)
            which = torch.tensor([self._grid.index(reg) for reg in regs[chunk]])
            problem = _Problem.over(self.x, self.target, rows[chunk], regs[chunk])
            metric = _Preconditioner(inverses, which)
            weights = start[send_tensor(which, start.device)]
            parts.append(_minimise_objective(problem, weights, metric, tolerance, MOST_ITERATIONS))
        weights = torch.cat([part[0] for part in parts]).cpu()
        gradients = torch.cat([part[1] for part in parts])
        if not (gradients <= tolerance).all():
            what = f"a logistic regression ended with a gradient of {float(gradients.max()):.1e}"
            raise BenchError(what, expected=f"at most {tolerance:g}")
        if len(self.target) == 1:
            weights = torch.cat([-weights / 2, weights / 2], dim=1)
        return Solution(weights.numpy(), gradients.numpy(), max(part[2] for part in parts))


def logistic_objective(
    features: NDArray[np.floating], labels: NDArray[np.integer], weights: NDArray[np.floating], reg: float
) -> float:
    """Mean cross-entropy + reg / 2 (|W|^2 + |b|^2), float64; weights (classes, dim + 1), the bias last."""
    w = np.asarray(weights, dtype=np.float64)
    logits = torch.from_numpy(np.asarray(features, dtype=np.float64) @ w[:, :-1].T + w[:, -1])
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(np.asarray(labels, dtype=np.int64)))
    return float(loss) + reg / 2 * float((w**2).sum())


@dataclass(frozen=True)
class _Problem:
    """Fits over rows of one matrix.

    Two classes have one column, the difference of their logits: at the optimum their weights are w and -w.
    More classes have a column each.
    """

    x: Tensor  # (n, dim + 1), the last column 1
    target: Tensor  # (columns, n)
    share: Tensor  # (fits, 1, n), 1 / rows on a fit's rows and 0 elsewhere
    penalty: Tensor  # (fits, 1, 1)

    @classmethod
    def over(cls, x: Tensor, target: Tensor, rows: Sequence[Rows], regs: Sequence[float]) -> _Problem:
        share = torch.zeros(len(rows), 1, len(x), dtype=x.dtype)
        for fit, of_fit in enumerate(rows):
            share[fit, 0, torch.from_numpy(of_fit)] = 1 / len(of_fit)
        penalty = torch.tensor(regs, dtype=x.dtype).view(-1, 1, 1)
        penalty = penalty / 2 if len(target) == 1 else penalty
        return cls(x, target, send_tensor(share, x.device), send_tensor(penalty, x.device))

    def only(self, fits: Tensor) -> _Problem:
        return replace(self, share=self.share[fits], penalty=self.penalty[fits])

    def chunks(self) -> list[slice]:
        size = len(self.share) if self.x.is_cuda else max(1, _CHUNK // self.target.numel())
        return [slice(begin, begin + size) for begin in range(0, len(self.share), size)]

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if len(self.target) == 1 else logits.softmax(1)

    def logits(self, weights: Tensor) -> Tensor:
        """(fits, columns, n) of (fits, columns, dim + 1)."""
        return (weights.flatten(0, 1) @ self.x.T).view(*weights.shape[:2], -1)

    def residual(self, logits: Tensor) -> Tensor:
        """Gradient by the logits, (p - target) / rows."""
        residual = torch.empty_like(logits)
        for chunk in self.chunks():
            residual[chunk] = (self.probabilities(logits[chunk]) - self.target) * self.share[chunk]
        return residual

    def gradient(self, weights: Tensor, residual: Tensor) -> Tensor:
        return (residual.flatten(0, 1) @ self.x).view_as(weights) + self.penalty * weights

    def norms(self, gradient: Tensor) -> Tensor:
        """Norms of the gradient by the weights of all classes."""
        norms: Tensor = gradient.flatten(1).norm(dim=1)
        return norms * 2**0.5 if len(self.target) == 1 else norms


class _Preconditioner:
    """Inverse Hessians, (grid, blocks, dim + 1, dim + 1), and each fit's index among them, on the CPU."""

    def __init__(self, inverses: Tensor, which: Tensor) -> None:
        self.inverses, self.which = inverses, which
        of_value = [(which == value).nonzero()[:, 0] for value in range(len(inverses))]
        self.fits = [send_tensor(fits, inverses.device) for fits in of_value]

    def only(self, fits: Tensor) -> _Preconditioner:
        return _Preconditioner(self.inverses, self.which[fits])

    def __call__(self, gradient: Tensor) -> Tensor:
        scaled = torch.empty_like(gradient)
        for fits, inverse in zip(self.fits, self.inverses, strict=True):
            scaled[fits] = (gradient[fits].transpose(0, 1) @ inverse).transpose(0, 1)
        # the optimum's classes sum to zero: the loss is flat along their sum, and the blocks ignore that
        return scaled - scaled.mean(1, keepdim=True) if gradient.shape[1] > 1 else scaled


def _fit_pilot(problem: _Problem, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return weights near the optimum on all rows for every grid value, and the inverse Hessians there."""
    fits, columns, x = len(problem.share), len(problem.target), problem.x
    sample = send_tensor(torch.from_numpy(rows[:: -(-len(rows) // _PRECONDITIONER_ROWS)]), x.device)
    weights = torch.zeros(fits, columns, x.shape[1], dtype=x.dtype, device=x.device)
    inverses = _inverse_hessians(problem, weights, x[sample])
    for _ in range(_PILOT_ROUNDS):
        metric = _Preconditioner(inverses, torch.arange(fits))
        weights, _, iterations = _minimise_objective(
            problem, weights, metric, _PILOT_TOLERANCE, _PILOT_ITERATIONS
        )
        if iterations <= _SETTLED:
            break
        inverses = _inverse_hessians(problem, weights, x[sample])
    return weights, inverses


def _inverse_hessians(problem: _Problem, weights: Tensor, x: Tensor) -> Tensor:
    """Invert each column's block of the Hessian on some rows, or the blocks' mean for many columns."""
    inverses: list[Tensor] = []
    for fit, fit_weights in enumerate(weights):
        if fit == 0 or x.is_cuda or not torch.equal(fit_weights, weights[fit - 1]):
            p = problem.probabilities((fit_weights @ x.T)[None])[0]
            spread = p * (1 - p)
            blocks = spread if len(spread) <= _MOST_BLOCKS else spread.mean(0, keepdim=True)
            hessians = torch.stack([(x * block[:, None]).T @ x / len(x) for block in blocks])
        regular = hessians + problem.penalty[fit] * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        inverses.append(_invert_hessians(regular))
    return torch.stack(inverses)


def _invert_hessians(matrices: Tensor) -> Tensor:
    if not matrices.is_cuda:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrices))
    factors, _ = torch.linalg.cholesky_ex(matrices)  # a failed inverse shows in the fits' gradients
    unit = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.cholesky_solve(unit.expand_as(factors), factors)


def _minimise_objective(
    problem: _Problem, weights: Tensor, metric: _Preconditioner, tolerance: float, most: int
) -> tuple[Tensor, Tensor, int]:
    """Return weights, gradients' norms (on the CPU) and iterations; finished fits drop out."""
    result, norms = weights.clone(), torch.empty(len(weights), dtype=weights.dtype)
    fits, every = torch.arange(len(weights)), _LOOK_EVERY if weights.is_cuda else 1
    logits = problem.logits(weights)
    residual = problem.residual(logits)
    gradient = problem.gradient(weights, residual)
    scaled = metric(gradient)
    direction = -scaled
    for iteration in range(most + 1):
        now = problem.norms(gradient)
        if weights.is_cuda:
            direction = direction.masked_fill((now <= tolerance).view(-1, 1, 1), 0)
        if iteration % every == every - 1 or iteration == most:
            norms[fits] = now.cpu()
            result[send_tensor(fits, weights.device)] = weights
            rest = (norms[fits] > tolerance).nonzero()[:, 0]
            if not len(rest) or iteration == most:
                break
            if len(rest) <= 0.75 * len(fits):
                metric, fits = metric.only(rest), fits[rest]
                rest = send_tensor(rest, weights.device)
                problem = problem.only(rest)
                weights, logits, residual = weights[rest], logits[rest], residual[rest]
                gradient, scaled, direction = gradient[rest], scaled[rest], direction[rest]
        along = problem.logits(direction)
        steps = _line_search(problem, logits, along, weights, direction, gradient, residual)
        weights = weights + steps * direction
        logits.addcmul_(along, steps)
        before = gradient
        gradient = problem.gradient(weights, residual)
        old, scaled = scaled, metric(gradient)
        # Polak-Ribiere, restarted where it would climb
        turn = _inner_products(scaled, gradient - before) / _inner_products(old, before).clamp_min(1e-300)
        direction = turn.clamp_min(0) * direction - scaled
        direction = torch.where(_inner_products(direction, gradient) < 0, direction, -scaled)
    return result, norms, iteration


def _line_search(
    problem: _Problem,
    logits: Tensor,
    along: Tensor,
    weights: Tensor,
    direction: Tensor,
    gradient: Tensor,
    residual: Tensor,
) -> Tensor:
    """Return Newton's (fits, 1, 1) steps, bracketed between a fall and a rise; overwrites ``residual``."""
    slopes = _inner_products(gradient, direction).abs()
    linear = problem.penalty * _inner_products(weights, direction)
    square = problem.penalty * _inner_products(direction, direction)
    steps = torch.ones_like(slopes)
    for chunk in problem.chunks():
        z, u, share, step = logits[chunk], along[chunk], problem.share[chunk], steps[chunk]
        low, high = torch.zeros_like(step), torch.full_like(step, torch.inf)
        for left in reversed(range(_BLIND_STEPS if z.is_cuda else _LINE_STEPS)):
            p = problem.probabilities(torch.addcmul(z, u, step))
            residual[chunk] = (p - problem.target) * share
            slope = _inner_products(residual[chunk], u) + linear[chunk] + step * square[chunk]
            flat = slope.abs() <= _FLAT * slopes[chunk]
            if not left or (not z.is_cuda and flat.all()):
                break
            pu = p * u
            spread = (pu * u).sum(1, keepdim=True) - pu.sum(1, keepdim=True) ** 2
            low, high = torch.where(slope < 0, step, low), torch.where(slope > 0, step, high)
            newton = step - slope / (_inner_products(spread, share) + square[chunk]).clamp_min(1e-300)
            between = torch.where(high.isinf(), 2 * step, (low + high) / 2)
            newton = torch.where((newton > low) & (newton < high), newton, between)
            step = torch.where(flat, step, newton)
        steps[chunk] = step
    return steps


def _inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Inner products, (fits, 1, 1)."""
    return (a * b).flatten(1).sum(1).view(-1, 1, 1)
