"""Trained PromptEOL: rows, one step and its settings, against transcriptions of the released code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout
from transformers import AutoModel
from transformers.pytorch_utils import Conv1D

from bench.baselines.external import HuggingFace
from bench.errors import InputError
from bench.nn.decoders import OneWordEncoder
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.stages import PAIRS
from bench.training.gradient_caching import cache_gradients
from tests.support.architectures import tiny
from tests.support.cli import Cli, refusal
from tests.support.steps import gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of, train_alone

POSITIVES = ["A doctor reads.", "one", "Children sing on a hill.", "a man who farms"]
NEGATIVES = ["Nobody reads a book.", "two words", "Two children sleep.", "the doctor"]
TRIPLETS = {"partners": POSITIVES, "negatives": NEGATIVES}
ADAPTERS = {"lora_rank": 3, "lora_alpha": 5.0, "lora_dropout": 0.3}
KINDS = ("llama", "gpt2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoders")
    return {kind: tiny(kind, root / kind, length=128) for kind in KINDS}


def released_row(tokenizer: Any, sentence: str, cutoff: int) -> list[int]:
    """generate_sentemb_prompt and tokenize of ft_llm.py (8567aa0): cut, decoded, put into the template."""
    ids = tokenizer(sentence, truncation=True, max_length=cutoff, add_special_tokens=False)["input_ids"]
    prompt = 'This_sentence_:_"*sent_0*"_means_in_one_word:"'.replace("_", " ")
    row: list[int] = tokenizer(prompt.replace("*sent 0*", tokenizer.decode(ids)).strip())["input_ids"]
    return row


def rows_of(prepared: Any) -> list[list[int]]:
    """Token rows of a prepared batch, in its order."""
    rows = [
        ids[mask > 0].tolist()
        for chunk in prepared.chunks
        for ids, mask in zip(chunk.ids, chunk.mask, strict=True)
    ]
    return [rows[place] for place in prepared.place]


def adapted_states(module: Any, folder: Path, rows: list[list[int]], scale: float, rate: float) -> Tensor:
    """Last token's states of a plain model whose layers compute W x + (alpha / r) B A drop(x)."""
    model: Any = AutoModel.from_pretrained(folder).double().eval()
    weights = dict(module.encoder.named_parameters())
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    longest = max(map(len, rows))
    ids = torch.tensor([[*rows[i], *[0] * (longest - len(rows[i]))] for i in order])
    mask = torch.tensor([[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in order])

    def adapt(name: str) -> Callable[..., Tensor]:
        a, b = (weights[f"{name}.lora_{part}.default.weight"] for part in "AB")

        def add(layer: Any, given: tuple[Tensor, ...], result: Tensor) -> Tensor:
            change: Tensor = dropout(given[0], rate) @ a.T @ b.T
            return result + scale * change

        return add

    with ExitStack() as hooks:
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear | Conv1D):
                hooks.callback(layer.register_forward_hook(adapt(name)).remove)
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    last = states[torch.arange(len(order)), mask.sum(1) - 1]
    return torch.stack([last[order.index(index)] for index in range(len(rows))])


def by_loops(columns: list[list[Tensor]], tau: float, weight: float = 0.0) -> Tensor:
    """compute_loss of ft_llm.py: cross entropy of cosines over 0.05, of positives and hard negatives."""
    anchors, positives, *hard = columns
    total = torch.zeros((), dtype=torch.float64)
    for i, z1 in enumerate(anchors):
        row = [torch.cosine_similarity(z1, z2, dim=0) / tau for z2 in positives]
        for j, z3 in enumerate(hard[0] if hard else []):
            row.append(torch.cosine_similarity(z1, z3, dim=0) / tau + (weight if i == j else 0.0))
        total = total - torch.stack(row).log_softmax(0)[i]
    return total / len(anchors)


