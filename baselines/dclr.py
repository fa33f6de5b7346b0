"""DCLR: SimCSE with noise among the negatives and without those that another model finds too alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import check_train_pooling
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, init_linear, usual_options

FORMS = ("released", "paper")


def ascend_noise(
    noise: torch.Tensor,
    anchors: torch.Tensor,
    positives: torch.Tensor,
    tau: float,
    *,
    steps: int,
    rate: float,
) -> torch.Tensor:
    """Move noise (M, H) by steps of gradient ascent on InfoNCE, in which it is every anchor's negative.

    Up to a positive factor the gradient to g_k is sum_i q_ik (z_i / ||z_i|| - cos(z_i, g_k) g_k / ||g_k||),
    q_ik the softmax of row i at g_k over their sum over i (Zhou et al. 2022). A row with gradient 0 stays.
    """
    with torch.no_grad():
        unit = torch.nn.functional.normalize(anchors, dim=1, eps=1e-8)
        own = losses.cosine_matrix(anchors, positives) / tau
        for _ in range(steps):
            cosines = losses.cosine_matrix(anchors, noise)
            rows = torch.cat([own, cosines / tau], dim=1).logsumexp(1, keepdim=True)
            shares = (cosines / tau - rows).softmax(0)
            direction = torch.nn.functional.normalize(noise, dim=1, eps=1e-8)
            along = (shares * cosines).sum(0).unsqueeze(1) * direction
            noise = noise + rate * torch.nn.functional.normalize(shares.T @ unit - along, dim=1)
        return noise


def cell_cross_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of every cell of p = softmax(logits), (B, K), where cell (i, i) is right.

    L = -1 / (B K) sum_i [log p_ii + sum_{j != i} log(1 - p_ij)]. A row's largest 1 - p is summed from the
    other cells, so it stays exact where p rounds to 1.
    """
    right = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    logs, top = logits.log_softmax(1), logits.argmax(1, keepdim=True)
    others = logits.scatter(1, top, torch.finfo(logits.dtype).min)
    largest = others.logsumexp(1, keepdim=True) - logits.logsumexp(1, keepdim=True)
    wrong = torch.log1p(-logs.exp().scatter(1, top, 0.0)).scatter(1, top, largest)
    return -torch.where(right, logs, wrong).mean()


def debiased_nce(
    anchors: torch.Tensor,
    positives: torch.Tensor,
    noise: torch.Tensor,
    alike: torch.Tensor | None,
    tau: float,
    *,
    form: str = "released",
) -> torch.Tensor:
    """DCLR's loss: contrast with the batch and with noise, where like pairs are excluded (Zhou et al. 2022).

    ``paper`` leaves such a pair out; ``released`` is :func:`cell_cross_entropy`, where it keeps a logit of 0.
    ``alike`` is (B, B), its diagonal is ignored.
    """
    losses.check_same_shape("(B, H)", anchors=anchors, positives=positives)
    losses.check_tau(tau)
    size = len(anchors)
    if noise.shape[1:] != anchors.shape[1:] or (alike is not None and alike.shape != (size, size)):
        shape = None if alike is None else tuple(alike.shape)
        raise ValueError(f"noise {tuple(noise.shape)} must be (M, H), alike {shape} (B, B) or None")
    if form not in FORMS:
        raise ValueError(f"form {form!r}; expected one of {', '.join(FORMS)}")
    logits = losses.cosine_matrix(anchors, torch.cat([positives, noise])) / tau
    if alike is not None:
        own = torch.eye(size, dtype=torch.bool, device=logits.device)
        dropped = torch.nn.functional.pad(alike & ~own, (0, len(noise)))
        logits = logits.masked_fill(dropped, -torch.inf if form == "paper" else 0.0)
    if form == "paper":
        return torch.nn.functional.cross_entropy(logits, torch.arange(size, device=logits.device))
    return cell_cross_entropy(logits)


class DCLRStep(NamedTuple):
    """Inputs of a step: the sentences twice, Gaussian vectors (M, H), the query of the complement."""

    views: nn.TokenBatch
    noise: torch.Tensor
    asked: training.TeacherQuery | None


class DCLRObjective(training.EncoderWithHead):
    """(Sentence number, token row) pairs to :func:`debiased_nce`."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config, members = context.config, context.members
        self.draws = training.generator(context.seed, f"noise/{context.role}")
        self.complement = training.Teacher(members["complement"], context.sentences) if members else None
        self.tau, self.phi, self.form = float(config["tau"]), float(config["phi"]), str(config["loss"])
        self.times, self.rate = float(config["noise_times"]), float(config["noise_rate"])
        self.steps, self.mask_padding = int(config["noise_steps"]), bool(config["mask_padding"])
        self.size = nn.state_size(model)
        self.pooler: Any = None
        if config["head"] == "stacked":
            pooler = getattr(getattr(model, "pooler", None), "dense", None)
            self.pooler = init_linear(self.size) if pooler is None else pooler

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> DCLRStep:
        """Draw the step's noise; padding that the encoder attends to becomes tokens here."""
        rows = [row for _, row in batch]
        if not self.mask_padding:
            longest = max(map(len, rows))
            rows = [row + [self.pad_id] * (longest - len(row)) for row in rows]
        count = int(self.times * len(rows))
        noise = torch.randn(count, self.size, generator=self.draws)
        asked = None
        if self.complement is not None:
            asked = self.complement.prepare([number for number, _ in batch], self.device)
        return DCLRStep(self.tokens([*rows, *rows]), noise, asked)

    def compute(self, prepared: DCLRStep) -> torch.Tensor:
        """Encode both views in one call; the complement's vectors decide which pairs are alike."""
        first, second = self.projected(prepared.views).chunk(2)
        noise = prepared.noise.to(first.dtype)
        noise = ascend_noise(noise, first, second, self.tau, steps=self.steps, rate=self.rate)
        if self.complement is None or prepared.asked is None:
            return debiased_nce(first, second, noise, None, self.tau, form=self.form)
        known = self.complement.vectors(prepared.asked)
        alike = losses.cosine_matrix(known, known) > self.phi
        loss = debiased_nce(first, second, noise, alike, self.tau, form=self.form)
        return loss + 0 * known.sum()  # the sum carries a NaN, which the comparison drops

    def projected(self, batch: nn.TokenBatch) -> torch.Tensor:
        """Return z of each token row, (B, H)."""
        states = training.batch_states(self.encoder, batch)
        if self.pooler is not None:
            states = torch.tanh(self.pooler(states))
        return torch.tanh(self.head(states))

    def why_not_finite(self) -> str | None:
        """Explain a non-finite loss by the complement."""
        return None if self.complement is None else self.complement.why_not_finite()


