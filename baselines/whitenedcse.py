"""WhitenedCSE: SimCSE whose training head whitens randomly drawn groups of channels, anew for every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    fresh_linear,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def multi_positive_nce(views: Sequence[Tensor], tau: float) -> Tensor:
    """WhitenedCSE's loss: L = sum_k InfoNCE(z_1, z_k), k = 2 ... K (Zhuo et al. 2023).

    InfoNCE is :func:`bench.train.recipe.info_nce`. The first view's rows are the anchors of every term;
    gradient flows through all views.

    Args:
        views: z_1 ... z_K, (B, H) each, row i of all belongs to sentence i.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; (K - 1) ln B for equal rows; 0 for B = 1.

    Raises:
        ValueError: fewer than two views, different shapes, or a temperature that isn't above 0.
    """
    import torch

    if len(views) < 2:
        raise ValueError(f"{len(views)} view(s): a positive needs a second one")
    return torch.stack([info_nce(views[0], view, tau) for view in views[1:]]).sum()


def make_objective(
    model: Any,
    pad_id: int,
    config: Mapping[str, OptionValue],
    orders: torch.Generator,
    repetitions: torch.Generator,
) -> Any:
    """Return the module: token rows to the loss on z = tanh(W SGW(h) + b) of several views.

    Args:
        model: The transformer.
        pad_id: Padding id.
        config: The method's options.
        orders: Draws the channels' order of each view.
        repetitions: Draws repeated subwords.

    Raises:
        InputError: fewer than two views, or groups that don't divide the channels.
    """
    import torch
    from torch import nn

    from bench.train.augment import repeat_subwords
    from bench.train.chunks import cls_states
    from bench.train.group_whitening import group_whiten

    size, groups, count = model.config.hidden_size, int(config["groups"]), int(config["views"])
    tau, eps, rate = float(config["tau"]), float(config["eps"]), float(config["repetition_rate"])
    through = bool(config["grad_through_whitening"])
    if size % groups:
        raise InputError(
            f"{groups} groups don't divide the backbone's {size} channels",
            where="whitenedcse.groups",
            expected=f"a divisor of {size}",
        )

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(size)

        def forward(self, rows: list[list[int]]) -> Tensor:
            """All first views before all second ones, and so on: one call of the transformer."""
            others = [repeat_subwords(row, rate, repetitions) for _ in range(count - 1) for row in rows]
            states = cls_states(model, [*rows, *others], pad_id).chunk(count)
            return multi_positive_nce([torch.tanh(self.head(self.whitened(h))) for h in states], tau)

        def whitened(self, states: Tensor) -> Tensor:
            order = torch.randperm(size, generator=orders) if config["shuffle"] else torch.arange(size)
            return group_whiten(states, order, groups, eps=eps, through=through)

    return Objective()


def train_whitenedcse(context: StageContext) -> dict[str, Any]:
    """Train with shuffled group whitening: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: ``groups`` that don't divide the backbone's channels.
    """
    from bench.train.sentence_encoder import train_sentence_encoder
    from bench.train.streams import generator

    orders, repetitions = (generator(context.seed, f"{name}/{context.role}") for name in ("order", "augment"))
    return train_sentence_encoder(
        context,
        lambda model, pad_id: make_objective(model, pad_id, context.config, orders, repetitions),
    )


@add_method
class WhitenedCSE:
    """WhitenedCSE."""

    card = MethodCard(
        name="whitenedcse",
        kind="baseline",
        summary="SimCSE with shuffled group whitening in the training head and several positives",
        version=1,
        paper="Zhuo, Sun, Wang, Zhu, Yang 2023, WhitenedCSE: Whitening-based Contrastive Learning of "
        "Sentence Embeddings",
        code="SupstarZh/WhitenedCSE 65fe70a, which does not run as released",
        equations=(
            "SGW: channels in random order, in G groups; X: a group, centred over the batch of one view; "
            "S = X^T X / B; X (S + eps I)^(-1/2); channels back in place; S is constant",
            "z_k = tanh(W SGW_k(h_k) + b), k = 1, 2, 3: dropout views, each with an order of its own",
            "L = InfoNCE(z_1, z_2) + InfoNCE(z_1, z_3), S_ij = cos(z_1i, z_kj) / tau",
            "at inference h_cls of the last layer, without the head",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("groups", 128, "G, groups of channels; a divisor of the hidden size", minimum=1),
            Option("views", 3, "views of a sentence, the anchor and its positives", minimum=2),
            Option("shuffle", True, "draw the channels' order anew for each view of each step"),
            Option("eps", 1e-5, "added to the covariances' eigenvalues", minimum=1e-12),
            Option(
                "grad_through_whitening",
                False,
                "gradient also through the whitening matrices; in the released code they are constant",
            ),
            Option(
                "repetition_rate",
                0.0,
                "repeat subwords in the positives as esimcse does; 0: no repetition",
                minimum=0,
            ),
            *training_options(lr=1e-5, batch_size=128),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "each view is whitened apart; the released code cuts the batch into thirds that mix the views",
            "released: nothing is added to the eigenvalues, so that B <= H / G is not a number",
            "the released command asks for a duplication of subwords, whose code is missing: off here, "
            "repetition_rate=0.32 is esimcse's",
            "the number of groups is the code's; that of the published rows and all settings for "
            "roberta-base are not verified",
        ),
        published_names=(("whitenedcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_whitenedcse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "whitenedcse")
