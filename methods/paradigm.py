"""The gradient paradigm: InfoNCE, ArcCon, MPT, MET, and the loss whose three components are options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, one_stage, trained_encoder, training_options

if TYPE_CHECKING:
    from torch import Tensor

PairLoss = Callable[["Tensor", "Tensor"], "Tensor"]
Config = Mapping[str, OptionValue]

PAPER = (
    "Li, Zhang, Nie 2024, Towards Better Understanding of Contrastive Sentence Representation Learning: "
    "A Unified Paradigm for Gradient"
)
CODE = "BDBC-KG-NLP/UnderstandingCSE 93075dc"
INFERENCE = "at inference h_cls of the last layer, without the head"
HEAD_STD = 6e-3
FORM_OPTION = Option("form", "released", "the released code's loss or the paper's", ("released", "paper"))
SETUP_DEVIATIONS = ("loss and normalisation are computed in float64 from the float32 head",)


def setup_options(lr: float = 1e-5) -> tuple[Option, ...]:
    """Options of the set-up that all losses of the paper share."""
    return (
        Option(
            "head_input",
            "cls",
            "what the training-only linear head gets: h_cls (BERT) or its tanh (RoBERTa)",
            ("cls", "tanh"),
        ),
        Option("freeze_embeddings", True, "the embedding layer is not trained"),
        *training_options(lr=lr, batch_size=128),
        TEXT_OPTION,
        POOLING_OPTION,
    )


def make_pair_objective(model: Any, pad_id: int, config: Config, loss: PairLoss) -> Any:
    """Return the module: token rows to the loss of their two dropout views, l2-normalised after the head.

    The head is Linear(d, d) of h_cls or tanh(h_cls), weights and bias normal with std 6e-3.

    Args:
        model: The transformer.
        pad_id: Padding id.
        config: head_input and freeze_embeddings.
        loss: From two views with unit rows, (N, d) in float64, to a scalar.

    Raises:
        InputError: the embedding layer is to be frozen and the model has none of that name.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    from bench.train.chunks import cls_states

    if config["freeze_embeddings"]:
        if not isinstance(getattr(model, "embeddings", None), nn.Module):
            raise InputError(
                f"{type(model).__name__} has no layer called embeddings", hint="set freeze_embeddings=false"
            )
        model.embeddings.requires_grad_(False)

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = nn.Linear(model.config.hidden_size, model.config.hidden_size)
            for parameter in self.head.parameters():
                nn.init.normal_(parameter, std=HEAD_STD)

        def forward(self, rows: list[list[int]]) -> Tensor:
            """Both views go through one call, so they differ by their dropout masks alone."""
            states = cls_states(self.encoder, [*rows, *rows], pad_id)
            if config["head_input"] == "tanh":
                states = torch.tanh(states)
            # e^(s/tau) leaves float32's range at the grid's smallest tau
            unit = functional.normalize(self.head(states).double(), dim=1, eps=1e-8)
            return loss(unit[: len(rows)], unit[len(rows) :])

    return Objective()


def train_pairs(context: StageContext, loss: PairLoss) -> dict[str, Any]:
    """A stage that trains one encoder with a loss of two views."""
    from bench.train.sentence_encoder import train_sentence_encoder

    return train_sentence_encoder(
        context, lambda model, pad_id: make_pair_objective(model, pad_id, context.config, loss)
    )


def contrastive_loss(name: str, config: Config) -> PairLoss:
    """The loss of a method of this module, with its options."""
    from bench.methods import _paradigm_losses as losses

    def number(option: str) -> float:
        return float(config[option])

    if name == "infonce":
        return partial(losses.infonce, tau=number("tau"))
    if name == "arccon":
        return partial(losses.arccon, tau=number("tau"), u=math.radians(number("u")))
    if name in ("mpt", "met"):
        return partial(losses.mpt if name == "mpt" else losses.met, m=number("m"))
    parts = losses.Paradigm(
        gd=str(config["gd"]),
        w=str(config["w"]),
        r=str(config["r"]),
        m=number("m"),
        mpt_m=number("mpt_m"),
        met_m=number("met_m"),
        tau=number("tau"),
        ratio=number("ratio"),
        u=math.radians(number("u")),
        power=number("power"),
    )
    return partial(losses.paradigm_loss, parts=parts, form=str(config["form"]))


def train_contrastive(name: str, context: StageContext) -> dict[str, Any]:
    """The stage of a method of this module."""
    return train_pairs(context, contrastive_loss(name, context.config))


class Contrastive:
    """What the methods of this module share."""

    card: MethodCard

    def stages(self, options: Config) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, partial(train_contrastive, self.card.name))

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, self.card.name)


TAU = Option("tau", 0.05, "temperature", minimum=1e-4)
ANGLE = Option("u", 10.0, "ArcCon's angular margin in degrees", minimum=0)
_OTHER_SETUP = (
    "the head is linear and the embedding layer frozen, as in that paper; not the loss's own set-up"
)


