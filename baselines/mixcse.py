"""MixCSE: SimCSE with hard negatives that are mixed of a positive and a negative."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import losses, training
from bench.baselines.simcse import SimCSEObjective
from bench.lazy import torch
from bench.method_card import MethodCard, Option
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options

FORMS = ("released", "paper")


def mixed_nce(
    anchors: torch.Tensor, positives: torch.Tensor, tau: float, *, mix: float = 0.2, form: str = "released"
) -> torch.Tensor:
    """MixCSE's loss: InfoNCE with constant negatives mixed from two sentences each (Zhang et al. 2022).

    m_i mixes z'_i and z'_{i+1}, n_i z_i and z_{i+1}. ``released``: 0 in the cells M_{i,i-1} and N_{i,i+1},
    where m and n hold most of the anchor's own positive, or of the positive's own anchor.
    """
    losses.check_same_shape("(B, H)", anchors=anchors, positives=positives)
    losses.check_tau(tau)
    if not 0 <= mix <= 1:
        raise ValueError(f"mix {mix} must be 0 to 1")
    if form not in FORMS:
        raise ValueError(f"form {form!r}; expected one of {', '.join(FORMS)}")
    size, own = len(anchors), torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    of_positives, of_anchors = (torch.lerp(x.roll(-1, 0), x, mix).detach() for x in (positives, anchors))
    plain, met = (losses.cosine_matrix(anchors, others) / tau for others in (positives, of_positives))
    if form == "released":
        meeting = losses.cosine_matrix(of_anchors, positives) / tau
        further = [met.masked_fill(own.roll(1, 0), 0.0), meeting.masked_fill(own.roll(1, 1), 0.0)]
    elif size == 1:
        return losses.info_nce(anchors, positives, tau)
    else:
        further = [met.diagonal().unsqueeze(1)]
    logits = torch.cat([plain, *further], dim=1)
    return torch.nn.functional.cross_entropy(logits, torch.arange(size, device=logits.device))


class MixCSEObjective(SimCSEObjective):
    """Token rows to :func:`mixed_nce` of two dropout views under SimCSE's head."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__(model, pad_id, float(context.config["tau"]))
        self.mix, self.form = float(context.config["mix"]), str(context.config["mixed"])

    def compute(self, prepared: Any) -> torch.Tensor:
        """Compare the first views with the second ones and the mixed vectors."""
        anchors, positives = self.views(prepared)
        return mixed_nce(anchors, positives, self.tau, mix=self.mix, form=self.form)


@add_method
class MixCSE(TrainedOnce):
    """MixCSE."""

    card = MethodCard(
        name="mixcse",
        printed="MixCSE",
        family="contrastive",
        adds="hard negatives, mixtures of the positive and another sentence, without gradient",
        cites=("zhang-etal-2022-unsupervised",),
        tags=("dropout views", "mixed negatives"),
        passes=6.0,
        kind="baseline",
        summary="SimCSE with hard negatives mixed of the positive and another sentence",
        version=1,
        paper="Zhang, Zhang, Mensah, Liu, Mao 2022, Unsupervised Sentence Representation via Contrastive "
        "Learning with Mixing Negatives",
        code="BDBC-KG-NLP/MixCSE_AAAI2022 884145e",
        equations=(
            "z = tanh(W h_cls + b), z' of the second dropout view; S_ij = cos(z_i, z'_j) / tau",
            "m_i = a z'_i + (1 - a) z'_{i+1}, n_i = a z_i + (1 - a) z_{i+1}, after the last the first; both "
            "without gradient",
            "M_ij = cos(z_i, m_j) / tau, 0 for j = i - 1; N_ij = cos(n_i, z'_j) / tau, 0 for j = i + 1",
            "released: L = mean_i -log softmax([S_i ; M_i ; N_i])_i; paper: softmax([S_i ; M_ii])",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("mix", 0.2, "a, share of the positive in a mixed negative, 0 to 1", minimum=0, maximum=1),
            Option(
                "mixed",
                "released",
                "an anchor's mixed negatives: all, of both views (released), or its own positive's (paper)",
                ("released", "paper"),
            ),
            *usual_options(),
        ),
        deviations=(
            "paper: one mixed negative an anchor (mixed=paper, unverified: only the code was read)",
            "released: M and N too, with logit 0 (instead of minus infinity) where most of a mixed vector is "
            "the anchor's own positive (M) or the positive's own anchor (N)",
            "the head's outputs are mixed, as released, and the cosine normalises the mixture; the paper may "
            "mix unit vectors (unverified)",
            "the other sentence is the next one of the batch, as released; batches are drawn at random",
            "left out: a weight of mixed negatives, 0 in all released runs",
            "a batch of one sentence is mixed with itself; with mixed=paper its loss is 0",
            "roberta-base has the settings of bert-base (undocumented)",
            ADAMW_EPS,
        ),
        published_names=(("mixcse", "as published: profile bert-base or roberta-base"),),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with mixed negatives, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(MixCSEObjective, context=context))
