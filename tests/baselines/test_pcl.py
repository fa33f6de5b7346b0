"""PCL: its edits, its losses, one step against a transcription, and training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.baselines.pcl import contrast_rows, group_contrast, pcl_loss, row_divergence
from bench.baselines.rankcse import off_diagonal
from bench.losses.contrastive import info_nce
from bench.method_card import OptionValue
from bench.registry import discover
from bench.training.augmentation import (
    delete_subwords,
    edit_views,
    insert_subwords,
    reverse_subwords,
    shuffle_subwords,
)
from bench.training.randomness import generator
from tests.support.steps import (
    cls_of,
    gradients_of,
    nce_by_loops,
    objective_of,
    same_step,
    simcse_loss,
    under_head,
    without_pooler,
)
from tests.support.training import SENTENCES, options_of, random

ROW = [2, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 11, 3]  # 11 subwords, one of them twice


def test_shuffled_and_backwards_keep_the_subwords_and_the_specials() -> None:
    draw = generator(1, "augment")
    found = [shuffle_subwords(ROW, draw) for _ in range(50)]
    assert len({tuple(row) for row in found}) > 45
    for row in found:
        assert (row[0], row[-1], Counter(row)) == (2, 3, Counter(ROW))
    assert reverse_subwords(ROW) == [2, *ROW[1:-1][::-1], 3]
    assert {row[1] for row in (shuffle_subwords(ROW, draw) for _ in range(200))} == set(ROW[1:-1])


def test_shortened_removes_the_first_of_equal_subwords() -> None:
    draw = generator(1, "augment")
    for _ in range(50):
        row = delete_subwords(ROW, 0.2, draw)  # round(2.2) = 2
        assert len(row) == len(ROW) - 2
        assert (row[0], row[-1], sum((Counter(ROW) - Counter(row)).values())) == (2, 3, 2)
        rest = iter(ROW)
        assert all(token in rest for token in row)  # in their order
    twin = [2, 7, 8, 7, 3]
    expected = {(2, 8, 7, 3), (2, 7, 7, 3)}  # whichever 7 is drawn, the first falls
    assert {tuple(delete_subwords(twin, 0.4, draw)) for _ in range(60)} == expected
    share = sum(delete_subwords(twin, 0.4, draw) == [2, 7, 7, 3] for _ in range(3000)) / 3000
    assert share == pytest.approx(1 / 3, abs=0.03)  # drawn by place, not by kind
    assert delete_subwords(ROW, 1.0, draw) == [2, 3]


def test_lengthened_puts_subwords_in_once_more_within_the_length() -> None:
    draw = generator(1, "augment")
    for _ in range(50):
        row = insert_subwords(ROW, 0.2, 32, draw)
        assert len(row) == len(ROW) + 2
        assert not Counter(ROW) - Counter(row)
        assert set(row[1:-1]) == set(ROW[1:-1])
    lengths = {longest: len(insert_subwords(ROW, 0.5, longest, draw)) for longest in (32, 15, 14, 13, 5)}
    assert lengths == {32: 19, 15: 15, 14: 14, 13: 13, 5: 13}
    places = {tuple(insert_subwords([2, 7, 8, 9, 3], 0.3, 32, draw)) for _ in range(300)}
    assert len(places) == 9  # 3 subwords at 4 places; a twin next to itself counts once for two places


@pytest.mark.parametrize(
    ("subwords", "length"),
    [(0, (0, 0)), (1, (1, 1)), (2, (2, 2)), (3, (2, 4)), (7, (6, 8)), (8, (6, 10)), (13, (10, 16))],
)
def test_how_many_are_edited(subwords: int, length: tuple[int, int]) -> None:
    """round(0.2 n): one-subword sentences and empty ones are left as they are."""
    row = [2, *range(10, 10 + subwords), 3]
    views = edit_views(row, 0.2, 32, generator(1, "augment"))
    assert [len(view) - 2 for view in views] == [subwords, subwords, *length]
    if subwords < 2:
        assert all(view == row for view in views)


def rows_by_loops(anchors: Tensor, positives: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """Cosines over tau of each anchor with its positives, then with the others' negatives."""
    rows = []
    for i, anchor in enumerate(anchors):
        others = [*positives[i], *(negative for j, negative in enumerate(negatives) if j != i)]
        rows.append(torch.stack([torch.cosine_similarity(anchor, other, dim=0) / tau for other in others]))
    return torch.stack(rows)


