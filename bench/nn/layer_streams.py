"""Streams of states through an encoder's layers, one by one, by the adapter of its architecture.

``layered`` of kinds.toml lists the architectures for the plan. A model of another kind is refused, and so is
one whose modules differ from those that its adapter reads, or whose stream differs from transformers' own.
A new adapter goes into ADAPTERS, its kinds into kinds.toml, and an encoder of each kind into
tests/support/layered_encoders.py.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertModel, RobertaModel

from bench.errors import InputError
from bench.nn.folder_facts import list_model_types
from bench.nn.layer_adapters import (
    IMPLEMENTATIONS,
    AlbertLayers,
    BertLayers,
    DistilBertLayers,
    LayerAdapter,
    Surroundings,
)
from bench.nn.relative_adapters import DebertaLayers, MPNetLayers
from bench.nn.rotary_adapters import EuroBertLayers, ModernBertLayers, NomicBertLayers
from bench.nn.tokens import Chunk, move_to_device, pad_chunk

ADAPTERS: dict[str, LayerAdapter] = {
    "bert": BertLayers(),
    "distilbert": DistilBertLayers(),
    "albert": AlbertLayers(),
    "mpnet": MPNetLayers(),
    "deberta": DebertaLayers(),
    "modernbert": ModernBertLayers(),
    "nomic": NomicBertLayers(),
    "eurobert": EuroBertLayers(),
}
_CHOSEN = "_bench_layers"  # attribute of a model: its key in ADAPTERS, "" for none
_NEAR = 1e-4  # of the largest component
_NEAR_LOWERED = 0.05  # where weights are bfloat16, with 8 bits
_PROBE = 8  # tokens of the shorter row


def find_adapter(model: Any) -> LayerAdapter | None:
    """Return the adapter of a model's layers; None where they can't be called one by one.

    The first call compares the adapter's stream with the model's own on a few tokens.
    """
    if not isinstance(model, nn.Module):
        return None
    if _CHOSEN not in vars(model):
        setattr(model, _CHOSEN, _choose_adapter(model))
    return ADAPTERS.get(vars(model)[_CHOSEN])


def require_adapter(model: Any, what: str) -> LayerAdapter:
    """Return the adapter of a model's layers; InputError, which begins with ``what``, where it has none."""
    adapter = find_adapter(model)
    if adapter is None:
        kinds = ", ".join(sorted(list_model_types("layered")))
        raise InputError(f"{what} {type(model).__name__}", expected=f"an encoder of one of the kinds {kinds}")
    return adapter


def _choose_adapter(model: Any) -> str:
    config: Any = getattr(model, "config", None)
    if isinstance(model, BertModel | RobertaModel) and not config.is_decoder:
        return "bert"
    listed = getattr(config, "model_type", None) in list_model_types("layered")
    if not listed or getattr(config, "is_decoder", False):
        return ""
    name = next((name for name, adapter in ADAPTERS.items() if adapter.accepts(model)), "")
    if not name or config._attn_implementation not in IMPLEMENTATIONS:
        return name  # the towers' check names the implementation
    return name if _follows_model(ADAPTERS[name], model) else ""


@torch.no_grad()
def _follows_model(adapter: LayerAdapter, model: Any) -> bool:
    """Compare an adapter's stream with the model's own states, on two rows of which one is padded."""
    size = int(model.get_input_embeddings().weight.shape[0])
    rows = [[size // 2 + i % 2 for i in range(length)] for length in (_PROBE, 2 * _PROBE)]
    chunk: Chunk = move_to_device(pad_chunk(rows, 0), model.device)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.autocast(model.device.type, enabled=False):
        expected = model(input_ids=chunk.ids, attention_mask=chunk.mask).last_hidden_state
        states = run_encoder(model, adapter.embed(model, chunk), chunk, adapter)
    for module, training in modes:
        module.training = training
    apart = ((states - expected) * chunk.mask.unsqueeze(-1)).abs().max()
    near = _NEAR if states.dtype == torch.float32 else _NEAR_LOWERED
    return bool(apart <= near * expected.abs().max())


def compute_embeddings(model: Any, chunk: Chunk) -> Tensor:
    """Return the states that enter the first layer, (b, L, H), with gradient."""
    return require_adapter(model, "the embeddings of a").embed(model, chunk)


def run_encoder(model: Any, states: Tensor, chunk: Chunk, adapter: LayerAdapter | None = None) -> Tensor:
    """Run all layers on states (b, L, H), the input of the first; a final norm is applied."""
    adapter = adapter or require_adapter(model, "the layers of a")
    around = adapter.prepare(model, states, chunk)
    return apply_norm(
        adapter.final_norm(model), run_stream(adapter, adapter.list_layers(model), states, around)
    )


def list_layers(model: Any) -> list[Any]:
    """List a transformer's layers in order; shared ones occur more than once."""
    return require_adapter(model, "the layers of a").list_layers(model)


def keep_lower_layers(model: Any, count: int) -> None:
    """Remove all layers of a transformer above the lower ``count``; shared layers stay."""
    layers = list_layers(model)
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for stack in stacks:
        if len(stack) == len(layers) and all(one is two for one, two in zip(stack, layers, strict=True)):
            del stack[count:]


def run_given_layers(model: Any, layers: Iterable[Any], states: Tensor, chunk: Chunk) -> Tensor:
    """Run layers of a model's kind on states (b, L, H), without a final norm.

    Attention mask, rotary angles and relative positions are those of the model.
    """
    adapter = require_adapter(model, "the layers of a")
    return run_stream(adapter, layers, states, adapter.prepare(model, states, chunk))


def run_stream(
    adapter: LayerAdapter, layers: Iterable[Any], states: Tensor, around: Mapping[str, Surroundings]
) -> Tensor:
    """Run layers on states (b, L, H), with what :meth:`LayerAdapter.prepare` gave for them."""
    for layer in layers:
        states = adapter.run_layer(layer, states, around[adapter.layer_type(layer)])
    return states


def apply_norm(norm: nn.Module | None, states: Tensor) -> Tensor:
    """Apply a norm, if there is one."""
    return states if norm is None else norm(states)


def check_callable_layers(model: Any) -> None:
    """Raise InputError unless a transformer's layers can be called one by one."""
    require_adapter(model, "an auxiliary network made from")


def init_layers(model: Any, count: int) -> nn.ModuleList:
    """Return fresh transformer layers of a model's kind and sizes, initialised as BERT's.

    Where layers differ by their place, they have the places behind the lower half.
    """
    adapter = require_adapter(model, "fresh layers of a")
    present = adapter.list_layers(model)
    kind, last = type(present[0]), len(present) - 1
    numbered = inspect.signature(kind).parameters.get("layer_idx")
    layers = nn.ModuleList()
    for number in range(count):
        place = {}
        if numbered is not None and not isinstance(adapter, BertLayers):
            place = {"layer_idx": min(len(present) // 2 + number, last)}
        layers.append(kind(model.config, **place))
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=model.config.initializer_range)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return layers


def init_final_norm(model: Any) -> nn.Module:
    """Return a fresh norm behind fresh layers: scale 1, bias 0; the identity where layers end with a norm."""
    norm = copy.deepcopy(require_adapter(model, "the final norm of a").final_norm(model))
    if norm is None:
        return nn.Identity()
    for name, weight in norm.named_parameters():
        nn.init.constant_(weight, float(name == "weight"))
    return norm
