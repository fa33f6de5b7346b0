"""Supervised SimCSE: its loss, a step against a transcription, its head, training."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, BertConfig, BertModel, DistilBertConfig, DistilBertModel

from bench.baselines.sup_simcse import set_fresh_pooler
from bench.encoder import Encoder
from bench.errors import InputError
from bench.losses.contrastive import hard_negative_nce, info_nce
from bench.nn.backbone import tokenize_rows
from bench.stages import PAIRS
from tests.support.steps import cls_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random, stages_of, toy_sentences, train_alone

POSITIVES = ["A doctor reads.", "one", "Children sing on a hill.", "a man who farms"]
NEGATIVES = ["Nobody reads a book.", "two words", "Two children sleep.", "the doctor"]
TRIPLETS = {"partners": POSITIVES, "negatives": NEGATIVES}


def by_loops(
    anchors: list[Tensor], positives: list[Tensor], negatives: list[Tensor], tau: float, weight: float
) -> Tensor:
    """Equation 5 as it is printed, with alpha = e^weight on an anchor's own hard negative."""
    total = torch.zeros((), dtype=torch.float64)
    for i, anchor in enumerate(anchors):
        near = [torch.cosine_similarity(anchor, other, dim=0) / tau for other in positives]
        below = sum((s.exp() for s in near), torch.zeros((), dtype=torch.float64))
        for j, other in enumerate(negatives):
            alpha = math.exp(weight) if i == j else 1.0
            below = below + alpha * (torch.cosine_similarity(anchor, other, dim=0) / tau).exp()
        total = total - (near[i].exp() / below).log()
    return total / len(anchors)


@pytest.mark.parametrize("weight", [0.0, 1.5, -2.0])
def test_the_loss_is_the_formula(weight: float) -> None:
    a, p, n = (random(5, 4, seed=seed) for seed in range(3))
    found = hard_negative_nce(a, p, n, 0.3, weight)
    assert float(found) == pytest.approx(float(by_loops(list(a), list(p), list(n), 0.3, weight)), rel=1e-12)


def test_limits() -> None:
    a, p, n = (random(5, 4, seed=seed) for seed in range(3))
    assert float(hard_negative_nce(a, p, None, 0.3)) == float(info_nce(a, p, 0.3))
    same = torch.ones(6, 3)
    assert float(hard_negative_nce(same, same, same, 0.05)) == pytest.approx(math.log(12), rel=1e-6)
    one = hard_negative_nce(a[:1], p[:1], n[:1], 0.3, -1000.0)  # alone, and its own negative weighs nothing
    assert float(one) == pytest.approx(0, abs=1e-12)


def vectors(made: Any, tokenizer: Any, texts: list[str]) -> list[Tensor]:
    dense = made.encoder.pooler.dense
    rows = tokenize_rows(tokenizer, texts, 20)
    return [torch.tanh(dense.weight @ cls_of(made.encoder, row) + dense.bias) for row in rows]


@pytest.mark.parametrize("changes", [{}, {"hard_negative_weight": 1.5}, {"tau": 0.2}])
@pytest.mark.parametrize("chosen", [[2, 0, 3, 1], [1], [3, 1]])
@pytest.mark.parametrize("given", [TRIPLETS, {"partners": POSITIVES}], ids=["triplets", "pairs"])
def test_a_step_equals_a_transcription(
    tiny_bert: Path, given: dict[str, list[str]], changes: dict[str, float], chosen: list[int]
) -> None:
    made, batch, tokenizer = objective_of("sup_simcse", tiny_bert, SENTENCES, given, **changes)
    columns = [SENTENCES, POSITIVES, NEGATIVES][: 1 + len(given)]
    x, p, *n = (vectors(made, tokenizer, [texts[i] for i in chosen]) for texts in columns)
    tau, weight = changes.get("tau", 0.05), changes.get("hard_negative_weight", 0.0)
    expected = by_loops(x, p, n[0] if n else [], tau, weight)
    same_step(made, made([batch[i] for i in chosen]), expected, rtol=1e-5)


def test_the_head_is_a_fresh_pooler(tiny_bert: Path) -> None:
    made, _, _ = objective_of("sup_simcse", tiny_bert, SENTENCES, TRIPLETS)
    dense, before = made.encoder.pooler.dense, AutoModel.from_pretrained(tiny_bert).pooler.dense
    assert not torch.equal(dense.weight.float(), before.weight)
    assert float(dense.bias.detach().abs().max()) == 0
    assert 0.01 < float(dense.weight.detach().std()) < 0.03


def test_a_backbone_without_a_pooler_gets_one_where_its_architecture_has_one() -> None:
    small: dict[str, Any] = dict.fromkeys(("hidden_size", "intermediate_size"), 8)
    small |= dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 2)
    model: Any = BertModel(BertConfig(vocab_size=9, **small))
    model.pooler = None
    set_fresh_pooler(model)
    assert model.pooler.dense.weight.shape == (8, 8)
    other = DistilBertModel(DistilBertConfig(vocab_size=9, dim=8, n_layers=1, n_heads=2, hidden_dim=8))
    with pytest.raises(InputError, match="DistilBertModel has no pooler"):
        set_fresh_pooler(other)
    square = SimpleNamespace(config=model.config, pooler=SimpleNamespace(dense=torch.nn.Linear(4, 8)))
    with pytest.raises(InputError, match="has no pooler"):
        set_fresh_pooler(square)


# training


def test_the_head_is_kept(tiny_bert: Path, tmp_path: Path) -> None:
    texts = toy_sentences()
    trained = train_alone("sup_simcse", tiny_bert, tmp_path, {"partners": texts[1:] + texts[:1]})
    kept, before = trained.kept(), AutoModel.from_pretrained(tiny_bert).pooler.dense.weight
    assert not torch.equal(kept["pooler.dense.weight"], before)
    assert trained.score() == pytest.approx(trained.facts["selected_dev"])  # the dev set sees the head
    encoder, plain = trained.encoder(), trained.encoder(pooling="cls")
    assert isinstance(encoder, Encoder)
    assert isinstance(plain, Encoder)
    states = torch.from_numpy(plain.encode(SENTENCES))
    expected = torch.tanh(states @ kept["pooler.dense.weight"].T + kept["pooler.dense.bias"])
    torch.testing.assert_close(torch.from_numpy(encoder.encode(SENTENCES)), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["sup_simcse", "angle"])
def test_the_stage_reads_pairs(method: str) -> None:
    (stage,) = stages_of(method, options_of(method))
    assert stage.text == PAIRS
