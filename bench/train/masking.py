"""BERT's masking of tokens: which are to be predicted, and what replaces them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def mask_tokens(
    ids: Tensor, tokenizer: Any, share: float, draws: torch.Generator, *, at_least_one: bool = False
) -> tuple[Tensor, Tensor]:
    """Choose tokens at random; 80% of them become the mask token, 10% a random ordinary token, 10% stay.

    Each token is chosen on its own with probability ``share`` (Devlin et al. 2019, section 3.1, where it is
    15%); padding, [CLS], [SEP], [UNK] and the mask token never are.

    Args:
        ids: (B, L) token ids.
        tokenizer: Names the special tokens and the vocabulary.
        share: Probability of choosing a token, 0 to 1.
        draws: A CPU generator of the run's own; every call draws as much, whatever is chosen.
        at_least_one: Choose one token where chance chose none, for a loss that is a mean over them.

    Returns:
        The inputs (B, L), and True where a token was chosen (B, L).
    """
    specials = torch.tensor(sorted(tokenizer.all_special_ids))
    special = torch.isin(ids, specials.to(ids.device))
    chance = torch.rand(ids.shape, generator=draws).to(ids.device).masked_fill(special, 2.0)
    chosen = chance < share
    if at_least_one and not chosen.any():
        chosen.view(-1)[chance.view(-1).argmin()] = True
    kind = torch.rand(ids.shape, generator=draws).to(ids.device)
    every = torch.arange(len(tokenizer))
    ordinary = every[~torch.isin(every, specials)]
    words = ordinary[torch.randint(len(ordinary), ids.shape, generator=draws)]
    inputs = torch.where(chosen & (kind < 0.8), tokenizer.mask_token_id, ids)
    return torch.where(chosen & (kind >= 0.9), words.to(ids.device), inputs), chosen
