"""Rows of the same tokens that a training step encodes: views of a sentence that differ only by dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bench.errors import InputError
from bench.nn.backbone import transformer_layers
from bench.nn.dropout import find_dropout_classes

Rows = dict[int, Tensor]
"""First states of the rows that a step encodes, (n, H), by the number of the tower."""
_SAME_TOKENS = 1e-3  # largest distance without dropout, relative to the largest component
_EQUAL = 1e-5  # with dropout, likewise
_SHARE = 0.5  # of a step's rows; a text may repeat a few sentences
_MOST_NAMED = 3


@dataclass(frozen=True)
class Views:
    """Two views of each sentence, in training.

    Args:
        same: Mean cosine of rows of the same tokens.
        other: Mean cosine of rows of other tokens.
        identical: Share of the pairs of the same tokens whose states are equal.
    """

    same: float
    other: float
    identical: float

    @property
    def separation(self) -> float:
        """Return how much closer the views of one sentence are than different sentences."""
        return self.same - self.other


@contextmanager
def record_rows(encoder: nn.Module) -> Iterator[Callable[[], Rows]]:
    """Record what the towers of an encoder compute within the block; yield a function that returns it.

    A tower's rows are read from the module of its last layer that is called last, however it is called.
    """
    calls: list[tuple[int, int, Tensor]] = []

    def note(tower: int, leaf: int, module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 3:
            calls.append((tower, leaf, output.detach()[:, 0].clone()))

    def collect() -> Rows:
        found = {}
        for tower in sorted({number for number, *_ in calls}):
            own = [(leaf, rows) for number, leaf, rows in calls if number == tower]
            final = own[-1][0]
            found[tower] = torch.cat([rows for leaf, rows in own if leaf == final])
        return found

    with ExitStack() as hooks:
        for number, tower in enumerate(encoder.children()):
            for leaf, module in enumerate(_list_last_leaves(tower)):
                hooks.callback(module.register_forward_hook(partial(note, number, leaf)).remove)
        yield collect


def _list_last_leaves(tower: nn.Module) -> list[nn.Module]:
    """Return the innermost modules of a tower's last layer; none where it hides its layers."""
    try:
        last = transformer_layers(tower)[-1]
    except (InputError, AttributeError):
        return []
    return [module for module in last.modules() if not [*module.children()]]


def compare_views(plain: Sequence[Rows], drawn: Sequence[Rows]) -> Views | None:
    """Compare rows of the same tokens, step by step.

    Args:
        plain: Rows without dropout: those of the same tokens are equal.
        drawn: The same rows in training.

    Returns:
        Their cosines; None where less than half of the rows have another one of the same tokens.
    """
    same, other, identical, shares = [], [], [], []
    for without, states in zip(plain, drawn, strict=True):
        for tower, rows in without.items():
            equal = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
            equal = equal < _SAME_TOKENS * rows.abs().max()
            partners = equal & ~torch.eye(len(rows), dtype=torch.bool)
            shares.append(float(partners.any(1).float().mean()))
            seen = states.get(tower)
            if seen is None or len(seen) != len(rows) or not partners.any() or equal.all():
                continue
            cosines = normalize(seen, dim=1) @ normalize(seen, dim=1).T
            same.append(float(cosines[partners].mean()))
            other.append(float(cosines[~equal].mean()))
            gaps = torch.cdist(seen, seen, p=float("inf"))[partners]
            identical.append(float((gaps <= _EQUAL * seen.abs().max()).float().mean()))
    if not same or fmean(shares) < _SHARE:
        return None
    return Views(fmean(same), fmean(other), fmean(identical))


def describe_idle_dropout(encoder: nn.Module) -> str:
    """Return the first dropout module of an encoder's towers that draws nothing, and why."""
    for module_name, module in encoder.named_modules():
        if not isinstance(module, nn.modules.dropout._DropoutNd):
            continue
        name = module_name.partition(".")[2] or module_name
        if module.p == 0:
            return f"{name} and the like have the rate 0"
        if not module.training:
            return f"{name} and the like are in evaluation mode"
    classes = [kind for tower in encoder.children() for kind in find_dropout_classes(tower)]
    names = ", ".join([*dict.fromkeys(classes)][:_MOST_NAMED])
    return f"the dropout of {names} doesn't reach the vectors" if names else "no module has dropout"
