"""SCD: two views of a sentence at different dropout rates, repelled as states, decorrelated as features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.recipe import CLS_VIEWS, TrainedOnce, usual_options


def build_projector(size: int, width: int, layers: int) -> Any:
    """Return p: layers - 1 blocks [Linear, BatchNorm, ReLU] and a Linear, (B, H) to (B, F).

    Only the first Linear has a bias; weights are normal with std 0.02. In training a BatchNorm's statistics
    are those of the rows of one call.
    """
    parts: list[Any] = []
    for number in range(layers):
        linear = torch.nn.Linear(width if number else size, width, bias=number == 0 and layers > 1)
        torch.nn.init.normal_(linear.weight, std=0.02)
        if linear.bias is not None:
            torch.nn.init.zeros_(linear.bias)
        parts.append(linear)
        if number < layers - 1:
            parts += [torch.nn.BatchNorm1d(width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


class SCDObjective(training.Objective):
    """Token rows to the self-contrast of two views and the decorrelation of their projections."""

    least = 2  # batch statistics need two

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        config = context.config
        self.encoder, self.pad_id = model, pad_id
        self.rates = float(config["dropout"]), float(config["dropout2"])
        self.tau, self.alpha, self.beta = (float(config[name]) for name in ("tau", "alpha", "beta"))
        self.off_diagonal, width = float(config["off_diagonal"]), int(config["width"])
        self.projector = build_projector(nn.state_size(model), width, int(config["layers"]))
        self.norm = torch.nn.BatchNorm1d(width, affine=False)

    def prepare(self, batch: Sequence[list[int]]) -> nn.TokenBatch:
        """Build the rows, which both views read."""
        return training.token_batch(batch, self.pad_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode each view at its dropout rate."""
        first, second = (training.batch_states(self.encoder, prepared, dropout=rate) for rate in self.rates)
        repulsion = torch.nn.functional.cosine_similarity(first, second, dim=1, eps=1e-8).mean() / self.tau
        z, y = (self.norm(self.projector(states)) for states in (first, second))
        return self.alpha * repulsion + self.beta * losses.barlow_twins(z, y, self.off_diagonal)


@add_method
class SCD(TrainedOnce):
    """Self-Contrastive Decorrelation."""

    least_rows = 2

    card = MethodCard(
        name="scd",
        printed="SCD",
        family="non-contrastive",
        adds="no negatives: two dropout rates, whose states repel and whose projections decorrelate",
        cites=("klein-nabi-2022-scd",),
        tags=("dropout views", "decorrelation"),
        passes=6.0,
        kind="baseline",
        summary="SCD: two dropout rates, repelled states and decorrelated projections, no negatives",
        version=1,
        paper="Klein and Nabi 2022, SCD: Self-Contrastive Decorrelation of Sentence Embeddings",
        code="SAP-samples/acl2022-self-contrastive-decorrelation fb1438a",
        equations=(
            "h, h': h_cls of x under dropout rates r1 and r2, in every place that has dropout",
            "p: (layers - 1) x [Linear, BN, ReLU], Linear; z = BN(p(h)), z' = BN(p(h')), statistics of each "
            "view",
            "L_S = mean_i cos(h_i, h'_i) / tau; C = z^T z' / N",
            "L_C = sum_k (C_kk - 1)^2 + lambda sum_{k != l} C_kl^2",
            "L = alpha L_S + beta L_C; at inference h_cls of the last layer, without p",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("dropout2", 0.155, "r2, dropout of the second view; dropout is r1", minimum=0, below=1),
            Option("tau", 0.05, "divides the cosine of L_S", minimum=1e-4),
            Option("alpha", 1.0, "weight of L_S, which repels the two views", minimum=0),
            Option("beta", 0.005225, "weight of L_C", minimum=0),
            Option("off_diagonal", 0.012, "lambda, weight of the correlations in L_C", minimum=0),
            Option("width", 4096, "features of the projector's layers", minimum=1),
            Option("layers", 3, "linear layers of the projector", minimum=1),
            *usual_options(batch_size=192, eval_every=250, dropout=0.05),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "settings are those of the released command, for BERT-base; the paper was not at hand",
            "checkpoint selected on the profile's dev set; released: on SICK-R's",
            "each view is encoded in a call of its own; released: in turn in one batch, the same rates",
            "checkpoint_layers is refused: a layer's second pass would have the other view's dropout",
            "released: AdamW of transformers 4.10 adds eps before it corrects the bias of the second moment; "
            "torch's, used here, adds it after",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: layers that are computed again, at the wrong dropout."""
        if options["checkpoint_layers"]:
            raise InputError(
                "checkpoint_layers=true: a layer's second pass would have the other view's dropout",
                where="scd.checkpoint_layers",
                expected="false; chunk=N saves memory too",
            )
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on two dropout rates, as :func:`bench.training.train_towers`."""
        return training.train_sentence_encoder(context, partial(SCDObjective, context=context))