def contrast_by_loops(rows: Tensor, positives: int) -> Tensor:
    """Of each row, probabilities as logits of whether a place is a positive."""
    wanted = torch.tensor([1.0] * positives + [0.0] * (rows.shape[1] - positives), dtype=torch.float64)
    cells = [nn.functional.binary_cross_entropy_with_logits(row.softmax(0), wanted) for row in rows]
    return torch.stack(cells).mean()


def divergence_by_loops(student: Tensor, target: Tensor) -> Tensor:
    pairs = [(one.softmax(0), two.softmax(0)) for one, two in zip(student, target, strict=True)]
    return torch.stack([(q * (q / p).log()).mean() for p, q in pairs]).mean()


@pytest.mark.parametrize(("batch", "group"), [(4, 9), (1, 3), (2, 1)])
def test_rows_contrast_and_divergence_are_the_formulas(batch: int, group: int) -> None:
    z, n = random(batch, 5), random(batch, 5, seed=1)
    p = random(batch, group, 5, seed=2)
    rows, slow, other = contrast_rows(z, p, n, 0.5), rows_by_loops(z, p, n, 0.5), rows_by_loops(n, p, z, 0.5)
    torch.testing.assert_close(rows, slow)
    assert float(group_contrast(rows, group)) == pytest.approx(float(contrast_by_loops(slow, group)))
    expected = float(divergence_by_loops(slow, other))
    assert float(row_divergence(rows, other)) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("rows", "positives", "terms"),
    [
        ([[0.0, math.log(3)]], 1, [-1 / 4, 3 / 4]),  # probabilities 1/4 and 3/4
        ([[0.0] * 8] * 3, 5, [-1 / 8] * 5 + [1 / 8] * 3),
        ([[60.0, 0.0, 0.0]], 1, [-1, 0, 0]),  # even a sure positive costs log(1 + 1/e) = 0.3133
    ],
)
def test_contrast_by_hand(rows: list[list[float]], positives: int, terms: list[float]) -> None:
    expected = sum(math.log1p(math.exp(term)) for term in terms) / len(terms)
    assert float(group_contrast(torch.tensor(rows).double(), positives)) == pytest.approx(expected)
    sure = torch.tensor([[60.0, 0.0]], dtype=torch.float64)
    assert 2 * float(group_contrast(sure, 1)) - math.log(2) == pytest.approx(0.3133, abs=1e-4)
    matrix = torch.arange(9.0).view(3, 3)
    assert off_diagonal(matrix).tolist() == [[1, 2], [3, 5], [6, 7]]


def test_divergence_by_hand_and_limits() -> None:
    student = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    target = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)
    hand = (0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)) / 2
    assert float(row_divergence(student, target)) == pytest.approx(hand)
    assert float(row_divergence(target, target)) == 0
    a, b = random(4, 6), random(4, 6, seed=1)
    assert float(row_divergence(a, b)) > 0
    assert float(row_divergence(a, b)) != pytest.approx(float(row_divergence(b, a)))
    assert float(row_divergence(a + 3, b)) == pytest.approx(float(row_divergence(a, b)))


def test_six_terms_of_equal_weight() -> None:
    z, y = random(4, 3, 5), random(4, 3, 5, seed=1)
    loss = float(pcl_loss(z, y, 0.3))
    expected = slow_loss(z.transpose(0, 1), y.transpose(0, 1), 0.3)
    assert loss == pytest.approx(float(expected), rel=1e-9)
    rows = rows_by_loops(z[0], z[1:].transpose(0, 1), z[0], 0.3)
    same = float(contrast_by_loops(rows, 3)) + float(info_nce(z[0], z[1], 0.3))
    assert float(pcl_loss(z, z, 0.3)) == pytest.approx(2 * same)  # equal encoders: both divergences are 0
    order = torch.tensor([2, 0, 1])
    assert float(pcl_loss(z[:, order], y[:, order], 0.3)) == pytest.approx(loss)
    one = random(10, 1, 5)  # one sentence has its positives alone
    only_positives = contrast_by_loops(rows_by_loops(one[0], one[1:].transpose(0, 1), one[0], 0.05), 9)
    assert float(pcl_loss(one, one, 0.05)) == pytest.approx(2 * float(only_positives))


