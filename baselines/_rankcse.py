"""What RankCSE trains: InfoNCE, consistency of two lists, and the order that frozen teachers see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.card import OptionValue
from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.heads import EncoderWithHead
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_towers
from bench.train.streams import generator
from bench.train.teachers import Asked, Teacher, cosine_matrix, mixed_cosines

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

    Example:
        >>> round(consistency(torch.zeros(4, 4)).item(), 4)  # uniform rows: -ln 4
        -1.3863
        >>> round(consistency(torch.eye(4), "js").item(), 4)  # symmetric
        0.0
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

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])
        >>> round(list_net(scores, torch.zeros(1, 3)).item(), 4)
        1.4076
        >>> round(list_net(scores, scores).item(), 4)  # the entropy of its softmax
        0.8324
    """
    _check_lists(student, teacher)
    return -(teacher.softmax(1) * student.log_softmax(1)).sum(1).mean()


def list_mle(student: Tensor, teacher: Tensor, *, eps: float = 1e-7, columns: Tensor | None = None) -> Tensor:
    """ListMLE: negative log-likelihood of the teacher's order under the student's Plackett-Luce model.

    With pi_i sorting T_i in descending order, s_k = S_i,pi(k) and s~ = s - max(s):
    L = mean_i sum_k [ln(sum_{l >= k} e^{s~_l} + eps) - s~_k] (Xia et al. 2008; Liu et al. 2023). The released
    eps bounds what items far below the largest add; with eps = 0 it is the likelihood itself.

    Args:
        student: S, (R, K): R lists of K similarities over the temperature.
        teacher: T, (R, K); its order counts alone.
        eps: At least 0.
        columns: (K,), the one order of columns, for all rows, that breaks the teacher's ties; None: as
            they are.

    Returns:
        Scalar in nats, a sum over the list: ln K! for a uniform list (eps = 0).

    Raises:
        ValueError: shapes that don't fit, empty lists, or an eps below 0.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0]])
        >>> round(list_mle(scores, scores).item(), 4)
        0.7209
        >>> round(list_mle(scores, -scores).item(), 4)  # the reverse order
        3.7209
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


def _check_lists(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape or student.ndim != 2 or not student.numel():
        raise ValueError(
            f"student's {tuple(student.shape)} and teacher's {tuple(teacher.shape)} lists must be (R, K), "
            "R and K at least 1"
        )


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a (B, B) matrix without their diagonal entries, (B, B - 1).

    Example:
        >>> off_diagonal(torch.arange(9.0).view(3, 3)).tolist()
        [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    """
    size = len(matrix)  # behind the first cell every row ends with a diagonal one
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


def rank_loss(
    cosines: Tensor, teacher: Tensor, config: Mapping[str, OptionValue], columns: Tensor | None = None
) -> Tensor:
    """ListMLE or ListNet of a batch, as the options say, without the factor gamma.

    Args:
        cosines: Student's cos(z_i, z'_j), (B, B), B at least 3.
        teacher: Teachers' mixed cosines, (B, B), without gradient.
        config: rank_loss, tau, teacher_tau, listnet_temps, listmle_eps and both drop_diagonal options.
        columns: As for :func:`list_mle`.
    """
    name, tau, tau2 = str(config["rank_loss"]), float(config["tau"]), float(config["teacher_tau"])
    taus = (tau2, tau2 / 2) if name == "listnet" and config["listnet_temps"] == "tau2_tau3" else (tau, tau2)
    lists, targets = cosines / taus[0], teacher / taus[1]
    if config[f"{name}_drop_diagonal"]:
        lists, targets = off_diagonal(lists), off_diagonal(targets)
    if name == "listnet":
        return list_net(lists, targets)
    return list_mle(lists, targets, eps=float(config["listmle_eps"]), columns=columns)


class Ranked(NamedTuple):
    """What the ranking term needs of a step.

    Args:
        asked: What each teacher is asked.
        columns: For :func:`list_mle`; None for ListNet.
    """

    asked: tuple[Asked, ...]
    columns: Tensor | None


class RankCSEObjective(EncoderWithHead):
    """(Sentence number, token row) pairs to L = InfoNCE + beta L_cons + gamma L_rank.

    Args:
        model: The transformer that learns.
        pad_id: Padding id.
        context: The stage: its options, its text, the teachers among its members (alpha weighs the first of
            two), and the stream of :func:`list_mle`.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id)
        config, members = context.config, sorted(context.members.items())
        self.config, self.ties = config, generator(context.seed, f"ties/{context.role}")
        self.teachers = [Teacher(member, context.sentences) for _, member in members]
        self.tau, self.beta, self.gamma = (float(config[name]) for name in ("tau", "beta", "gamma"))
        alpha = float(config["alpha"])
        self.weights = (1.0,) if len(members) == 1 else (alpha, 1 - alpha)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, Ranked | None]:
        """Both views go through one call, so they differ by their dropout masks alone."""
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
        return tokens, Ranked(asked, columns)

    def compute(self, prepared: tuple[TokenBatch, Ranked | None]) -> Tensor:
        """The three terms."""
        tokens, ranked = prepared
        first, second = self.projected(tokens).chunk(2)
        cosines = cosine_matrix(first, second)
        loss = info_nce(first, second, self.tau)
        loss = loss + self.beta * consistency(cosines / self.tau, str(self.config["consistency"]))
        if ranked is None:
            return loss
        taught = [teacher.vectors(asked) for teacher, asked in zip(self.teachers, ranked.asked, strict=True)]
        targets = mixed_cosines(taught, self.weights).to(cosines.dtype)
        loss = loss + self.gamma * rank_loss(cosines, targets, self.config, ranked.columns)
        return loss + 0 * targets.sum()  # an order alone would hide what is not a number

    def why_not_finite(self) -> str | None:
        """A teacher's vectors, where they are why."""
        return next(filter(None, (teacher.why_not_finite() for teacher in self.teachers)), None)


def train(context: StageContext) -> dict[str, Any]:
    """Train with the rankings of the teachers, the members ``teacher1`` and ``teacher2`` if any: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: ``alpha`` above 1.
    """
    alpha = context.config["alpha"]
    if float(alpha) > 1:
        raise InputError(f"alpha {alpha}", where="rankcse.alpha", expected="0 to 1")
    return train_towers(
        context,
        [load_backbone(context.model)],
        lambda model, pad_id: RankCSEObjective(model, pad_id, context),
        numbered=True,
    )
