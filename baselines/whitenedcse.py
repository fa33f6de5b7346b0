"""WhitenedCSE: SimCSE whose training head whitens randomly drawn groups of channels, anew for every view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import losses, nn, training
from bench.card import MethodCard, Option
from bench.errors import InputError
from bench.lazy import torch
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options


def multi_positive_nce(views: Sequence[torch.Tensor], tau: float) -> torch.Tensor:
    """WhitenedCSE's loss: L = sum_k InfoNCE(z_1, z_k), k = 2 ... K (Zhuo et al. 2023).

    InfoNCE is :func:`bench.losses.contrastive.info_nce`. The first view's rows are the anchors of every term;
    gradient flows through all views.

    Args:
        views: z_1 ... z_K, (B, H) each, row i of all belongs to sentence i.
        tau: Temperature, above 0.

    Returns:
        Scalar, at least 0; (K - 1) ln B for equal rows; 0 for B = 1.

    Raises:
        ValueError: fewer than two views, different shapes, or a temperature that isn't above 0.

    Example:
        >>> view = torch.ones(4, 2)
        >>> round(multi_positive_nce([view, view, view], tau=0.05).item(), 4)  # 2 ln 4
        2.7726
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} view(s): a positive needs a second one")
    return torch.stack([losses.info_nce(views[0], view, tau) for view in views[1:]]).sum()


def automatic_groups(channels: int, rows: int) -> int:
    """Groups that leave each at most half as many channels as a step has rows: G >= 2 H / N, G divides H.

    Args:
        channels: H.
        rows: N, of all views together.

    Example:
        >>> automatic_groups(768, 3 * 128)  # 192 channels each
        4
        >>> automatic_groups(768, 3 * 100)  # 5.12, of which the released code makes 6
        6
        >>> automatic_groups(768, 4)
        384
    """
    return next((g for g in range(-(-2 * channels // rows), channels) if channels % g == 0), channels)


class WhitenedCSEObjective(training.EncoderWithHead):
    """Token rows to the loss on z = tanh(W SGW(h) + b) of several views.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options, and the streams of the channels' orders and of repeated subwords.

    Raises:
        InputError: groups that don't divide the channels.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config = context.config
        self.size, self.groups = nn.state_size(model), int(config["groups"])
        self.views = int(config["views"])
        self.tau, self.eps, self.rate = (float(config[name]) for name in ("tau", "eps", "repetition_rate"))
        self.through, self.engine = bool(config["grad_through_whitening"]), str(config["engine"])
        # released: one group keeps its order, which a triangular root alone notices
        self.shuffle = bool(config["shuffle"]) and (self.engine, self.groups) != ("cholesky", 1)
        self.orders, self.repetitions = (
            training.generator(context.seed, f"{name}/{context.role}") for name in ("order", "augment")
        )
        if self.groups and self.size % self.groups:
            raise InputError(
                f"{self.groups} groups don't divide the backbone's {self.size} channels",
                where="whitenedcse.groups",
                expected=f"a divisor of {self.size}",
            )
        if self.through and self.engine == "lowrank":
            raise InputError(
                "the gradient through lowrank's matrices jumps where eigenvalues change places",
                where="whitenedcse.grad_through_whitening",
                expected="engine=zca or engine=cholesky with it",
            )

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, torch.Tensor]:
        """All first views before all second ones, and so on; and each view's order of channels."""
        others = [
            training.repeat_subwords(row, self.rate, self.repetitions)
            for _ in range(self.views - 1)
            for row in batch
        ]
        return self.tokens([*batch, *others]), torch.stack([self.order() for _ in range(self.views)])

    def compute(self, prepared: tuple[nn.TokenBatch, torch.Tensor]) -> torch.Tensor:
        """One call of the transformer; each view is whitened apart."""
        tokens, orders = prepared
        states = training.batch_states(self.encoder, tokens).chunk(self.views)
        groups = self.groups or automatic_groups(self.size, len(states) * len(states[0]))
        whitened = training.whiten_views(
            states, orders, groups, eps=self.eps, through=self.through, engine=self.engine
        )
        return multi_positive_nce([torch.tanh(self.head(view)) for view in whitened], self.tau)

    def order(self) -> torch.Tensor:
        """The channels as the groups are cut from them, drawn anew for each view unless switched off."""
        return torch.randperm(self.size, generator=self.orders) if self.shuffle else torch.arange(self.size)


@add_method
class WhitenedCSE(TrainedOnce):
    """WhitenedCSE."""

    card = MethodCard(
        name="whitenedcse",
        printed="WhitenedCSE",
        family="contrastive",
        tags=("dropout views", "whitening"),
        passes=9.0,
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
            "engine=cholesky: X L^(-T), L L^T = S + eps I; engine=lowrank: X U (l + eps)^(-1/2) U^T with the "
            "6 largest eigenvalues l of S",
            "L = InfoNCE(z_1, z_2) + InfoNCE(z_1, z_3), S_ij = cos(z_1i, z_kj) / tau",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "groups",
                128,
                "G, groups of channels, a divisor of the hidden size H; 0: the smallest from 2 H / (V B) on",
                minimum=0,
            ),
            Option("views", 3, "views of a sentence, the anchor and its positives", minimum=2),
            Option("shuffle", True, "draw the channels' order anew for each view of each step"),
            Option(
                "engine",
                "zca",
                "how a group is whitened: zca (released symeig, svd), cholesky, lowrank (svd_, pca_lowrank)",
                ("zca", "cholesky", "lowrank"),
            ),
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
                maximum=1,
            ),
            *usual_options(lr=1e-5, batch_size=128),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the released command runs on two GPUs: a step is 2 x 128 sentences, each half whitened and "
            "contrasted by itself, their losses averaged, and 125 steps between dev evaluations are 32,000 "
            "sentences; here a step is 128, and batch_size=256 whitens and contrasts all 256 together",
            "each view is whitened apart; the released code cuts the batch into thirds that mix the views",
            "released: nothing is added to the eigenvalues, so that B <= H / G is not a number",
            "automatic groups (groups=0) fail in the released code where 2 H / (V B), rounded up, doesn't "
            "divide H; here the next divisor is taken",
            "released: cholesky's gradient flows through its matrices (grad_through_whitening=true), and "
            "lowrank finds its directions by a random sketch; here they are exact",
            "the released command asks for a duplication of subwords, whose code is missing: off here, "
            "repetition_rate=0.32 is esimcse's",
            "the number of groups is the code's; that of the published rows and all settings for "
            "roberta-base are not verified",
            ADAMW_EPS,
        ),
        published_names=(("whitenedcse", "as published: profile bert-base or roberta-base"),),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with shuffled group whitening: the stage.

        Argument and result are those of :func:`bench.training.train_towers`, which has more errors.

        Raises:
            InputError: ``groups`` that don't divide the backbone's channels.
        """
        return training.train_sentence_encoder(
            context, lambda model, pad_id: WhitenedCSEObjective(model, pad_id, context)
        )
