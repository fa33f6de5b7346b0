"""Non-contrastive losses and their three steps: printed gradients, the released relations, limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.losses.modified_noncontrastive import LOSSES, ModifiedSteps, mhe, mhs
from bench.method_card import OptionValue
from bench.methods.modified import modified_loss
from tests.support.paradigm import BATCHES, EXACT, gradients, options, views

ALL = ModifiedSteps(gd=True, w=True, r=True, ratio=1.6, tau=0.1)
SWITCHES: list[dict[str, Any]] = [{"gd": gd, "w": w, "r": r} for gd, w, r in product((False, True), repeat=3)]
LATER: list[dict[str, Any]] = [
    {"gd": False, "w": True, "r": r, **more}
    for r in (False, True)
    for more in (
        {"nu_after": 0.4},
        {"kernel": "power"},
        {"kernel": "power", "kernel_power": 0.0},
        {"kernel": "power", "kernel_power": 1.5, "nu_after": 2.5},
    )
]


def others(i: int, count: int) -> list[int]:
    return [j for j in range(count) if j != i]


def kernel(s: float, steps: ModifiedSteps) -> float:
    return max(s, 1e-4) ** steps.kernel_power if steps.kernel == "power" else math.exp(s / steps.tau)


def paper_weights(name: str, h: Tensor, other: Tensor, steps: ModifiedSteps) -> Tensor:
    """w_ij of equations 8 to 11 and 16 to 19, in loops."""
    count, nu = len(h), steps.nu
    s = (other @ other.T if name == "barlow" else h @ h.T).tolist()
    ordered = [(k, m) for k in range(count) for m in others(k, count)]
    if name == "mhs":
        nearest = [max(others(i, count), key=s[i].__getitem__) for i in range(count)]
        strength = steps.nu_after if steps.r else nu
        found = {(i, j): strength / float((h[i] - h[j]).norm()) for i, j in enumerate(nearest)}
    elif name == "mhe":
        tau = steps.tau if steps.w else 0.5
        below = sum(math.exp(s[k][m] / tau) for k, m in ordered if k < m)
        strength = steps.nu_after if steps.w else nu
        found = {(k, m): strength * math.exp(s[k][m] / tau) / (tau * below) for k, m in ordered}
    elif steps.w:
        below = sum(kernel(s[k][m], steps) for k, m in ordered)
        found = {(k, m): steps.nu_after * kernel(s[k][m], steps) / below for k, m in ordered}
    else:
        found = {(k, m): 2 * nu * s[k][m] / count**2 for k, m in ordered}
    rows = [[found.get((i, j), 0.0) for j in range(count)] for i in range(count)]
    return torch.tensor(rows, dtype=torch.float64)


def paper_rows(name: str, h: Tensor, other: Tensor, steps: ModifiedSteps) -> Tensor:
    """Printed gradient of every anchor of a view: eq. 7 to 11 without steps, 16 to 19 with all."""
    count, weights = len(h), paper_weights(name, h, other, steps)
    lifted = torch.eye(h.shape[1], dtype=torch.float64)
    if name == "barlow":
        strength = 1 - (steps.nu_after if steps.w else steps.nu)
        lifted = lifted - strength * torch.diag(torch.diag(h.T @ other / count))
    cross, rows = (h @ other.T).tolist(), []
    for i in range(count):
        keep = not steps.gd or cross[i][i] - max(cross[i][j] for j in others(i, count)) < steps.m
        pull = steps.ratio * weights[i].sum() * other[i] if steps.r else 2 / count * lifted @ other[i]
        push = torch.stack([weights[i, j] * h[j] for j in others(i, count)]).sum(0)
        rows.append(keep * (push - pull))
    return torch.stack(rows)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("switches", [*SWITCHES, *LATER])
def test_paper_gradients(name: str, switches: dict[str, Any]) -> None:
    steps = replace(ALL, **switches, nu=3.0)
    dropped = kept = 0
    for count, spread, seed in BATCHES:
        first, second = views(count, spread=spread, seed=seed)
        got = gradients(partial(LOSSES[name], steps=steps, form="paper"), first, second)
        for gradient, (h, other) in zip(got, ((first, second), (second, first)), strict=True):
            torch.testing.assert_close(gradient, paper_rows(name, h, other, steps), **EXACT)
            zero = int((gradient.abs().sum(1) == 0).sum())
            dropped, kept = dropped + zero, kept + len(gradient) - zero
    assert kept > 50
    assert (dropped > 50) == steps.gd


def test_equation_7_is_what_is_left_without_negatives() -> None:
    first, second = views(5)
    for name in ("mhe", "mhs", "vicreg"):
        got = gradients(partial(LOSSES[name], steps=ModifiedSteps(nu=0.0), form="paper"), first, second)
        torch.testing.assert_close(got[0], -2 / 5 * second, **EXACT)
        torch.testing.assert_close(got[1], -2 / 5 * first, **EXACT)


def tangent(gradient: Tensor, h: Tensor) -> Tensor:
    """Without the component along h, which the normalisation removes."""
    return gradient - (gradient * h).sum(1, keepdim=True) * h


def test_equations_10_and_11_are_gradients_of_the_batch_losses() -> None:
    """Eq. 10 of Barlow Twins; eq. 11 of L^a + nu_1 / D ||C||_F^2, C uncentred with its diagonal."""
    nu = 7.0

    def barlow_twins(h: Tensor, second: Tensor) -> Tensor:
        c = h.T @ second / len(h)
        return ((c.diagonal() - 1) ** 2).sum() + nu * ((c**2).sum() - (c.diagonal() ** 2).sum())

    def uncentred(h: Tensor, second: Tensor) -> Tensor:
        count, c = len(h), h.T @ h / (len(h) - 1)
        own = nu * (count - 1) ** 2 / (2 * count**2)  # nu of eq. 11 is 2 nu_1 N^2 / (D (N - 1)^2)
        return (2 - 2 * (h * second).sum(1)).mean() + own * (c**2).sum()

    for count, spread, seed in BATCHES:
        first, second = views(count, spread=spread, seed=seed)
        for name, whole in (("barlow", barlow_twins), ("vicreg", uncentred)):
            got = gradients(partial(LOSSES[name], steps=ModifiedSteps(nu=nu), form="paper"), first, second)[0]
            expected = gradients(partial(whole, second=second), first)[0]
            torch.testing.assert_close(tangent(got, first), tangent(expected, first), **EXACT)


def test_the_weights_total_2_over_tau_in_mhe_and_1_in_the_others() -> None:
    """With ratio 0 and rows of one direction the gradients add up to the weights' sum along it."""
    first = torch.ones(6, 3, dtype=torch.float64) / math.sqrt(3)
    for name, total in (("mhe", 2 / ALL.tau), ("barlow", 1.0), ("vicreg", 1.0)):
        steps = replace(ALL, gd=False, ratio=0.0)
        got = gradients(partial(LOSSES[name], steps=steps, form="paper"), first, first.flip(0))[0]
        torch.testing.assert_close(got.sum(0), total * first[0], **EXACT)


