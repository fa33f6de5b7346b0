"""BERT's masking of tokens: choice and replacement."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.nn.tokens import Chunk


class MaskedText(NamedTuple):
    """A masked text and its targets."""

    inputs: Tensor  # (B, L) token ids
    places: Tensor  # the chosen tokens, as positions in the flattened (B L), ascending, (K,)
    targets: Tensor  # their ids before, (K,)


def mask_text(
    ids: Tensor,
    tokenizer: Any,
    share: float,
    draws: torch.Generator,
    *,
    at_least_one: bool = False,
    only_masks: bool = False,
) -> MaskedText:
    """Apply :func:`mask_tokens` and locate the chosen tokens on the host."""
    ways = {"at_least_one": at_least_one, "only_masks": only_masks}
    inputs, chosen = mask_tokens(ids, tokenizer, share, draws, **ways)
    places = chosen.flatten().nonzero().flatten()
    return MaskedText(inputs, places, ids.flatten()[places])


def mask_tokens(
    ids: Tensor,
    tokenizer: Any,
    share: float,
    draws: torch.Generator,
    *,
    at_least_one: bool = False,
    only_masks: bool = False,
) -> tuple[Tensor, Tensor]:
    """Choose tokens at random; 80% of them become the mask token, 10% a random ordinary token, 10% stay.

    Each token is chosen with probability ``share`` (Devlin et al. 2019, section 3.1, where it is 15%);
    padding, [CLS], [SEP], [UNK] and the mask token never are.

    Args:
        ids: (B, L) token ids, on the CPU: this is a part of a step's host half.
        tokenizer: Names the special tokens and the vocabulary.
        share: Probability of choosing a token, 0 to 1.
        draws: A CPU generator of the run's own; every call draws the same number.
        at_least_one: Choose one token where chance chose none, for a loss that is a mean over them.
        only_masks: Every chosen token becomes the mask token; the draws stay the same in number.

    Returns:
        The inputs (B, L), and True where a token was chosen (B, L).
    """
    specials = torch.tensor(sorted(tokenizer.all_special_ids))
    special = torch.isin(ids, specials)
    chance = torch.rand(ids.shape, generator=draws).masked_fill(special, 2.0)
    chosen = chance < share
    if at_least_one and not chosen.any():
        chosen.view(-1)[chance.view(-1).argmin()] = True
    kind = torch.rand(ids.shape, generator=draws)
    if only_masks:
        kind.zero_()
    every = torch.arange(len(tokenizer))
    ordinary = every[~torch.isin(every, specials)]
    words = ordinary[torch.randint(len(ordinary), ids.shape, generator=draws)]
    inputs = torch.where(chosen & (kind < 0.8), tokenizer.mask_token_id, ids)
    return torch.where(chosen & (kind >= 0.9), words, inputs), chosen


class MaskedRows(NamedTuple):
    """Rows with masked tokens, padded to the longest."""

    chunk: Chunk  # input of the frozen half, (2B, L)
    places: Tensor  # the masked tokens, as positions in the flattened (2B L), (K,)
    targets: Tensor  # their ids, (K,)
