"""Non-contrastive losses before and after the gradient paradigm's three steps."""

from __future__ import annotations

from functools import partial

from bench import losses
from bench.method_card import MethodCard, Option
from bench.methods.paradigm import FORM_OPTION, TAU, Config, PairLoss, PairMethod, pair_card, select_fields
from bench.registry import METHODS

TITLES = {
    "mhe": "alignment and minimum hyperspherical energy",
    "mhs": "alignment and maximum hyperspherical separation",
    "barlow": "Barlow Twins",
    "vicreg": "VICReg",
}
_INSTEAD = {
    "mhe": "alignment of the two views, and a repulsion of all pairs of sentences",
    "mhs": "alignment of the two views, and distance from the nearest sentence",
    "barlow": "the views' cross-correlations, made the identity",
    "vicreg": "views alike, with varied and uncorrelated dimensions",
}
_PAPER_LOSS = (
    "paper: L = sum over both views' anchors of d_i (sum_{j != i} w_ij h_i . h_j - p_i h_i . h'_i), "
    "all but h_i constant"
)
_ORIGINAL = {
    "mhe": (
        "L = nu (U(h) + U(h')) + 1/N sum_i ||h_i - h'_i||^2, U(h) = log sum_{k<l} e^(h_k . h_l)",
        f"{_PAPER_LOSS}; w_ij = 2 nu e^(2 h_i . h_j) / sum_{{k<l}} e^(2 h_k . h_l), p = 2/N",
    ),
    "mhs": (
        "L = 1/N sum_i (||h_i - h'_i||^2 - nu min_{j != i} D_ij - nu min_{j != i} D'_ij), "
        "D_ij^2 = ||h_i - h'_j||^2 + 1e-4",
        f"{_PAPER_LOSS}; w_ij = nu / ||h_i - h_j|| at the nearest j, p = 2/N",
    ),
    "barlow": (
        f"{_PAPER_LOSS}; w_ij = 2 nu h'_i . h'_j / N^2, positive 2/N h_i . A h'_i, "
        "A = I - (1 - nu) diag(h^T h' / N)",
        "released: the same with j = i left in",
    ),
    "vicreg": (
        f"{_PAPER_LOSS}; w_ij = 2 nu h_i . h_j / N^2, p = 2/N",
        "released: the same with j = i left in",
    ),
}
_WEIGHTS = {
    "mhe": "w: w_ij = e^(h_i . h_j/tau) / (tau sum_{k<l} e^(h_k . h_l/tau)), U over tau",
    "mhs": "w has no effect: only the nearest row has a weight from the start",
    "barlow": "w: w_ij = e^(h'_i . h'_j/tau) / sum_{k != l} e^(h'_k . h'_l/tau); or max(., 1e-4)^power",
    "vicreg": "w: w_ij = e^(h_i . h_j/tau) / sum_{k != l} e^(h_k . h_l/tau); max(., 1e-4)^kernel_power",
}
_EQUATION = {
    "mhe": "eq. 14 and 16",
    "mhs": "eq. 15 and 17",
    "barlow": "eq. 6 and 18",
    "vicreg": "eq. 13 and 19",
}
_PUBLISHED = "as published: profile bert-base or roberta-base"
# weights of step w in the two losses on correlations
_KERNEL = (
    Option(
        "kernel",
        "exponential",
        "weights of w: of s/tau, or max(s, 1e-4)^kernel_power",
        ("exponential", "power"),
    ),
    Option("kernel_power", 4.0, "exponent of kernel=power; 0 weighs all alike", minimum=0),
)
_NU = {"mhe": 10.0, "mhs": 1.0, "barlow": 30.0, "vicreg": 30.0}
_RATIO = {"mhe": 1.75, "mhs": 1.75, "barlow": 1.5, "vicreg": 1.5}
_DIFFERENCE = {
    "mhe": "released: the positive and each pair of a view carry gradient to both members (form=paper: only "
    "to the anchor)",
    "mhs": "released: the nearest row is of the other view (form=paper: the same view), and the positive "
    "carries gradient to both views (form=paper: only to the anchor)",
    **dict.fromkeys(
        ("barlow", "vicreg"),
        "released: with r the positive carries gradient to both views (form=paper: only to the anchor)",
    ),
}


def modified_loss(name: str, config: Config) -> PairLoss:
    """Return the loss of a method of this module, with its options."""
    modified = losses.modified_noncontrastive
    steps = modified.ModifiedSteps(**select_fields(modified.ModifiedSteps, config))
    return partial(modified.LOSSES[name.removeprefix("m_")], steps=steps, form=str(config["form"]))


def _nu_option(name: str, until: str) -> Option:
    text = f"weight of the negatives{until}"
    if name == "mhs":
        text += " (released: over N, so the paper form's nu is N times as strong)"
    return Option("nu", _NU[name], text, minimum=0)


def original_card(name: str) -> MethodCard:
    """Card of an unmodified loss."""
    return pair_card(
        name,
        f"{TITLES[name]}, unmodified, on unit vectors",
        "section 4",
        instead=_INSTEAD[name],
        equations=_ORIGINAL[name],
        options=(_nu_option(name, ""), FORM_OPTION),
        deviations=(_DIFFERENCE[name],),
        published_names=((name, _PUBLISHED),),
        lr=5e-6 if name == "mhs" else 1e-5,
    )


def modified_card(name: str) -> MethodCard:
    """Card of a modified loss."""
    mhs = name == "mhs"
    last, weights = ("r", "no effect") if mhs else ("w", "exponential weights of the negatives")
    factor = Option(
        "factor",
        "nearest",
        "row whose distance weighs the positive in form=paper; eq. 15 prints the farthest",
        ("nearest", "farthest"),
    )
    return pair_card(
        f"m_{name}",
        f"{TITLES[name]}, modified: gradient dissipation, weight and ratio",
        f"section 4, appendix E, {_EQUATION[name]}",
        instead=f"{_INSTEAD[name]}; gradient made contrastive",
        equations=(
            *_ORIGINAL[name],
            "gd: d_i = 1[1 - max_{k != i} h_i . h_k < m] released, "
            "1[h_i . h'_i - max_{k != i} h_i . h'_k < m] paper",
            _WEIGHTS[name],
            "r: p_i = ratio sum_{j != i} w_ij, in the released form of both views",
        ),
        options=(
            Option("gd", True, "gradient dissipation: drop anchors whose negatives are far"),
            Option("w", True, weights),
            Option("r", True, "a static ratio of the positive"),
            Option("m", 0.3, "margin of gd"),
            *(() if mhs else (TAU,)),
            Option("ratio", _RATIO[name], "the positive's ratio with r", minimum=0),
            *(_KERNEL if name in ("barlow", "vicreg") else ()),
            _nu_option(name, f" until step {last}"),
            Option("nu_after", 1.0, f"the same from step {last} on (released: lambda)", minimum=0),
            *((factor,) if mhs else ()),
            FORM_OPTION,
        ),
        deviations=(
            _DIFFERENCE[name],
            "released: gd compares the hardest row of the same view with 1, so fewer anchors are kept",
        ),
        published_names=((f"m_{name}", _PUBLISHED),),
    )


for _card in (*map(original_card, TITLES), *map(modified_card, TITLES)):
    METHODS.register(_card.name, PairMethod(_card, modified_loss), __name__)
