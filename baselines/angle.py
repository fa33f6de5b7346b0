"""AnglE: labelled positives before hard negatives by cosine, by contrast and by an angle in complex space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import FIRST_TOKEN, SUPERVISED, HeldEncoder, MethodCard, Need, Option
from bench.registry import add_method
from bench.stages import StageContext
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.recipe import POOLING_OPTION, TrainedOnPairs, training_options


def complex_angle(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Score nearness by AnglE, (B,) in 0 to sqrt 2; a vector's first half is real. ValueError: an odd H."""
    losses.check_same_shape("(B, H)", first=first, second=second)
    if first.shape[1] % 2:
        raise ValueError(f"vectors of {first.shape[1]} numbers have no halves")
    a, b = torch.nn.functional.normalize(first, dim=1, eps=1e-8).chunk(2, dim=1)
    c, d = torch.nn.functional.normalize(second, dim=1, eps=1e-8).chunk(2, dim=1)
    return ((a * c + b * d).sum(1) + (b * c - a * d).sum(1)).abs()


def cosent_loss(positives: torch.Tensor, negatives: torch.Tensor, scale: float) -> torch.Tensor:
    """CoSENT's loss ln(1 + sum_ij exp(t (n_i - p_j))) of positive and negative similarities, (B,) each."""
    if positives.ndim != 1 or negatives.ndim != 1 or scale <= 0:
        shapes = tuple(positives.shape), tuple(negatives.shape)
        raise ValueError(
            f"positives {shapes[0]}, negatives {shapes[1]}, scale {scale}; expected (B,), above 0"
        )
    gaps = scale * (negatives[:, None] - positives[None, :]).flatten()
    return torch.cat([gaps.new_zeros(1), gaps]).logsumexp(0)


class AnglEObjective(training.Objective):
    """(Sentence number, token row) pairs to the weighted losses."""

    def __init__(self, model: Any, tokenizer: Any, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, tokenizer.pad_token_id
        self.columns = training.PairColumns(tokenizer, context)
        numbers = {
            name: value for name, value in context.config.items() if name.endswith(("_scale", "_weight"))
        }
        self.config = {name: float(value) for name, value in numbers.items()}

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Put all columns into one call."""
        return training.token_batch(self.columns.rows(batch), self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Sum the contrast and the weighted orders; pairs have only the contrast."""
        x, positive, *others = training.batch_states(self.encoder, prepared).chunk(self.columns.count)
        tau = 1 / self.config["ibn_scale"]
        contrast = losses.hard_negative_nce(x, positive, None, tau)
        if not others:
            return contrast
        (negative,) = others
        among_all = losses.hard_negative_nce(x, positive, negative, tau)
        loss = (self.config["ibn_weight"] * contrast + self.config["cln_weight"] * among_all) / 2
        for name, near in (("angle", complex_angle), ("cosine", torch.nn.functional.cosine_similarity)):
            if weight := self.config[f"{name}_weight"]:
                order = cosent_loss(near(x, positive), near(x, negative), self.config[f"{name}_scale"])
                loss = loss + weight * order
        return loss


@add_method
class AnglE(TrainedOnPairs):
    """AnglE."""

    card = MethodCard(
        name="angle",
        printed="AnglE",
        family="supervised",
        adds="labelled triplets, and a loss on the angles of vectors read as complex numbers",
        cites=("li-li-2024-aoe",),
        tags=("labelled pairs", "angles"),
        passes=9.0,
        encoders=(HeldEncoder(views=3, returned=True),),
        kind=SUPERVISED,
        summary="AnglE: labelled triplets by contrast and by an angle in complex space",
        version=1,
        paper="Li and Li 2023, AnglE-optimized Text Embeddings",
        code="SeanLee97/AnglE 5155458",
        equations=(
            "x = h_cls, read as a + ib by its halves; y as c + id",
            "s_cos(x, y) = cos(x, y); s_angle(x, y) = |sum Re + sum Im of (x conj(y)) / (|x| |y|)|",
            "O(s, t) = ln(1 + sum_ij exp(t (s(x_i, x^-_i) - s(x_j, x^+_j)))), over all i and j of the batch",
            "C = mean_i -log softmax_j(t_ibn cos(x_i, x^+_j))_i; C^- the same with all x^- among the x^+",
            "L = (w_ibn C + w_cln C^-) / 2 + w_angle O(s_angle, t_angle) + w_cos O(s_cos, t_cos)",
            "of pairs without hard negatives L = C",
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            Option("cosine_weight", 0.0, "w_cos, weight of the order of cosines", minimum=0),
            Option("ibn_weight", 1.0, "w_ibn, weight of the contrast with other positives", minimum=0),
            Option("cln_weight", 1.0, "w_cln, weight of the contrast with hard negatives too", minimum=0),
            Option("angle_weight", 0.02, "w_angle, weight of the order of angles", minimum=0),
            Option("cosine_scale", 20.0, "t_cos (released: cosine_tau)", minimum=1e-4),
            Option("ibn_scale", 20.0, "t_ibn (released: ibn_tau)", minimum=1e-4),
            Option("angle_scale", 20.0, "t_angle (released: angle_tau)", minimum=1e-4),
            *training_options(least_batch=1, lr=5e-5, batch_size=128, epochs=10, max_length=128),
            POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "the released code's formats C (triplets) and B (pairs), with its weights",
            "released: the published NLI run has format A, labelled pairs, w_cos 0, w_ibn 30 and w_angle 1",
            "rate, epochs and length of the released NLI script for BERT; batch 128, constant from the start",
            "released: 128 on each of eight GPUs, over 16 steps, after 50 steps of warm-up",
            "released: the angle's |sum Re + sum Im| grows with likeness, and is ordered so",
            "released: the NLI script evaluates the mean of [CLS] and the mean token, here pooling=cls",
            "float32 throughout; the released run used fp16 autocast",
        ),
    )

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on labelled triplets or pairs, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context, [tower], lambda model, _: AnglEObjective(model, tower[1], context), numbered=True
        )
