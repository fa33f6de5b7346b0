"""AnglE: labelled positives before hard negatives by cosine, by contrast and by an angle in complex space."""

from __future__ import annotations

from bench.baselines._trained import TrainedOnPairs
from bench.card import FIRST_TOKEN, SUPERVISED, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import POOLING_OPTION, training_options


@add_method
class AnglE(TrainedOnPairs):
    """AnglE."""

    card = MethodCard(
        name="angle",
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
            *training_options(lr=5e-5, batch_size=128, epochs=10, max_length=128),
            POOLING_OPTION,
        ),
        deviations=(
            "the released code's formats C (triplets) and B (pairs without hard negatives) with its weights; "
            "its published NLI run has format A, labelled pairs, with w_cos 0, w_ibn 30 and w_angle 1",
            "rate, epochs and length are those of the released NLI script for BERT; its batch is 128 on each "
            "of eight GPUs, over 16 steps, after 50 steps of warm-up: here 128, and no warm-up",
            "released: the angle's |sum Re + sum Im| grows with likeness, and is ordered so",
            "released: the NLI script evaluates the mean of [CLS] and the mean token, here pooling=cls",
            "float32 throughout; the released run used fp16 autocast",
        ),
    )
