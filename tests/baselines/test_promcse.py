"""PromCSE: a step against a transcription of the released prefix, what moves, folders with prompts."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.deep_prompts import PROMPTS, LayerPrompt, add_prompts, count_prompts
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.masked_lm import load_masked_lm
from bench.training.randomness import generator, own_random_state
from tests.support.steps import nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, toy_sentences, train_alone

ALIKE: dict[str, Any] = {"rtol": 0, "atol": 2e-5}


def released_prefix(model: Any) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer, (heads, P, d): ``get_prompt`` of promcse/models.py, 4b31938, one row.

    The released table has a row for each place, with keys and values of all layers one after the other.
    """
    prompts = [layer.attention.self.prompt for layer in model.encoder.layer]
    table = torch.cat([part for prompt in prompts for part in (prompt.keys, prompt.values)], dim=1)
    heads = model.config.num_attention_heads
    places = table.view(len(table), 2 * len(prompts), heads, model.config.hidden_size // heads)
    parts = [torch.einsum("phd->hpd", places[:, i]) for i in range(2 * len(prompts))]
    return list(zip(parts[::2], parts[1::2], strict=True))


def norm(layer: Any, states: Tensor) -> Tensor:
    centred = states - states.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt()
    result: Tensor = scaled * layer.weight + layer.bias
    return result


def cls_by_hand(model: Any, row: list[int], first: int) -> Tensor:
    """[CLS] of a row in a post-norm encoder whose past keys and values are the prefix (transformers 4.2.1).

    ``first`` is the position of the first token: BertEmbeddings and create_position_ids_from_input_ids add
    the length of the past.
    """
    table, count = model.embeddings, model.config.num_attention_heads
    places = torch.arange(first, first + len(row))
    states = table.word_embeddings.weight[row] + table.position_embeddings.weight[places]
    states = norm(table.LayerNorm, states + table.token_type_embeddings.weight[0])
    for layer, (keys, values) in zip(model.encoder.layer, released_prefix(model), strict=True):
        own = layer.attention.self
        query, key, value = (
            (states @ part.weight.T + part.bias).view(len(row), count, -1)
            for part in (own.query, own.key, own.value)
        )
        heads = []
        for head in range(count):
            past_and_own = torch.cat([keys[head], key[:, head]])
            scores = query[:, head] @ past_and_own.T / math.sqrt(query.shape[-1])
            heads.append(scores.softmax(1) @ torch.cat([values[head], value[:, head]]))
        mixed = torch.cat(heads, dim=1) @ layer.attention.output.dense.weight.T
        states = norm(layer.attention.output.LayerNorm, states + mixed + layer.attention.output.dense.bias)
        inner = states @ layer.intermediate.dense.weight.T + layer.intermediate.dense.bias
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        outer = inner @ layer.output.dense.weight.T + layer.output.dense.bias
        states = norm(layer.output.LayerNorm, states + outer)
    return states[0]


STEPS: list[dict[str, OptionValue]] = [
    {},
    {"prompt_length": 1, "tau": 0.3},
    {"positions": "own"},
    {"chunk": 2},
    {"checkpoint_layers": True},
]


@pytest.mark.parametrize("changes", STEPS)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    """Loss and all gradients, each sentence alone; prompts and head are all that has one."""
    made, rows, _ = objective_of("promcse", tiny_bert, **changes)
    length = int(changes.get("prompt_length", 16))
    assert len({len(row) for row in rows}) > 1  # so that padding is there
    first = 0 if changes.get("positions") == "own" else length
    vectors = [cls_by_hand(made.encoder, row, first) for row in rows]
    z = [torch.tanh(made.head.weight @ vector + made.head.bias) for vector in vectors]
    expected = nce_by_loops(z, z, float(changes.get("tau", 0.05)))
    found = same_step(made, made(rows), expected, least=6)
    places = [f"encoder.encoder.layer.{number}.attention.self.prompt" for number in range(3)]
    names = {f"{place}.{name}" for place in places for name in ("keys", "values")}
    assert set(found) == names | {"head.weight", "head.bias"}
    assert all(bool(part.any()) for part in found.values())


def test_a_roberta_counts_positions_behind_its_prompt(tiny_roberta: Path) -> None:
    made, rows, _ = objective_of("promcse", tiny_roberta, prompt_length=5)
    first = made.encoder.config.pad_token_id + 1 + 5
    vectors = [cls_by_hand(made.encoder, row, first) for row in rows]
    z = [torch.tanh(made.head.weight @ vector + made.head.bias) for vector in vectors]
    same_step(made, made(rows), nce_by_loops(z, z), least=4)


def test_prompts_start_normal_and_drop_for_each_row() -> None:
    """Standard deviation of the configuration; in training each row has a mask of its own, else none."""
    prompt = LayerPrompt(3, 500, 0.25)
    torch.nn.init.ones_(prompt.keys)
    torch.nn.init.ones_(prompt.values)
    tokens = torch.zeros(4, 2, 500)
    with own_random_state(1, "dropout"):
        keys, values, mask = prompt.prepend(tokens, tokens, None)
    assert mask is None
    for part in (keys, values):
        assert part.shape == (4, 5, 500)
        kept = part[:, :3]
        assert set(kept.flatten().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
        assert float((kept == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
        assert not bool(part[:, 3:].any())
        assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(keys, values)
    still = prompt.eval().prepend(tokens, tokens, None)[0]
    assert torch.equal(still[:, :3], torch.ones(4, 3, 500))


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_whole_layers_and_the_last_for_cls_agree(kind: str, tiny_bert: Path) -> None:
    """transformers' own forward, which evaluation takes, against the formulas; padding is unseen."""
    model, tokenizer = load_backbone(tiny_bert)
    plain = TransformerEncoder(load_backbone(tiny_bert)).encode(SENTENCES)
    model.set_attn_implementation(kind)
    add_prompts(model, 4, generator(1, "prompt"))
    found = [weights.std().item() for name, weights in model.named_parameters() if ".prompt." in name]
    assert np.mean(found) == pytest.approx(model.config.initializer_range, rel=0.2)
    encoder = TransformerEncoder((model, tokenizer))
    together, alone = encoder.encode(SENTENCES), [encoder.encode([text])[0] for text in SENTENCES]
    np.testing.assert_allclose(together, np.stack(alone), **ALIKE)
    expected = [cls_by_hand(model, row, 4).detach().numpy() for row in encoder.token_ids(SENTENCES)]
    np.testing.assert_allclose(together, np.stack(expected), rtol=0, atol=2e-5)
    assert np.abs(together - plain).max() > 0.01
    assert encoder.max_length == 36  # of 40 positions
    assert np.isfinite(encoder.encode(["a " * 60])).all()


def test_only_prompts_move_and_folders_keep_them(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train_alone("promcse", tiny_bert, tmp_path, steps=4, lr=0.03)
    before, kept = load_backbone(tiny_bert)[0].state_dict(), trained.kept()
    assert set(before) == set(kept)
    assert all(torch.equal(before[name], kept[name]) for name in before)
    folder = trained.folder / "selected"
    encoder = trained.encoder()
    assert isinstance(encoder, TransformerEncoder)
    assert count_prompts(encoder.model) == 16
    scores = dict(trained.facts["dev_curve"])
    assert trained.score() == pytest.approx(scores[trained.facts["selected_step"]], abs=1e-9)
    text = toy_sentences()[:8]
    export_encoder(encoder, tmp_path / "out", "card")
    np.testing.assert_array_equal(load_encoder(tmp_path / "out").encode(text), encoder.encode(text))
    assert not (tmp_path / "out" / "modules.json").exists()  # other libraries would leave the prompts out
    assert "leave unread" in (tmp_path / "out" / "README.md").read_text()
    shutil.copytree(folder, tmp_path / "bare")
    (tmp_path / "bare" / PROMPTS).unlink()
    assert np.abs(TransformerEncoder(tmp_path / "bare").encode(text) - encoder.encode(text)).max() > 0.01
    with pytest.raises(InputError, match="belongs to an encoder"):
        load_masked_lm(folder)
    again = train_alone("simcse", folder, tmp_path, steps=2)  # all weights train, prompts among them
    assert count_prompts(load_backbone(again.folder / "selected")[0]) == 16


def rewrite(folder: Path, kind: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / PROMPTS)
    name = "layer.1.keys"
    if kind == "missing":
        del tensors[name]
    if kind == "unknown":
        tensors["layer.1.queries"] = tensors[name].clone()
    if kind == "shapes":
        tensors[name] = tensors[name][:2].clone()
    if kind == "width":
        tensors = {key: tensor[:, :8].clone() for key, tensor in tensors.items()}
    if kind == "types":
        tensors[name] = tensors[name].long()
    note = {} if kind == "note" else {"shifted": "True"}
    save_file(tensors, folder / PROMPTS, metadata=note)
    if kind == "read":
        (folder / PROMPTS).write_bytes(b"no tensors")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("missing", "'layer.1.keys' is missing"),
        ("unknown", "'layer.1.queries' is unknown"),
        ("shapes", "other shapes"),
        ("width", "other shapes"),
        ("types", "other shapes or types"),
        ("note", "shifted, is ''"),
        ("read", "can't be read"),
    ],
)
def test_a_damaged_file_is_refused(kind: str, what: str, tiny_bert: Path, tmp_path: Path) -> None:
    from bench.nn.model_parts import save_model

    model, tokenizer = load_backbone(tiny_bert)
    add_prompts(model, 3)
    save_model(model, tmp_path / "x")
    tokenizer.save_pretrained(tmp_path / "x")
    rewrite(tmp_path / "x", kind)
    with pytest.raises(InputError, match=what) as error:
        load_backbone(tmp_path / "x")
    assert error.value.where == f"x/{PROMPTS}"


def test_refused_settings(tiny_bert: Path) -> None:
    from bench.baselines.promcse import PromCSE
    from tests.support.training import options_of

    class Facts:
        kind, positions = "bert", 40

    PromCSE().check_backbone(Facts, options_of("promcse", max_length=24))
    with pytest.raises(InputError, match="16 and 25 tokens exceed"):
        PromCSE().check_backbone(Facts, options_of("promcse", max_length=25))
    Facts.kind = "distilbert"
    with pytest.raises(InputError, match="into a distilbert model"):
        PromCSE().check_backbone(Facts, options_of("promcse"))
    with pytest.raises(InputError, match="lora_rank=4"):
        PromCSE().stages(options_of("promcse", lora_rank=4))
    model = load_backbone(tiny_bert)[0]
    add_prompts(model, 2)
    with pytest.raises(InputError, match="can't be put into a BertModel"):
        add_prompts(model, 2)
