"""EDFSE: six SimCSE encoders, each on another round-trip translation, added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.baselines.simcse import make_objective
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import SICK, TRAIN, StageContext, StageSpec, paired
from bench.train.recipe import POOLING_OPTION, fresh_linear, info_nce, trained_encoder, training_options

if TYPE_CHECKING:
    from torch import Tensor

    from bench.nn.backbone import Rows

SUBMODELS = tuple((f"sub{number}", copy) for number, copy in enumerate("abcdef", start=1))
"""The six encoders and the round-trip translated copy that each of them learns from."""
PAPER = (
    "Zong, Zhang 2023, An Ensemble Distillation Framework for Sentence Embeddings with Multilingual "
    "Round-Trip Translation"
)
UNVERIFIED = "languages, rates and lengths of the original are not known; they are TNCSE's first stage's"
_OUTSIDE = (
    "rtt",
    "pairing",
    "sick",
    "pooling",
)  # the text that a stage sees, and what the encoder is asked for


def make_paired_objective(model: Any, pad_id: int, tau: float, partners: Rows) -> Any:
    """Return the module: (sentence number, token row) pairs to InfoNCE against the translations.

    Args:
        model: The transformer.
        pad_id: Padding id.
        tau: Temperature.
        partners: Token row of each sentence's translation.
    """
    import torch
    from torch import nn

    from bench.train.chunks import cls_states

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size)

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            rows = [*(row for _, row in batch), *(partners[number] for number, _ in batch)]
            vectors = torch.tanh(self.head(cls_states(model, rows, pad_id)))
            return info_nce(vectors[: len(batch)], vectors[len(batch) :], tau)

    return Objective()


def train_submodel(context: StageContext) -> dict[str, Any]:
    """The stage of one encoder: SimCSE, with the translations as positives where the text is paired."""
    from bench.nn.backbone import TokenRows, load_backbone
    from bench.train.sentence_encoder import train_sentence_encoder, train_towers

    tau = float(context.config["tau"])
    if not context.partners:
        return train_sentence_encoder(context, lambda model, pad_id: make_objective(model, pad_id, tau))
    tower = load_backbone(context.model)
    partners = TokenRows(tower[1], context.partners, int(context.config["max_length"]))
    return train_towers(
        context,
        [tower],
        lambda model, pad_id: make_paired_objective(model, pad_id, tau, partners),
        numbered=True,
    )


@add_method
class EDFSE:
    """EDFSE."""

    card = MethodCard(
        name="edfse",
        kind="baseline",
        summary="the sum of six SimCSE encoders, each on another round-trip translation (copies a to f)",
        version=1,
        paper=PAPER,
        equations=(
            "k = 1 ... 6: z = tanh(W_k h_cls(x) + b_k), z' of x's k-th translation; "
            "L_k = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i, each encoder apart",
            "at inference h_1 + ... + h_6, the [CLS] of the last layers, without the heads",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option(
                "rtt",
                "copies",
                "encoders learn from the translations a, b, c, d, e, f, or (none) from the text alone",
                ("copies", "none"),
            ),
            Option(
                "pairing",
                "positive",
                "a translation is its sentence's positive (abstract) or stands in its place (as for TNCSE)",
                ("positive", "replace"),
            ),
            Option("sick", False, "add SICK's unlabelled sentences, untranslated, to all training text"),
            *training_options(lr=1.5e-5, max_length=64, eval_every=100),
            Option(POOLING_OPTION.name, POOLING_OPTION.default, POOLING_OPTION.help, POOLING_OPTION.choices),
        ),
        deviations=(
            "no code was released; the abstract names translations as augmentation, the rest is our reading",
            UNVERIFIED,
            "in the mini world the copies are the grammar's own paraphrases: never ranked there",
        ),
        published_names=(("edfse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage an encoder; without translations they differ by their random streams alone."""
        config = tuple(sorted((name, value) for name, value in options.items() if name not in _OUTSIDE))
        return tuple(
            StageSpec(role, "edfse_sub", self.card.version, config, train_submodel, text=_text(options, copy))
            for role, copy in SUBMODELS
        )

    def build(self, context: BuildContext) -> Encoder:
        """Return the sum of the six."""
        from bench.nn.sum_encoder import SumEncoder

        return SumEncoder([trained_encoder(context, role) for role, _ in SUBMODELS])


def _text(options: Mapping[str, OptionValue], copy: str) -> str:
    more = SICK if options["sick"] else ""
    if options["rtt"] == "none":
        return TRAIN + more
    return (paired(copy) if options["pairing"] == "positive" else copy) + more
