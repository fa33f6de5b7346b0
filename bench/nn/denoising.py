"""States of a prompt's mask token, and what the template alone says there: PromptBERT's denoising."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.architecture import first_position
from bench.nn.backbone import TransformerEncoder
from bench.nn.hidden_states import is_layered, run_layers, select_mask_state
from bench.nn.prompt import Prompt
from bench.nn.tokens import move_to_device

POSITIONS = ("released", "aligned", "unshifted")


def check_positions(model: Any) -> None:
    """Raise InputError for a model that takes no position ids, as denoising must give them."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise InputError(
            f"denoising with a {type(model).__name__}, which takes no position ids",
            expected="a model such as BertModel or RobertaModel, or denoising=false",
        )


class BareTemplates(NamedTuple):
    """A template without a sentence, once for each length of a sentence.

    Args:
        ids: Token ids, (K, L), all rows alike.
        places: Position of each token, (K, L).
        lengths: Row of each sentence, (B,): those of one length share one.
    """

    ids: Tensor
    places: Tensor
    lengths: Tensor


def build_bare_templates(
    model: Any, prompt: Prompt, rows: Sequence[Sequence[int]], positions: str = "released"
) -> BareTemplates:
    """What :func:`noise` of rows in a template reads: the host's half, on the CPU.

    The template's tokens after the sentence keep the positions that they have with it: place p + l for a
    sentence of l tokens (Jiang et al. 2022, template denoising).

    Args:
        model: BertModel, RobertaModel or another that takes position ids; its weights are not read.
        prompt: The template of the rows.
        rows: B token rows in the template; l is a row's length without the template.
        positions: "released" counts from 0; "aligned" from where the model itself does, which differs in
            RoBERTa's kind; "unshifted" from 0 too, without the sentence's l places.

    Raises:
        ValueError: unknown ``positions``.
    """
    if positions not in POSITIONS:
        raise ValueError(f"positions {positions!r}; expected one of {', '.join(POSITIONS)}")
    lengths = [len(row) - prompt.length for row in rows]
    distinct = sorted(set(lengths))
    first, last = prompt.tokenizer("")["input_ids"]
    row = [first, *prompt.before, *prompt.after, last]
    start = first_position(model) if positions == "aligned" else 0
    front = 1 + len(prompt.before)
    shifts = [0 if positions == "unshifted" else length for length in distinct]
    places = [[start + p + (shift if p >= front else 0) for p in range(len(row))] for shift in shifts]
    index = {length: number for number, length in enumerate(distinct)}
    return BareTemplates(
        torch.tensor([row] * len(distinct)),
        torch.tensor(places),
        torch.tensor([index[length] for length in lengths]),
    )


def compute_template_noise(model: Any, templates: BareTemplates, mask_id: int) -> Tensor:
    """What a template alone says at its mask, delta(l), for each sentence, (B, H), with gradient.

    In training every length has its own dropout mask.
    """
    if is_layered(model):
        states = model.embeddings(input_ids=templates.ids, position_ids=templates.places)
        states = run_layers(model.encoder.layer, states, None)
    else:
        states = model(input_ids=templates.ids, position_ids=templates.places).last_hidden_state
    return select_mask_state(states, templates.ids, mask_id)[templates.lengths]


def denoise_states(
    model: Any, prompt: Prompt, rows: Sequence[list[int]], states: Tensor, positions: str = "released"
) -> Tensor:
    """Return h - delta(l) of each row, l its length without the template; (B, H).

    Args:
        model: See :func:`bare_templates`.
        prompt: The template of the rows.
        rows: B token rows in the template.
        states: h, (B, H).
        positions: See :func:`bare_templates`.
    """
    templates = move_to_device(build_bare_templates(model, prompt, rows, positions), model.device)
    return states - compute_template_noise(model, templates, prompt.tokenizer.mask_token_id)


class DenoisedEncoder(TransformerEncoder):
    """A transformer whose vectors are the mask token's states minus what the template alone says there.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: The template.
        positions: See :func:`bare_templates`.
        device: "cpu", "cuda" or "mps".
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

    def _prepare_rows(self, rows: list[list[int]]) -> Any:
        return super()._prepare_rows(rows), build_bare_templates(
            self.model, self.template, rows, self.positions
        )

    def _embed_rows(self, prepared: Any) -> Tensor:
        chunk, templates = prepared
        return super()._embed_rows(chunk) - compute_template_noise(
            self.model, templates, self.tokenizer.mask_token_id
        )