def made_of(
    folder: Path, sentences: Sequence[str] = SENTENCES, **changes: OptionValue
) -> tuple[Any, list[Any], Any]:
    """The peer's weights are others."""
    made, rows, tokenizer = objective_of("pcl", folder, sentences, **changes)
    with torch.no_grad():
        for number, parameter in enumerate(made.peer.parameters() if made.peer else ()):
            parameter.add_(0.1 * random(*parameter.shape, seed=number))
    return made, rows, tokenizer


@pytest.mark.parametrize(
    ("backbone", "changes", "sentences"),
    [
        ("tiny_bert", {}, SENTENCES),
        ("tiny_bert", {"rounds": 1, "share": 0.5, "peer_mask": True, "tau": 0.2}, SENTENCES),
        ("tiny_bert", {}, ["two"]),
        ("tiny_bert", {"max_length": 7}, ["a man is playing a guitar for the children on the hill", "a"]),
        ("tiny_roberta", {}, SENTENCES),
        ("tiny_bert", {"augs": "dp+rp+rp"}, SENTENCES),
        ("tiny_bert", {"posi_cst": False, "rounds": 1}, SENTENCES),
        ("tiny_bert", {"peer_coop": False, "rounds": 1}, SENTENCES),
        ("tiny_bert", {"peer_coop": False, "posi_cst": False, "rounds": 1}, SENTENCES),
        ("tiny_bert", {"fix_peer": True, "rounds": 1}, SENTENCES),
        ("tiny_bert", {"fix_peer": True, "posi_cst": False, "rounds": 1}, SENTENCES),
    ],
)
def test_one_step_equals_a_transcription(
    backbone: str, changes: dict[str, OptionValue], sentences: list[str], request: pytest.FixtureRequest
) -> None:
    made, rows, tokenizer = made_of(request.getfixturevalue(backbone), sentences, **changes)
    config: dict[str, Any] = options_of("pcl", **({"max_length": 20} | changes))
    draw, edits = generator(1, "augment/pcl"), config["augs"].split("+")
    groups = [[row, row] for row in rows]
    for group in groups:
        for _ in range(config["rounds"]):
            group += edit_views(group[0], config["share"], config["max_length"], draw, edits)
    views = [view for group in groups for view in group]
    widest = max(map(len, views))
    assert widest <= config["max_length"]
    z, y = [under_head(made, view) for view in views], []
    for view in views if config["peer_coop"] else ():
        padding = 0 if config["peer_mask"] else widest - len(view)
        h = cls_of(made.peer, view + [tokenizer.pad_token_id] * padding)  # it attends to padding
        pooled = torch.tanh(made.peer_pooler.weight @ h + made.peer_pooler.bias)
        y.append(torch.tanh(made.head.weight @ pooled + made.head.bias))
    own = torch.stack(z).view(len(rows), len(groups[0]), -1)
    peer = torch.stack(y).view(own.shape) if y else None
    if peer is not None and config["fix_peer"]:
        peer = peer.detach()
    switches = config["posi_cst"], not config["fix_peer"]
    got = same_step(made, made(rows), slow_loss(own, peer, config["tau"], *switches), least=30)
    learning = {"encoder", "head"} | ({"peer"} if config["peer_coop"] and not config["fix_peer"] else set())
    assert {name.split(".")[0] for name in got} - {"peer_pooler"} == learning


