"""LLM2Vec: both stages' steps against a transcription, released settings, masks, folders, refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, LlamaModel
from transformers.models.llama import modeling_llama

from bench.baselines.llm2vec import choose_mask_token
from bench.errors import InputError
from bench.method_card import BuildContext, OptionValue
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.bidirectional import load_bidirectional
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.lora_settings import CONFIG
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.registry import discover
from bench.training.randomness import generator
from tests.support.architectures import tiny
from tests.support.cli import Cli
from tests.support.steps import gradients_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stage_context, stages_of

BEGINS: dict[str, Any] = {"bos_token": "<s>"}
# the files of McGill-NLP/llm2vec 312adcf; mntp/ and simcse/ are in train_configs
RELEASED: dict[str, tuple[OptionValue, str]] = {
    # option: value, where it stands
    "mntp.batch_size": (32, "mntp/*.json per_device_train_batch_size, gradient_accumulation_steps 1"),
    "mntp.max_length": (512, "mntp/*.json max_seq_length"),
    "mntp.mask_share": (0.2, "mntp/*.json mlm_probability; 0.8 in mntp/Mistral.json"),
    "mntp.masking": ("bert", "mntp/*.json data_collator_type default; all_mask in mntp/Mistral.json"),
    "mntp.mask_token": ("blank", "mntp/*.json mask_token_type"),
    "mntp.steps": (1000, "mntp/*.json stop_after_n_steps"),
    "mntp.lr": (5e-5, "transformers' TrainingArguments: no file sets it"),
    "mntp.dropout": (0.0, "config.json attention_dropout of Llama and Mistral: no file sets it"),
    "batch_size": (128, "simcse/*.json per_device_train_batch_size, gradient_accumulation_steps 1"),
    "max_length": (128, "simcse/*.json max_seq_length"),
    "steps": (1000, "simcse/*.json stop_after_n_steps"),
    "lr": (3e-5, "simcse/*.json learning_rate"),
    "dropout": (0.3, "simcse/*.json simcse_dropout"),
    "tau": (1 / 20, "simcse/*.json loss_scale"),
    "pooling": ("avg", "simcse/*.json pooling_mode mean"),
    "lora_rank": (16, "*/*.json lora_r"),
    "lora_alpha": (32.0, "experiments/run_mntp.py and run_simcse.py: 2 * lora_r"),
    "lora_dropout": (0.05, "CustomArguments.lora_dropout of both scripts"),
    "clip": (1.0, "transformers' TrainingArguments.max_grad_norm"),
    "weight_decay": (0.0, "transformers' TrainingArguments.weight_decay"),
}
SHORT: dict[str, OptionValue] = {
    **{"steps": 3, "eval_every": 3, "batch_size": 8, "max_length": 12, "lora_rank": 2, "lr": 1e-2},
    **{"mntp.steps": 3, "mntp.eval_every": 2, "mntp.batch_size": 8, "mntp.max_length": 16, "mntp.lr": 1e-2},
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("decoders") / "llama", **BEGINS)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama's norm in the type of its input: transformers computes it in float32."""

    def norm(module: Any, states: Tensor) -> Tensor:
        scale = states.pow(2).mean(-1, keepdim=True) + module.variance_epsilon
        result: Tensor = module.weight * states / scale.sqrt()
        return result

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)


def test_defaults_are_the_released_ones() -> None:
    defaults = options_of("llm2vec")
    assert {name: defaults[name] for name in RELEASED} == {
        name: value for name, (value, _) in RELEASED.items()
    }


# the steps


