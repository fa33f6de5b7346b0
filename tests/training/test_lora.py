"""Training of LoRA adapters: the step, what is trained and kept, and what can't have them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench.encoder import Encoder
from bench.errors import InputError
from bench.execution.dry_run import describe_checkpoints
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.runner import check_pending_cells
from bench.execution.stage_cache import StageCache
from bench.nn import adapter_folder
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.lora import add_lora, has_lora, lora_state
from bench.nn.lora_settings import WEIGHTS, LoraSettings
from bench.nn.model_folder import resolve_folder
from bench.plan import lora_checks
from bench.training.momentum import MomentumCopy
from tests.support.killed import always as always
from tests.support.killed import contents, kill_at
from tests.support.layered_encoders import batch, encoder
from tests.support.training import (
    SHORT,
    Trained,
    options_of,
    plan_on_toy,
    stage_context,
    stages_of,
    train_alone,
)

LORA: dict[str, Any] = {"lora_rank": 2, "lora_alpha": 6.0}


def test_step_is_that_of_the_formula() -> None:
    """Loss and gradient of a BERT layer in float64, with W + (alpha / r) B A written out."""
    model = encoder("bert").double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        add_lora(model, LoraSettings(2, 6.0))
        for tensor in lora_state(model).values():
            tensor.normal_(0, 0.3)
    ids, mask = batch()
    layer: Any = model.encoder.layer[0]
    states = model.embeddings(input_ids=ids).detach()
    bias = torch.where(mask.bool(), 0.0, -math.inf)[:, None, None, :].double()
    loss = (layer(states, bias) ** 2)[mask.bool()].sum()
    torch.autograd.backward(loss)
    mine: dict[str, Tensor] = {}

    def linear(name: str, x: Tensor) -> Tensor:
        module = layer.get_submodule(name)
        for part in "AB":
            weight = getattr(module, f"lora_{part}")["default"].weight
            mine[f"{name}.{part}"] = weight.detach().clone().requires_grad_()
        base = module.base_layer
        full = base.weight.detach() + 6.0 / 2 * mine[f"{name}.B"] @ mine[f"{name}.A"]
        result: Tensor = x @ full.T + base.bias.detach()
        return result

    def norm(name: str, x: Tensor) -> Tensor:
        module = layer.get_submodule(name)
        return functional.layer_norm(x, (x.shape[-1],), module.weight, module.bias, module.eps)

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], 4, -1).transpose(1, 2)

    q, k, v = (heads(linear(f"attention.self.{name}", states)) for name in ("query", "key", "value"))
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
    context = (weights @ v).transpose(1, 2).flatten(2)
    attended = norm("attention.output.LayerNorm", linear("attention.output.dense", context) + states)
    inner = functional.gelu(linear("intermediate.dense", attended))
    written = (norm("output.LayerNorm", linear("output.dense", inner) + attended) ** 2)[mask.bool()].sum()
    torch.autograd.backward(written)
    assert float(loss.detach()) == pytest.approx(float(written.detach()), rel=1e-12)
    assert len(mine) == 12
    for name, weight in mine.items():
        module, part = name.rsplit(".", 1)
        own = getattr(layer.get_submodule(module), f"lora_{part}")["default"].weight.grad
        torch.testing.assert_close(own, weight.grad, rtol=1e-9, atol=1e-9)
    frozen = [value.grad for name, value in model.named_parameters() if ".lora_" not in name]
    assert frozen == [None] * len(frozen)


def train(name: str, backbone: Path, out: Path, given: Any = None, **changes: Any) -> Trained:
    return train_alone(name, backbone, out, given, **(LORA | changes))


def test_training_lowers_the_loss_by_the_adapters_alone(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train("simcse", tiny_bert, tmp_path, steps=30, eval_every=30, lr=1e-2)
    assert sum(trained.losses[-5:]) < 0.7 * sum(trained.losses[:5])
    folder = trained.folder / "selected"
    assert not (folder / "model.safetensors").exists()
    assert (folder / WEIGHTS).stat().st_size < (tiny_bert / "model.safetensors").stat().st_size / 4
    base, plain = load_backbone(tiny_bert)[0].state_dict(), load_backbone(folder)[0].state_dict()
    assert base.keys() == plain.keys()
    changed = {name for name in base if not torch.equal(base[name], plain[name])}
    kinds = ("query", "key", "value", "dense")
    linear = {n for n in base if ".layer." in n and n.endswith(tuple(f"{kind}.weight" for kind in kinds))}
    assert changed == linear
    adapters = sum(2 * (base[name].shape[0] + base[name].shape[1]) for name in linear)
    head = 16 * 16 + 16
    assert trained.facts["trained_parameters"] == adapters + head
    assert trained.facts["parameters"] == sum(t.numel() for t in base.values()) + adapters + head


def test_stage_folder_gives_one_encoder_merged_and_unmerged(tiny_bert: Path, tmp_path: Path) -> None:
    folder = train("simcse", tiny_bert, tmp_path, lr=1e-2).folder / "selected"
    texts = ["The doctor is reading a book.", "the farmer"]
    merged = TransformerEncoder(folder)
    unmerged = TransformerEncoder(load_backbone(folder, keep_adapters=True))
    assert (has_lora(merged.model), has_lora(unmerged.model)) == (False, True)
    vectors = merged.encode(texts)
    assert abs(vectors - unmerged.encode(texts)).max() <= 1e-5 * abs(vectors).max()
    assert abs(vectors - TransformerEncoder(tiny_bert).encode(texts)).max() > 1e-3


def test_same_seed_same_bytes_whatever_ran_before(tiny_bert: Path, tmp_path: Path) -> None:
    first = contents(train("simcse", tiny_bert, tmp_path, lora_dropout=0.1))
    torch.rand(5)
    again = contents(train("simcse", tiny_bert, tmp_path, lora_dropout=0.1))
    assert first == again
    other = contents(train("simcse", tiny_bert, tmp_path, lora_dropout=0.2))
    assert other[f"selected/{WEIGHTS}"] != first[f"selected/{WEIGHTS}"]


def test_heads_and_dropout_draw_as_without_adapters(tiny_bert: Path, tmp_path: Path) -> None:
    """B starts at zero, so that the first loss is that of full training."""
    full, adapted = train_alone("simcse", tiny_bert, tmp_path), train("simcse", tiny_bert, tmp_path)
    assert full.losses[0] == pytest.approx(adapted.losses[0], rel=1e-5)
    assert full.losses[1:] != pytest.approx(adapted.losses[1:], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("pcl", {"lora_dropout": 0.1}, marks=pytest.mark.long),
        ("unsee_byol", {"lora_base": "bf16"}),
        pytest.param("esimcse", {"momentum_init": "pretrained"}, marks=pytest.mark.long),
    ],
)
def test_killed_training_goes_on_from_adapters_alone(
    name: str, options: dict[str, Any], tiny_bert: Path, tmp_path: Path, always: None
) -> None:
    settings = {"steps": 4, "eval_every": 2, "batch_size": 16, **options}
    whole = contents(train(name, tiny_bert, tmp_path, **settings))
    path = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(name, tiny_bert, tmp_path, {"checkpoint": path, "progress": kill_at(3)}, **settings)
    from safetensors import safe_open

    with safe_open(path, framework="pt") as kept:
        shapes = {tuple(kept.get_slice(tensor).get_shape()) for tensor in kept.keys()}  # noqa: SIM118
    vocabulary = load_backbone(tiny_bert)[0].config.vocab_size
    assert (vocabulary, 16) not in shapes  # the frozen embeddings
    assert contents(train(name, tiny_bert, tmp_path, {"checkpoint": path}, **settings)) == whole


def test_joint_stage_goes_on_with_the_adapters_of_its_parts(tiny_bert: Path, tmp_path: Path) -> None:
    changes = {**SHORT, **{f"sub{n}.{k}": v for n in (1, 2) for k, v in SHORT.items()}, **LORA, "lr": 0.0}
    known = options_of("jtcse")
    options = known | {name: value for name, value in changes.items() if name in known}
    folders: dict[str, Path] = {}
    for stage in stages_of("jtcse", options):
        folders[stage.role] = tmp_path / stage.role
        folders[stage.role].mkdir()
        facts = stage.train(stage_context(stage, tiny_bert, folders[stage.role], inputs=folders))
    for number in (1, 2):  # at rate 0 the joint stage leaves them as they are
        part = folders[f"sub{number}"] / "selected" / WEIGHTS
        assert (folders["joint"] / "selected" / f"tower-{number}" / WEIGHTS).read_bytes() == part.read_bytes()
    assert facts["trained_parameters"] < facts["parameters"] / 2
    base = json.loads((folders["joint"] / "selected" / "tower-1" / adapter_folder.BASE).read_text())
    assert base["sha256"] == resolve_folder(str(tiny_bert), where="").sha256


def test_momentum_copy_moves_adapters_and_shares_the_base() -> None:
    model = encoder("bert")
    add_lora(model, LoraSettings(2, 6.0, base="bf16"))
    slow = MomentumCopy(model, 0.75)
    for tensor in lora_state(model).values():
        tensor.add_(1.0)
    start = {name: tensor.clone() for name, tensor in lora_state(slow.model).items()}
    before = model.embeddings.word_embeddings.weight.clone()
    slow.update(model)
    assert torch.equal(model.embeddings.word_embeddings.weight, before)
    table: Any = slow.model.get_submodule("embeddings.word_embeddings")
    assert table.weight is model.embeddings.word_embeddings.weight
    for name, tensor in lora_state(slow.model).items():
        torch.testing.assert_close(tensor, start[name] * 0.75 + lora_state(model)[name] * 0.25)


def test_changed_base_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_bert, base)
    folder = train("simcse", base, tmp_path).folder / "selected"
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-6}))
    with pytest.raises(InputError, match="expected the base model that it was trained on"):
        load_backbone(folder)
    shutil.rmtree(base)
    with pytest.raises(InputError, match="its base model 'base' is not on this machine"):
        load_backbone(folder)
    moved = Path(shutil.copytree(tiny_bert, tmp_path / "moved"))
    with adapter_folder.offer_bases([moved]):
        load_backbone(folder)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text of more than a batch of every method."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Sentence number {number}.\n" for number in range(300)))
    return path


REFUSED = [
    ("simcse[lora_alpha=32]", {}, "lora_alpha=32.0 has no effect with lora_rank=0"),
    ("simcse[lora_targets=query]", {}, "lora_targets=query has no effect"),
    ("tncse[rtt=none,lora_base=bf16]", {}, "lora_base=bf16 has no effect"),
    (
        "simcse[lora_rank=2,lora_targets=q_proj+query]",
        {},
        "no linear module of the layers is called 'q_proj'",
    ),
    ("simcse[lora_rank=2,lora_alpha=0]", {}, "lora_alpha=0"),
    ("simcse[lora_rank=500]", {}, "lora_rank=500 is more than any of its matrices has"),
    ("simcse[lora_rank=2]", {"train_precision": "bf16-weights"}, "--train-precision bf16-weights"),
    ("esimcse[lora_rank=2,momentum_init=random]", {}, "no frozen backbone"),
    ("promptbert[lora_rank=2,prompt_form=continuous]", {}, "trained vectors"),
    ("paradigm[lora_rank=2,freeze_layers=1]", {}, "freeze_layers has no effect"),
    ("ensemble:simcse[lora_rank=2,lora_alpha=0]", {}, "lora_alpha=0"),
]


@pytest.mark.parametrize(("method", "changes", "words"), REFUSED, ids=[entry[0] for entry in REFUSED])
def test_plan_refuses_it(
    method: str, changes: dict[str, Any], words: str, tiny_bert: Path, text: Path, tmp_path: Path
) -> None:
    given = {"backbone": str(tiny_bert), "corpus": text, "dev": "toy", **changes}
    with pytest.raises(InputError) as error:
        check_pending_cells(plan_on_toy(method, tmp_path, **given))
    assert words in str(error.value)
    assert error.value.where


def test_finished_adapters_are_used_with_their_base_elsewhere(
    tiny_bert: Path, text: Path, tmp_path: Path
) -> None:
    """As when a results folder and a model come to another machine."""
    first, other = (Path(shutil.copytree(tiny_bert, tmp_path / name)) for name in "ab")
    method = "simcse[lora_rank=2,steps=1,eval_every=1,batch_size=4]"
    vectors = []
    for base in (first, other):
        plan = plan_on_toy(method, tmp_path, backbone=str(base), corpus=text, dev="toy")
        cache = StageCache(tmp_path / ".stages")
        builder = EncoderBuilder(plan.jobs[0].cell, "cpu", plan.training, cache)
        vectors.append(cast("Encoder", builder.encoder()).encode(["A sentence."]))
        shutil.rmtree(first, ignore_errors=True)
    assert np.array_equal(vectors[0], vectors[1])


def test_plan_notes_a_rate_for_all_weights(tiny_bert: Path, text: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"backbone": str(tiny_bert), "corpus": text, "dev": "toy"}
    for rate, noted in (("1e-5", True), ("1e-3", False)):
        notes = plan_on_toy(f"simcse[lora_rank=2,lr={rate}]", tmp_path, **given).notes
        assert any("adapters mostly need more" in note for note in notes) == noted


def test_missing_library_is_one_line_in_the_plan(
    tiny_bert: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora_checks, "has_peft", lambda: False)
    given: dict[str, Any] = {"backbone": str(tiny_bert), "corpus": text, "dev": "toy"}
    with pytest.raises(InputError, match="needs the package peft") as error:
        check_pending_cells(plan_on_toy("simcse[lora_rank=2]", tmp_path, **given))
    assert "cse-bench[peft]" in str(error.value.hint)
    check_pending_cells(plan_on_toy("simcse", tmp_path, **given))


def test_plan_estimates_a_checkpoint_of_adapters(tiny_bert: Path, text: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"backbone": str(tiny_bert), "corpus": text, "dev": "toy"}
    (job,) = plan_on_toy("simcse[lora_rank=2]", tmp_path, **given).jobs
    count = lora_checks.count_adapter_weights(resolve_folder(str(tiny_bert), where=""), LoraSettings(2, 16))
    model = load_backbone(tiny_bert)[0]
    add_lora(model, LoraSettings(2, 16))
    assert count == sum(tensor.numel() for tensor in lora_state(model).values())
    line = describe_checkpoints([job], StageCache(tmp_path))
    assert line is not None
    assert f"about {16 * count / 1e6:,.1f} MB" in line