def released_by_loops(name: str, h: Tensor, other: Tensor, steps: ModifiedSteps) -> Tensor:
    """The released loss as the specification states it, in loops."""

    def dropped(view: Tensor) -> Tensor:
        s = (view @ view.T).tolist()
        keep = [not steps.gd or 1 - max(s[i][j] for j in others(i, len(s))) < steps.m for i in range(len(s))]
        return torch.stack([row if kept else row.detach() for row, kept in zip(view, keep, strict=True)])

    first, second = dropped(h), dropped(other)
    pairs = ((first, second), (second, first))
    if name not in ("mhe", "mhs"):
        return torch.stack([correlation(name, *pair, steps) for pair in pairs]).sum()
    (one, weights), (two, weights_of_two) = (PARTS[name](*pair, steps) for pair in pairs)
    loss, ratio = one + two, steps.ratio if steps.r else 1.0
    for i in range(len(h)):
        weight = (weights[i] + weights_of_two[i]) / 2
        loss = loss + ratio * (2 - 2 * first[i] @ second[i]) * weight
    return loss


def energy(x: Tensor, _: Tensor, steps: ModifiedSteps) -> tuple[Tensor, list[float]]:
    """lambda U of a view, and p_i."""
    count, t = len(x), steps.tau if steps.w else 1.0
    total = torch.stack([x[k] @ x[m] / t for k in range(count) for m in range(k + 1, count)]).logsumexp(0)
    if not steps.w:
        return steps.nu * total, [1 / count] * count
    s, level = (x @ x.T / t).tolist(), float(total.detach())
    total = steps.nu_after * total
    return total, [sum(math.exp(s[i][j] - level) for j in others(i, count)) / t for i in range(count)]