def llama_states(model: Any, ids: list[int], adapters: Mapping[str, Tensor], scale: float) -> Tensor:
    """Last states (L, H) of a Llama in which all tokens see each other, its adapters written out."""
    weights = {name.replace(".base_layer", ""): value for name, value in model.named_parameters()}

    def times(states: Tensor, name: str) -> Tensor:
        down, up = (adapters[f"{name}.lora_{part}.default.weight"] for part in "AB")
        product: Tensor = states @ (weights[f"{name}.weight"] + scale * up @ down).T
        return product

    def norm(states: Tensor, name: str) -> Tensor:
        square = (states * states).mean(-1, keepdim=True) + model.config.rms_norm_eps
        normed: Tensor = states / square.sqrt() * weights[f"{name}.weight"]
        return normed

    heads, size = model.config.num_attention_heads, model.config.head_dim
    angles = torch.arange(len(ids))[:, None].float() * model.rotary_emb.inv_freq.float()
    cosine, sine = (torch.cat([part, part], 1).double() for part in (angles.cos(), angles.sin()))
    h = weights["embed_tokens.weight"][torch.tensor(ids)]
    for number in range(model.config.num_hidden_layers):
        layer = f"layers.{number}"
        x = norm(h, f"{layer}.input_layernorm")
        q, k, v = (torch.split(times(x, f"{layer}.self_attn.{part}_proj"), size, 1) for part in "qkv")
        contexts = []
        for head in range(heads):
            turned = []
            for part in (q[head], k[head]):
                one, two = part.chunk(2, 1)
                turned.append(part * cosine + torch.cat([-two, one], 1) * sine)
            attention = (turned[0] @ turned[1].T / size**0.5).softmax(1)
            contexts.append(attention @ v[head])
        h = h + times(torch.cat(contexts, 1), f"{layer}.self_attn.o_proj")
        x = norm(h, f"{layer}.post_attention_layernorm")
        gate = times(x, f"{layer}.mlp.gate_proj")
        h = h + times(gate * gate.sigmoid() * times(x, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj")
    return norm(h, "norm")


def made_step(llama: Path, **changes: OptionValue) -> tuple[Any, list[list[int]], Any, dict[str, Tensor]]:
    """A stage's objective with moved adapters, its rows, tokenizer, and the adapters' weights."""
    plain = {"lora_dropout": 0.0, "lora_rank": 2, "lora_alpha": 6.0, "mntp.max_length": 20}
    made, rows, tokenizer = objective_of("llm2vec", llama, SENTENCES, **(plain | changes))
    adapters = {
        name.removeprefix("encoder."): value
        for name, value in made.module.named_parameters()
        if ".lora_" in name
    }
    draws = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in adapters.values():
            value.copy_(0.2 * torch.randn(value.shape, generator=draws, dtype=value.dtype))
    return made, rows, tokenizer, adapters


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("masking", ["bert", "all"])
def test_a_step_of_masked_next_token_prediction_is_the_transcription(llama: Path, masking: str) -> None:
    changes: dict[str, OptionValue] = {"stages": "mntp", "mntp.mask_share": 0.4, "mntp.masking": masking}
    made, rows, tokenizer, adapters = made_step(llama, **changes)
    blank = tokenizer.convert_tokens_to_ids("_")
    masks = generator(1, "mask/mntp")
    length = max(map(len, rows))
    chance = torch.rand(len(rows), length, generator=masks)
    way = torch.rand(len(rows), length, generator=masks)
    ordinary = [n for n in range(len(tokenizer)) if n not in {*tokenizer.all_special_ids, blank}]
    words = torch.randint(len(ordinary), (len(rows), length), generator=masks)
    losses, kinds = [], set()
    for n, row in enumerate(rows):
        chosen = [t for t in range(1, len(row)) if chance[n, t] < 0.4 and row[t] != blank]
        inputs = list(row)
        for t in chosen:
            kind = "mask" if masking == "all" or way[n, t] < 0.8 else "word" if way[n, t] >= 0.9 else "same"
            inputs[t] = {"mask": blank, "word": ordinary[words[n, t]], "same": row[t]}[kind]
            kinds.add(kind)
        states = llama_states(made.encoder, inputs, adapters, 6 / 2)
        for t in chosen:
            logits = made.head.weight @ states[t - 1]
            losses.append(logits.logsumexp(0) - logits[row[t]])
    assert len(losses) > 10
    assert "mask" in kinds
    loss = made(rows)
    gradients = same_step(made.module, loss, torch.stack(losses).mean(), least=27)
    assert gradients.keys() == {f"encoder.{name}" for name in adapters}  # two layers of seven modules
    assert not any(value.requires_grad for value in made.head.parameters())


@pytest.mark.usefixtures("exact")
def test_a_step_of_simcse_is_the_transcription(llama: Path) -> None:
    """Released: cosines of means, times 20, cross-entropy (llm2vec/loss/HardNegativeNLLLoss.py)."""
    made, rows, _, adapters = made_step(llama, stages="simcse")
    vectors = [llama_states(made.encoder, row, adapters, 6 / 2).mean(0) for row in rows]
    expected = nce_by_loops(vectors, vectors, 1 / 20)
    gradients = same_step(made.module, made(rows), expected, least=27)
    assert not made_step(llama, stages="simcse", tau=0.1)[0](rows).isclose(expected)
    assert gradients.keys() == {f"encoder.{name}" for name in adapters}


def test_views_differ_by_attention_dropout(llama: Path) -> None:
    """Llama has no other place for it; without both kinds of dropout the views are one."""
    quiet: dict[str, OptionValue] = {"lora_dropout": 0.0, "stages": "simcse"}
    made, rows, _ = objective_of("llm2vec", llama, SENTENCES, dropout=0.3, **quiet)
    assert {layer.self_attn.attention_dropout for layer in made.encoder.layers} == {0.3}
    first, second = made.views(made.prepare(rows))
    assert float((first - second).detach().abs().max()) > 1e-2
    made, rows, _ = objective_of("llm2vec", llama, SENTENCES, **quiet)
    first, second = made.views(made.prepare(rows))
    assert torch.equal(first, second)


def test_masks_spare_special_tokens_and_a_first_token_predicts_nothing(tmp_path: Path, llama: Path) -> None:
    """GPT-2's rows begin with a word: it may be masked, but no state stands before it."""
    gpt2 = tiny("gpt2", tmp_path / "gpt2")
    for folder, first in ((llama, 0), (gpt2, None)):
        changes: dict[str, OptionValue] = {"stages": "mntp", "mntp.max_length": 20}
        changes |= {"mntp.mask_share": 1.0, "mntp.masking": "all"}
        made, rows, tokenizer = objective_of("llm2vec", folder, SENTENCES, **changes)
        blank = tokenizer.convert_tokens_to_ids("_")
        prepared = made.prepare([*rows, []])
        ids, length = prepared.chunk.ids, prepared.chunk.ids.shape[1]
        targets = iter(prepared.targets.tolist())
        for n, row in enumerate(rows):
            masked = row if first is None else row[1:]
            assert ids[n, : len(row)].tolist() == [*row[: len(row) - len(masked)], *[blank] * len(masked)]
            own = [place - n * length for place in prepared.places.tolist() if place // length == n]
            assert own == list(range(len(row) - 1))
            assert [next(targets) for _ in own] == row[1:]
        assert next(targets, None) is None
        assert bool(made.compute(prepared).isfinite())


def test_mask_tokens(llama: Path, tiny_bert: Path) -> None:
    plain, bert = (AutoTokenizer.from_pretrained(folder) for folder in (llama, tiny_bert))
    blank = plain.convert_tokens_to_ids("_")
    assert choose_mask_token(plain, "blank", "x").mask_token_id == blank
    assert choose_mask_token(plain, "eos", "x").mask_token_id == plain.eos_token_id
    assert choose_mask_token(bert, "eos", "x").mask_token_id == bert.mask_token_id
    assert plain.mask_token is None  # the copy has it
    plain.eos_token = None
    with pytest.raises(InputError, match=r"no token None for mntp.mask_token=eos"):
        choose_mask_token(plain, "eos", "x")


# the stages


def trained(folder: Path, out: Path, role: str, earlier: Mapping[str, Path], **more: Any) -> dict[str, Any]:
    options = options_of("llm2vec", **SHORT)
    (stage,) = (stage for stage in stages_of("llm2vec", options) if stage.role == role)
    return stage.train(stage_context(stage, folder, out, inputs=earlier, **more))


@pytest.fixture(scope="module")
def stages(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of both stages."""
    folders = {role: tmp_path_factory.mktemp(role) for role in ("mntp", "simcse")}
    trained(llama, folders["mntp"], "mntp", {})
    trained(llama, folders["simcse"], "simcse", {"mntp": folders["mntp"]})
    return folders


def test_a_stage_is_a_whole_model_whose_adapters_are_merged(llama: Path, stages: dict[str, Path]) -> None:
    """The second starts from the first's last step, as released, with fresh adapters."""
    linear = "model.layers.0.self_attn.q_proj.weight"
    start = load_file(llama / "model.safetensors")[linear]
    for folder in stages.values():
        assert not (folder / "selected" / CONFIG).exists()
        assert json.loads((folder / "selected" / "config.json").read_text())["is_causal"] is False
    last = stages["mntp"] / "last"
    if not last.is_dir():
        last = stages["mntp"] / "selected"
    first = load_file(last / "model.safetensors")
    second = load_file(stages["simcse"] / "selected" / "model.safetensors")
    name = linear.removeprefix("model.")
    for change in (first[name] - start, second[name] - first[name]):  # of rank 2 each
        sizes = torch.linalg.svdvals(change.double())
        assert sizes[1] > 1e-7
        assert sizes[2] < 1e-5 * sizes[0]
    for name in ("embed_tokens.weight", "layers.0.input_layernorm.weight", "norm.weight"):
        assert torch.equal(second[name], load_file(llama / "model.safetensors")[f"model.{name}"])


def test_equal_seeds_give_equal_bytes(llama: Path, stages: dict[str, Path], tmp_path: Path) -> None:
    expected = (stages["mntp"] / "selected" / "model.safetensors").read_bytes()
    for name, seed in (("again", 1), ("other", 2)):
        trained(llama, tmp_path / name, "mntp", {}, seed=seed)
        same = (tmp_path / name / "selected" / "model.safetensors").read_bytes() == expected
        assert same == (seed == 1)


def test_stages_are_what_the_option_asks_for() -> None:
    asked = {}
    for value in ("none", "mntp", "simcse", "both"):
        found = stages_of("llm2vec", options_of("llm2vec", stages=value))
        asked[value] = [(stage.role, stage.inputs) for stage in found]
    assert asked == {
        "none": [],
        "mntp": [("mntp", ())],
        "simcse": [("simcse", ())],
        "both": [("mntp", ()), ("simcse", ("mntp",))],
    }
    one, two = (dict(stages_of("llm2vec", options_of("llm2vec", chunk=4))[n].config) for n in (0, 1))
    assert (one["chunk"], two["chunk"], one["lr"], two["lr"]) == (0, 4, 5e-5, 3e-5)
    assert {one["train_pooling"], two["train_pooling"]} == {"auto"}
    with pytest.raises(InputError, match="train_pooling=mask would put sentences into a prompt"):
        stages_of("llm2vec", options_of("llm2vec", train_pooling="mask"))


def test_without_a_training_it_is_the_bidirectional_decoder(llama: Path) -> None:
    context = BuildContext(options_of("llm2vec", stages="none"), None, llama, "cpu")
    encoder: Any = discover().get("llm2vec").build(context)
    assert encoder.facts["reads"] == "both directions"
    assert not encoder.causal
    model = LlamaModel.from_pretrained(llama)
    for row, vector in zip(encoder.token_ids(SENTENCES), encoder.encode(SENTENCES), strict=True):
        everything = torch.zeros(1, 1, len(row), len(row))  # added to the scores: no token is hidden
        states = model(input_ids=torch.tensor([row]), attention_mask=everything).last_hidden_state
        torch.testing.assert_close(torch.from_numpy(vector), states[0].mean(0).detach(), rtol=1e-4, atol=1e-5)
    causal = TransformerEncoder(llama, "avg")
    assert "reads" not in causal.facts
    assert abs(causal.encode(SENTENCES) - encoder.encode(SENTENCES)).max() > 1e-2


def test_an_export_keeps_the_attention(stages: dict[str, Path], tmp_path: Path) -> None:
    encoder = TransformerEncoder(stages["simcse"] / "selected", "avg")
    export_encoder(encoder, out := tmp_path / "out", "# tiny\n")
    settings = json.loads((out / "bench.json").read_text())
    assert settings["attention"] == "bidirectional"
    assert "transformers 5" in (out / "README.md").read_text()
    expected = encoder.encode(SENTENCES)
    for loaded in (load_encoder(out), SentenceTransformerEncoder(out)):
        assert abs(loaded.encode(SENTENCES) - expected).max() < 1e-5
    config = json.loads((out / "config.json").read_text())
    del config["is_causal"]
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="attention 'bidirectional'"):
        load_encoder(out)


def test_plans(cli: Cli, llama: Path, tiny_bert: Path, corpus: Path) -> None:
    """An encoder is refused in one line; without a training there are no seeds."""
    run = ("run", "--suite", "toy", "--dev", "toy", "--corpus", str(corpus), "--dry-run", "--seeds", "1-3")
    short = "[batch_size=8]"
    code, _, err = cli(*run, "--methods", f"llm2vec{short}", "--backbone", str(tiny_bert))
    assert (code, err.count("\n")) == (2, 1)
    assert (
        "needs a causal decoder, such as GPT-2 or Llama, which the backbone tiny-bert (bert) hasn't got"
        in err
    )
    code, out, err = cli(
        *run, "--methods", f"llm2vec{short},a=llm2vec[stages=none]", "--backbone", str(llama)
    )
    assert code == 0, err
    assert "4 cells" in out + err
    assert "suits all weights" not in err  # its rates are those of adapters


def test_a_decoder_that_was_made_bidirectional_is_one(stages: dict[str, Path]) -> None:
    """It can be trained further: its configuration alone would pass for an encoder's."""
    model, _ = load_backbone(folder := stages["mntp"] / "selected")
    assert model.config.is_causal is False
    again, _ = load_bidirectional(folder)
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_gradients_stay_out_of_the_frozen_weights(llama: Path) -> None:
    made, rows, _, _ = made_step(llama, stages="mntp")
    assert all(".lora_" in name for name in gradients_of(made.module, made(rows)))
