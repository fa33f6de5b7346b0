"""UNSEE: non-contrastive sentence embeddings with a target network; four objectives, three architectures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import losses, nn, training
from bench.method_card import (
    AVERAGE,
    DROPOUT,
    ONE_ENCODER,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import METHODS
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, OWN_POOLING, TRAIN_POOLINGS, find_train_pooling
from bench.training.recipe import TrainedOnce, select_option, training_options

ARCHITECTURES = ("single_projection", "online_projection", "projection")
_EQUATIONS = {
    "byol": ("d(z, y) = mean_i (2 - 2 cos(z_i, y_i))",),
    "barlow": (
        "d(z, y) = sum_k (C_kk - 1)^2 + 0.0051 sum_{k != l} C_kl^2, C = BN(z)^T BN(y) / N, one BatchNorm",
    ),
    "vicreg": (
        "d(z, y) = 25 MSE(z, y) + 25 (v(z) + v(y)) / 2 + c(z) + c(y)",
        "v = mean_k relu(1 - sqrt(var_k + 1e-4)); c = sum_{k != l} Cov_kl^2 / d",
    ),
    "corinfomax": (
        "d(z, y) = -0.2 (logdet(R_z + eps I) + logdet(R_y + eps I)) / d + 2000 MSE(z, y), eps 1e-6, float64",
        "mu <- 0.01 mu + 0.99 mean(z); R <- 0.01 R + 0.99 (z - mu)^T (z - mu) / N",
    ),
}
_PRINTED = {
    "byol": "UNSEE-BYOL",
    "barlow": "UNSEE-Barlow",
    "vicreg": "UNSEE-VICReg",
    "corinfomax": "UNSEE-CorInfoMax",
}
_INSTEAD = {
    "byol": "the cosine to a moving-average encoder's vector of the other view",
    "barlow": "cross-correlations with a moving-average encoder's vectors, made the identity",
    "vicreg": "distance to a moving-average encoder's vectors, variance and covariance",
    "corinfomax": "distance to a moving-average encoder's vectors, covariance by log-determinant",
}
_CITES = {
    "byol": "grill-etal-2020-bootstrap",
    "barlow": "zbontar-etal-2021-barlow",
    "vicreg": "bardes-etal-2022-vicreg",
    "corinfomax": "ozsoy-etal-2022-self",
}
_LAYERS = {"byol": 3, "vicreg": 3, "corinfomax": 4, "barlow": 4}


class Unsee(TrainedOnce):
    """UNSEE with one of its objectives."""

    least_rows = 2

    def __init__(self, objective: str) -> None:
        self.objective = objective
        self.card = MethodCard(
            name=f"unsee_{objective}",
            printed=_PRINTED[objective],
            family="non-contrastive",
            instead=f"no negatives; {_INSTEAD[objective]}",
            cites=("cagatan-2024-unsee", _CITES[objective]),
            tags=("target network",),
            passes=8.2 if objective in ("byol", "vicreg") else 8.3,
            encoders=(
                *ONE_ENCODER,
                HeldEncoder(AVERAGE, views=0, unless=(("architecture", "projection"),)),
            ),
            kind="method",
            summary=f"UNSEE: no negatives, a moving-average target, the {objective} objective",
            version=1,
            paper="Cagatan 2024, UNSEE: Unsupervised Non-contrastive Sentence Embeddings",
            equations=(
                *_EQUATIONS[objective],
                "f_t <- 0.999 f_t + 0.001 f after every step",
                "g: m x [Linear d to 10d, BN, ReLU, Linear 10d to 10d, ReLU, Linear to d], each view apart",
                "single_projection: L = d(g(f(x1)), f_t(x2)) + d(g(f(x2)), f_t(x1)), f_t constant",
                "online_projection: g on the target's side too, constant; projection: d(g(f(x1)), g(f(x2)))",
                "at inference f, without g",
            ),
            needs=(Need(DROPOUT),),
            options=(
                Option(
                    "architecture",
                    "single_projection",
                    "place of g (Fig. 1): the final models', on both sides, or without a target",
                    ARCHITECTURES,
                ),
                Option("layers", _LAYERS[objective], "m, blocks of g", minimum=1),
                Option("decay", 0.999, "of the moving average, 0 to 1", minimum=0, maximum=1),
                Option(
                    "pooling",
                    "avg",
                    "vector of a sentence, in training too unless train_pooling is given",
                    ("avg", *(pooling for pooling in TRAIN_POOLINGS if pooling != "avg")),
                ),
                Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
                Option("drop_last", True, "leave out an epoch's short last batch"),
                Option("decay_all", False, "weight decay on biases and LayerNorms too"),
                select_option("cosine"),
                *training_options(lr=1e-4, batch_size=32, max_length=64, weight_decay=0.01, eval_every=1562),
                *ENCODER_OPTIONS,
            ),
            deviations=(
                "float32 throughout; the released run used fp16 autocast",
                "architectures projection and online_projection are our reading (unreleased)",
                "released: the largest of four Spearman correlations chooses the checkpoint (best_of_four)",
                "released: a dev evaluation at the end of the epoch too, 10 steps after the twentieth",
                "released: dev and test sentences too are cut at 64 tokens; here where the input ends",
                *(("released: four blocks of g; the paper: three",) if objective == "vicreg" else ()),
            ),
            published_names=((f"unsee_{objective}", "profile bert-base"),),
        )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage."""
        name, settings = self.card.name, dict(options)
        if find_train_pooling(options, OWN_POOLING) != OWN_POOLING:
            del settings["pooling"]  # of inference alone
        return (StageSpec(name, name, self.card.version, tuple(sorted(settings.items())), self.train),)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train against the moving-average target, as :func:`bench.training.train_towers`."""
        config = context.config
        pooling = find_train_pooling(config, str(config.get("pooling")))

        def objective(model: Any, pad_id: int) -> training.Objective:
            size = nn.state_size(model)
            head = training.build_predictor(size, int(config["layers"]))
            loss: Any = {"byol": losses.byol_loss, "vicreg": losses.vicreg}.get(self.objective)
            if loss is None:
                loss = losses.BarlowTwins(size) if self.objective == "barlow" else losses.CorInfoMax(size)
            if config["architecture"] == "projection":
                return training.Projections(model, head, pad_id, loss=loss, pooling=pooling)
            on_target, decay = config["architecture"] == "online_projection", float(config["decay"])
            return training.Bootstrap(
                model, head, pad_id, loss=loss, decay=decay, pooling=pooling, target_head=on_target
            )

        return training.train_towers(
            context,
            [nn.load_backbone(context.model)],
            objective,
            numbered=config["architecture"] != "projection",
            pooling=pooling,
            select=str(config["select"]),
            collapse=True,
        )


for _objective in _EQUATIONS:
    METHODS.register(f"unsee_{_objective}", Unsee(_objective), __name__)
