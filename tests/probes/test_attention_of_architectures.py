"""Attention weights that probes see are those of eager attention, with padding and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.nn.backbone import TransformerEncoder, silence_libraries
from bench.nn.hooks import find_towers, watch_towers
from bench.nn.observer import LayerView, Observer
from tests.support.zoo import ZOO

WATCHED = [name for name in ZOO if name not in ("bart", "mamba", "t5")]
"""Those with one attention a layer; T5's scores are not scaled, so their rounding is larger."""
PADDED = ("A child plays.", "The doctor reads a long book in the garden.")  # as they are encoded
EQUAL = ("A child plays.", "A child plays.")


class Weights(Observer):
    """Keeps the weights of every layer."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []

    def on_layer(self, view: LayerView) -> None:
        self.found.append(view.weights().clone())


def eager(folder: Path, encoder: TransformerEncoder, texts: Sequence[str]) -> tuple[list[Tensor], Tensor]:
    """Weights of every layer by eager attention, and the mask of tokens."""
    kind: Any = type(encoder.model)
    with silence_libraries(), torch.no_grad():
        model = kind.from_pretrained(folder, attn_implementation="eager").eval()
        chunk = encoder._prepare_rows(encoder.token_ids(texts))
        output = model(input_ids=chunk.ids, attention_mask=chunk.mask.long(), output_attentions=True)
    return list(output.attentions), chunk.mask


@pytest.mark.parametrize("texts", [PADDED, EQUAL], ids=["padded", "of one length"])
@pytest.mark.parametrize("name", WATCHED)
def test_weights_are_those_of_eager_attention(
    name: str, texts: tuple[str, ...], zoo: Callable[[str], Path]
) -> None:
    encoder, watched = TransformerEncoder(zoo(name), "avg"), Weights()
    expected, mask = eager(zoo(name), encoder, texts)
    with watch_towers(find_towers(encoder), [watched]):
        encoder.encode(texts, batch_tokens=10_000)
    assert len(watched.found) == len(expected) == 2
    tokens = mask[:, None, :, None].bool()
    for own, theirs in zip(watched.found, expected, strict=True):
        assert own.shape == theirs.shape
        assert float(((own - theirs) * tokens).abs().max()) <= 1e-6
        if encoder.causal:
            assert float(own.triu(1).abs().max()) == 0