def separation(x: Tensor, y: Tensor, steps: ModifiedSteps) -> tuple[Tensor, list[float]]:
    """-lambda mean_i min D_ij to the other view as constants, and what a_i / N is multiplied by."""
    count, fixed, nearest = len(x), y.detach(), []
    for i in range(count):
        distances = [((x[i] - fixed[j]) ** 2).sum().add(1e-4).sqrt() for j in others(i, count)]
        nearest.append(torch.stack(distances).min())
    weights = [1 / float(d.detach()) / count if steps.r else 1 / count for d in nearest]
    return -(steps.nu_after if steps.r else steps.nu) * torch.stack(nearest).mean(), weights


PARTS = {"mhe": energy, "mhs": separation}


def correlation(name: str, x: Tensor, y: Tensor, steps: ModifiedSteps) -> Tensor:
    """One direction of barlow or vicreg, j = i left in."""
    count, strength = len(x), steps.nu_after if steps.w else steps.nu
    constant, positive = x.detach(), y.detach()
    by = positive @ positive.T if name == "barlow" else constant @ constant.T
    below = sum(kernel(float(by[k, m]), steps) for k in range(count) for m in others(k, count))
    w = torch.tensor([[kernel(s, steps) / below for s in row] for row in by.tolist()], dtype=by.dtype)
    if not steps.w:
        w = 2 * by / count**2
    lifted = 1 - (1 - strength) * (constant * positive).mean(0) if name == "barlow" else 1.0
    loss = torch.zeros((), dtype=torch.float64)
    for i in range(count):
        loss = loss + strength * sum(w[i, j] * x[i] @ constant[j] for j in range(count))
        if steps.r:
            loss = loss - strength * steps.ratio * sum(w[i, j] for j in others(i, count)) * x[i] @ y[i]
        else:
            loss = loss - 2 / count * x[i] @ (lifted * positive[i])
    return loss


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("switches", [*SWITCHES, *LATER])
def test_released_values_and_gradients(name: str, switches: dict[str, Any]) -> None:
    steps = replace(ALL, **switches, nu=3.0, m=0.5, tau=0.2)
    dropped = 0
    for count, spread in ((2, 1.0), (5, 0.3), (5, 4.0), (7, 1.0)):
        first, second = views(count, spread=spread, seed=count)
        loss = partial(LOSSES[name], steps=steps, form="released")
        loops = partial(released_by_loops, name, steps=steps)
        assert float(loss(first, second)) == pytest.approx(float(loops(first, second)), rel=1e-11)
        got, expected = gradients(loss, first, second), gradients(loops, first, second)
        for mine, theirs, h in zip(got, expected, (first, second), strict=True):
            torch.testing.assert_close(tangent(mine, h), tangent(theirs, h), **EXACT)
            dropped += int((mine.abs().sum(1) == 0).sum())
    assert (dropped > 3) == steps.gd


def weights_of(name: str, h: Tensor, other: Tensor, steps: ModifiedSteps) -> Tensor:
    """W_i of every row of a view in the released form."""
    count, rows = len(h), []
    by = (other @ other.T if name == "barlow" else h @ h.T) / steps.tau
    pairs = sum(math.exp(by[k, m]) for k in range(count) for m in others(k, count))
    for i in range(count):
        rest = others(i, count)
        share = sum(math.exp(by[i, j]) for j in rest) / pairs
        squares = [float(((h[i] - other[j]) ** 2).sum()) for j in rest]
        nearest = 1 / math.sqrt(min(squares) + 1e-4) / count
        rows.append({"mhs": nearest, "mhe": 2 * share / steps.tau}.get(name, share))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_the_released_positive_weighs_r_times_both_views_weights(name: str) -> None:
    """Seen by the gradient's part along a direction that h'_i alone has."""
    steps = replace(ALL, gd=False)
    first, second = views(6, size=4)
    own = torch.eye(6, dtype=torch.float64)
    second = torch.cat([0.8 * second, 0.6 * own], dim=1)
    first = torch.cat([first, torch.zeros(6, 6, dtype=torch.float64)], dim=1)
    expected = weights_of(name, first, second, steps) + weights_of(name, second, first, steps)
    got = gradients(partial(LOSSES[name], steps=steps, form="released"), first, second)[0]
    along = -(got[:, 4:].diagonal()) / 0.6
    torch.testing.assert_close(along, steps.ratio * expected, **EXACT)


