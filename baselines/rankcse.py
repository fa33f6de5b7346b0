"""RankCSE: SimCSE that also learns from frozen teachers how the sentences of a batch rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options

TEACHERS = ("teacher1", "teacher2")
_SMALLEST = 1e-7


def consistency_loss(lists: torch.Tensor, form: str = "neg_entropy") -> torch.Tensor:
    """The term on the student's two list families, P = softmax(S) and P' = softmax(S^T), S (B, B), in nats.

    ``js`` (Liu et al. 2023): 1/2 mean_i [KL(P_i || M_i) + KL(P'_i || M_i)], M = (P + P') / 2.
    ``neg_entropy`` (the community code, whose log M is clamped to a constant): -1/2 [mean_i H(P_i) + mean_i
    H(P'_i)]. Probabilities are clamped to at least 1e-7.
    """
    if lists.ndim != 2 or lists.shape[0] != lists.shape[1]:
        raise ValueError(f"lists {tuple(lists.shape)} must be (B, B)")
    p, q = (s.softmax(1).clamp(min=_SMALLEST) for s in (lists, lists.T))
    if form == "neg_entropy":
        return ((p * p.log()).sum(1) + (q * q.log()).sum(1)).mean() / 2
    if form == "js":
        log_m = ((p + q) / 2).log()
        return ((p * (p.log() - log_m)).sum(1) + (q * (q.log() - log_m)).sum(1)).mean() / 2
    raise ValueError(f"form {form!r}; expected js or neg_entropy")


def list_net(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """ListNet: cross-entropy (nats) of lists (R, K) with the teacher's top-one probabilities (Cao 2007)."""
    _check_lists(student, teacher)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()


def list_mle(
    student: torch.Tensor, teacher: torch.Tensor, *, eps: float = 1e-7, columns: torch.Tensor | None = None
) -> torch.Tensor:
    """ListMLE: negative log-likelihood (nats) of the teacher's order under the student's Plackett-Luce model.

    The released eps bounds the terms of items far below the largest; eps = 0 gives the likelihood itself
    (Xia et al. 2008). ``columns`` (K,) breaks the teacher's ties.
    """
    _check_lists(student, teacher)
    if eps < 0:
        raise ValueError(f"eps {eps} must be at least 0")
    if columns is not None:
        student, teacher = student[:, columns], teacher[:, columns]
    order = teacher.sort(dim=1, descending=True, stable=True).indices
    ranked = student.gather(1, order)
    ranked = ranked - ranked.max(1, keepdim=True).values
    rest = ranked.flip(1).logcumsumexp(1).flip(1)
    if eps:
        rest = torch.logaddexp(rest, torch.full_like(rest, math.log(eps)))
    return (rest - ranked).sum(1).mean()


def _check_lists(student: torch.Tensor, teacher: torch.Tensor) -> None:
    if student.shape != teacher.shape or student.ndim != 2 or not student.numel():
        shapes = tuple(student.shape), tuple(teacher.shape)
        raise ValueError(f"lists {shapes[0]} of the student, {shapes[1]} of the teacher must be equal (R, K)")


def off_diagonal(matrix: torch.Tensor) -> torch.Tensor:
    """The rows of a (B, B) matrix without their diagonal entries, (B, B - 1)."""
    size = len(matrix)  # behind the first cell every row ends with a diagonal one
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


def rank_loss(
    cosines: torch.Tensor,
    teacher: torch.Tensor,
    config: Mapping[str, OptionValue],
    columns: torch.Tensor | None = None,
) -> torch.Tensor:
    """ListMLE or ListNet of a batch of cosines (B, B), B at least 3, without the factor gamma."""
    name, tau, tau2 = str(config["rank_loss"]), float(config["tau"]), float(config["teacher_tau"])
    taus = (tau2, tau2 / 2) if name == "listnet" and config["listnet_temps"] == "tau2_tau3" else (tau, tau2)
    lists, targets = cosines / taus[0], teacher / taus[1]
    if config[f"{name}_drop_diagonal"]:
        lists, targets = off_diagonal(lists), off_diagonal(targets)
    if name == "listnet":
        return list_net(lists, targets)
    return list_mle(lists, targets, eps=float(config["listmle_eps"]), columns=columns)


class RankCSEStep(NamedTuple):
    """Inputs of the ranking term: each teacher's query, and the columns of :func:`list_mle`."""

    asked: tuple[training.TeacherQuery, ...]
    columns: torch.Tensor | None


class RankCSEObjective(training.EncoderWithHead):
    """(Sentence number, token row) pairs to InfoNCE + beta L_cons + gamma L_rank; alpha mixes teachers."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config, members = context.config, sorted(context.members.items())
        self.config, self.ties = config, training.generator(context.seed, f"ties/{context.role}")
        self.teachers = [training.Teacher(member, context.sentences) for _, member in members]
        self.tau, self.beta, self.gamma = (float(config[name]) for name in ("tau", "beta", "gamma"))
        alpha = float(config["alpha"])
        self.weights = (1.0,) if len(members) == 1 else (alpha, 1 - alpha)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[nn.TokenBatch, RankCSEStep | None]:
        """Put both dropout views into one call; ask the teachers."""
        rows = [row for _, row in batch]
        tokens = self.tokens([*rows, *rows])
        if not self.gamma or len(rows) < 3:  # two sentences have nothing to rank
            return tokens, None
        numbers = [number for number, _ in batch]
        asked = tuple(teacher.prepare(numbers, self.device) for teacher in self.teachers)
        columns = None
        if self.config["rank_loss"] == "listmle":
            items = len(rows) - bool(self.config["listmle_drop_diagonal"])
            columns = torch.randperm(items, generator=self.ties)
        return tokens, RankCSEStep(asked, columns)

    def compute(self, prepared: tuple[nn.TokenBatch, RankCSEStep | None]) -> torch.Tensor:
        """Add the three terms."""
        tokens, ranked = prepared
        first, second = self.projected(tokens).chunk(2)
        cosines = losses.cosine_matrix(first, second)
        loss = losses.info_nce(first, second, self.tau)
        loss = loss + self.beta * consistency_loss(cosines / self.tau, str(self.config["consistency"]))
        if ranked is None:
            return loss
        taught = [teacher.vectors(asked) for teacher, asked in zip(self.teachers, ranked.asked, strict=True)]
        targets = training.mix_cosines(taught, self.weights).to(cosines.dtype)
        loss = loss + self.gamma * rank_loss(cosines, targets, self.config, ranked.columns)
        return loss + 0 * targets.sum()  # the sum carries a NaN, which an order drops

    def why_not_finite(self) -> str | None:
        """Explain a non-finite loss by a teacher."""
        return next(filter(None, (teacher.why_not_finite() for teacher in self.teachers)), None)


@add_method
class RankCSE(TrainedOnce):
    """RankCSE."""

    card = MethodCard(
        name="rankcse",
        printed="RankCSE",
        family="contrastive",
        adds="the ranking of a batch's sentences, learned from frozen teachers; both views must rank alike",
        cites=("liu-etal-2023-rankcse",),
        tags=("dropout views", "teachers", "ranking"),
        passes=8.0,
        kind="baseline",
        summary="SimCSE that also learns the ranking of a batch from frozen teachers (ListMLE or ListNet)",
        version=1,
        paper="Liu, Liu, Wang, Wang, Wu, Xian, Zhao, Chen, Yan 2023, RankCSE: Unsupervised Sentence "
        "Representations Learning via Learning to Rank",
        code="perceptiveshawty/RankCSE 17c5226, a community implementation: the authors released none",
        equations=(
            "z = tanh(W h_cls + b); S_ij = cos(z_i, z'_j) / tau; P = softmax(S), P' = softmax(S^T), by rows",
            "T_ij = [alpha cos(t1_i, t1_j) + (1 - alpha) cos(t2_i, t2_j)] / teacher_tau",
            "L = mean_i -log P_ii + beta L_cons + gamma L_rank; L_cons = -1/2 mean_i [H(P_i) + H(P'_i)]",
            "ListMLE: L_rank = mean_i sum_k [ln(sum_{l>=k} e^{s_l} + eps) - s_k], s: S_i less its max, by T",
            "ListNet: L_rank = -mean_i sum_{j != i} softmax(T_i)_j log softmax(S_i)_j",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("teacher1", "diffcse", "a teacher, any method or checkpoint as in --methods"),
            Option("teacher2", "simcse", "another one, or empty for none"),
            Option("alpha", 0.33, "weight of teacher1; teacher2 has 1 - alpha", minimum=0, maximum=1),
            Option("tau", 0.05, "temperature of InfoNCE and of the student's lists", minimum=1e-4),
            Option("teacher_tau", 0.05, "temperature of the teachers' lists", minimum=1e-4),
            Option("beta", 1.0, "weight of the consistency term", minimum=0),
            Option("gamma", 1.0, "weight of the ranking term", minimum=0),
            Option(
                "rank_loss",
                "listmle",
                "ranking term (0.1 is the released gamma of listnet)",
                ("listmle", "listnet"),
            ),
            Option(
                "consistency",
                "neg_entropy",
                "consistency term: the community code's, or the paper's Jensen-Shannon divergence",
                ("neg_entropy", "js"),
            ),
            Option(
                "listnet_temps",
                "shared",
                "ListNet's temperatures: tau and teacher_tau, or (paper) teacher_tau and half of it",
                ("shared", "tau2_tau3"),
            ),
            Option("listmle_eps", 1e-7, "ListMLE's constant inside the logarithm", minimum=0),
            Option("listnet_drop_diagonal", True, "ListNet leaves a sentence out of its own list"),
            Option("listmle_drop_diagonal", False, "ListMLE does"),
            *usual_options(batch_size=128),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "published: checkpoints of DiffCSE-bert-base and SimCSE-bert-large teach (the community code's "
            "only script)",
            "the teachers are DiffCSE and SimCSE on the profile's backbone, trained with the run's seed "
            "(teacher1=hf:FOLDER names a checkpoint)",
            "a teacher encodes whole sentences with its own tokenizer; released: the student's 32 token ids",
            "released: the consistency term is a negative entropy (consistency=js is the paper's)",
            "released: beta is stored but unused; here it is applied, with the same default 1",
            "released: ListNet shares the temperatures, its teacher temperature is unused "
            "(listnet_temps=tau2_tau3)",
            "released ListMLE drops items whose teacher logit is exactly -1 as padding; here they count",
            "a batch of one or two sentences has no ranking term (released ListNet: NaN)",
            ADAMW_EPS,
        ),
        published_names=(("rankcse", "as published: profile bert-base or roberta-base"),),
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the teachers."""
        if not options["teacher1"]:
            raise InputError(
                "teacher1 is empty", where="rankcse.teacher1", expected="a method as in --methods"
            )
        return {role: str(options[role]) for role in TEACHERS if options[role]}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; its key identifies the teachers by their content."""
        inputs = tuple(self.members(options))
        own = {name: value for name, value in options.items() if name not in TEACHERS}
        return tuple(replace(spec, inputs=inputs) for spec in super().stages(own))

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the teachers' rankings, as :func:`bench.training.train_towers`."""
        objective = partial(RankCSEObjective, context=context)
        return training.train_towers(context, [nn.load_backbone(context.model)], objective, numbered=True)
