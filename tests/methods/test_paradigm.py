"""The gradient paradigm: gradients against the printed equations, components, limits, one training step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from bench.errors import InputError
from bench.losses.modified_noncontrastive import LOSSES, ModifiedSteps
from bench.losses.paradigm_losses import (
    ANGLE,
    DISSIPATIONS,
    RATIOS,
    WEIGHTS,
    Paradigm,
    arccon,
    gradient_dissipation,
    mat,
    met,
    mpt,
    negative_weights,
    paradigm_loss,
    positive_ratio,
    unit_info_nce,
)
from bench.method_card import OptionValue
from bench.methods.paradigm import PairObjective, contrastive_loss
from tests.support.paradigm import BATCHES, CONTRASTIVE, EXACT, Loss, gradients, options, views
from tests.support.steps import nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, train_alone

OF_TABLE_1 = {  # components that Table 1 gives each loss
    "infonce": Paradigm(gd="infonce", w="infonce"),
    "arccon": Paradigm(gd="arccon", w="infonce", r="arccon"),
    "mpt": Paradigm(gd="mpt", w="hardest"),
    "met": Paradigm(gd="met", w="met", r="met"),
}


def at_anchors(loss: Loss, first: Tensor, second: Tensor) -> Tensor:
    """Gradient of each anchor's own loss at it, the other view constant: the mean over rows undone."""
    return len(first) * gradients(loss, first, second)[0]


def by_equation(name: str, h: Tensor, positives: Tensor, inside: float = 1.0) -> Tensor:
    """Equations 1 to 3 as they are printed (for MET the indicator of Table 1), in plain loops.

    Cosines under an angle or a distance are held within ``inside``, for MET above only.
    """
    tau, u, rows = 0.05, ANGLE, []
    for i, anchor in enumerate(h):
        s = [float(anchor @ other) for other in positives]
        negatives = [j for j in range(len(s)) if j != i]
        hardest = max(negatives, key=lambda j: s[j])
        own = s[i] if name == "mpt" else min(s[i], inside)
        if name in ("infonce", "arccon"):
            theta = math.acos(max(own, -inside))
            ratio = 1.0 if name == "infonce" else math.sin(theta + u) / math.sin(theta)
            first = own if name == "infonce" else math.cos(theta + u)
            below = math.exp(first / tau) + sum(math.exp(s[k] / tau) for k in negatives)
            terms = [math.exp(s[j] / tau) * (positives[j] - ratio * positives[i]) for j in negatives]
            rows.append(torch.stack(terms).sum(0) / (tau * below))
        elif name == "mpt":
            rows.append((own - s[hardest] < 0.23) * (positives[hardest] - positives[i]))
        else:
            near, far = math.sqrt(2 - 2 * own), math.sqrt(2 - 2 * min(s[hardest], inside))
            rows.append((far - near < 0.45) * (positives[hardest] / far - positives[i] / near))
    return torch.stack(rows)


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_gradients_are_equations_1_to_3_and_4_with_table_1(name: str) -> None:
    dropped = kept = 0
    for count, spread, seed in BATCHES:
        first, second = views(count, spread=spread, seed=seed)
        got = at_anchors(CONTRASTIVE[name], first, second)
        torch.testing.assert_close(got, by_equation(name, first, second), **EXACT)
        s, parts = first @ second.T, OF_TABLE_1[name]
        gd, w, r = gradient_dissipation(s, parts), negative_weights(s, parts), positive_ratio(s, parts)
        closed = gd[:, None] * (w @ second - (w * r).sum(1, keepdim=True) * second)
        torch.testing.assert_close(got, closed, **EXACT)
        dropped, kept = dropped + int((gd < 0.5).sum()), kept + int((gd > 0.5).sum())
    assert min(dropped, kept) > 5


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_the_paradigm_with_a_losss_components_has_its_gradient(name: str) -> None:
    first, second = views(9, spread=1.0)
    got = gradients(partial(paradigm_loss, parts=OF_TABLE_1[name], form="paper"), first, second)
    for gradient, (anchors, others) in zip(got, ((first, second), (second, first)), strict=True):
        expected = at_anchors(CONTRASTIVE[name], anchors, others) / (2 * len(first))
        torch.testing.assert_close(gradient, expected, **EXACT)