@pytest.mark.parametrize("name", LOSSES)
def test_a_row_that_the_released_gd_drops_has_no_role(name: str) -> None:
    steps = replace(ALL, m=0.5)
    given = views(7, size=3, spread=2.0, seed=3)
    kept = [(1 - (view @ view.T).fill_diagonal_(-1).max(1).values < steps.m) for view in given]
    assert 0 < int(kept[0].sum()) < 7
    for gradient, keep in zip(gradients(partial(LOSSES[name], steps=steps), *given), kept, strict=True):
        assert (gradient.abs().sum(1) > 0).tolist() == keep.tolist()


def test_the_released_gd_keeps_fewer_anchors_than_the_papers() -> None:
    kept = dict.fromkeys(("released", "paper"), 0)
    for (_, spread, seed), form in product(BATCHES, kept):
        given = views(9, size=12, spread=spread, seed=seed)
        got = gradients(partial(LOSSES["vicreg"], steps=ALL, form=form), *given)
        kept[form] += sum(int((gradient.abs().sum(1) > 0).sum()) for gradient in got)
    assert 0 < kept["released"] < kept["paper"]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("form", ["released", "paper"])
def test_nu_counts_until_step_w_or_mhs_step_r(name: str, form: str) -> None:
    first, second = views(6)
    for switches in SWITCHES:
        steps = replace(ALL, **switches)
        one, three = (float(LOSSES[name](first, second, replace(steps, nu=nu), form)) for nu in (1.0, 3.0))
        dropped = form == "paper" and steps.gd and one == 0
        assert dropped or (one != three) == (not switches["r" if name == "mhs" else "w"])
        if name == "mhs":  # it has no step w
            assert float(mhs(first, second, replace(steps, nu=1.0, w=not steps.w), form)) == one


@pytest.mark.parametrize("name", LOSSES)
def test_the_margin_decides(name: str) -> None:
    """Rows at 0 and 60 degrees, their positives at 30 and 90."""
    angles = torch.tensor([0.0, 60.0, 30.0, 90.0], dtype=torch.float64).deg2rad()
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    cos30 = math.cos(math.radians(30))
    gaps = {"released": [0.5, 0.5], "paper": [cos30, 0.0]}  # h_2 is as near to h'_1 as to h'_2
    for form, gap in gaps.items():
        for m in (-1e-6, 1e-6, 0.5 - 1e-6, 0.5 + 1e-6, cos30 - 1e-6, cos30 + 1e-6):
            loss = partial(LOSSES[name], steps=replace(ALL, m=m), form=form)
            moved = gradients(loss, rows[:2], rows[2:])[0].abs().sum(1) > 0
            assert moved.tolist() == [value < m for value in gap]


def test_mhs_by_hand_and_the_printed_factor() -> None:
    """Rows at 0, 60 and 150 degrees; the nearest are 1 and sqrt 2 away, the farthest sqrt(2 + sqrt 3)."""
    angles = [0.0, math.radians(60), math.radians(150)]
    first = torch.tensor([[math.cos(x), math.sin(x)] for x in angles], dtype=torch.float64)
    steps = ModifiedSteps(r=True, ratio=2.0)
    far = math.sqrt(2 + math.sqrt(3))
    got = gradients(partial(mhs, steps=steps, form="paper"), first, first.clone())[0]
    torch.testing.assert_close(got[0], first[1] - 2 * first[0], **EXACT)
    torch.testing.assert_close(got[2], (first[1] - 2 * first[2]) / math.sqrt(2), **EXACT)
    printed = partial(mhs, steps=replace(steps, factor="farthest"), form="paper")
    got = gradients(printed, first, first.clone())[0]
    torch.testing.assert_close(got[0], first[1] - 2 / far * first[0], **EXACT)
    torch.testing.assert_close(got[1], first[0] - 2 / math.sqrt(2) * first[1], **EXACT)
    value = mhs(first, first.clone(), ModifiedSteps(nu=0.5), "released")
    near = [math.sqrt(x + 1e-4) for x in (1, 1, 2)]
    assert float(value) == pytest.approx(-0.5 * 2 * sum(near) / 3, rel=1e-12)
    with pytest.raises(ValueError, match="'printed' must be one of nearest, farthest"):
        mhs(first, first, replace(steps, factor="printed"))