@add_method
class DCLR(TrainedOnce):
    """DCLR."""

    card = MethodCard(
        name="dclr",
        printed="DCLR",
        family="contrastive",
        adds="noise that gradient ascent makes hard, as further negatives; likely false negatives weigh 0",
        cites=("zhou-etal-2022-debiased",),
        tags=("dropout views", "noise negatives"),
        passes=7.0,
        kind="baseline",
        summary="SimCSE with noise negatives, and weight 0 for negatives that a frozen model finds alike",
        version=1,
        paper="Zhou, Zhang, Zhao, Wen 2022, Debiased Contrastive Learning of Unsupervised Sentence "
        "Representations",
        code="RUCAIBox/DCLR e2c3430",
        equations=(
            "z = tanh(W tanh(W_p h_cls + b_p) + b), W_p the backbone's pooler; head=tanh: tanh(W h_cls + b)",
            "g_1 ... g_M ~ N(0, I), M = floor(noise_times B); then noise_steps times g <- g + noise_rate d / "
            "||d||, d the gradient to g of mean_i -log softmax([cos(z_i, z'_j) ; cos(z_i, g_k)] / tau)_i",
            "w_ij = 0 where j != i and cos(t_i, t_j) > phi, t the complement's vectors; else 1",
            "s_i = [cos(z_i, z'_j) ; cos(z_i, g_k)] / tau",
            "paper: L = mean_i -log(e^{s_ii} / sum_j w_ij e^{s_ij})",
            "released: p_i = softmax(w_ij s_ij), L = -mean over cells of log p_ii and log(1 - p_ij), j != i",
            "at inference h_cls of the last layer, without pooler and head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("complement", "simcse", "frozen model that weighs negatives, as in --methods, or empty"),
            Option("phi", 0.9, "the complement's cosine above which a negative has weight 0", minimum=-1),
            Option("noise_times", 1.0, "noise negatives a sentence of the batch", minimum=0),
            Option("noise_steps", 4, "steps of gradient ascent on the noise", minimum=0),
            Option("noise_rate", 1e-3, "length of such a step", minimum=0),
            Option(
                "loss",
                "released",
                "binary cross-entropy of all cells, weights on logits (released), or InfoNCE (paper)",
                ("released", "paper"),
            ),
            Option(
                "head",
                "stacked",
                "training-only head: a tanh layer on the backbone's own pooler (released), or SimCSE's",
                ("stacked", "tanh"),
            ),
            Option("mask_padding", False, "attention in training leaves padding out (released: false)"),
            Option("tau", 0.05, "temperature", minimum=1e-4),
            *usual_options(batch_size=128, epochs=3),
        ),
        deviations=(
            "released: a SimCSE checkpoint weighs by the output of its head, with dropout, on 32 tokens and "
            "attending to padding",
            "the complement is a method on the profile's backbone, trained with the run's seed; it weighs by "
            "its own vectors of whole sentences (complement=hf:FOLDER takes a checkpoint)",
            "phi is a cosine at every tau; released: cosine / tau above 20 phi, the same at tau 0.05",
            "released: a weight of 0 turns a logit into 0, so a term e^0 stays; loss=paper drops the term",
            "InfoNCE's sum holds the positive; the paper's may leave it out (unverified)",
            "released: log(1 - p) is NaN where p rounds to 1; here it is exact",
            "the gradient to the noise is written out; a noise vector with gradient 0 stays (released: 0)",
            "the noise's gradient is of the released objective, with batch negatives and the same "
            "temperature; the paper's has only noise (unverified)",
            "released: STS-B and SICK-R are the dev set, read by the pooler; here the profile's by [CLS]",
            "a backbone without a pooler gets a fresh one in training",
            ADAMW_EPS,
        ),
        published_names=(("dclr", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the complement, if any."""
        return {"complement": str(options["complement"])} if options["complement"] else {}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage, keyed by the complement's content; InputError: a pooling of padding."""
        own = {name: value for name, value in options.items() if name != "complement"}
        if not options["mask_padding"]:
            why = "would pool the padding that training attends to"
            allowed, expected = ("cls", "mask"), "cls, mask, or mask_padding=true with it"
            check_train_pooling(self.card.name, options, allowed, why, expected=expected)
        return tuple(replace(spec, inputs=tuple(self.members(options))) for spec in super().stages(own))

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with noise and weighted negatives, as :func:`bench.training.train_towers`."""
        objective = partial(DCLRObjective, context=context)
        return training.train_towers(context, [nn.load_backbone(context.model)], objective, numbered=True)