@pytest.mark.parametrize(
    "parts", [Paradigm(), Paradigm(m=0.4, tau=0.2, ratio=1.5), Paradigm(gd="none", ratio=0)]
)
def test_the_papers_baseline_is_equation_4(parts: Paradigm) -> None:
    first, second = views(7, spread=1.0, seed=1)
    expected = []
    for h, others in ((first, second), (second, first)):
        for i in range(7):
            s, negatives = others @ h[i], [j for j in range(7) if j != i]
            keep = parts.gd == "none" or float(s[i] - max(s[j] for j in negatives)) < parts.m
            shares = {j: math.exp(float(s[j]) / parts.tau) for j in negatives}
            row = sum(shares[j] * (others[j] - parts.ratio * others[i]) for j in negatives)
            expected.append(torch.as_tensor(keep * row / sum(shares.values()) / 14))
    got = gradients(partial(paradigm_loss, parts=parts, form="paper"), first, second)
    torch.testing.assert_close(torch.cat(got), torch.stack(expected), **EXACT)
    kept = [bool(row.any()) for row in expected]
    assert any(kept)
    assert all(kept) == (parts.gd == "none")


def test_the_released_form_by_hand() -> None:
    """Two sentences; s = [[1, 0], [c, c]], c = 1/sqrt 2: rows keep the second, columns both or one."""
    c = 1 / math.sqrt(2)
    first = torch.tensor([[1.0, 0.0], [c, c]], dtype=torch.float64)
    second = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    # gaps: rows 1 - 0, c - c; columns 1 - c, c - 0; a direction's sum over (anchors kept x N)
    values = {
        0.5: (c - 1.5 * c) / (1 * 2) + (c - 1.5 * 1) / (1 * 2),
        0.8: (c - 1.5 * c) / (1 * 2) + (c - 1.5 * 1 + 0 - 1.5 * c) / (2 * 2),
        -1.0: 0.0,
    }
    for m, value in values.items():
        loss = paradigm_loss(first, second, Paradigm(m=m, ratio=1.5))
        assert float(loss) == pytest.approx(value, abs=1e-14)
    whole = paradigm_loss(first, second, Paradigm(gd="none", ratio=1.5))
    assert float(whole) == pytest.approx((0 - 1.5 + c - 1.5 * c) / 4 + (c - 1.5 + 0 - 1.5 * c) / 4)
    assert all(not g.any() for g in gradients(partial(paradigm_loss, parts=Paradigm(m=-1.0)), first, second))


def test_the_released_ratio_acts_twice_and_pulls_dropped_anchors() -> None:
    parts, seen = Paradigm(m=0.25, ratio=1.25), set()
    for seed in range(20):
        first, second = views(8, spread=2.0, seed=seed)
        s = first @ second.T
        kept, partner = (gradient_dissipation(matrix, parts) for matrix in (s, s.T))
        n, other = (max(1.0, float(direction.sum())) for direction in (kept, partner))
        got = gradients(partial(paradigm_loss, parts=parts), first, second)[0]
        w = negative_weights(s, parts)
        for i in range(8):
            seen.add((bool(kept[i]), bool(partner[i])))
            if kept[i]:
                ratio = parts.ratio * (1 + (n / other if partner[i] else 0))
                expected = (w[i] @ second - ratio * second[i]) / (8 * n)
            else:
                expected = -parts.ratio * second[i] / (8 * other) * partner[i]
            torch.testing.assert_close(got[i], expected, **EXACT)
    assert len(seen) == 4


def test_components_by_hand() -> None:
    s = torch.tensor([[0.5, 0.25, 0.75], [0.0, 0.8, 0.5], [0.5, -0.5, 1.0]], dtype=torch.float64)
    e, below, theta = math.exp, math.exp(0.5) + math.exp(1.5), math.acos(0.8)
    dissipations: list[tuple[Paradigm, list[float]]] = [
        (Paradigm(gd="indicator", m=0.3), [1, 0, 0]),
        (Paradigm(gd="indicator", m=0.31), [1, 1, 0]),
        (Paradigm(gd="mpt"), [1, 0, 0]),
        (Paradigm(gd="met"), [1, 1 * (1 - math.sqrt(0.4) < 0.45), 0]),
        (Paradigm(gd="none"), [1, 1, 1]),
        (Paradigm(gd="infonce", tau=0.5), [1 / (1 + e(1) / below)]),
        (Paradigm(gd="arccon", tau=0.5, u=0.2), [1 / (1 + e(math.cos(math.acos(0.5) + 0.2) / 0.5) / below)]),
    ]
    for parts, values in dissipations:
        assert gradient_dissipation(s, parts).tolist()[: len(values)] == pytest.approx(values)
    rows = {
        "softmax": [0, e(0.5) / below, e(1.5) / below],
        "infonce": [0, 2 * e(0.5) / below, 2 * e(1.5) / below],
        "hardest": [0, 0, 1],
        "met": [0, 0, 1 / math.sqrt(0.5)],
        "uniform": [0, 0.5, 0.5],
        "power": [0, 0.25**2 / (0.25**2 + 0.75**2), 0.75**2 / (0.25**2 + 0.75**2)],
    }
    assert set(rows) == set(WEIGHTS)
    for w, row in rows.items():
        assert negative_weights(s, Paradigm(w=w, tau=0.5, power=2.0))[0].tolist() == pytest.approx(row)
    held = negative_weights(s, Paradigm(w="power", power=1.0))[2].tolist()
    assert held == pytest.approx([0.5 / 0.5001, 1e-4 / 0.5001, 0])
    ratios: list[tuple[Paradigm, int, list[float]]] = [
        (Paradigm(ratio=1.5), 2, [1.5]),
        (Paradigm(r="arccon"), 1, [math.sin(theta + ANGLE) / math.sin(theta)]),
        (Paradigm(r="met"), 0, [1, math.sqrt(1.5), math.sqrt(0.5)]),
    ]
    for parts, number, row in ratios:
        assert positive_ratio(s, parts)[number].tolist() == pytest.approx(row)