def test_mhe_by_hand() -> None:
    first = torch.eye(3, dtype=torch.float64)
    second = first[[1, 0, 2]]
    value = mhe(first, second, ModifiedSteps(nu=2.0), "released")
    assert float(value) == pytest.approx(2 * 2 * math.log(3) + (2 + 2 + 0) / 3, rel=1e-12)
    modified = mhe(first, second, ModifiedSteps(w=True, r=True, ratio=1.5, tau=0.5), "released")
    assert float(modified) == pytest.approx(2 * math.log(3) + 1.5 * 4 * (2 / 3) / 0.5, rel=1e-12)
    assert torch.autograd.gradcheck(
        partial(mhe, steps=ModifiedSteps(nu=2.0)), tuple(view.requires_grad_() for view in views(4, size=3))
    )


LIMITS = [
    (torch.ones(4, 1), torch.ones(4, 1)),
    (torch.ones(4, 1), -torch.ones(4, 1)),
    (torch.eye(4), torch.eye(4)),
    (torch.eye(2), torch.eye(2).flip(0)),
]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize("given", LIMITS, ids=["equal", "opposite", "orthogonal", "two"])
def test_limits_are_finite(name: str, form: str, given: tuple[Tensor, Tensor]) -> None:
    first, second = (view.double() for view in given)
    for switches in [*SWITCHES, *LATER]:
        for tau in (0.01, 1.0):
            steps = replace(ALL, **switches, tau=tau)
            loss = partial(LOSSES[name], steps=steps, form=form)
            assert bool(loss(first, second).isfinite())
            assert all(bool(part.isfinite().all()) for part in gradients(loss, first, second))


def test_mhs_of_equal_rows_has_the_closed_form_at_the_bound() -> None:
    first, second = torch.ones(3, 2).double() / math.sqrt(2), views(3, size=2)[0]
    got = gradients(partial(mhs, steps=replace(ALL, gd=False), form="paper"), first, second)[0]
    torch.testing.assert_close(got, (first - ALL.ratio * second) / 0.01, **EXACT)


def test_options_reach_the_loss() -> None:
    first, second = views(6, spread=0.8)
    modified = ModifiedSteps(True, True, True, ratio=1.5, nu=30.0)
    table: list[tuple[str, dict[str, Any], ModifiedSteps]] = [
        ("m_mhe", {}, replace(modified, ratio=1.75, nu=10.0)),
        (
            "m_mhs",
            {"form": "paper", "factor": "farthest"},
            replace(modified, ratio=1.75, nu=1.0, factor="farthest"),
        ),
        ("mhs", {"nu": 4.0, "form": "paper"}, ModifiedSteps(nu=4.0)),
        ("vicreg", {}, ModifiedSteps(nu=30.0)),
    ]
    changes: list[dict[str, Any]] = [
        {"gd": False, "r": False, "nu": 4.0}, {"m": 0.05}, {"nu_after": 0.5}, {"tau": 0.5, "ratio": 0.5},
        {"w": False, "r": False}, {"kernel": "power", "kernel_power": 2.0},
    ]  # fmt: skip
    table += [("m_barlow", change, replace(modified, **change)) for change in changes]
    for name, given, steps in table:
        got = modified_loss(name, options(name, **given))(first, second)
        form = str(given.get("form", "released"))
        assert float(got) == float(LOSSES[name.removeprefix("m_")](first, second, steps, form))
        if given.keys() & {"nu_after", "kernel"}:
            assert float(got) != float(modified_loss(name, options(name))(first, second))
    for name in LOSSES:  # without steps a modified method is the original
        off: dict[str, OptionValue] = dict.fromkeys(("gd", "w", "r"), False)
        one = modified_loss(f"m_{name}", options(f"m_{name}", **off))(first, second)
        assert float(one) == float(modified_loss(name, options(name))(first, second))
