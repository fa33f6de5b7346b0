"""Gradient caching: large batches on the memory of a small one, with the same loss and gradient.

A loss couples the vectors of a batch, but not the passes that made them: with E_c the vectors of chunk c,
dL/dtheta = sum_c (dL/dE_c)(dE_c/dtheta). Chunks are encoded without a graph. In the backward pass each is
encoded again, with a graph and the same dropout, and takes its dL/dE_c (Gao et al. 2021, GradCache).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import InputError
from bench.losses.similarity_blocks import split_similarities
from bench.nn.tokens import Chunk
from bench.training.distributed import get_random_states, set_random_states
from bench.training.randomness import own_random_state
from bench.training.two_phase_step import get_compile_mode

_asked: list[int] = []  # innermost last; the thread that prepares steps reads it too


@contextmanager
def cache_gradients(rows: int) -> Iterator[None]:
    """Hold at most so many token rows in memory within the block, in the encoder and in InfoNCE; 0 for all.

    Raises InputError with compiled steps, whose graph is the whole step.
    """
    if rows and get_compile_mode() != "none":
        what = f"chunk {rows} with compiled steps"
        raise InputError(what, where=f"--compile {get_compile_mode()}", expected="one of the two")
    _asked.append(rows)
    try:
        with split_similarities(rows):
            yield
    finally:
        _asked.pop()


def get_chunk_rows() -> int:
    """Return the most rows of a chunk in the present training, 0 for no limit."""
    return _asked[-1] if _asked else 0


def encode_without_graph(encode: Callable[[Chunk], Tensor], chunk: Chunk) -> Tensor:
    """Encode a chunk, (b, H); where gradients are on, the backward pass encodes it again.

    The gradient goes straight to the parameters that ``encode`` reads, so ``torch.autograd.grad`` finds none.
    """
    if not torch.is_grad_enabled():
        return encode(chunk)
    apply: Callable[..., Tensor] = _EncodedTwice.apply
    return apply(torch.zeros((), device=chunk.ids.device, requires_grad=True), encode, chunk)


class _EncodedTwice(torch.autograd.Function):
    """A chunk's vectors, which keep only token ids and random states until the backward pass.

    ``torch.utils.checkpoint`` gives the same bytes, but keeps the nodes of every chunk's graph.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, encode: Callable[[Chunk], Tensor], chunk: Chunk) -> Tensor:
        """Encode without a graph; the anchor gives the result a place in the loss's graph."""
        ctx.encode, ctx.chunk, ctx.device = encode, chunk, str(anchor.device)
        ctx.draws = get_random_states(ctx.device)
        return encode(chunk)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Encode again with the same draws, and add to the parameters' gradients."""
        present = get_random_states(ctx.device)
        set_random_states(ctx.draws)
        try:
            with torch.enable_grad():
                vectors = ctx.encode(ctx.chunk)
        finally:
            set_random_states(present)
        if vectors.requires_grad:
            torch.autograd.backward(vectors, gradients)
        return None, None, None


@torch.no_grad()
def check_second_pass(model: nn.Module, rows: Tensor, where: str) -> None:
    """Raise InputError with ``where`` for a model that mixes a batch's rows or that a forward pass changes.

    The model is in training mode; rows are unpadded token ids, (B, L). Encoding a chunk twice would move
    running statistics twice, and batch statistics would be a chunk's.
    """
    mixing = {type(module).__name__ for module in model.modules() if isinstance(module, _BATCH_NORMS)}
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with own_random_state(0, "dropout/measured", str(rows.device)):
        model(input_ids=rows, attention_mask=torch.ones_like(rows))
    changed = [name for name, buffer in model.named_buffers() if _is_changed(before.get(name), buffer)]
    if mixing or changed:
        found = ", ".join(sorted(mixing) or changed[:3])
        what = f"{type(model).__name__} has state that a forward pass changes ({found}); chunk makes two"
        raise InputError(what, where=where, expected="chunk=0, or a backbone without")


_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


def _is_changed(before: Tensor | None, now: Tensor) -> bool:
    return before is None or before.shape != now.shape or not bool((before == now).all())
