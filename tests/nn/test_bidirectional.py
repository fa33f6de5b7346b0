"""Bidirectional attention in decoders: it equals an attention without a mask, and padding stays hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from bench.errors import InputError
from bench.nn import bidirectional
from bench.nn.bidirectional import load_bidirectional_lm, make_bidirectional
from tests.support.architectures import byte_pairs, tiny

_SIZES = {
    **{"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8},
    **{"num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 40},
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 2),
}
_MORE: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
    "opt": {"ffn_dim": 24, "word_embed_proj_dim": 8},
    "bloom": {"n_layer": 2, "n_head": 2},
    "mistral": {"sliding_window": 32},
}
SLIDING = ("gemma2", "gemma3_text")
MASKED = ("llama", "mistral", "qwen2", "qwen3", "gemma", *SLIDING, "gpt2", "gpt_neox", "phi3")
"""They take a mask of their own, (B, 1, L, L), which is added to the scores."""
OTHERS = ("opt", "bloom", "stablelm", "olmo2")
IDS = torch.tensor([[5, 9, 30, 41, 7, 22, 50], [8, 3, 17, 2, 2, 2, 2]])
MASK = torch.tensor([[1] * 7, [1] * 3 + [0] * 4])


def make(kind: str) -> Any:
    config = AutoConfig.for_model(kind, **{**_SIZES, **_MORE.get(kind, {})})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModel.from_config(config).eval()
        for weight in model.parameters():
            weight.data += 0.1 * torch.randn_like(weight)
    return model


@torch.no_grad()
def states(model: Any, ids: Tensor = IDS, mask: Any = MASK) -> Tensor:
    found: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
    return found


@pytest.mark.parametrize("kind", [*MASKED, *OTHERS])
def test_every_token_reads_every_token_and_no_padding(kind: str) -> None:
    model = make(kind)
    changed = IDS.clone()
    changed[0, -1] = 11
    before = states(model)
    torch.testing.assert_close(states(model, changed)[0, :-1], before[0, :-1])  # it is causal
    make_bidirectional(model, kind)
    after = states(model)
    assert float((states(model, changed) - after)[0].abs().amax(-1).min()) > 1e-4
    torch.testing.assert_close(states(model, changed)[1], after[1])
    alone = states(model, IDS[1:, :3], MASK[1:, :3])
    torch.testing.assert_close(after[1:, :3], alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states(model, IDS[:1], None), after[:1], rtol=1e-4, atol=1e-5)
    assert not model.training


@pytest.mark.parametrize("kind", MASKED)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_it_equals_an_attention_without_a_mask(kind: str, attention: str) -> None:
    model = make(kind)
    model.set_attn_implementation("eager")
    nothing: Any = torch.zeros(1, 1, 7, 7)
    if kind in SLIDING:
        nothing = dict.fromkeys(("full_attention", "sliding_attention"), nothing)
    expected = states(model, IDS[:1], nothing)
    if kind != "gemma2":  # it caps its scores, which sdpa lacks
        model.set_attn_implementation(attention)
    make_bidirectional(model, kind)
    torch.testing.assert_close(states(model)[:1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "layer"),
    [
        ("gpt_neo", {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}, 1),
        ("mamba", {"state_size": 4}, 1),
        ("jamba", {"attn_layer_period": 2, "attn_layer_offset": 0, "use_mamba_kernels": False}, 2),
    ],
)
def test_a_layer_that_stays_causal_is_refused(kind: str, changes: dict[str, Any], layer: int) -> None:
    """GPT-Neo has a causal mask in its layers, Mamba no attention, Jamba in half of its layers."""
    sizes = {name: value for name, value in _SIZES.items() if name != "head_dim"}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **{**sizes, **changes})).eval()
    with pytest.raises(
        InputError, match=rf"layer {layer} of a \w+ stays causal with bidirectional attention"
    ):
        make_bidirectional(model, kind)


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text", "phi3"])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_stays_and_is_open_on_both_sides(kind: str, window: int) -> None:
    changes = {"sliding_window": window, "num_hidden_layers": 1}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **{**_SIZES, **changes})).eval()
    make_bidirectional(model, kind)
    before = states(model)[0]
    for place in (0, 6):
        changed = IDS.clone()
        changed[0, place] = 11
        moved = (states(model, changed)[0] - before).abs().amax(-1) > 1e-6
        assert moved.tolist() == [abs(index - place) <= window for index in range(7)]


@pytest.mark.parametrize("size", [3, 5, 9])
def test_a_small_vocabulary_is_probed(size: int) -> None:
    model = AutoModel.from_config(AutoConfig.for_model("llama", **{**_SIZES, "vocab_size": size})).eval()
    make_bidirectional(model, "x")
    ids = bidirectional._probe_ids(model)
    assert 0 <= int(ids.min()) <= int(ids.max()) < size


def test_a_layer_that_attends_to_padding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")
    plain = model.forward
    monkeypatch.setattr(model, "forward", lambda **given: plain(**{**given, "attention_mask": None}))
    with pytest.raises(InputError, match="layer 1 of a LlamaModel attends to padding"):
        make_bidirectional(model, "x")


def test_the_setting_is_saved(tmp_path: Path) -> None:
    model = make("qwen3")
    make_bidirectional(model, "x")
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(states(AutoModel.from_pretrained(tmp_path)), states(model))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt"])
def test_the_head_gives_the_logits(kind: str, tmp_path: Path) -> None:
    model, tokenizer, head = load_bidirectional_lm(tiny(kind, tmp_path / kind))
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / kind).eval()
    make_bidirectional(whole.base_model, kind)
    whole.config.is_causal = False
    with torch.no_grad():
        expected = whole(input_ids=IDS[:1]).logits
        torch.testing.assert_close(head(states(model, IDS[:1], MASK[:1])), expected)
    assert tokenizer.pad_token_id is not None


def test_heads_that_are_refused(tmp_path: Path) -> None:
    """Gemma 2 caps its logits; a model without a head has none."""
    config = AutoConfig.for_model("gemma2", **{**_SIZES, "vocab_size": 300}, final_logit_softcapping=0.1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "gemma")
    byte_pairs(**dict.fromkeys(("pad_token", "eos_token"), "<pad>")).save_pretrained(tmp_path / "gemma")
    with pytest.raises(InputError, match="the head of a Gemma2ForCausalLM is more than a matrix"):
        load_bidirectional_lm(tmp_path / "gemma")
    tiny("llama", tmp_path / "llama")
    AutoModel.from_pretrained(tmp_path / "llama").save_pretrained(tmp_path / "llama")
    with pytest.raises(InputError, match="lm_head"):
        load_bidirectional_lm(tmp_path / "llama")


def test_a_probe_leaves_the_model_as_it_was() -> None:
    model = make("llama").train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    make_bidirectional(model, "x")
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert bidirectional._probe_layers(model) == ([], [])


def test_an_unfinished_merge_leaves_the_trained_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny("llama", tmp_path / "llama")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", fail)
        with pytest.raises(OSError, match="no space left"):
            bidirectional.write_merged_folder(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    bidirectional.write_merged_folder(folder)
    assert AutoConfig.from_pretrained(folder).is_causal is False
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]