@pytest.mark.parametrize("gd", DISSIPATIONS)
@pytest.mark.parametrize("form", ["released", "paper"])
def test_every_combination_runs_and_is_finite(gd: str, form: str) -> None:
    unit, ones = torch.eye(3).double(), torch.ones(3, 1)
    for w, r in itertools.product(WEIGHTS, RATIOS):
        loss = partial(paradigm_loss, parts=Paradigm(gd=gd, w=w, r=r), form=form)
        for first, second in (views(5), (unit, unit), (ones, -ones)):
            assert all(bool(part.isfinite().all()) for part in gradients(loss, first, second))


def test_values_by_hand_and_at_limits() -> None:
    c = 1 / math.sqrt(2)
    first = torch.tensor([[1.0, 0.0], [c, c]], dtype=torch.float64)
    second = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)  # s = [[1, 0], [c, c]]
    e = math.exp
    by_hand = (math.log(1 + e(-1)) + math.log(2)) / 2
    assert float(unit_info_nce(first, second, tau=1.0)) == pytest.approx(by_hand, rel=1e-12)
    pushed = math.cos(math.radians(45) + 0.1)
    by_hand = (math.log(1 + e(-math.cos(0.1))) + math.log(1 + e(c - pushed))) / 2
    assert float(arccon(first, second, tau=1.0, u=0.1)) == pytest.approx(by_hand, rel=1e-3)  # s_00 is held
    assert float(mpt(first, second)) == pytest.approx((0 + 0.23) / 2, rel=1e-12)
    # D: 0 is held at 0.01
    assert float(met(first, second)) == pytest.approx((0 + 0.45) / 2, rel=1e-12)
    assert float(met(first, second, m=math.sqrt(2))) == pytest.approx((0.01 + math.sqrt(2)) / 2, rel=1e-12)
    equal = torch.ones(16, 4, dtype=torch.float64) / 2
    assert float(unit_info_nce(equal, equal)) == pytest.approx(math.log(16))
    assert float(mpt(equal, equal)) == pytest.approx(0.23)
    assert float(met(equal, equal)) == pytest.approx(0.45)
    orthogonal = torch.eye(16, dtype=torch.float64)
    assert float(mpt(orthogonal, orthogonal)) == float(met(orthogonal, orthogonal)) == 0
    assert float(arccon(*views(9), u=0.0)) == pytest.approx(float(unit_info_nce(*views(9))), rel=1e-12)
    assert float(arccon(*views(9))) > float(unit_info_nce(*views(9)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["arccon", "met"])
def test_gradient_at_angle_0_and_pi_is_the_closed_form_at_the_bound(name: str, sign: float) -> None:
    first, second = views(5, spread=0.1)
    second = torch.cat([sign * first[:2], second[2:]])
    got = at_anchors(CONTRASTIVE[name], first, second)
    assert bool(got.isfinite().all())
    inside = 1 - (5e-5 if name == "met" else 1e-6)  # 2 - 2 c >= 1e-4
    torch.testing.assert_close(got, by_equation(name, first, second, inside), rtol=1e-8, atol=1e-8)
    assert bool(got[:2].any())


def angles_by_loops(h: Tensor, positives: Tensor, m: float) -> Tensor:
    """MAT anchor by anchor, with arccos."""
    rows = []
    for i, anchor in enumerate(h):
        angles = [torch.arccos(anchor @ other) for other in positives]
        hardest = torch.stack(angles[:i] + angles[i + 1 :]).min()
        rows.append(torch.relu(angles[i] - hardest + m * math.pi))
    return torch.stack(rows).mean()


@pytest.mark.parametrize("m", [0.05, 0.15, 0.4])
def test_mat_is_the_triplet_loss_on_angles(m: float) -> None:
    dropped = kept = 0
    for count, spread, seed in BATCHES:
        first, second = views(count, spread=spread, seed=seed)
        loss, slow = partial(mat, m=m), partial(angles_by_loops, m=m)
        assert float(loss(first, second)) == pytest.approx(float(slow(first, second)), rel=1e-12)
        for mine, theirs in zip(gradients(loss, first, second), gradients(slow, first, second), strict=True):
            torch.testing.assert_close(mine, theirs, **EXACT)
            zero = int((mine.abs().sum(1) == 0).sum())
            dropped, kept = dropped + zero, kept + len(mine) - zero
    assert min(dropped, kept) > 5


def test_mat_by_hand_and_at_equal_views() -> None:
    first, second = torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64).flip(0)
    right = math.acos(1 - 1e-6)  # 0 held
    assert float(mat(first, second)) == pytest.approx(math.pi / 2 - right + 0.15 * math.pi, rel=1e-12)
    assert float(mat(first, first)) == 0
    assert float(mat(first, first, m=0.6)) == pytest.approx(right + 0.1 * math.pi, rel=1e-12)
    got = gradients(partial(mat, m=0.6), first, first)[0]
    expected = -torch.eye(2, dtype=torch.float64) / math.sin(right) + first.flip(0)  # at 90 degrees 1
    torch.testing.assert_close(2 * got, expected, **EXACT)
    assert all(not part.any() for part in gradients(mat, first, first))
    views_of_5 = tuple(view.requires_grad_() for view in views(5, size=3))
    for loss in (partial(unit_info_nce, tau=0.5), partial(arccon, tau=0.5), mpt, met, mat):
        assert torch.autograd.gradcheck(loss, views_of_5)


