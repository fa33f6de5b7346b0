"""One encoder with TNCSE's losses: what the tensor norm does for SimCSE alone (TNCSE, Table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    TRAINING_OPTIONS,
    fresh_linear,
    one_stage,
    trained_encoder,
)


@add_method
class TNCSESingle:
    """One encoder, NCE and LTN."""

    card = MethodCard(
        name="tncse_single",
        kind="method",
        summary="one encoder with TNCSE's NCE and its tensor-norm loss against itself",
        version=1,
        paper="Zong, Shi, Yi, Xu 2025 (TNCSE), Table 5",
        code="tianyuzong/TNCSE",
        equations=(
            "L = NCE(H, H) + LTN(H -> H)",
            "LTN = s mean_i -log c_i ||P_2i - P_2i+1|| / (||P_2i|| + ||P_2i+1||), c_i = cos(H_2i, H_2i+1)",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("ictn", True, "the tensor-norm loss; without it NCE alone"),
            Option(
                "nce_form",
                "released",
                "negatives: all other 2N - 2 rows (released) or the N - 1 of the other view (paper)",
                ("released", "paper"),
            ),
            Option("ltn_scale", 0.5, "factor of LTN: 0.5 released, 1 paper", minimum=0),
            *TRAINING_OPTIONS,
            Option(TEXT_OPTION.name, "train+sick", TEXT_OPTION.help, TEXT_OPTION.choices),
            Option(POOLING_OPTION.name, POOLING_OPTION.default, POOLING_OPTION.help, POOLING_OPTION.choices),
        ),
        deviations=(
            "rates and schedule of this ablation aren't stated: SimCSE's stand in",
            "the angle is between the two views; between first views (paper) it is always 0 here, and so LTN",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_single)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, self.card.name)


def train_single(context: StageContext) -> dict[str, Any]:
    """Train with the NCE and the tensor-norm loss: the stage.

    Arguments, result and errors are those of :func:`bench.train.sentence_encoder.train_towers`.
    """
    from bench.train.sentence_encoder import train_sentence_encoder

    return train_sentence_encoder(
        context, lambda model, pad_id: make_single_objective(model, pad_id, context.config)
    )


def make_single_objective(model: Any, pad_id: int, config: Mapping[str, OptionValue]) -> Any:
    """Return the module: token rows to NCE(H, H) + LTN(H -> H).

    Args:
        model: The transformer; without a pooler it gets a fresh one, only trained here.
        pad_id: Padding id.
        config: tau, nce_form, ictn, ltn_scale.
    """
    import torch
    from torch import Tensor, nn

    from bench.methods._losses import ltn, tower_nce
    from bench.train.chunks import cls_states

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            pooler = getattr(model, "pooler", None)
            self.pooler = fresh_linear(model.config.hidden_size) if pooler is None else pooler.dense

        def forward(self, rows: list[list[int]]) -> Tensor:
            states = cls_states(model, [row for row in rows for _ in range(2)], pad_id)
            loss = tower_nce(states, float(config["tau"]), str(config["nce_form"]))
            if config["ictn"]:
                pooled = torch.tanh(self.pooler(states))
                loss = loss + ltn(states, pooled, states, pooled, scale=float(config["ltn_scale"]))
            return loss

    return Objective()