def slow_loss(
    own: Tensor, peer: Tensor | None, tau: float, contrast: bool = True, peer_learns: bool = True
) -> Tensor:
    """The six terms, with gradient; vectors are (B, V, H) here."""
    positives, terms = own.shape[1] - 1, [own.new_zeros(())]
    learn = [own] if peer is None or not peer_learns else [own, peer]

    def row(one: Tensor, two: Tensor) -> Tensor:
        return rows_by_loops(one[:, 0], two[:, 1:], two[:, 0], tau)

    if contrast:
        terms += [contrast_by_loops(row(vectors, vectors), positives) for vectors in learn]
    if peer is not None:
        terms.append(divergence_by_loops(row(own, peer), row(peer, own)))
        terms.append(divergence_by_loops(row(own, own), row(peer, peer)))
    terms += [nce_by_loops(vectors[:, 0], vectors[:, 1], tau) for vectors in learn]
    return torch.stack(terms).sum()


def test_padding_matters_to_the_peer_alone(tiny_bert: Path) -> None:
    """A longer sentence in the step changes what the peer makes of the others, as the card declares."""
    assert discover().get("pcl").card.padding_matters
    for masked in (False, True):
        made, rows, _ = made_of(tiny_bert, peer_mask=masked, augs="dp")
        with torch.no_grad():
            whole, single = (made.prepare(batch)[0 if masked else 1] for batch in (rows, rows[1:2]))
            wide, narrow = made.peer_states(whole)[1], made.peer_states(single)[0]
        assert torch.allclose(wide, narrow) == masked


def test_the_peer_starts_as_the_backbone(tiny_bert: Path, tmp_path: Path) -> None:
    made, _, _ = objective_of("pcl", tiny_bert, dropout=0.1)
    pairs = list(zip(made.encoder.parameters(), made.peer.parameters(), strict=True))
    assert all(torch.equal(one, two) and one is not two for one, two in pairs)
    assert made.peer_pooler is made.peer.pooler.dense
    assert all(m.p == 0.1 for m in made.peer.modules() if isinstance(m, nn.Dropout))
    assert len(made.views([2, 7, 8, 9, 3])) == 10
    assert objective_of("pcl", tiny_bert, peer_coop=False)[0].peer is None
    fixed, rows, _ = objective_of("pcl", tiny_bert, fix_peer=True)
    assert not fixed.peer_vectors(fixed.prepare(rows)[1]).requires_grad
    assert not any(p.requires_grad for name, p in fixed.named_parameters() if name.startswith("peer"))
    bare, rows, _ = objective_of("pcl", without_pooler(tiny_bert, tmp_path), ["two", "a child"], rounds=1)
    assert bare.peer_pooler.weight.shape == (16, 16)
    assert len(bare.views([2, 7, 8, 9, 3])) == 6
    loss = bare(rows)
    assert bool(loss.isfinite())
    assert "peer_pooler.weight" in gradients_of(bare, loss)


def test_edits_are_drawn_anew_each_time(tiny_bert: Path) -> None:
    made, (row,), _ = objective_of("pcl", tiny_bert, ["Two children are singing a song on the hill."])
    first, second = made.views(row), made.views(row)
    assert first[:2] == second[:2] == [row, row]
    assert first[2:] != second[2:]
    assert first[2] != first[6]  # the second round is another draw
    assert first[3] == first[7] == reverse_subwords(row)


def test_edits_come_in_the_order_that_augs_names_them(tiny_bert: Path) -> None:
    """The released string names each round anew; two rounds of its half draw the same."""
    half = "sf+rv+de+rp"
    views = [
        objective_of("pcl", tiny_bert, augs=augs, rounds=rounds)[0].views(ROW)
        for augs, rounds in ((half, 2), (f"{half}+{half}", 1), ("dp+rv", 1))
    ]
    assert views[0] == views[1]
    assert views[2] == [ROW, ROW, ROW, reverse_subwords(ROW)]


def test_without_peer_and_contrast_it_is_simcse(tiny_bert: Path) -> None:
    """Released: InfoNCE of the first two views is then the whole loss."""
    made, rows, _ = objective_of("pcl", tiny_bert, peer_coop=False, posi_cst=False, rounds=1)
    assert float(made(rows).detach()) == pytest.approx(simcse_loss(made, tiny_bert), rel=1e-9)