def losses_of_two_views() -> list[Loss]:
    losses = [*CONTRASTIVE.values(), mat]
    for form in ("released", "paper"):
        losses.append(partial(paradigm_loss, parts=Paradigm(), form=form))
        for steps in (ModifiedSteps(), ModifiedSteps(gd=True, w=True, r=True)):
            losses += [partial(loss, steps=steps, form=form) for loss in LOSSES.values()]
    return losses


@pytest.mark.parametrize("loss", losses_of_two_views())
def test_one_sentence_is_0_and_rows_may_be_permuted(loss: Loss) -> None:
    assert float(loss(*views(1))) == 0
    assert all(not part.any() for part in gradients(loss, *views(1)))
    first, second = views(7, spread=0.7)
    order = torch.tensor([3, 1, 6, 0, 5, 4, 2])
    assert float(loss(first[order], second[order])) == pytest.approx(float(loss(first, second)), rel=1e-12)
    for bad in ((first, second[:3]), (first[0], second[0]), (first[:0], second[:0])):
        with pytest.raises(ValueError, match=r"two \(N, H\)"):
            loss(*bad)


def test_options_reach_the_loss() -> None:
    first, second = views(6, spread=1.5)
    table: list[tuple[str, dict[str, OptionValue], Loss, dict[str, Any]]] = [
        ("infonce", {"tau": 0.2}, unit_info_nce, {"tau": 0.2}),
        ("arccon", {"u": 20.0, "tau": 0.2}, arccon, {"tau": 0.2, "u": math.radians(20)}),
        ("mpt", {"m": 0.9}, mpt, {"m": 0.9}),
        ("met", {"m": 0.9}, met, {"m": 0.9}),
        ("mat", {"m": 0.3}, mat, {"m": 0.3}),
    ]
    changes: list[dict[str, Any]] = [
        {},
        {"gd": "mpt", "w": "power", "r": "arccon", "mpt_m": 0.9, "power": 2.0, "u": 20.0, "form": "paper"},
        {"gd": "met", "met_m": 0.9, "tau": 0.3, "ratio": 2.0},
        {"m": 0.05},
    ]
    for change in changes:
        own = change | ({"u": math.radians(20)} if "u" in change else {})
        form = own.pop("form", "released")
        table.append(("paradigm", change, paradigm_loss, {"parts": Paradigm(**own), "form": form}))
    for name, given, loss, arguments in table:
        got = contrastive_loss(name, options(name, **given))(first, second)
        assert float(got) == pytest.approx(float(loss(first, second, **arguments)), rel=1e-12)
        if given:
            default = contrastive_loss(name, options(name))(first, second)
            assert float(got) != pytest.approx(float(default), rel=1e-6)


