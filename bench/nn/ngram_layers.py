"""IS-BERT's convolutions over token states: features of 1, 3 and 5 tokens, part of a model that has them.

A folder keeps them in a file of their own, next to the model's weights; pooling "ngrams" reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.nn.architecture import state_size
from bench.nn.hidden_states import average_states

NGRAMS = "ngram_layers.safetensors"
"""File of a model folder that holds its convolutions."""
WINDOWS = (1, 3, 5)
_ACTIVATION = "activation"
ACTIVATIONS = ("none", "relu")


class NgramLayers(nn.Module):
    """One convolution a window, from states (B, T, H) to ``channels`` features each (Zhang et al. 2020).

    Places beyond a row's tokens are 0. Weights start as torch draws them.
    """

    def __init__(self, width: int, channels: int, activation: str = "none") -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, channels, window, padding=window // 2) for window in WINDOWS
        )
        self.activation, self.width = activation, len(WINDOWS) * channels

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Compute the features of all tokens, (B, T, F); ``mask`` (B, T) is 1 on tokens."""
        inside = (states * mask.unsqueeze(-1).to(states.dtype)).transpose(1, 2)
        features = torch.cat([convolution(inside) for convolution in self.convolutions], dim=1)
        if self.activation == "relu":
            features = torch.relu(features)
        return features.transpose(1, 2)


def get_ngrams(model: Any) -> NgramLayers | None:
    """Return a model's convolutions, None without."""
    layers = getattr(model, "ngram_layers", None)
    return layers if isinstance(layers, NgramLayers) else None


def require_ngrams(model: Any, where: str) -> NgramLayers:
    """Return a model's convolutions; InputError where it has none."""
    layers = get_ngrams(model)
    if layers is None:
        what, expected = "pooling 'ngrams' needs isbert's convolutions", f"a folder with {NGRAMS}"
        raise InputError(what, where=where, expected=expected)
    return layers


def pool_ngrams(model: Any, states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean features of each row's tokens, (B, F), by the model's convolutions."""
    layers = require_ngrams(model, type(model).__name__)
    return average_states(layers(states, mask), mask)


def is_ngram_weight(name: str) -> bool:
    """Test a parameter's name for that of a convolution.

    >>> is_ngram_weight("ngram_layers.convolutions.0.bias")
    True
    """
    return name.startswith("ngram_layers.")


def write_ngrams(model: Any, folder: Path) -> None:
    """Write the file of a model's convolutions."""
    from safetensors.torch import save_file

    layers = require_ngrams(model, type(model).__name__)
    tensors = {name: weights.detach().cpu().contiguous() for name, weights in layers.state_dict().items()}
    save_file(tensors, folder / NGRAMS, metadata={"format": "pt", _ACTIVATION: layers.activation})


def read_ngrams(model: Any, folder: Path) -> None:
    """Give a model its folder's convolutions, where there are some; they read its last states.

    Raises InputError for a file that can't be read, and for names or shapes other than three convolutions'.
    """
    if not (folder / NGRAMS).is_file():
        return
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    where, expected = f"{folder.name}/{NGRAMS}", f"convolutions of {', '.join(map(str, WINDOWS))} tokens"
    try:
        with safe_open(folder / NGRAMS, framework="pt") as file:
            activation = (file.metadata() or {}).get(_ACTIVATION, "")
        tensors = load_file(folder / NGRAMS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"it can't be read: {error}", where=where, expected="safetensors") from error
    if activation not in ACTIVATIONS:
        what = f"its activation is {activation!a}"
        raise InputError(what, where=where, expected=f"one of {', '.join(ACTIVATIONS)}")
    first = tensors.get("convolutions.0.bias")
    if first is None or first.dim() != 1 or not len(first):
        raise InputError("it lacks the first convolution's bias", where=where, expected=expected)
    with torch.random.fork_rng(devices=[]):
        layers = NgramLayers(state_size(model), len(first), activation)
    wanted = {name: weights.shape for name, weights in layers.state_dict().items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != wanted:
        raise InputError("its tensors have other names or shapes", where=where, expected=expected)
    layers.load_state_dict(tensors)
    model.ngram_layers = layers.to(model.dtype).train(model.training)
