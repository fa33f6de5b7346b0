"""States of a prompt's mask token, and what the template alone says there: PromptBERT's denoising."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, first_position
from bench.nn.pooling import masked_token
from bench.nn.prompt import Prompt

POSITIONS = ("released", "aligned")


def check_positions(model: Any) -> None:
    """Raise InputError for a model that takes no position ids, as denoising must give them."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise InputError(
            f"denoising with a {type(model).__name__}, which takes no position ids",
            expected="a model such as BertModel or RobertaModel, or denoising=false",
        )


def template_noise(
    model: Any, prompt: Prompt, lengths: Sequence[int], positions: str = "released"
) -> dict[int, Tensor]:
    """What a template alone says at its mask: delta(l) for sentences of l tokens, with gradient.

    The template goes in without a sentence, but its tokens after the sentence keep the positions that they
    would have with one: position ids p + l (Jiang et al. 2022, template denoising). In training every length
    has its own dropout mask.

    Args:
        model: BertModel, RobertaModel or another that takes position ids.
        prompt: The template.
        lengths: Tokens of each sentence; equal ones share one vector.
        positions: "released" counts from 0; "aligned" from where the model itself does, which differs in
            RoBERTa's kind.

    Returns:
        Length to (H,).

    Raises:
        ValueError: unknown ``positions``.
    """
    if positions not in POSITIONS:
        raise ValueError(f"positions {positions!r}; expected one of {', '.join(POSITIONS)}")
    distinct = sorted(set(lengths))
    first, last = prompt.tokenizer("")["input_ids"]
    row = [first, *prompt.before, *prompt.after, last]
    ids = torch.tensor([row] * len(distinct), device=model.device)
    places = torch.arange(len(row), device=model.device).repeat(len(distinct), 1)
    places[:, 1 + len(prompt.before) :] += torch.tensor(distinct, device=model.device).unsqueeze(1)
    if positions == "aligned":
        places = places + first_position(model)
    states = model(input_ids=ids, position_ids=places).last_hidden_state
    found = masked_token(states, ids, prompt.tokenizer.mask_token_id)
    return dict(zip(distinct, found.unbind(), strict=True))


def denoised(
    model: Any, prompt: Prompt, rows: Sequence[list[int]], states: Tensor, positions: str = "released"
) -> Tensor:
    """Return h - delta(l) of each row, l its length without the template; (B, H).

    Args:
        model: See :func:`template_noise`.
        prompt: The template of the rows.
        rows: B token rows in the template.
        states: h, (B, H).
        positions: See :func:`template_noise`.
    """
    lengths = [len(row) - prompt.length for row in rows]
    noise = template_noise(model, prompt, lengths, positions)
    return states - torch.stack([noise[length] for length in lengths])


class DenoisedEncoder(TransformerEncoder):
    """A transformer whose vectors are the mask token's states minus what the template alone says there.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: The template.
        positions: See :func:`template_noise`.
        device: "cpu" or "cuda".
    """

    def __init__(
        self,
        source: Path | tuple[Any, Any],
        template: str = "auto",
        *,
        positions: str = "released",
        device: str = "cpu",
    ) -> None:
        super().__init__(source, "mask", template=template, device=device)
        self.positions, self.template = positions, Prompt(self.tokenizer, template)

    @torch.inference_mode()
    def _embed(self, rows: list[list[int]]) -> Tensor:
        return denoised(self.model, self.template, rows, super()._embed(rows), self.positions)
