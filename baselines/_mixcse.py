"""What MixCSE trains: two dropout views, and hard negatives mixed of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike, check_tau
from bench.baselines._simcse import SimCSEObjective
from bench.errors import InputError
from bench.stages import StageContext
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_sentence_encoder
from bench.train.teachers import cosine_matrix

FORMS = ("released", "paper")


def mixed_nce(
    anchors: Tensor, positives: Tensor, tau: float, *, mix: float = 0.2, form: str = "released"
) -> Tensor:
    """MixCSE's loss: InfoNCE with further negatives, constants that are mixed of two sentences each.

    S_ij = cos(z_i, z'_j) / tau; m_i = a z'_i + (1 - a) z'_{i+1} and n_i = a z_i + (1 - a) z_{i+1}, without
    gradient, where the first sentence follows the last; M_ij = cos(z_i, m_j) / tau, N_ij = cos(n_i, z'_j) /
    tau. ``paper``: mean_i -log softmax([S_i ; M_ii])_i. ``released``: with [S_i ; M_i ; N_i], and
    0 in the cells M_{i,i-1} and N_{i,i+1}, where m and n hold most of the anchor's own positive, or of
    the positive's own anchor (Zhang et al. 2022). Gradient reaches z through S and M, z' through S and N.

    Args:
        anchors: z, (B, H).
        positives: z', (B, H), row i belongs to anchor i.
        tau: Temperature, above 0.
        mix: a, 0 to 1.
        form: "released" or "paper".

    Returns:
        Scalar, above 0; 0 for a single sentence with ``paper``.

    Raises:
        ValueError: different shapes, a temperature that isn't above 0, a share outside [0, 1], another form.

    Example:
        >>> z = torch.eye(2)
        >>> round(mixed_nce(z, z, tau=1.0, mix=0.0, form="paper").item(), 4)  # ln(1 + 2 / e)
        0.5514
        >>> round(mixed_nce(z, z, tau=1.0, mix=0.0).item(), 4)  # ln(1 + 5 / e)
        1.0436
    """
    check_alike("(B, H)", anchors=anchors, positives=positives)
    check_tau(tau)
    if not 0 <= mix <= 1:
        raise ValueError(f"mix {mix} must be 0 to 1")
    if form not in FORMS:
        raise ValueError(f"form {form!r}; expected one of {', '.join(FORMS)}")
    size, own = len(anchors), torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    of_positives, of_anchors = (torch.lerp(x.roll(-1, 0), x, mix).detach() for x in (positives, anchors))
    plain, met = (cosine_matrix(anchors, others) / tau for others in (positives, of_positives))
    if form == "released":
        meeting = cosine_matrix(of_anchors, positives) / tau
        further = [met.masked_fill(own.roll(1, 0), 0.0), meeting.masked_fill(own.roll(1, 1), 0.0)]
    elif size == 1:
        return info_nce(anchors, positives, tau)
    else:
        further = [met.diagonal().unsqueeze(1)]
    logits = torch.cat([plain, *further], dim=1)
    return functional.cross_entropy(logits, torch.arange(size, device=logits.device))


class MixCSEObjective(SimCSEObjective):
    """Token rows to :func:`mixed_nce` of two dropout views under SimCSE's head.

    Args:
        model: The transformer.
        pad_id: Padding id.
        context: The stage: its options.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        config = context.config
        super().__init__(model, pad_id, float(config["tau"]))
        self.mix, self.form = float(config["mix"]), str(config["mixed"])

    def compute(self, prepared: Any) -> Tensor:
        """The loss of the first views against the second ones and the mixed vectors."""
        anchors, positives = self.views(prepared)
        return mixed_nce(anchors, positives, self.tau, mix=self.mix, form=self.form)


def train(context: StageContext) -> dict[str, Any]:
    """Train with mixed negatives: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: ``mix`` above 1.
    """
    mix = context.config["mix"]
    if float(mix) > 1:
        raise InputError(f"mix {mix}", where="mixcse.mix", expected="0 to 1")
    return train_sentence_encoder(context, lambda model, pad_id: MixCSEObjective(model, pad_id, context))
