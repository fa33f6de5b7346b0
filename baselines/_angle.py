"""What AnglE trains: contrast with positives and hard negatives, and the order of cosines and angles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike
from bench.baselines._labelled import Columns, hard_negative_nce
from bench.nn.backbone import load_backbone
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.objective import Objective
from bench.train.sentence_encoder import train_towers


def complex_angle(first: Tensor, second: Tensor) -> Tensor:
    """How near two vectors are by AnglE: s = |sum Re z + sum Im z|, z = (x conj(y)) / (|x| |y|).

    The first half of a vector is the real part of x, the second half the imaginary one. So sum Re z is the
    cosine of the vectors; sum Im z is what turns one into the other (Li and Li 2023; released: ``angle_loss``
    up to its comparison).

    Args:
        first: x, (B, H), H even.
        second: y, (B, H).

    Returns:
        (B,), 0 to sqrt 2.

    Raises:
        ValueError: different shapes, or an odd H.

    Example:
        >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])  # 1 and i: 1 / i = -i
        >>> complex_angle(x, x).item(), complex_angle(x, y).item()
        (1.0, 1.0)
        >>> round(complex_angle(x, torch.tensor([[3.0, -4.0]])).item(), 4)  # 0.6 + 0.8
        1.4
    """
    check_alike("(B, H)", first=first, second=second)
    if first.shape[1] % 2:
        raise ValueError(f"vectors of {first.shape[1]} numbers have no halves")
    (a, b), (c, d) = (functional.normalize(x, dim=1, eps=1e-8).chunk(2, dim=1) for x in (first, second))
    return ((a * c + b * d).sum(1) + (b * c - a * d).sum(1)).abs()


def order_loss(positives: Tensor, negatives: Tensor, scale: float) -> Tensor:
    """CoSENT's loss: every positive pair nearer than every negative one.

    O = ln(1 + sum_ij exp(t (n_i - p_j))) (Li and Li 2023, released: the end of ``cosine_loss``).

    Args:
        positives: p, (B,), how near the positive pairs are.
        negatives: n, (B,), how near the negative ones are.
        scale: t, above 0.

    Returns:
        Scalar, above 0; ln(1 + B^2) where all are as near.

    Raises:
        ValueError: no vectors, or a scale that isn't above 0.

    Example:
        >>> near, far = torch.tensor([0.9, 0.8]), torch.tensor([0.1, 0.2])
        >>> round(order_loss(near, far, 1.0).item(), 4), round(order_loss(near, near, 0.01).item(), 4)
        (1.0957, 1.6094)
    """
    if positives.ndim != 1 or negatives.ndim != 1 or scale <= 0:
        raise ValueError(
            f"positives {tuple(positives.shape)} and negatives {tuple(negatives.shape)} must be (B,), and "
            f"scale {scale} above 0"
        )
    gaps = scale * (negatives[:, None] - positives[None, :]).flatten()
    return torch.cat([gaps.new_zeros(1), gaps]).logsumexp(0)


class AnglEObjective(Objective):
    """(Sentence number, token row) pairs to the weighted losses.

    Args:
        model: The transformer.
        tokenizer: Its tokenizer.
        context: The stage: its options, positives and hard negatives.
    """

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, tokenizer.pad_token_id
        self.columns = Columns(tokenizer, context)
        self.config = {name: float(value) for name, value in context.config.items() if _weighs(name)}

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> TokenBatch:
        """All columns go through one call."""
        return token_batch(self.columns.rows(batch), self.pad_id, self.encoder)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """Contrast, and the orders that weigh something; of pairs contrast alone."""
        x, positive, *others = batch_states(self.encoder, prepared).chunk(self.columns.count)
        tau = 1 / self.config["ibn_scale"]
        contrast = hard_negative_nce(x, positive, None, tau)
        if not others:
            return contrast
        (negative,) = others
        among_all = hard_negative_nce(x, positive, negative, tau)
        loss = (self.config["ibn_weight"] * contrast + self.config["cln_weight"] * among_all) / 2
        for name, near in (("angle", complex_angle), ("cosine", functional.cosine_similarity)):
            if weight := self.config[f"{name}_weight"]:
                order = order_loss(near(x, positive), near(x, negative), self.config[f"{name}_scale"])
                loss = loss + weight * order
        return loss


def _weighs(name: str) -> bool:
    return name.endswith("_scale") or name.endswith("_weight")


def train(context: StageContext) -> dict[str, Any]:
    """Train on labelled triplets or pairs: the stage.

    Argument, result and errors are those of :func:`bench.train.sentence_encoder.train_towers`.
    """
    tower = load_backbone(context.model)
    return train_towers(
        context, [tower], lambda model, _: AnglEObjective(model, tower[1], context), numbered=True
    )
