"""Deep prompts (P-tuning v2): trained keys and values before those of a sentence, in every layer.

They are modules of a BertModel or RobertaModel. A folder keeps them in a file of their own, next to the
model's weights, and every loading of bench puts them back.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.hidden_states import is_layered
from bench.nn.layer_adapters import compute_attention

PROMPTS = "deep_prompts.safetensors"
"""File of a model folder that holds its deep prompts."""
_SETTINGS = "_bench_prompts"
_SHIFTED = "shifted"


class LayerPrompt(nn.Module):
    """Keys and values, (P, H) each, that a layer's self-attention reads before those of its tokens.

    In training each row drops components of its own, as released.
    """

    def __init__(self, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.zeros(length, width))
        self.values = nn.Parameter(torch.zeros(length, width))
        self.dropout = nn.Dropout(dropout)

    def prepend(
        self, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Put the prompt before keys and values (B, T, H); the mask, see ``Surroundings``, attends it."""
        rows, length = len(key), len(self.keys)
        before = (self.dropout(part.expand(rows, -1, -1)).to(key.dtype) for part in (self.keys, self.values))
        keys, values = (torch.cat(pair, dim=1) for pair in zip(before, (key, value), strict=True))
        if mask is not None:
            seen = mask.new_ones if mask.dtype == torch.bool else mask.new_zeros
            mask = torch.cat([seen(*mask.shape[:-1], length), mask], dim=-1)
        return keys, values, mask


class PromptedSelfAttention(nn.Module):
    """A layer's self-attention that reads a prompt first; its linear maps are the plain one's."""

    is_causal = False

    def __init__(self, plain: Any, prompt: LayerPrompt) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dropout = plain.query, plain.key, plain.value, plain.dropout
        self.config, self.attention_head_size = plain.config, plain.attention_head_size
        self.prompt = prompt

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: object
    ) -> tuple[Tensor, None]:
        """Compute the context of all tokens, (B, T, H); there are no attention weights to return."""
        key, value, mask = self.prompt.prepend(
            self.key(hidden_states), self.value(hidden_states), attention_mask
        )
        return compute_attention(self, self.query(hidden_states), key, value, mask), None


def count_prompts(model: Any) -> int:
    """Return the length of a model's deep prompts, 0 without."""
    return _get_settings(model)[0]


def count_shifted(model: Any) -> int:
    """Return the positions that a model's prompts take from its tokens."""
    length, shifted = _get_settings(model)
    return length if shifted else 0


def _get_settings(model: Any) -> tuple[int, bool]:
    """Return the length of a model's prompts, and whether positions count them."""
    found: tuple[int, bool] = (
        getattr(model, _SETTINGS, (0, False)) if isinstance(model, nn.Module) else (0, False)
    )
    return found


def add_prompts(
    model: Any, length: int, draw: torch.Generator | None = None, *, shifted: bool = True
) -> None:
    """Give every layer a prompt of ``length`` places, in place, and freeze all other weights.

    With ``shifted``, positions of tokens begin behind the prompt. ``draw`` makes keys and values normal with
    the standard deviation of the configuration; None leaves them 0. Raises InputError for another kind of
    model, or one with prompts.
    """
    if not is_layered(model) or count_prompts(model):
        what = f"deep prompts can't be put into a {type(model).__name__}"
        raise InputError(what, expected="a BertModel or a RobertaModel without prompts")
    model.requires_grad_(False)
    width, std = int(model.config.hidden_size), float(model.config.initializer_range)
    for layer in model.encoder.layer:
        plain = layer.attention.self
        prompt = LayerPrompt(length, width, float(model.config.hidden_dropout_prob)).to(plain.key.weight)
        if draw is not None:
            for weights in prompt.parameters():
                weights.data.copy_(torch.empty(length, width).normal_(0, std, generator=draw))
        layer.attention.self = PromptedSelfAttention(plain, prompt).train(model.training)
    table = model.embeddings.position_embeddings
    if shifted:
        table.register_forward_pre_hook(partial(_shift_positions, length, table.padding_idx))
    setattr(model, _SETTINGS, (length, shifted))


def _shift_positions(
    length: int, padding: int | None, module: nn.Module, given: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Count the places of the prompt; padding keeps its position."""
    (positions,) = given
    shifted = positions + length
    return (shifted if padding is None else torch.where(positions == padding, positions, shifted),)


def is_prompt_weight(name: str) -> bool:
    """Test a parameter's name for that of a deep prompt's weight.

    >>> is_prompt_weight("encoder.layer.0.attention.self.prompt.keys")
    True
    """
    return ".attention.self.prompt." in name


def write_prompts(model: Any, folder: Path) -> None:
    """Write the file of a model's deep prompts."""
    from safetensors.torch import save_file

    tensors = {}
    for number, layer in enumerate(model.encoder.layer):
        prompt = layer.attention.self.prompt
        for name, weights in prompt.named_parameters():
            tensors[f"layer.{number}.{name}"] = weights.detach().cpu().contiguous()
    save_file(tensors, folder / PROMPTS, metadata={"format": "pt", _SHIFTED: str(count_shifted(model) > 0)})


def read_prompts(model: Any, folder: Path) -> None:
    """Put a folder's deep prompts, where it has some, into its model.

    Raises InputError for a file that can't be read, and for names or shapes other than the model's.
    """
    if not (folder / PROMPTS).is_file():
        return
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    where = f"{folder.name}/{PROMPTS}"
    try:
        with safe_open(folder / PROMPTS, framework="pt") as file:
            shifted = (file.metadata() or {}).get(_SHIFTED, "")
        tensors = load_file(folder / PROMPTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"it can't be read: {error}", where=where, expected="safetensors") from error
    if shifted not in ("True", "False"):
        what = f"its note on positions, shifted, is {shifted!a}"
        raise InputError(what, where=where, expected="True or False")
    add_prompts(model, _check_tensors(tensors, model, where), shifted=shifted == "True")
    for name, tensor in tensors.items():
        number, kind = name.removeprefix("layer.").split(".")
        target = getattr(model.encoder.layer[int(number)].attention.self.prompt, kind)
        target.data.copy_(tensor)


def _check_tensors(tensors: dict[str, Tensor], model: Any, where: str) -> int:
    """Return the length of the prompts; raises InputError for other tensors than the model's layers need."""
    layers, width = int(model.config.num_hidden_layers), int(model.config.hidden_size)
    wanted = {f"layer.{number}.{kind}" for number in range(layers) for kind in ("keys", "values")}
    if odd := sorted(wanted.symmetric_difference(tensors)):
        what = f"{odd[0]!a} is {'missing' if odd[0] in wanted else 'unknown'}"
        raise InputError(what, where=where, expected=f"keys and values of {layers} layers")
    shapes = {tuple(tensor.shape) for tensor in tensors.values()}
    shape = shapes.pop()
    whole = all(tensor.is_floating_point() for tensor in tensors.values())
    if shapes or not whole or len(shape) != 2 or not shape[0] or shape[1] != width:
        expected = f"floating-point tensors of one length, {width} wide"
        raise InputError("its tensors have other shapes or types", where=where, expected=expected)
    return int(shape[0])
