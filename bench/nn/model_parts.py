"""Parts that bench adds to a transformer, each in a file of its own next to the model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bench.errors import InputError
from bench.nn.deep_prompts import PROMPTS, count_prompts, is_prompt_weight, read_prompts, write_prompts
from bench.nn.ngram_layers import NGRAMS, get_ngrams, is_ngram_weight, read_ngrams, write_ngrams


def save_model(model: Any, folder: Path, state: Mapping[str, Tensor] | None = None) -> None:
    """Save a model, or ``state`` as its weights, as transformers does; its parts get their own files."""
    if not list_parts(model):
        model.save_pretrained(folder, state_dict=state)
        return
    whole = model.state_dict() if state is None else state
    added = {name for name in whole if is_prompt_weight(name) or is_ngram_weight(name)}
    plain = {name: weights for name, weights in whole.items() if name not in added}
    model.save_pretrained(folder, state_dict=plain)
    if count_prompts(model):
        write_prompts(model, folder)
    if get_ngrams(model) is not None:
        write_ngrams(model, folder)


def list_parts(model: Any) -> list[str]:
    """Return the files that a model's parts get."""
    present = {PROMPTS: bool(count_prompts(model)), NGRAMS: get_ngrams(model) is not None}
    return [name for name, there in present.items() if there]


def read_parts(model: Any, folder: Path) -> None:
    """Put a folder's parts back into its encoder; raises InputError for damaged files."""
    read_prompts(model, folder)
    read_ngrams(model, folder)


def check_without_parts(folder: Path, expected: str | None) -> None:
    """Raise InputError where a model with a head would leave out parts of the folder's encoder."""
    for name in (PROMPTS, NGRAMS):
        if (folder / name).is_file():
            what = "it belongs to an encoder, and would be left out of a model with a head"
            raise InputError(what, where=f"{folder.name}/{name}", expected=expected)
