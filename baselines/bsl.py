"""BSL: BYOL for sentences, a predictor on the vector of one view finds the slow encoder's of the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import TRAIN, StageContext, StageSpec, paired
from bench.train.recipe import POOLING_OPTION, trained_encoder, training_options

if TYPE_CHECKING:
    from torch import Tensor

COPY = "a"
"""The round-trip translated copy that gives each sentence its other view."""


def byol_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return mean_i (2 - 2 cos(q_i, y_i)) (Grill et al. 2020, eq. 2; Zhang et al. 2021).

    The targets are constant: no gradient reaches them.

    Args:
        predictions: q, (B, H).
        targets: y, (B, H).

    Returns:
        Scalar, 0 (equal directions) to 4 (opposite ones); 2 where a vector is zero.

    Raises:
        ValueError: different shapes.
    """
    from torch.nn import functional

    if predictions.shape != targets.shape or predictions.ndim != 2:
        raise ValueError(
            f"predictions {tuple(predictions.shape)} and targets {tuple(targets.shape)} must be (B, H)"
        )
    unit, goal = (functional.normalize(x, dim=1, eps=1e-8) for x in (predictions, targets.detach()))
    return (2 - 2 * (unit * goal).sum(1)).mean()


def train_bsl(context: StageContext) -> dict[str, Any]:
    """Train with the balanced loss: the stage, as :func:`bench.train.sentence_encoder.train_towers`."""
    from bench.nn.backbone import TokenRows, load_backbone
    from bench.train.byol import Bootstrap, predictor
    from bench.train.sentence_encoder import train_towers

    config, tower = context.config, load_backbone(context.model)
    length = int(config["max_length"])
    partners = TokenRows(tower[1], context.partners, length) if context.partners else None

    def objective(model: Any, pad_id: int) -> Bootstrap:
        head = predictor(model.config.hidden_size, int(config["blocks"]))
        decay = float(config["decay"])
        return Bootstrap(model, head, pad_id, loss=byol_loss, decay=decay, partners=partners)

    return train_towers(context, [tower], objective, numbered=True, pooling="avg")


@add_method
class BSL:
    """BSL."""

    card = MethodCard(
        name="bsl",
        kind="baseline",
        summary="BYOL for sentences: no negatives, a moving-average target, pairs by back-translation",
        version=1,
        paper="Zhang, He, Liu, Bing, Li 2021, Bootstrapped Unsupervised Sentence Representation Learning",
        code="yanzhangnlp/BSL cfacb3b",
        equations=(
            "e = mean of the last layer's states; t the same under the target, phi <- m phi + (1 - m) theta",
            "q: 3 blocks [Linear H to 10H, BatchNorm, ReLU, Linear 10H to 10H, ReLU, Linear 10H to H]",
            "L = mean_i (2 - 2 cos(q(e1_i), t2_i)) + mean_i (2 - 2 cos(q(e2_i), t1_i)), t constant",
            "at inference e, without q",
        ),
        options=(
            Option(
                "rtt",
                "copies",
                "a sentence's other view: its round-trip translation (copy a), or (none) other dropout",
                ("copies", "none"),
            ),
            Option("decay", 0.999, "m of the target, 0 to 1", minimum=0),
            Option("blocks", 3, "blocks of the predictor q", minimum=1),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0),
            Option("drop_last", True, "leave out an epoch's short last batch"),
            *training_options(lr=1e-4, max_length=64, eval_every=1562),
            Option(POOLING_OPTION.name, "avg", POOLING_OPTION.help, POOLING_OPTION.choices),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "pairs of the profile's text; released: back-translated sentences of SNLI and MNLI",
            "dev evaluation every 1,562 steps, 10 % of an epoch of wiki1m; released: 10 % of its own text",
            "an earlier commit of the released code sends the second view through blocks 1, 2, 2 of q",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        name = self.card.name
        config = {key: value for key, value in options.items() if key not in ("rtt", "pooling")}
        text = paired(COPY) if options["rtt"] == "copies" else TRAIN
        return (
            StageSpec(name, name, self.card.version, tuple(sorted(config.items())), train_bsl, text=text),
        )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "bsl")
