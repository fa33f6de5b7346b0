"""What a sentence's vector is in the gradient paradigm's set-up, and which layers are trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from bench import nn
from bench.encoder import Encoder
from bench.errors import InputError
from bench.losses.paradigm_losses import unit_info_nce
from bench.method_card import OptionValue
from bench.methods.paradigm import PairObjective, PromptedViews
from tests.support import layered_encoders
from tests.support.paradigm import NAMES, options
from tests.support.steps import nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, stages_of, train_alone

FIRST, SECOND = 'This sentence : "{}" means [MASK] .', 'This sentence of "{}" means [MASK] .'


def state_at_mask(model: torch.nn.Module, tokenizer: AutoTokenizer, text: str) -> Tensor:
    """State before the last two tokens of a text, alone and so without padding."""
    batch = tokenizer(text, return_tensors="pt")
    assert int(batch["input_ids"][0, -3]) == tokenizer.mask_token_id
    states: Tensor = model(**batch).last_hidden_state
    return states[0, -3]


@pytest.mark.parametrize("head_input", ["cls", "tanh"])
def test_pooler_mask_equals_a_transcription(tiny_bert: Path, head_input: str) -> None:
    made, batch, tokenizer = objective_of("infonce", tiny_bert, pooler="mask", head_input=head_input)
    views = []
    for template in (FIRST, SECOND):
        states = [state_at_mask(made.encoder, tokenizer, template.format(text)) for text in SENTENCES]
        found = torch.stack(states)
        found = torch.tanh(found) if head_input == "tanh" else found
        views.append(found @ made.head.weight.T + made.head.bias)
    assert not torch.allclose(*views)
    same_step(made, made(batch), nce_by_loops(*views))


def test_pooler_avg_equals_a_transcription_and_has_no_head(tiny_bert: Path) -> None:
    made, batch, tokenizer = objective_of("infonce", tiny_bert, pooler="avg")
    batches = [tokenizer(text, return_tensors="pt") for text in SENTENCES]
    means = [made.encoder(**alone).last_hidden_state[0].mean(0) for alone in batches]
    got = same_step(made, made(batch), nce_by_loops(means, means))
    assert all(name.startswith("encoder.encoder.layer.") for name in got)


def test_a_prompt_keeps_as_much_of_a_sentence_as_without_it(tiny_bert: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    read = PromptedViews(tokenizer, ["a man is singing " * 9, "two"], 12, 20)
    long, short, *_ = rows = read.rows([(0, []), (1, [])])
    assert len(rows) == 4
    assert long[5:-5] == tokenizer("a man is singing " * 9)["input_ids"][1:11]
    assert [len(row) for row in rows] == [20, 11, 20, 11]
    assert rows[2:] != rows[:2]
    assert short[:5] == tokenizer('This sentence : "')["input_ids"][:-1]
    with pytest.raises(InputError, match=r"max_length 13 and the prompt .* up to 12"):
        PromptedViews(tokenizer, ["two"], 13, 20)


def test_the_dev_evaluation_and_inference_see_the_poolers_vectors(tiny_bert: Path, tmp_path: Path) -> None:
    scores = set()
    for pooler in ("cls", "avg", "mask"):
        found = train_alone("m_vicreg", tiny_bert, tmp_path, pooler=pooler)
        encoder = found.encoder()
        assert isinstance(encoder, Encoder)
        assert encoder.facts["pooling"] == pooler
        prompt = FIRST.format("{sentence}").replace(" [MASK]", "{mask}") if pooler == "mask" else None
        assert encoder.facts.get("prompt") == prompt
        assert found.score() == pytest.approx(found.facts["selected_dev"], abs=1e-6)
        scores.add(found.score())
    assert len(scores) == 3


def test_pooling_goes_with_pooler_cls_alone() -> None:
    for name in NAMES:
        stages_of(name, options(name, pooling="avg"))
        with pytest.raises(InputError, match=f"{name}: pooling avg with pooler mask; .* pooler=cls"):
            stages_of(name, options(name, pooler="mask", pooling="avg"))


@pytest.mark.parametrize("embeddings", [True, False])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_the_first_layers_are_frozen(tiny_bert: Path, layers: int, embeddings: bool) -> None:
    changes: dict[str, OptionValue] = {"freeze_layers": layers, "freeze_embeddings": embeddings}
    made, batch, _ = objective_of("m_mhe", tiny_bert, **changes)
    names = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    trained = [f"encoder.encoder.layer.{number}." for number in range(layers, 3)]
    parts = ("head.", "encoder.pooler.", *trained, *(() if embeddings else ("encoder.embeddings.",)))
    assert names == {name for name, _ in made.named_parameters() if name.startswith(parts)}
    torch.autograd.backward(made(batch))
    assert bool(made.encoder.encoder.layer[2].output.dense.weight.grad.any())


@pytest.mark.parametrize("name", ["distilbert", "modernbert", "deberta-v3", "eurobert"])
def test_layers_of_any_architecture_are_frozen(name: str) -> None:
    model = layered_encoders.encoder(name)
    PairObjective(model, 0, options("infonce", freeze_layers=1, freeze_embeddings=False), unit_info_nce)
    frozen = {id(parameter) for parameter in model.parameters() if not parameter.requires_grad}
    first, second, *_ = nn.list_layers(model)
    assert frozen == {id(parameter) for parameter in first.parameters()}
    assert not frozen & {id(parameter) for parameter in second.parameters()}


def test_a_layer_must_be_left_to_train(tiny_bert: Path) -> None:
    model = AutoModel.from_pretrained(tiny_bert)
    for layers, count in ((3, 3), (12, 3)):
        with pytest.raises(InputError, match=f"freeze_layers {layers}; .* {count} layers"):
            PairObjective(model, 0, options("infonce", freeze_layers=layers), unit_info_nce)