@add_method
class InfoNCE(Contrastive):
    """InfoNCE in the paradigm's set-up."""

    card = MethodCard(
        name="infonce",
        kind="method",
        summary="InfoNCE in the gradient paradigm's set-up",
        version=1,
        paper=f"{PAPER}, eq. 1",
        code=CODE,
        equations=("L = mean_i -log(e^(s_ii/tau) / sum_j e^(s_ij/tau)), s_ij = h_i . h'_j", INFERENCE),
        options=(TAU, *setup_options()),
        deviations=(
            f"{_OTHER_SETUP} (SimCSE's, whose published score the paper repeats, is simcse)",
            *SETUP_DEVIATIONS,
        ),
    )


@add_method
class ArcCon(Contrastive):
    """ArcCon in the paradigm's set-up."""

    card = MethodCard(
        name="arccon",
        kind="method",
        summary="InfoNCE with an angular margin on the positive, in the gradient paradigm's set-up",
        version=1,
        paper=f"{PAPER}, eq. 2; Zhang et al. 2022 (ArcCSE)",
        code=CODE,
        equations=(
            "L = mean_i -log(e^(cos(theta_ii + u)/tau) / "
            "(e^(cos(theta_ii + u)/tau) + sum_{j != i} e^(s_ij/tau))), theta_ii = arccos s_ii",
            INFERENCE,
        ),
        options=(TAU, ANGLE, *setup_options()),
        deviations=(
            "the cosine under the angle is held within +-(1 - 1e-6), where the released gradient is infinite",
            f"{_OTHER_SETUP} (arccse[triplet=false] has a tanh head)",
            *SETUP_DEVIATIONS,
        ),
    )


@add_method
class MPT(Contrastive):
    """MPT in the paradigm's set-up."""

    card = MethodCard(
        name="mpt",
        kind="method",
        summary="the triplet loss on inner products against the hardest negative",
        version=1,
        paper=f"{PAPER}, eq. 3; Nie, Zhang, Mao 2023",
        code=CODE,
        equations=("L = mean_i relu(max_{j != i} s_ij - s_ii + m)", INFERENCE),
        options=(Option("m", 0.23, "margin"), *setup_options()),
        deviations=(_OTHER_SETUP, *SETUP_DEVIATIONS),
    )


@add_method
class MET(Contrastive):
    """MET in the paradigm's set-up."""

    card = MethodCard(
        name="met",
        kind="method",
        summary="the triplet loss on Euclidean distances against the hardest negative",
        version=1,
        paper=f"{PAPER}, eq. 3; Nie, Zhang, Mao 2023",
        code=CODE,
        equations=(
            "L = mean_i relu(D_ii - min_{j != i} D_ij + m), D_ij^2 = max(2 - 2 s_ij, 1e-4)",
            INFERENCE,
        ),
        options=(Option("m", 0.45, "margin"), *setup_options()),
        deviations=(
            "the printed inner max, and the indicator of appendix D.1, are misprints; Table 1 is right",
            "where D^2 is held at 1e-4 the gradient is that at the bound; released: 0",
            _OTHER_SETUP,
            *SETUP_DEVIATIONS,
        ),
    )


@add_method
class ParadigmLoss(Contrastive):
    """The paradigm's own loss."""

    card = MethodCard(
        name="paradigm",
        kind="method",
        summary="the gradient paradigm's loss: gradient dissipation, weight and ratio are options",
        version=1,
        paper=f"{PAPER}, eq. 4 and 5, Table 1",
        code=CODE,
        equations=(
            "L_i = GD_i sum_{j != i} W_ij (s_ij - R_ij s_ii) in both directions, GD, W and R constant",
            "baseline: GD = 1[s_ii - max_{k != i} s_ik < m], W = softmax over j != i of s_ij/tau, R = ratio",
            INFERENCE,
        ),
        options=(
            Option(
                "gd",
                "indicator",
                "gradient dissipation: the baseline's, or a loss's of Table 1",
                ("indicator", "infonce", "arccon", "mpt", "met", "none"),
            ),
            Option(
                "w",
                "softmax",
                "weight: the baseline's, InfoNCE's (over tau), MPT's, MET's, equal, or max(s, 1e-4)^power",
                ("softmax", "infonce", "hardest", "met", "uniform", "power"),
            ),
            Option("r", "static", "ratio: the option ratio, ArcCon's or MET's", ("static", "arccon", "met")),
            Option("m", 0.3, "margin of gd=indicator"),
            Option("mpt_m", 0.23, "margin of gd=mpt"),
            Option("met_m", 0.45, "margin of gd=met"),
            TAU,
            Option("ratio", 1.0, "value of r=static; released: half of what acts on an anchor", minimum=0),
            ANGLE,
            Option("power", 1.0, "exponent of w=power", minimum=0),
            FORM_OPTION,
            *setup_options(),
        ),
        deviations=(
            "released: the positive pair carries gradient to both views, so an anchor kept in both "
            "directions has twice the ratio; one whose partner alone is kept is pulled (form=paper: eq. 4)",
            "released: a direction without a kept anchor is not a number; here 0",
            "paper: the reduction isn't printed; here the mean over the 2N anchors",
            *SETUP_DEVIATIONS,
        ),
        published_names=(("empirical_baseline", "as published: profile bert-base"),),
    )