def adapted(name: str, folder: Path, given: Any = None, **changes: Any) -> tuple[Any, list[Any], Any]:
    """An objective whose adapters already change the states: B of a fresh one is zero."""
    made, batch, tokenizer = objective_of(name, folder, SENTENCES, given, **{**ADAPTERS, **changes})
    draws = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, value in made.encoder.named_parameters():
            if "lora_B" in key:
                value.copy_(torch.randn(value.shape, generator=draws) * 0.3)
    return made, batch, tokenizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "given", "changes"),
    [
        ("prompteol_cse", {}, {}),
        ("prompteol_cse", {}, {"tau": 0.2, "lora_dropout": 0.05}),
        ("sup_prompteol_cse", TRIPLETS, {}),
        ("sup_prompteol_cse", TRIPLETS, {"hard_negative_weight": 1.5}),
        ("sup_prompteol_cse", {"partners": POSITIVES}, {"lora_dropout": 0.0}),
    ],
)
def test_a_step_equals_a_transcription(
    folders: dict[str, Path], kind: str, name: str, given: dict[str, list[str]], changes: dict[str, float]
) -> None:
    made, batch, tokenizer = adapted(name, folders[kind], given, **changes)
    columns = [SENTENCES, *(given.values() or [SENTENCES])]
    rows = [released_row(tokenizer, text, 20) for column in columns for text in column]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        loss = made(batch)
        torch.manual_seed(7)
        rate = changes.get("lora_dropout", ADAPTERS["lora_dropout"])
        states = adapted_states(made.module, folders[kind], rows, 5 / 3, rate)
    views = [list(part) for part in states.chunk(len(columns))]
    expected = by_loops(views, changes.get("tau", 0.05), changes.get("hard_negative_weight", 0.0))
    gradients = same_step(made.module, loss, expected, least=15)
    assert all("lora_" in key and bool(part.any()) for key, part in gradients.items())
    layers = [m for m in AutoModel.from_pretrained(folders[kind]).modules() if type(m).__name__ in LINEAR]
    assert len(gradients) == 2 * len(layers)


LINEAR = ("Linear", "Conv1D")


def test_rows_are_the_released_ones_and_those_of_the_evaluation(folders: dict[str, Path]) -> None:
    texts = ["A dog runs.", 'She said "why"', "Two children are singing a song on the hill of the farm", "a"]
    for kind in KINDS:
        for form, read in (("released", "paper"), ("paper", "paper"), ("stopped", "released")):
            made, batch, tokenizer = objective_of(
                "prompteol_cse", folders[kind], texts, max_length=16, form=form, lora_rank=2
            )
            rows = rows_of(made.prepare(batch))
            assert rows[:4] == rows[4:]
            if form != "stopped":
                assert rows[:4] == [released_row(tokenizer, text, 16) for text in texts]
                assert len(rows[2]) < len(released_row(tokenizer, texts[2], 99))
            encoder = OneWordEncoder(folders[kind], form=read)
            assert [rows[i] for i in (0, 1, 3)] == encoder.token_ids([texts[i] for i in (0, 1, 3)])


