"""Mirror-BERT: masked spans by counting, a step with dropped heads by loops, AdamW as released."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.mirror_bert import mask_span
from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.backbone import load_backbone
from bench.nn.dropout import set_dropout
from bench.nn.head_dropout import add_head_dropout, scale_heads
from bench.training.loop import TrainSettings, train
from bench.training.randomness import generator, own_random_state
from tests.support.steps import count_losses, descend, gradients_of, objective_of, same_step
from tests.support.training import SENTENCES, options_of, random, stages_of, train_alone

TEXT = [*SENTENCES, "the doctor is on the hill", "two farmers are reading books to children"]
Zoo = Callable[[str], Path]


def masked_slowly(sentence: str, span: int, draw: torch.Generator) -> str:
    """erase_and_mask of cambridgeltl/mirror-bert 8b6b9de, src/data_loader.py, character by character."""
    if len(sentence) <= span or len(sentence) < 30 or not span:
        return sentence
    wanted = int(torch.randint(len(sentence) - span, (), generator=draw))
    erased = sentence[wanted : wanted + span]
    first = next(at for at in range(len(sentence)) if sentence[at : at + span] == erased)
    return sentence[:first] + " [MASK] " + sentence[first + span :]


def slow_step(made: Any, rows: list[Any], tokenizer: Any, config: dict[str, OptionValue]) -> Tensor:
    """ContrastiveLearningPairwise.forward: NTXentLoss over the positive pairs, one cosine at a time.

    pytorch_metric_learning 0.9.98, losses/ntxent_loss.py: labels 0 to B - 1 twice, so that a row's negatives
    are all rows of both views but its own two; the mean is over the 2B ordered positive pairs.
    """
    draw, views = generator(1, "augment/mirror_bert"), []
    copies = [masked_slowly(TEXT[number], int(config["span"]), draw) for number, _ in rows]
    for texts in ([TEXT[number] for number, _ in rows], copies):
        for text in texts:
            ids = tokenizer(text, truncation=True, max_length=20)["input_ids"]
            states = made.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]
            views.append(states.sum(0) / len(ids))
    labels = [*range(len(rows)), *range(len(rows))]
    terms = []
    for a, anchor in enumerate(views):
        cosine = [torch.cosine_similarity(anchor, other, dim=0) / float(config["tau"]) for other in views]
        negatives = [cosine[n].exp() for n in range(len(views)) if labels[n] != labels[a]]
        for p in range(len(views)):
            if p != a and labels[p] == labels[a]:
                positive = cosine[p].exp()
                terms.append(-torch.log(positive / (positive + sum(negatives))))
    assert len(terms) == 2 * len(rows)
    return torch.stack(terms).sum() / len(terms)


CHANGES: list[dict[str, OptionValue]] = [
    {},
    {"span": 0},
    {"span": 12},
    {"tau": 0.2},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_step_by_hand(tiny_bert: Path, changes: dict[str, OptionValue]) -> None:
    made, rows, tokenizer = objective_of("mirror_bert", tiny_bert, TEXT, **changes)
    expected = slow_step(made, rows, tokenizer, options_of("mirror_bert", **changes))
    same_step(made, made(rows), expected, rel=1e-8)


def test_every_option_changes_the_loss(tiny_bert: Path) -> None:
    changes: list[dict[str, OptionValue]] = [*CHANGES, {"drophead": 0.5}]
    step = partial(objective_of, "mirror_bert", tiny_bert, TEXT)
    assert count_losses(step, changes) == len(changes)


def test_only_long_copies_are_masked_and_each_step_draws_anew(tiny_bert: Path) -> None:
    made, rows, tokenizer = objective_of("mirror_bert", tiny_bert, TEXT)
    steps = [made.prepare(rows) for _ in range(3)]
    seen = set()
    for step in steps:
        (chunk,) = step.chunks
        ids = [[t for t in row.tolist() if t != tokenizer.pad_token_id] for row in chunk.ids]
        placed = [ids[place] for place in step.place.tolist()]
        for at, (number, row) in enumerate(rows):
            assert placed[at] == row
            masks = placed[len(rows) + at].count(tokenizer.mask_token_id)
            assert masks == (len(TEXT[number]) >= 30)
        seen.add(str(placed))
    assert len(seen) > 1


def test_spans_are_uniform_but_for_the_last() -> None:
    draw = torch.Generator().manual_seed(0)
    text = "abcdefghijklmnopqrstuvwxyz0123"  # 30 different characters: spans 0 to 24, and 25 is left out
    counts = Counter(mask_span(text, 5, draw).index(" [MASK] ") for _ in range(5000))
    assert sorted(counts) == [*range(25)]
    assert max(abs(count - 200) for count in counts.values()) < 70  # 5 standard deviations
    masked = mask_span(text, 5, draw)
    start = masked.index(" [MASK] ")
    assert masked == f"{text[:start]} [MASK] {text[start + 5 :]}"
    assert mask_span(text[:29], 5, draw) == text[:29]
    assert mask_span(text, 0, draw) == mask_span(text, 30, draw) == mask_span(text, 99, draw) == text
    assert mask_span(text, 29, draw) == " [MASK] 3"
    assert mask_span("a" * 31, 5, draw) == " [MASK] " + "a" * 26  # where the characters stand first


def test_heads_are_dropped_and_scaled_as_released() -> None:
    """_drophead_hook of src/drophead.py, element by element."""
    context, kept = random(3, 4, 6), torch.tensor([[1, 1, 1], [0, 1, 0], [1, 0, 1]]) > 0
    found = scale_heads(context, kept)
    for row in range(3):
        for place in range(4):
            for unit in range(6):
                head, alive = unit // 2, int(kept[row].sum())
                wanted = float(context[row, place, unit]) * 3 / alive if kept[row, head] else 0.0
                assert float(found[row, place, unit]) == pytest.approx(wanted, rel=1e-12)
    assert not bool(scale_heads(context, torch.zeros(3, 3) > 0).any())


@pytest.mark.parametrize("backbone", ["bert", "roberta"])
def test_attentions_drop_heads_in_training_only(zoo: Zoo, backbone: str) -> None:
    model = load_backbone(zoo(backbone))[0].eval()
    ids = torch.tensor([[3, 4, 5, 6]]).repeat(400, 1)
    seen: list[Tensor] = []
    plain = model(input_ids=ids[:1]).last_hidden_state
    add_head_dropout(model, 0.25)
    attention = model.encoder.layer[0].attention
    attention.output.dense.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    assert torch.equal(model(input_ids=ids[:1]).last_hidden_state, plain)
    set_dropout(model.train(), 0.0)
    with own_random_state(1, "dropout"):
        model(input_ids=ids)
    whole, dropped = seen
    heads = int(attention.self.num_attention_heads)
    parts = dropped.reshape(400, 4, heads, -1)
    gone = (parts == 0).all(-1)
    assert torch.equal(gone.all(1), gone.any(1))  # of a row at all places
    assert abs(float(gone[:, 0].float().mean()) - 0.25) < 5 * math.sqrt(0.25 * 0.75 / (400 * heads))
    assert len({tuple(row) for row in gone[:, 0].tolist()}) > 2  # each row draws its own
    scale = heads / (heads - gone[:, 0].sum(1)).clamp(min=1)
    wanted = whole.reshape(1, 4, heads, -1) * scale.view(-1, 1, 1, 1) * ~gone[..., None]
    torch.testing.assert_close(parts, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_refused(zoo: Zoo) -> None:
    with pytest.raises(InputError, match=r"drophead 0\.2: DistilBertModel"):
        add_head_dropout(load_backbone(zoo("distilbert"))[0], 0.2)
    with pytest.raises(InputError, match="train_pooling=mask"):
        stages_of("mirror_bert", options_of("mirror_bert", train_pooling="mask"))
    assert stages_of("mirror_bert", options_of("mirror_bert", train_pooling="mask", span=0))


def test_adamw_takes_the_released_steps(tiny_bert: Path) -> None:
    """torch's AdamW(lr, weight_decay=0.01), all weights decayed, a constant rate, no clipping: four steps."""
    made, rows, _ = objective_of("mirror_bert", tiny_bert, TEXT)
    other, _, _ = objective_of("mirror_bert", tiny_bert, TEXT)
    config = options_of("mirror_bert", lr=1e-3, batch_size=len(rows), steps=4, eval_every=9)
    known = TrainSettings.__dataclass_fields__
    given: dict[str, Any] = {name: value for name, value in config.items() if name in known}
    batches: list[Any] = []
    prepare = made.prepare

    def note(batch: Any) -> Any:
        batches.append(batch)
        return prepare(batch)

    made.prepare = note
    train(made, made.encoder, rows, TrainSettings(**given), seed=1, corpus="c", dev_score=lambda: 0.0)
    moments: dict[str, tuple[Tensor, Tensor]] = {}
    for step, batch in enumerate(batches, start=1):
        moves = {}
        for name, g in gradients_of(other, other(batch)).items():
            first, second = moments.get(name, (torch.zeros_like(g), torch.zeros_like(g)))
            moments[name] = first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
            root = (second / (1 - 0.999**step)).sqrt() + 1e-8
            weight = other.module.get_parameter(name).detach()
            moves[name] = first / (1 - 0.9**step) / root + 0.01 * weight
        descend(other, moves, 1e-3)
    assert len(batches) == 4
    trained = dict(made.named_parameters())
    for name, parameter in other.named_parameters():
        torch.testing.assert_close(trained[name], parameter, rtol=1e-6, atol=1e-8, msg=name)


def test_layers_that_are_computed_again_drop_the_same_heads(tiny_bert: Path, tmp_path: Path) -> None:
    step = partial(train_alone, "mirror_bert", tiny_bert, tmp_path, drophead=0.5, drop_last=False)
    plain, again = step(), step(checkpoint_layers=True)
    assert plain.losses == again.losses
    assert all(torch.equal(value, again.kept()[name]) for name, value in plain.kept().items())