@pytest.mark.parametrize("head_input", ["cls", "tanh"])
@pytest.mark.parametrize("name", ["infonce", "met", "m_mhe", "m_barlow"])
def test_one_step_equals_an_independent_transcription(tiny_bert: Path, name: str, head_input: str) -> None:
    """Loss and gradient at dropout 0, padded to the longest, one forward, Hugging Face's own tokenisation."""
    made, rows, tokenizer = objective_of(name, tiny_bert, max_length=8, head_input=head_input)
    batch = tokenizer(SENTENCES * 2, padding=True, truncation=True, max_length=8, return_tensors="pt")
    states = made.encoder(**batch).last_hidden_state[:, 0]
    states = torch.tanh(states) if head_input == "tanh" else states
    z = states @ made.head.weight.T + made.head.bias
    z = z / z.norm(dim=1, keepdim=True)
    got = same_step(made, made(rows), transcribed(name, z[:4], z[4:]), rel=1e-9)
    assert not any("embeddings" in parameter for parameter in got)
    assert {"head.weight", "head.bias"} < set(got)


def transcribed(name: str, h: Tensor, positives: Tensor) -> Tensor:
    """Four losses once more, pair by pair, at the methods' defaults; the views are equal (no dropout)."""
    if name == "infonce":
        return nce_by_loops(h, positives)
    count, total = len(h), torch.zeros((), dtype=torch.float64)
    others: Sequence[list[int]] = [[j for j in range(count) if j != i] for i in range(count)]
    if name == "met":
        for i in range(count):
            far = torch.stack([(2 - 2 * h[i] @ positives[j]).sqrt() for j in others[i]]).min()
            # equal views: held at 0.01, with the gradient of the distance there
            s = h[i] @ positives[i]
            total = total + torch.relu(0.01 - (s - s.detach()) / 0.01 - far + 0.45) / count
        return total
    for view, other in ((h, positives), (positives, h)):
        constant = view.detach()
        keep = [1 - max(float(constant[i] @ constant[j]) for j in others[i]) < 0.3 for i in range(count)]
        kept, kept_other = (
            torch.stack([row if stays else row.detach() for row, stays in zip(rows, keep, strict=True)])
            for rows in (view, other)
        )
        e = (constant @ constant.T / 0.05).exp()
        pairs = sum(e[i, j] for i in range(count) for j in others[i])
        if name == "m_mhe":
            scores = [kept[i] @ kept[j] / 0.05 for i in range(count) for j in range(i)]
            total = total + torch.stack(scores).logsumexp(0)
        for i in range(count):
            share = sum(e[i, j] for j in others[i]) / pairs
            if name == "m_mhe":
                total = total + 1.75 * share * 2 / 0.05 * (1 - kept[i] @ kept_other[i])
            else:
                push = sum(e[i, j] / pairs * kept[i] @ constant[j] for j in others[i])
                total = total + push + e[i, i] / pairs - 1.5 * share * kept[i] @ kept_other[i]
    return total


def test_the_head_and_frozen_embeddings(tiny_bert: Path) -> None:
    def made(model: Any, **changes: OptionValue) -> PairObjective:
        return PairObjective(model, 0, options("infonce", **changes), unit_info_nce)

    model, free = (AutoModel.from_pretrained(tiny_bert) for _ in range(2))
    head = made(model).head
    assert head is not None
    values = torch.cat([parameter.flatten() for parameter in head.parameters()])
    assert float(values.detach().std()) == pytest.approx(6e-3, rel=0.2)
    assert bool(head.bias.any())
    assert not any(parameter.requires_grad for parameter in model.embeddings.parameters())
    made(free, freeze_embeddings=False)
    assert all(parameter.requires_grad for parameter in free.parameters())
    del model.embeddings
    with pytest.raises(InputError, match=r"BertModel .*freeze_embeddings=false"):
        made(model)


@pytest.mark.parametrize("name", ["paradigm", "m_barlow"])
def test_training_leaves_the_embeddings(name: str, tiny_bert: Path, tmp_path: Path) -> None:
    found = train_alone(name, tiny_bert, tmp_path, {"sentences": SENTENCES}, steps=3, batch_size=3)
    assert (found.facts["steps"], found.facts["sentences_seen"]) == (3, 3 + 1 + 3)
    before, after = AutoModel.from_pretrained(tiny_bert).state_dict(), found.kept()
    for layer, moves in (("embeddings.word_embeddings", False), ("encoder.layer.0.output.dense", True)):
        assert torch.equal(before[f"{layer}.weight"], after[f"{layer}.weight"]) != moves
