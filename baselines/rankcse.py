"""RankCSE: SimCSE that also learns from frozen teachers how the sentences of a batch rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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

    from bench.train.teachers import Teacher

TEACHERS = ("teacher1", "teacher2")
_SMALLEST = 1e-7


def consistency(lists: Tensor, form: str = "neg_entropy") -> Tensor:
    """The term on the student's two list families, P = softmax(S) and P' = softmax(S^T), row by row.

    ``js`` (Liu et al. 2023): 1/2 mean_i [KL(P_i || M_i) + KL(P'_i || M_i)], M = (P + P') / 2.
    ``neg_entropy`` (what the community code computes: its log M is clamped to a constant, so P and P' are
    never compared): -1/2 [mean_i H(P_i) + mean_i H(P'_i)]. Probabilities are clamped to at least 1e-7.

    Args:
        lists: S, (B, B) similarities over the temperature, diagonal included.
        form: "js" or "neg_entropy".

    Returns:
        Scalar in nats. js: 0 (symmetric S) to ln 2; neg_entropy: -ln B (uniform rows) to 0.

    Raises:
        ValueError: no square matrix, or an unknown form.
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


def list_net(student: Tensor, teacher: Tensor) -> Tensor:
    """ListNet: cross-entropy of the student's list against the teacher's, the probability of coming first.

    L = -1/R sum_i sum_j softmax(T_i)_j log softmax(S_i)_j (Cao et al. 2007; Liu et al. 2023). Gradient
    reaches the student alone where the teacher has none; it is 0 where softmax(S) = softmax(T).

    Args:
        student: S, (R, K): R lists of K similarities over the student's temperature.
        teacher: T, (R, K), over the teacher's.

    Returns:
        Scalar in nats, at least the mean entropy of softmax(T); 0 for K = 1.

    Raises:
        ValueError: shapes that don't fit, or empty lists.
    """
    _check_lists(student, teacher)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()


def list_mle(
    student: Tensor, teacher: Tensor, *, eps: float = 1e-7, ties: torch.Generator | None = None
) -> Tensor:
    """ListMLE: negative log-likelihood of the teacher's order under the student's Plackett-Luce model.

    With pi_i sorting T_i in descending order, s_k = S_i,pi(k) and s~ = s - max(s):
    L = mean_i sum_k [ln(sum_{l >= k} e^{s~_l} + eps) - s~_k] (Xia et al. 2008; Liu et al. 2023). The released
    eps bounds what items far below the largest add; with eps = 0 it is the likelihood itself.

    Args:
        student: S, (R, K): R lists of K similarities over the temperature.
        teacher: T, (R, K); its order counts alone.
        eps: At least 0.
        ties: Draws the one order of columns, for all rows, that breaks the teacher's ties; None: as they are.

    Returns:
        Scalar in nats, a sum over the list: ln K! for a uniform list (eps = 0).

    Raises:
        ValueError: shapes that don't fit, empty lists, or an eps below 0.
    """
    import math

    import torch

    _check_lists(student, teacher)
    if eps < 0:
        raise ValueError(f"eps {eps} must be at least 0")
    if ties is not None:
        columns = torch.randperm(student.shape[1], generator=ties).to(student.device)
        student, teacher = student[:, columns], teacher[:, columns]
    order = teacher.sort(dim=1, descending=True, stable=True).indices
    ranked = student.gather(1, order)
    ranked = ranked - ranked.max(1, keepdim=True).values
    rest = ranked.flip(1).logcumsumexp(1).flip(1)
    if eps:
        rest = torch.logaddexp(rest, torch.full_like(rest, math.log(eps)))
    return (rest - ranked).sum(1).mean()


def _check_lists(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape or student.ndim != 2 or not student.numel():
        raise ValueError(
            f"student's {tuple(student.shape)} and teacher's {tuple(teacher.shape)} lists must be (R, K), "
            "R and K at least 1"
        )


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a (B, B) matrix without their diagonal entries, (B, B - 1)."""
    import torch

    size = len(matrix)
    others = ~torch.eye(size, dtype=torch.bool, device=matrix.device)
    return matrix[others].view(size, size - 1)


def rank_loss(
    cosines: Tensor, teacher: Tensor, config: Mapping[str, OptionValue], ties: torch.Generator | None = None
) -> Tensor:
    """ListMLE or ListNet of a batch, as the options say, without the factor gamma.

    Args:
        cosines: Student's cos(z_i, z'_j), (B, B), B at least 3.
        teacher: Teachers' mixed cosines, (B, B), without gradient.
        config: rank_loss, tau, teacher_tau, listnet_temps, listmle_eps and both drop_diagonal options.
        ties: As for :func:`list_mle`.
    """
    name, tau, tau2 = str(config["rank_loss"]), float(config["tau"]), float(config["teacher_tau"])
    taus = (tau2, tau2 / 2) if name == "listnet" and config["listnet_temps"] == "tau2_tau3" else (tau, tau2)
    lists, targets = cosines / taus[0], teacher / taus[1]
    if config[f"{name}_drop_diagonal"]:
        lists, targets = off_diagonal(lists), off_diagonal(targets)
    if name == "listnet":
        return list_net(lists, targets)
    return list_mle(lists, targets, eps=float(config["listmle_eps"]), ties=ties)


def make_objective(
    model: Any,
    pad_id: int,
    config: Mapping[str, OptionValue],
    teachers: Sequence[Teacher],
    ties: torch.Generator,
) -> Any:
    """Return the module: (sentence number, token row) pairs to L = InfoNCE + beta L_cons + gamma L_rank.

    Args:
        model: The transformer that learns.
        pad_id: Padding id.
        config: The options.
        teachers: One or two; alpha weighs the first of two.
        ties: Generator of the run's own for :func:`list_mle`.
    """
    import torch
    from torch import nn

    from bench.train.chunks import cls_states
    from bench.train.teachers import cosine_matrix, mixed_cosines

    tau, alpha = float(config["tau"]), float(config["alpha"])
    beta, gamma = float(config["beta"]), float(config["gamma"])
    weights = (1.0,) if len(teachers) == 1 else (alpha, 1 - alpha)

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size)

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            rows = [row for _, row in batch]
            vectors = torch.tanh(self.head(cls_states(model, [*rows, *rows], pad_id)))
            first, second = vectors[: len(rows)], vectors[len(rows) :]
            cosines = cosine_matrix(first, second)
            loss = info_nce(first, second, tau) + beta * consistency(
                cosines / tau, str(config["consistency"])
            )
            if gamma and len(rows) > 2:  # two sentences have nothing to rank
                numbers = [number for number, _ in batch]
                targets = mixed_cosines([teacher.vectors(numbers) for teacher in teachers], weights)
                targets = targets.to(device=cosines.device, dtype=cosines.dtype)
                loss = loss + gamma * rank_loss(cosines, targets, config, ties)
            return loss

    return Objective()


def train_rankcse(context: StageContext) -> dict[str, Any]:
    """Train with the rankings of the teachers, the members ``teacher1`` and ``teacher2`` if any: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: ``alpha`` above 1.
    """
    from bench.nn.backbone import load_backbone
    from bench.train.sentence_encoder import train_towers
    from bench.train.streams import generator
    from bench.train.teachers import Teacher

    config = context.config
    if float(config["alpha"]) > 1:
        raise InputError(f"alpha {config['alpha']}", where="rankcse.alpha", expected="0 to 1")
    teachers = [
        Teacher(context.members[role], context.sentences) for role in TEACHERS if role in context.members
    ]
    ties = generator(context.seed, f"ties/{context.role}")
    return train_towers(
        context,
        [load_backbone(context.model)],
        lambda model, pad_id: make_objective(model, pad_id, config, teachers, ties),
        numbered=True,
    )


@add_method
class RankCSE:
    """RankCSE."""

    card = MethodCard(
        name="rankcse",
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
        options=(
            Option("teacher1", "diffcse", "a teacher, any method or checkpoint as in --methods"),
            Option("teacher2", "simcse", "another one, or empty for none"),
            Option(
                "alpha",
                0.33,
                "weight of teacher1's similarities; those of teacher2 have 1 - alpha",
                minimum=0,
            ),
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
            *training_options(batch_size=128),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "published: a DiffCSE-base and a SimCSE-large checkpoint teach; here DiffCSE and SimCSE on the "
            "profile's backbone, trained with the run's seed (any checkpoint can be named instead)",
            "a teacher encodes whole sentences with its own tokenizer; released: the student's 32 token ids",
            "released: the consistency term is a negative entropy (consistency=js is the paper's)",
            "released: beta is stored but never applied; here it is, and the default 1 is the same",
            "released: ListNet shares the temperatures, its teacher temperature is built but not used "
            "(listnet_temps=tau2_tau3)",
            "released ListMLE drops items whose teacher logit is exactly -1 as padding; here they count",
            "no ranking term for a batch of one or two sentences; the released ListNet is not a number there",
        ),
        published_names=(("rankcse", "as published: profile bert-base or roberta-base"),),
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teachers."""
        if not options["teacher1"]:
            raise InputError("no teacher", where="rankcse.teacher1", expected="a method as in --methods")
        return {role: str(options[role]) for role in TEACHERS if options[role]}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; the teachers stand in its key as what they are, whatever text names them."""
        inputs = tuple(self.members(options))
        own = {name: value for name, value in options.items() if name not in TEACHERS}
        return tuple(replace(spec, inputs=inputs) for spec in one_stage(self.card, own, train_rankcse))

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "rankcse")
