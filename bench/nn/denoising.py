"""PromptBERT's denoising: subtract the bare template's state from a prompt's at the mask token."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.architecture import first_position
from bench.nn.backbone import Loadable, TransformerEncoder
from bench.nn.hidden_states import is_layered, run_layers, select_mask_state
from bench.nn.prompt_template import Prompt

POSITIONS = ("released", "aligned", "unshifted")


def check_positions(model: Any) -> None:
    """Raise InputError for a model that lacks an input for position ids."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        what = f"denoising with a {type(model).__name__}, which takes no position ids"
        raise InputError(what, expected="a model that reads position ids, or denoising=false")


class BareTemplates(NamedTuple):
    """The bare template, once for each length of a sentence."""

    ids: Tensor  # token ids, (K, L), all rows alike
    places: Tensor  # position of each token, (K, L)
    lengths: Tensor  # row of each sentence, (B,): those of one length share one


def build_bare_templates(
    model: Any, prompt: Prompt, rows: Sequence[Sequence[int]], positions: str = "released"
) -> BareTemplates:
    """Build the inputs of :func:`compute_template_noise` on the CPU.

    The template's tokens after the sentence keep the positions that they have with it: place p + l for a
    sentence of l tokens (Jiang et al. 2022, template denoising).

    Args:
        model: BertModel, RobertaModel or another that takes position ids.
        prompt: The template of the rows.
        rows: B token rows in the template; l is a row's length minus the template's.
        positions: "released" counts from 0; "aligned" from the model's own first position, which differs in
            RoBERTa's kind; "unshifted" from 0, and leaves out the sentence's l places.

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
    places = []
    for length in distinct:
        shift = 0 if positions == "unshifted" else length
        behind = range(start + front + shift, start + len(row) + shift)
        places.append([*range(start, start + front), *behind])
    index = torch.tensor([distinct.index(length) for length in lengths])
    return BareTemplates(torch.tensor([row] * len(distinct)), torch.tensor(places), index)


def compute_template_noise(model: Any, templates: BareTemplates, mask_id: int) -> Tensor:
    """Return the bare template's state at its mask, delta(l), for each sentence, (B, H), with gradient.

    In training every length has its own dropout mask.
    """
    if is_layered(model):
        states = model.embeddings(input_ids=templates.ids, position_ids=templates.places)
        states = run_layers(model.encoder.layer, states, None)
    else:
        states = model(input_ids=templates.ids, position_ids=templates.places).last_hidden_state
    return select_mask_state(states, templates.ids, mask_id)[templates.lengths]


class DenoisedEncoder(TransformerEncoder):
    """A transformer that encodes a sentence as its mask token's state minus the bare template's.

    Arguments are those of :class:`bench.nn.backbone.TransformerEncoder` and :func:`build_bare_templates`.
    """

    def __init__(
        self, source: Loadable, template: str = "auto", *, positions: str = "released", device: str = "cpu"
    ) -> None:
        super().__init__(source, "mask", template=template, device=device)
        self.positions, self.template = positions, Prompt(self.tokenizer, template)

    def _prepare_rows(self, rows: list[list[int]]) -> Any:
        templates = build_bare_templates(self.model, self.template, rows, self.positions)
        return super()._prepare_rows(rows), templates

    def _embed_rows(self, prepared: Any) -> Tensor:
        chunk, templates = prepared
        noise = compute_template_noise(self.model, templates, self.tokenizer.mask_token_id)
        return super()._embed_rows(chunk) - noise
