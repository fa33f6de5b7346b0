"""Loading weights in a chosen type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.encoder_folder import export_encoder
from bench.nn.half_precision import build_at_precision, cast_encoder, get_build_dtype
from bench.nn.model_folder import resolve_folder
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from tests.support.zoo import ZOO

SENTENCES = ["a small dog runs", "of", "", "a cat sleeps on the old table while the dog runs"]


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_a_folder_loads_in_the_type_that_is_asked_for(zoo: Callable[[str], Path], name: str) -> None:
    whole, lowered = load_backbone(zoo(name))[0], load_backbone(zoo(name), dtype=torch.bfloat16)[0]
    assert {tensor.dtype for tensor in whole.parameters()} == {torch.float32}
    given = dict(lowered.named_parameters())
    for key, weights in whole.named_parameters():
        torch.testing.assert_close(given[key], weights.bfloat16(), rtol=0, atol=0)
    for key, values in lowered.named_buffers():  # such as rotary frequencies
        torch.testing.assert_close(values, whole.get_buffer(key), rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ZOO)
def test_weights_loaded_low_give_the_vectors_of_a_cast(
    zoo: Callable[[str], Path], name: str, precision: str
) -> None:
    whole = TransformerEncoder(zoo(name), "avg")
    with build_at_precision(precision):
        lowered = TransformerEncoder(zoo(name), "avg")
    assert cast_encoder(lowered, precision) is lowered
    assert get_build_dtype() == torch.float32
    vectors = cast_encoder(whole, precision).encode(SENTENCES)
    np.testing.assert_array_equal(lowered.encode(SENTENCES), vectors)
    assert lowered.facts == whole.facts
    assert (lowered.causal, lowered.sees_padding) == (whole.causal, whole.sees_padding)


@pytest.mark.parametrize("name", ["modernbert", "bert"])
def test_a_sentence_transformer_loaded_low_gives_the_vectors_of_a_cast(
    zoo: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    export_encoder(TransformerEncoder(zoo(name), "avg"), tmp_path / "st", "card")
    whole = SentenceTransformerEncoder(tmp_path / "st")
    with build_at_precision("bf16"):
        lowered = SentenceTransformerEncoder(tmp_path / "st")
    assert cast_encoder(lowered, "bf16") is lowered
    np.testing.assert_array_equal(lowered.encode(SENTENCES), cast_encoder(whole, "bf16").encode(SENTENCES))
    assert lowered.facts == whole.facts


@pytest.mark.parametrize("reference", ["/nope", "./nope", "../nope", "~/nope", "owner/nope"])
def test_a_download_is_advised_for_hub_names_alone(reference: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_folder(reference, where="--methods")
    assert (caught.value.hint is not None) is (reference == "owner/nope")
