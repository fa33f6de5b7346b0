"""Contrastive tension: steps against a transcription and the released losses, pairs, optimiser, schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.ct import arrange_pairs
from bench.method_card import OptionValue
from bench.nn.backbone import TransformerEncoder
from bench.training.loop import TrainSettings, learning_rate, make_optimizer
from tests.support.steps import count_losses, gradients_of, objective_of, same_step
from tests.support.training import options_of, toy_sentences, train_alone

TEXT = toy_sentences()[:11]
Pairs = list[tuple[int, int, bool]]


def made_from(
    method: str, backbone: Path, sentences: Sequence[str] = TEXT, /, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    """The objective, its first encoder moved, so that both differ."""
    changes = {"batch_size": len(sentences), **changes}
    made, batch, tokenizer = objective_of(method, backbone, sentences, **changes)
    with torch.no_grad():
        for n, weight in enumerate(made.first.parameters()):
            weight.add_(
                0.05 * torch.sin(torch.arange(weight.numel(), dtype=torch.float64) + n).view_as(weight)
            )
    return made, batch, tokenizer


def mean_state(model: Any, row: Sequence[int]) -> Tensor:
    states: Tensor = model(input_ids=torch.tensor([list(row)])).last_hidden_state[0]
    return torch.stack(list(states)).sum(0) / len(row)


def released_order(count: int, negatives: int) -> Pairs:
    """_orderBatchSamples of the authors' Training.py (75293a8), on sentences dealt in a row."""
    pairs: Pairs = []
    numbers = iter(range(count))
    for _ in range(count // (1 + 2 * negatives)):
        positive = next(numbers)
        pairs.append((positive, positive, True))
        firsts = [next(numbers) for _ in range(negatives)]
        seconds = [next(numbers) for _ in range(negatives)]
        pairs += [(one, two, False) for one, two in zip(firsts, seconds, strict=True)]
    return pairs


def tension(made: Any, rows: Sequence[Sequence[int]], pairs: Pairs) -> Tensor:
    """The loss pair by pair: -log sigma(s) of equal ones, -log(1 - sigma(s)) of others."""
    terms = []
    for one, two, equal in pairs:
        score = mean_state(made.first, rows[one]) @ mean_state(made.encoder, rows[two])
        terms.append(torch.log1p(torch.exp(-score if equal else score)))
    return torch.stack(terms).mean()


def batch_tension(made: Any, rows: Sequence[Sequence[int]], similarity: str) -> Tensor:
    u = [mean_state(made.first, row) for row in rows]
    v = [mean_state(made.encoder, row) for row in rows]
    if similarity == "cos":
        u, v = [x / x.norm() for x in u], [x / x.norm() for x in v]
    scale, terms = made.log_scale.exp(), []
    for i in range(len(rows)):
        across = torch.stack([scale * (u[i] @ other) for other in v])
        down = torch.stack([scale * (other @ v[i]) for other in u])
        own = scale * (u[i] @ v[i])
        terms.append((torch.logsumexp(across, 0) - own + torch.logsumexp(down, 0) - own) / 2)
    return torch.stack(terms).mean()


PAIRS: list[dict[str, OptionValue]] = [{"negatives": 2}, {"negatives": 4}, {"negatives": 2, "pairs": "paper"}]
BATCH: list[dict[str, OptionValue]] = [{}, {"similarity": "cos", "scale": 20.0}, {"scale": 0.5}]


@pytest.mark.parametrize("changes", PAIRS)
def test_a_step_of_pairs_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    made, rows, _ = made_from("ct", tiny_bert, **changes)
    negatives = int(changes["negatives"])
    if "pairs" in changes:
        pairs = [
            (start, place, start == place) for start in (0, 3, 6, 9) for place in range(start, start + 3)
        ]
        pairs = [pair for pair in pairs if pair[1] < len(rows)]
    else:
        pairs = released_order(10, negatives) if negatives == 2 else released_order(9, 4)
        pairs.append((len(rows) - 1, len(rows) - 1, True) if negatives == 2 else (9, 9, True))
    found = same_step(made, made(rows), tension(made, rows, pairs))
    for start in ("first.", "encoder."):
        assert any(bool(gradient.any()) for name, gradient in found.items() if name.startswith(start))


@pytest.mark.parametrize("changes", BATCH)
def test_a_step_in_batch_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    made, rows, _ = made_from("ct_batch", tiny_bert, TEXT[:5], **changes)
    expected = batch_tension(made, rows, str(changes.get("similarity", "dot")))
    found = same_step(made, made(rows), expected)
    assert bool(found["log_scale"])


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    for method, changes in (("ct", PAIRS), ("ct_batch", BATCH)):
        assert count_losses(partial(made_from, method, tiny_bert), changes) == len(changes)


def test_the_released_losses_and_gradients(tiny_bert: Path) -> None:
    """Those of sentence-transformers; ContrastiveTensionLoss sums where the authors' code takes the mean."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    def features(rows: Sequence[Sequence[int]], tokenizer: Any) -> dict[str, Tensor]:
        return dict(tokenizer.pad({"input_ids": [list(row) for row in rows]}, return_tensors="pt"))

    settings: dict[str, dict[str, OptionValue]]
    settings = {"ct": {"negatives": 2}, "ct_batch": {"similarity": "cos", "scale": 20.0}}
    for method, changes in settings.items():
        whole = modules.Transformer(str(tiny_bert))
        model = SentenceTransformer(modules=[whole, modules.Pooling(whole.get_embedding_dimension(), "mean")])
        model.to("cpu")
        made, rows, tokenizer = made_from(method, tiny_bert, TEXT[:10], **changes)
        released: Any
        if method == "ct":
            released = losses.ContrastiveTensionLoss(model)
            pairs = arrange_pairs(10, 2)
            sides = [features([rows[pair[side]] for pair in pairs], tokenizer) for side in (0, 1)]
            labels: Any = torch.tensor([float(equal) for _, _, equal in pairs], dtype=torch.float64)
        else:
            released, labels = losses.ContrastiveTensionLossInBatchNegatives(model), None
            sides, pairs = [features(rows, tokenizer)], [(0, 0, True)]
        released.double().eval()
        released.model1[0].model.load_state_dict(made.first.state_dict())
        expected = released(sides, labels) / len(pairs)
        loss = made(rows)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)  # log(20) in float32
        found, wanted = gradients_of(made, loss), gradients_of(released, expected)
        names = {}
        for name in wanted:
            ours = name.replace("model1.0.model.", "first.").replace("model2.0.model.", "encoder.")
            names[name] = ours.replace("logit_scale", "log_scale")
        assert {*names.values()} == {*found}
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[names[name]], gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("count", "negatives"), [(15, 7), (30, 7), (64, 7), (3, 1), (16, 7), (1, 7), (2, 7)])
def test_pairs(count: int, negatives: int) -> None:
    pairs = arrange_pairs(count, negatives)
    whole = released_order(count, negatives)
    assert pairs[: len(whole)] == whole
    used = [place for one, two, equal in pairs for place in ({one} if equal else {one, two})]
    assert len(used) == len({*used})
    assert count - len(used) in (0, 1)
    in_paper = arrange_pairs(count, negatives, "paper")
    assert sorted({two for _, two, _ in in_paper}) == [*range(count)]
    assert sum(equal for _, _, equal in in_paper) == -(-count // (1 + negatives))
    assert all(one == two if equal else one // (1 + negatives) == two // (1 + negatives) != two
               for one, two, equal in in_paper)  # fmt: skip


def test_both_encoders_start_equal_and_learn_apart(tiny_bert: Path) -> None:
    for method in ("ct", "ct_batch"):
        made, rows, _ = objective_of(method, tiny_bert, TEXT, batch_size=8)
        own, other = (dict(part.named_parameters()) for part in (made.encoder, made.first))
        assert all(torch.equal(own[name], other[name]) and own[name] is not other[name] for name in own)
        trained = {id(weight) for weight in made.parameters()}
        assert trained >= {id(weight) for weight in (*own.values(), *other.values())}
        assert bool(made(rows).isfinite())


def test_the_second_encoder_is_kept(tiny_bert: Path, tmp_path: Path) -> None:
    found = train_alone("ct", tiny_bert, tmp_path, lr=1e-3, pairs="paper", negatives=2)
    assert found.facts["steps"] == 4
    (folder,) = [path for path in tmp_path.rglob("selected")]
    assert not list(folder.glob("tower-*"))
    assert TransformerEncoder(folder, "avg").encode(TEXT[:2]).shape == (2, 16)


def test_rmsprop_is_tensorflows() -> None:
    """Its dense update: ms <- 0.9 ms + 0.1 g^2, w <- w - lr g / (sqrt(ms) + 1e-7)."""
    module = torch.nn.Linear(3, 1, bias=False).double()
    optimizer = make_optimizer(module, TrainSettings(0.01, 1, 3, 3, optimizer="rmsprop"))
    weight, square = module.weight.detach().clone(), torch.zeros(1, 3, dtype=torch.float64)
    for step in range(3):
        module.weight.grad = torch.tensor([[1e-7, -2.0, 0.5 * step]], dtype=torch.float64)
        square = 0.9 * square + 0.1 * module.weight.grad**2
        weight -= 0.01 * module.weight.grad / (square.sqrt() + 1e-7)
        optimizer.step()
        torch.testing.assert_close(module.weight.detach(), weight, rtol=1e-12, atol=0)
    assert isinstance(make_optimizer(module, TrainSettings(0.01, 1, 3, 3)), torch.optim.AdamW)


def test_stairs_are_piecewise_constant_decay() -> None:
    """TensorFlow counts updates from 0, and a boundary itself has the value before it."""
    settings = TrainSettings(1e-5, 30, 5000, 500, schedule="stairs")
    values = [1e-5, 8e-6, 6e-6, 4e-6, 2e-6]
    for update in (0, 1, 499, 500, 501, 1000, 1001, 1500, 1501, 2000, 2001, 4999):
        expected = values[sum(update > boundary for boundary in (500, 1000, 1500, 2000))]
        assert learning_rate(settings, update + 1) == pytest.approx(expected, rel=1e-12)


def test_the_published_settings() -> None:
    options = options_of("ct")
    assert options["lr"] == 1e-5
    assert options["steps"] == 5000
    assert options["dropout"] == 0
    assert len(arrange_pairs(int(options["batch_size"]), int(options["negatives"]))) == 16
