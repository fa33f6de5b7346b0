"""What the methods of this package train: modules that turn token rows into a loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.card import OptionValue
from bench.errors import InputError
from bench.methods._losses import cross_nce, ltn, tower_nce
from bench.nn.architecture import state_size
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.device import to_float64
from bench.nn.prompt import Prompt
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import (
    TwinClsStates,
    batch_mask_states,
    batch_states,
    batch_twin_states,
    token_batch,
)
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear
from bench.train.sentence_encoder import train_towers

Config = Mapping[str, OptionValue]
Rows = Sequence[list[int]]
HEAD_STD = 6e-3
TEMPLATES = ('This sentence : "{sentence}" means{mask} .', 'This sentence of "{sentence}" means{mask} .')
"""Prompts of both views with the pooler mask (the paradigm's released code); the first is inference's too."""


class JointObjective(Objective):
    """The joint loss of TNCSE (no CAELs) or JTCSE.

    L = NCE(H_I, H_I) + NCE(H_II, H_II) + ICNCE + LTN(I -> II) + LTN(II -> I) on [CLS] states H and pooler
    outputs P of two dropout views a sentence (TNCSE eq. 8, JTCSE eq. 15). ICNCE is NCE(H_I, H_II); with CAELs
    NCE(H_I, H_II) + NCE(c_I, c_II) or, with probability 1/2 a step, the same with the towers exchanged.

    Args:
        first: Tower I. Towers without poolers get fresh ones, for training alone: both start from one, as
            from a backbone's own, or (fresh_pooler=each) each draws its own.
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
        if config["fresh_pooler"] == "one" and _has_none(first) and _has_none(second):
            self.poolers[1].load_state_dict(self.poolers[0].state_dict())
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
        if self.config.get("ltn_input", "pooler") == "pooler" and not self.config.get("drop_norms"):
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
    """A loss of two views, l2-normalised after a linear head of what the pooler gives, or of its tanh.

    The head is Linear(d, d), weights and bias normal with std 6e-3; the pooler avg has none. The views are
    two dropout masks, and with the pooler mask two prompts.

    Args:
        encoder: The transformer.
        pad_id: Padding id.
        config: head_input, freeze_embeddings, and what isn't the default of pooler and freeze_layers.
        loss: From two views with unit rows, (N, d) in float64, to a scalar.
        prompts: With the pooler mask, each view's prompt and the text, which is then read in them.

    Raises:
        InputError: layers are to be frozen that the model hasn't, or all of them.
    """

    def __init__(
        self,
        encoder: Any,
        pad_id: int,
        config: Config,
        loss: Callable[[Tensor, Tensor], Tensor],
        prompts: Prompted | None = None,
    ) -> None:
        super().__init__()
        _freeze(
            encoder, embeddings=bool(config["freeze_embeddings"]), layers=int(config.get("freeze_layers", 0))
        )
        self.encoder, self.pooler = encoder, str(config.get("pooler", "cls"))
        self.head: nn.Linear | None = None
        if self.pooler != "avg":
            self.head = nn.Linear(state_size(encoder), state_size(encoder))
            for parameter in self.head.parameters():
                nn.init.normal_(parameter, std=HEAD_STD)
        self.pad_id, self.head_input, self.loss = pad_id, config["head_input"], loss
        self.prompts = prompts

    def prepare(self, batch: Sequence[Any]) -> TokenBatch:
        """Both views go through one call."""
        if self.prompts is None:
            return token_batch([*batch, *batch], self.pad_id, self.encoder)
        return token_batch(self.prompts.rows(batch), self.pad_id, self.encoder, once=False)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """The loss of the two views, in float64."""
        if self.prompts is None:
            states = batch_states(self.encoder, prepared, self.pooler)
        else:
            states = batch_mask_states(self.encoder, prepared, self.prompts.mask_id)
        if self.head is not None:
            states = self.head(torch.tanh(states) if self.head_input == "tanh" else states)
        # e^(s/tau) leaves float32's range at the grid's smallest tau
        unit = functional.normalize(to_float64(states), dim=1, eps=1e-8)
        return self.loss(*unit.chunk(2))


class Prompted:
    """A text read in the prompts of two views.

    Args:
        tokenizer: The model's.
        sentences: The text.
        longest: Tokens a sentence keeps, special tokens included, the prompt's not.
        room: Tokens that the model takes.

    Raises:
        InputError: a tokenizer without a mask token, or prompts that leave no room.
    """

    def __init__(self, tokenizer: Any, sentences: Sequence[str], longest: int, room: int) -> None:
        own = copy.deepcopy(tokenizer)  # a dev evaluation may use the other one at the same time
        self._prompts = [Prompt(own, template) for template in TEMPLATES]
        self._sentences, self._longest, self.mask_id = sentences, longest - 2, own.mask_token_id
        if longest > (most := room - max(prompt.length for prompt in self._prompts) + 2):
            raise InputError(
                f"max_length {longest} and a prompt are longer than the model's longest input",
                expected=f"a max_length up to {most}",
            )

    def rows(self, batch: Sequence[tuple[int, list[int]]]) -> Rows:
        """Token rows of all first views, then of all second ones; of each pair the number is read alone."""
        texts = [self._sentences[number] for number, _ in batch]
        views = (prompt.rows(texts, prompt.length + self._longest) for prompt in self._prompts)
        return [row for view in views for row in view]


def train_pairs(context: StageContext, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """Train with a loss of two views; arguments, result and errors as of :func:`train_towers`."""
    config, tower = context.config, load_backbone(context.model)
    pooler = str(config.get("pooler", "cls"))
    if pooler != "mask":
        return train_towers(
            context, [tower], lambda model, pad: PairObjective(model, pad, config, loss), pooling=pooler
        )
    dev = TransformerEncoder(tower, "mask", template=TEMPLATES[0], device=context.device)
    prompts = Prompted(tower[1], context.sentences, int(config["max_length"]), dev.max_length)
    return train_towers(
        replace(context, dev_score=lambda _: context.dev_score(dev)),
        [tower],
        lambda model, pad: PairObjective(model, pad, config, loss, prompts),
        numbered=True,
    )


def _freeze(encoder: Any, *, embeddings: bool, layers: int) -> None:
    """Train no embeddings, and not the first so many layers."""
    if embeddings:
        if not isinstance(getattr(encoder, "embeddings", None), nn.Module):
            raise InputError(
                f"{type(encoder).__name__} has no layer called embeddings",
                hint="set freeze_embeddings=false",
            )
        encoder.embeddings.requires_grad_(False)
    if layers:
        stack = getattr(getattr(encoder, "encoder", None), "layer", ())
        if layers >= len(stack):
            raise InputError(
                f"freeze_layers {layers}", expected=f"fewer than the model's {len(stack)} layers"
            )
        for layer in stack[:layers]:
            layer.requires_grad_(False)


def _across(states: TwinClsStates, tau: float, form: str, *, exchanged: bool) -> list[Tensor]:
    pairs = [(states.first, states.second)]
    if states.cross_first is not None and states.cross_second is not None:
        pairs.append((states.cross_first, states.cross_second))
    return [cross_nce(b, a, tau, form) if exchanged else cross_nce(a, b, tau, form) for a, b in pairs]


def _twice(rows: Rows) -> list[list[int]]:
    return [row for row in rows for _ in range(2)]


def _pooler(model: Any) -> nn.Module:
    """The pretrained pooler's linear layer, or a fresh one for a model without such a pooler."""
    linear: nn.Module = fresh_linear(state_size(model)) if _has_none(model) else model.pooler.dense
    return linear


def _has_none(model: Any) -> bool:
    """True for a model without a pooler of one dense layer, as BERT's is."""
    return not isinstance(getattr(getattr(model, "pooler", None), "dense", None), nn.Linear)
