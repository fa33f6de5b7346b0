"""What the methods of this package train: modules that turn token rows into a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.card import OptionValue
from bench.errors import InputError
from bench.methods._losses import cross_nce, ltn, tower_nce
from bench.nn.tokens import TokenBatch
from bench.train.chunks import TwinClsStates, batch_states, batch_twin_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear

Config = Mapping[str, OptionValue]
Rows = Sequence[list[int]]
HEAD_STD = 6e-3


class JointObjective(Objective):
    """The joint loss of TNCSE (no CAELs) or JTCSE.

    L = NCE(H_I, H_I) + NCE(H_II, H_II) + ICNCE + LTN(I -> II) + LTN(II -> I) on [CLS] states H and pooler
    outputs P of two dropout views a sentence (TNCSE eq. 8, JTCSE eq. 15). ICNCE is NCE(H_I, H_II); with CAELs
    NCE(H_I, H_II) + NCE(c_I, c_II) or, with probability 1/2 a step, the same with the towers exchanged.

    Args:
        first: Tower I; a tower without a pooler gets a fresh one, which only training uses.
        second: Tower II.
        pad_id: Padding id.
        config: The joint options.
        caels: Layers with cross-attention, from 1.
        coin: Generator of the run's own that draws the exchange; not touched without CAELs.
    """

    def __init__(
        self, first: Any, second: Any, pad_id: int, config: Config, caels: tuple[int, ...], coin: Any
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleList((first, second))
        self.poolers = nn.ModuleList((_pooler(first), _pooler(second)))
        self.pad_id, self.config, self.caels, self.coin = pad_id, config, caels, coin

    def prepare(self, batch: Rows) -> tuple[TokenBatch, bool]:
        """Both views of a sentence are rows one after the other; and whether the towers are exchanged."""
        tossed = bool(self.caels) and bool(self.config["icnce"])
        exchanged = tossed and bool(torch.rand((), generator=self.coin) < 0.5)
        return token_batch(_twice(batch), self.pad_id, self.towers[0]), exchanged

    def compute(self, prepared: tuple[TokenBatch, bool]) -> Tensor:
        """The terms that are switched on, added up."""
        tau, form = float(self.config["tau"]), str(self.config["nce_form"])
        tokens, exchanged = prepared
        first, second = self.towers
        cross_stream = str(self.config.get("cross_stream", "carry"))
        states = batch_twin_states(first, second, tokens, caels=self.caels, cross_stream=cross_stream)
        terms = []
        if self.config["nce"]:
            terms += [tower_nce(states.first, tau, form), tower_nce(states.second, tau, form)]
        if self.config["icnce"]:
            terms += _across(states, tau, form, exchanged=exchanged)
        if self.config["ictn"]:
            terms += self._norm_losses(states.first, states.second)
        return sum(terms, torch.zeros((), device=states.first.device))

    def _norm_losses(self, one: Tensor, two: Tensor) -> list[Tensor]:
        scale, angle = float(self.config["ltn_scale"]), str(self.config["ltn_angle"])
        p_one, p_two = one, two
        if not self.config.get("drop_norms"):
            p_one, p_two = (torch.tanh(pooler(h)) for pooler, h in zip(self.poolers, (one, two), strict=True))
        return [
            ltn(one, p_one, two, p_two, scale=scale, angle=angle),
            ltn(two, p_two, one, p_one, scale=scale, angle=angle),
        ]


class SingleObjective(Objective):
    """NCE(H, H) + LTN(H -> H) of one encoder (TNCSE, Table 5).

    Args:
        encoder: The transformer; without a pooler it gets a fresh one, which only training uses.
        pad_id: Padding id.
        config: tau, nce_form, ictn, ltn_scale.
    """

    def __init__(self, encoder: Any, pad_id: int, config: Config) -> None:
        super().__init__()
        self.encoder, self.pooler = encoder, _pooler(encoder)
        self.pad_id, self.config = pad_id, config

    def prepare(self, batch: Rows) -> TokenBatch:
        """Both views of a sentence are rows one after the other."""
        return token_batch(_twice(batch), self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """NCE and, unless switched off, LTN."""
        states = batch_states(self.encoder, prepared)
        loss = tower_nce(states, float(self.config["tau"]), str(self.config["nce_form"]))
        if self.config["ictn"]:
            pooled = torch.tanh(self.pooler(states))
            loss = loss + ltn(states, pooled, states, pooled, scale=float(self.config["ltn_scale"]))
        return loss


class PairObjective(Objective):
    """A loss of two dropout views, l2-normalised after a linear head of h_cls or tanh(h_cls).

    The head is Linear(d, d), weights and bias normal with std 6e-3.

    Args:
        encoder: The transformer.
        pad_id: Padding id.
        config: head_input and freeze_embeddings.
        loss: From two views with unit rows, (N, d) in float64, to a scalar.

    Raises:
        InputError: the embedding layer is to be frozen and the model has none of that name.
    """

    def __init__(
        self, encoder: Any, pad_id: int, config: Config, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        super().__init__()
        if config["freeze_embeddings"]:
            if not isinstance(getattr(encoder, "embeddings", None), nn.Module):
                raise InputError(
                    f"{type(encoder).__name__} has no layer called embeddings",
                    hint="set freeze_embeddings=false",
                )
            encoder.embeddings.requires_grad_(False)
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, encoder.config.hidden_size)
        for parameter in self.head.parameters():
            nn.init.normal_(parameter, std=HEAD_STD)
        self.pad_id, self.head_input, self.loss = pad_id, config["head_input"], loss

    def prepare(self, batch: Rows) -> TokenBatch:
        """Both views go through one call, so they differ by their dropout masks alone."""
        return token_batch([*batch, *batch], self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """The loss of the head's two views, in float64."""
        states = batch_states(self.encoder, prepared)
        if self.head_input == "tanh":
            states = torch.tanh(states)
        # e^(s/tau) leaves float32's range at the grid's smallest tau
        unit = functional.normalize(self.head(states).double(), dim=1, eps=1e-8)
        return self.loss(*unit.chunk(2))


def _across(states: TwinClsStates, tau: float, form: str, *, exchanged: bool) -> list[Tensor]:
    pairs = [(states.first, states.second)]
    if states.cross_first is not None and states.cross_second is not None:
        pairs.append((states.cross_first, states.cross_second))
    return [cross_nce(b, a, tau, form) if exchanged else cross_nce(a, b, tau, form) for a, b in pairs]


def _twice(rows: Rows) -> list[list[int]]:
    return [row for row in rows for _ in range(2)]


def _pooler(model: Any) -> nn.Module:
    """The pretrained pooler's linear layer, or a fresh one for a model without a pooler."""
    pooler = getattr(model, "pooler", None)
    linear: nn.Module = fresh_linear(model.config.hidden_size) if pooler is None else pooler.dense
    return linear