def test_the_defaults_are_the_repositories() -> None:
    """ft_llm.py and train_llm.sh (8567aa0); llama3-8b of CSE-SFP's train.py (5a5adc2)."""
    shared = {
        "batch_size": 256, "epochs": 1, "max_length": 32, "lora_rank": 64, "lora_alpha": 16.0,
        "lora_dropout": 0.05, "lora_targets": "all-linear", "tau": 0.05, "weight_decay": 0.0, "clip": 1.0,
        "schedule": "linear", "template": 'This sentence : "{sentence}" means in one word:"',
    }  # fmt: skip
    own = {
        "prompteol_cse": {"lr": 5e-5, "eval_every": 150},
        "sup_prompteol_cse": {"lr": 5e-4, "eval_every": 50, "hard_negative_weight": 0.0},
    }
    for name, sentences in (("prompteol_cse", 1_000_000), ("sup_prompteol_cse", 275_601)):
        options = options_of(name)
        wanted = shared | own[name]
        assert {key: options[key] for key in wanted} == wanted
        steps = -(-sentences // 256)
        assert -(-options["warmup"] * steps // 1) == 100  # type: ignore[operator]
    (stage,) = stages_of("sup_prompteol_cse", options_of("sup_prompteol_cse"))
    assert stage.text == PAIRS


@pytest.mark.parametrize("rows", [1, 3])
def test_gradient_caching_gives_the_same_gradients(folders: dict[str, Path], rows: int) -> None:
    made, batch, _ = adapted("sup_prompteol_cse", folders["llama"], TRIPLETS, lora_dropout=0.0)
    whole = gradients_of(made.module, made(batch))
    with cache_gradients(rows):
        made(batch).backward()
    for key, gradient in whole.items():
        torch.testing.assert_close(made.module.get_parameter(key).grad, gradient, rtol=1e-6, atol=1e-10)


def test_trained_vectors_are_those_of_the_prompt(folders: dict[str, Path], tmp_path: Path) -> None:
    trained = train_alone(
        "prompteol_cse",
        folders["gpt2"],
        tmp_path,
        lora_rank=4,
        lora_dropout=0.1,
        lr=1e-2,
        chunk=16,
        checkpoint_layers=True,
    )
    encoder: Any = trained.encoder()
    before = OneWordEncoder(folders["gpt2"])
    assert encoder.token_ids(SENTENCES) == before.token_ids(SENTENCES)
    assert np.abs(encoder.encode(SENTENCES) - before.encode(SENTENCES)).max() > 1e-3
    assert trained.score() == pytest.approx(trained.facts["selected_dev"])
    folder = trained.folder / "selected"
    np.testing.assert_array_equal(OneWordEncoder(folder).encode(SENTENCES), encoder.encode(SENTENCES))
    export_encoder(encoder, tmp_path / "out", "# tiny\n")
    loaded: Any = load_encoder(tmp_path / "out")
    np.testing.assert_allclose(loaded.encode(SENTENCES), encoder.encode(SENTENCES), rtol=0, atol=1e-6)
    assert not (tmp_path / "out" / "modules.json").exists()
    plain = HuggingFace.folder_note(tmp_path / "out", options_of("hf", pooling="last"))
    assert plain == "its prompt around a sentence is not read: exported: reads it"


@pytest.mark.parametrize("changes", [{"lora_dropout": 0.0}, {"lora_rank": 0}])
def test_two_equal_views_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="both views of a sentence are equal"):
        stages_of("prompteol_cse", options_of("prompteol_cse", **changes))
    assert stages_of("prompteol_cse", options_of("prompteol_cse", dropout=0.1, **changes))
    assert stages_of("sup_prompteol_cse", options_of("sup_prompteol_cse", **changes))


def test_only_the_last_token_is_trained() -> None:
    with pytest.raises(InputError, match="isn't trained by a one-word prompt"):
        stages_of("prompteol_cse", options_of("prompteol_cse", train_pooling="avg"))
    given, own = (
        stages_of("prompteol_cse", options_of("prompteol_cse", train_pooling=way)) for way in ("last", "auto")
    )
    assert given[0].config == own[0].config


def test_the_plan_refuses_an_encoder(cli: Cli, tiny_bert: Path) -> None:
    line = ("run", "--seeds", "1", "--suite", "toy", "--backbone", str(tiny_bert), "--dry-run", "--methods")
    error = refusal(cli, *line, "prompteol_cse", "--set", "prompteol_cse.lora_rank=4")
    assert "needs a causal decoder" in error
    code, out, err = cli(*line, "all")
    assert code == 0, err
    left = next(text for text in err.splitlines() if "causal decoder" in text)
    assert "prompteol_cse" in left
    assert "prompteol_cse" not in out


def test_the_plan_takes_a_decoder_without_own_dropout(cli: Cli, folders: dict[str, Path]) -> None:
    line = ("run", "--seeds", "1", "--suite", "toy", "--backbone", str(folders["llama"]), "--dry-run")
    sets = ("--set", "prompteol_cse.lora_rank=4")
    code, out, err = cli(*line, "--methods", "prompteol_cse", *sets)
    assert (code, "to do" in out) == (0, True), err
    error = refusal(cli, *line, "--methods", "prompteol_cse", *sets, "--set", "prompteol_cse.lora_dropout=0")
    assert "both views of a sentence are equal" in error
    error = refusal(cli, *line, "--methods", "prompteol_cse")
    assert "lora_rank=64 is more than any of its matrices has" in error
    code, _, err = cli(*line, "--methods", "all")
    left = next(text for text in err.splitlines() if "lora_rank=64 is more" in text)
    assert (code, "prompteol_cse" in left) == (0, True)


def test_a_rate_of_the_card_needs_no_note(cli: Cli, folders: dict[str, Path]) -> None:
    line = ("run", "--seeds", "1", "--suite", "toy", "--backbone", str(folders["gpt2"]), "--dry-run")
    code, _, err = cli(*line, "--methods", "prompteol_cse[lora_rank=4]")
    assert (code, "suits all weights" in err) == (0, False)
    code, _, err = cli(*line, "--methods", "prompteol_cse[lora_rank=4,lr=1e-4]")
    assert (code, "suits all weights" in err) == (0, True)
    without = "prompteol_cse[lora_rank=0,dropout=0.1]"  # the card's lora_dropout has no effect then
    assert cli(*line, "--methods", without)[0] == 0


def test_the_template_needs_room(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="the template exceed"):
        objective_of("prompteol_cse", folders["llama"], max_length=120, lora_rank=2)
