"""Loading weights in a chosen type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench.nn.backbone import load_backbone


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_a_folder_loads_in_the_type_that_is_asked_for(zoo: Callable[[str], Path], name: str) -> None:
    whole, lowered = load_backbone(zoo(name))[0], load_backbone(zoo(name), dtype=torch.bfloat16)[0]
    assert {tensor.dtype for tensor in whole.parameters()} == {torch.float32}
    given = dict(lowered.named_parameters())
    for key, weights in whole.named_parameters():
        torch.testing.assert_close(given[key], weights.bfloat16(), rtol=0, atol=0)
    for key, values in lowered.named_buffers():  # such as rotary frequencies
        torch.testing.assert_close(values, whole.get_buffer(key), rtol=0, atol=0)
