"""Observe an encoder's transformers while it encodes, a layer at a time.

The vectors stay the same to the bit. Observers get each layer's context tensor as it is computed, and its
attention weights on request: sdpa hides them, so they are computed again from queries and keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from bench.nn.layer_adapters import IMPLEMENTATIONS
from bench.nn.observer import LayerView, ObservedTower, Observer, UntraceableError
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder


def find_towers(encoder: object) -> tuple[ObservedTower, ...]:
    """Return an encoder's transformers: those of a sum's parts, each once, or of its inner encoder."""
    if isinstance(encoder, SumEncoder):
        towers = [tower for part in encoder.parts for tower in find_towers(part)]
        return tuple({id(tower.model): tower for tower in towers}.values())
    if hasattr(encoder, "base"):
        return find_towers(encoder.base)
    model = getattr(encoder, "model", None)
    if not isinstance(model, nn.Module):
        return ()
    transformer = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if transformer is None:
        return ()
    foreign = isinstance(encoder, SentenceTransformerEncoder)  # may have drawn a missing pooler
    has_pooler = not foreign and getattr(transformer, "pooler", None) is not None
    tokenizer = model.tokenizer if foreign else getattr(encoder, "tokenizer", None)
    return (ObservedTower(transformer, tokenizer, str(getattr(encoder, "pooling", "")), has_pooler),)


@contextmanager
def watch_towers(watched: Sequence[ObservedTower], observers: Sequence[Observer]) -> Iterator[list[int]]:
    """Notify observers of every batch that the towers encode within the block; yield their sentences so far.

    A call without an attention mask is a template, and unreported. Raises UntraceableError for a tower that
    hides its attention, or pads on the left (on CUDA at the block's end).
    """
    rows = [0] * len(watched)
    calls = [_TowerCalls(number, tower, observers, rows) for number, tower in enumerate(watched)]
    with ExitStack() as stack:
        owner: dict[nn.Module, _TowerCalls] = {}
        for call in calls:
            owner |= dict.fromkeys(call.tower.model.modules(), call)
            for undo in call.attach():
                stack.callback(undo)
        for name in IMPLEMENTATIONS:
            stack.enter_context(_watch_attention(name, owner))
        yield rows
        for call in calls:
            call.check_padding()


def compute_attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    bias: Tensor | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Return softmax(Q K^T scaling + bias) under a mask, (B, heads, T, T); 0 in rows that attend to nothing.

    Query and key are (B, heads, T, d_head); the key may have fewer heads. The mask is bool (True attends) or
    float (added). Without a mask, ``causal`` hides later tokens. The default scaling is 1 / sqrt(d_head).
    """
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.transpose(-1, -2)
    scores *= query.shape[-1] ** -0.5 if scaling is None else scaling
    if bias is not None:
        scores += bias
    if mask is None and causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill_(later, -torch.inf)
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype != torch.bool:
        return (scores + mask).softmax(-1)
    weights = scores.masked_fill_(~mask, -torch.inf).softmax(-1)
    # Padding beyond a window of attention attends to nothing
    return weights.masked_fill_(~mask.any(-1, keepdim=True), 0)


class _TowerCalls:
    """Follows the calls of one tower."""

    def __init__(
        self, number: int, tower: ObservedTower, observers: Sequence[Observer], rows: list[int]
    ) -> None:
        self.number, self.tower, self.observers, self.rows = number, tower, observers, rows
        self.layer = 0
        self.mask: Tensor | None = None  # of the current batch; None between batches
        self.weights: Tensor | None = None
        self.padded_left: Tensor | None = None  # of the batches so far; CUDA's answer can wait

    def attach(self) -> list[Callable[[], None]]:
        """Watch the tower and return the functions that undo it."""
        model = self.tower.model
        undo = [self._wrap_forward()]
        if model._can_set_attn_implementation():
            return undo  # its attention calls the functions that are watched
        for module in model.modules():  # such as MPNet and DeBERTa: weights, dropout, and then a dense layer
            if isinstance(module, nn.Dropout):
                undo.append(module.register_forward_pre_hook(self._keep_weights).remove)
            elif isinstance(module, nn.Linear):
                undo.append(module.register_forward_pre_hook(self._take_context).remove)
        return undo

    def _wrap_forward(self) -> Callable[[], None]:
        """Wrap ``forward`` itself: sentence-transformers calls it directly, past module hooks."""
        model: Any = self.tower.model
        own, forward = vars(model).get("forward"), model.forward  # own: of this instance, mostly none

        @wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._begin_batch(args, kwargs)
            output = forward(*args, **kwargs)
            self._end_batch(output)
            return output

        model.forward = watched
        if own is None:
            return lambda: delattr(model, "forward")
        return lambda: setattr(model, "forward", own)

    def attention(self, context: Tensor, weights: Callable[[], Tensor]) -> None:
        """Notify the observers of a layer."""
        if self.mask is not None:
            view = LayerView(self.number, self.layer, self.mask, context, weights)
            for observer in self.observers:
                observer.on_layer(view)
            self.layer += 1

    def check_padding(self) -> None:
        """Raise UntraceableError if a batch was padded on the left."""
        if self.padded_left is not None and self.padded_left.item():
            raise UntraceableError("the tokenizer pads on the left", where=type(self.tower.model).__name__)

    def _begin_batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids, mask = kwargs.get("input_ids", *args[:1]), kwargs.get("attention_mask")
        self.layer, self.mask, self.weights = 0, None, None
        if mask is None:
            return
        rows = mask if mask.dim() == 2 else mask[:, 0, 0]  # a mask of tokens, or of attention
        self.mask = rows == 0 if rows.is_floating_point() else rows.bool()
        if mask.dim() == 2 or mask.is_cpu:  # on a GPU, bench itself pads an attention mask, on the right
            left = ~self.mask[:, 0].all()
            self.padded_left = left if self.padded_left is None else self.padded_left | left
        if mask.is_cpu:
            self.check_padding()
        for observer in self.observers:
            observer.on_batch(self.number, ids, self.mask)

    def _end_batch(self, output: Any) -> None:
        if self.mask is None:
            return
        where, layers = type(self.tower.model).__name__, self.tower.model.config.num_hidden_layers
        if self.layer == 0:
            raise UntraceableError("no attention layer of it can be watched", where=where)
        if self.layer > layers:  # two sides of an encoder-decoder, or two attentions a layer
            what = f"it computes attention {self.layer} times in {layers} layers"
            raise UntraceableError(what, where=where)
        pooled = getattr(output, "pooler_output", None) if self.tower.has_pooler else None
        for observer in self.observers:
            observer.on_output(self.number, output.last_hidden_state, pooled)
        self.rows[self.number] += len(self.mask)
        self.mask = None

    def _keep_weights(self, _module: nn.Module, args: tuple[Any, ...]) -> None:
        if args[0].dim() == 4 and args[0].shape[-1] == args[0].shape[-2]:
            self.weights = args[0]

    def _take_context(self, _module: nn.Module, args: tuple[Any, ...]) -> None:
        if self.weights is not None and args[0].dim() == 3:  # a pooler's input has two dimensions
            weights, self.weights = self.weights, None
            self.attention(args[0], lambda: weights)


@contextmanager
def _watch_attention(name: str, owner: dict[nn.Module, _TowerCalls]) -> Iterator[None]:
    """Wrap transformers' attention function of a name."""

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        function = original or sys.modules[type(module).__module__].eager_attention_forward
        context, weights = function(module, query, key, value, mask, **options)
        if module in owner:
            causal = options.get("is_causal")
            if causal is None:
                causal = getattr(module, "is_causal", True)
            given = (query, key, mask, options.get("scaling"), options.get("position_bias"))
            recompute = partial(compute_attention_weights, *given, causal=bool(causal))
            owner[module].attention(context.flatten(2), recompute if weights is None else lambda: weights)
        return context, weights

    functions: Any = ALL_ATTENTION_FUNCTIONS
    original = functions.get(name)  # for eager each model's file has its own
    functions[name] = attend
    try:
        yield
    finally:
        del functions[name]
