"""WhitenedCSE: SimCSE whose training head whitens randomly drawn groups of channels, anew for every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import HeldEncoder, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options


def multi_positive_nce(views: Sequence[torch.Tensor], tau: float) -> torch.Tensor:
    """WhitenedCSE's loss of K views (B, H): L = sum_k InfoNCE(z_1, z_k), k = 2 ... K (Zhuo et al. 2023)."""
    if len(views) < 2:
        raise ValueError(f"{len(views)} view(s); expected at least 2")
    return torch.stack([losses.info_nce(views[0], view, tau) for view in views[1:]]).sum()


def automatic_groups(channels: int, rows: int) -> int:
    """Groups G of H channels for N rows of all views: the smallest divisor of H from 2 H / N on."""
    return next((g for g in range(-(-2 * channels // rows), channels) if channels % g == 0), channels)


class WhitenedCSEObjective(training.EncoderWithHead):
    """Token rows to the loss on z = tanh(W SGW(h) + b) of several views."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config = context.config
        self.size, self.groups = nn.state_size(model), int(config["groups"])
        self.views = int(config["views"])
        self.tau, self.eps, self.rate = (float(config[name]) for name in ("tau", "eps", "repetition_rate"))
        self.through, self.engine = bool(config["grad_through_whitening"]), str(config["engine"])
        # released: one group keeps its order, which matters only to a triangular root
        self.shuffle = bool(config["shuffle"]) and (self.engine, self.groups) != ("cholesky", 1)
        self.orders = training.generator(context.seed, f"order/{context.role}")
        self.repetitions = training.generator(context.seed, f"augment/{context.role}")
        if self.groups and self.size % self.groups:
            raise InputError(
                f"{self.groups} groups don't divide the backbone's {self.size} channels",
                where="whitenedcse.groups",
                expected=f"a divisor of {self.size}",
            )
        if self.through and self.engine == "lowrank":
            raise InputError(
                "the gradient through lowrank's matrices jumps where eigenvalues swap",
                where="whitenedcse.grad_through_whitening",
                expected="engine=zca or engine=cholesky with it",
            )

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, torch.Tensor]:
        """Put all first views before all second ones, and so on; draw each view's order of channels."""
        rows = list(batch) * (self.views - 1)
        others = [training.repeat_subwords(row, self.rate, self.repetitions) for row in rows]
        return self.tokens([*batch, *others]), torch.stack([self.order() for _ in range(self.views)])

    def compute(self, prepared: tuple[nn.TokenBatch, torch.Tensor]) -> torch.Tensor:
        """Encode in one call; whiten each view separately."""
        tokens, orders = prepared
        states = training.batch_states(self.encoder, tokens).chunk(self.views)
        groups = self.groups or automatic_groups(self.size, len(states) * len(states[0]))
        whitened = training.whiten_views(
            states, orders, groups, eps=self.eps, through=self.through, engine=self.engine
        )
        return multi_positive_nce([torch.tanh(self.head(view)) for view in whitened], self.tau)

    def order(self) -> torch.Tensor:
        """Draw the order in which the groups are cut from the channels."""
        return torch.randperm(self.size, generator=self.orders) if self.shuffle else torch.arange(self.size)


@add_method
class WhitenedCSE(TrainedOnce):
    """WhitenedCSE."""

    card = MethodCard(
        name="whitenedcse",
        printed="WhitenedCSE",
        family="contrastive",
        adds="vectors whitened in random groups of dimensions before the head; a second positive",
        cites=("zhuo-etal-2023-whitenedcse",),
        tags=("dropout views", "whitening"),
        passes=9.0,
        encoders=(HeldEncoder(views=3, returned=True),),
        kind="baseline",
        summary="SimCSE with shuffled group whitening in the training head and several positives",
        version=1,
        paper="Zhuo, Sun, Wang, Zhu, Yang 2023, WhitenedCSE: Whitening-based Contrastive Learning of "
        "Sentence Embeddings",
        code="SupstarZh/WhitenedCSE 65fe70a, which fails as released",
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
            Option("shuffle", True, "draw the channels' order for each view of each step"),
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
                "repeated subwords in the positives, see esimcse",
                minimum=0,
                maximum=1,
            ),
            *usual_options(lr=1e-5, batch_size=128),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "the released command runs on two GPUs: a step is 2 x 128 sentences, each half whitened and "
            "contrasted by itself, with 32,000 sentences between dev evaluations; here a step is 128, and "
            "batch_size=256 whitens and contrasts all 256 together",
            "each view is whitened separately; the released thirds of the batch mix the views",
            "released: eigenvalues without eps, so that B <= H / G gives NaN",
            "automatic groups (groups=0) take the next divisor of H; released: 2 H / (V B) rounded up, an "
            "error unless it divides H",
            "released: cholesky's gradient flows through its matrices (grad_through_whitening=true), and "
            "lowrank finds its directions by a random sketch; here they are exact",
            "the released command asks for a duplication of subwords, whose code is missing: off here, "
            "repetition_rate=0.32 is esimcse's",
            "the number of groups is the code's; the published rows' and all settings for roberta-base are "
            "unverified",
            ADAMW_EPS,
        ),
        published_names=(("whitenedcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a prompt's mask with repeated subwords."""
        if options["repetition_rate"]:
            why = "has its prompt's tokens repeated too"
            check_train_pooling(
                self.card.name, options, PROMPTLESS, why, expected="repetition_rate=0 with it"
            )
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with shuffled group whitening, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(WhitenedCSEObjective, context=context))
