"""What is made from a trained twin: its distilled form (D), its union with another encoder (UC), and both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import METHODS
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import training_options

DISTILL_VERSION = 1
_NO_SCRIPT = "the distillation script is not released"
_CUMULATIVE = "'cumulative training' is read as: D and UC-D each start from the fresh backbone"
_UNION = (
    Option("uc", "infocse", "the other encoder of the union, any registered method"),
    Option("w", 0.7, "its weight; the twin's is 1 - w", minimum=0),
)


DISTILL_OPTIONS = training_options(lr=1e-5, max_length=64, eval_every=100)
"""The supplement's rate, length and interval; SimCSE's where it doesn't say."""


_SICK_OPTION = Option("sick", False, "the student learns from SICK's unlabelled sentences too", added=True)
STUDENT_OPTIONS = (*DISTILL_OPTIONS, _SICK_OPTION)


def student_stage(options: Mapping[str, OptionValue]) -> StageSpec:
    """The stage that distils the member ``teacher``, from a method's training options."""
    names = {option.name for option in DISTILL_OPTIONS}
    config = tuple(sorted((name, value) for name, value in options.items() if name in names))
    text = TRAIN + (SICK if options["sick"] else "")
    return StageSpec(
        "distill", "distill", DISTILL_VERSION, config, _train_student, inputs=("teacher",), text=text
    )


def build_student(context: BuildContext) -> Encoder:
    """Return the distilled encoder."""
    from bench.nn.backbone import TransformerEncoder
    from bench.train.sentence_encoder import checkpoint_folder

    folder = checkpoint_folder(context.stages["distill"], context.checkpoint)
    return TransformerEncoder(folder, "cls", device=context.device)


class Distilled:
    """A twin distilled into one plain encoder."""

    def __init__(self, twin: str, title: str, paper: str) -> None:
        self.twin = twin
        self.card = MethodCard(
            name=f"{twin}_d",
            kind="method",
            summary=f"{title} distilled into one plain encoder",
            version=1,
            paper=paper,
            equations=("L = mean (h_cls - (CLS_I + CLS_II))^2, the teacher frozen and in evaluation mode",),
            options=STUDENT_OPTIONS,
            deviations=(_NO_SCRIPT, _CUMULATIVE),
            published_names=((f"{twin}_d", "as published: profile bert-base or roberta-base"),),
        )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher."""
        return {"teacher": self.twin}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """The student's stage."""
        return (student_stage(options),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the student."""
        return build_student(context)


class Union:
    """A twin in a weighted union with another encoder: (1 - w)(CLS_I + CLS_II) + w CLS_UC."""

    def __init__(self, twin: str, title: str, paper: str) -> None:
        self.twin = twin
        self.card = MethodCard(
            name=f"{twin}_uc",
            kind="method",
            summary=f"{title} in a weighted union with another unsupervised encoder",
            version=1,
            paper=paper,
            equations=("(1 - w)(CLS_I + CLS_II) + w CLS_UC",),
            options=_UNION,
            deviations=("the partner is trained here (option uc); the paper takes a released InfoCSE",),
            published_names=((f"{twin}_uc", "as published: profile bert-base or roberta-base"),),
        )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Twin and partner."""
        return {"twin": self.twin, "uc": str(options["uc"])}

    def build(self, context: BuildContext) -> Encoder:
        """Return the weighted sum."""
        from bench.nn.sum_encoder import SumEncoder

        weight = float(context.options["w"])
        return SumEncoder([context.members["twin"], context.members["uc"]], [1 - weight, weight])


class DistilledUnion(Distilled):
    """The union distilled into one plain encoder."""

    def __init__(self, twin: str, title: str, paper: str) -> None:
        self.twin = twin
        self.card = MethodCard(
            name=f"{twin}_uc_d",
            kind="method",
            summary=f"the union {twin}_uc distilled into one plain encoder",
            version=1,
            paper=paper,
            equations=("L = mean (h_cls - ((1 - w)(CLS_I + CLS_II) + w CLS_UC))^2, the teacher frozen",),
            options=(
                *_UNION,
                *training_options(lr=1.5e-5, max_length=64, eval_every=100),
                _SICK_OPTION,
            ),
            deviations=(_NO_SCRIPT, _CUMULATIVE),
            published_names=((f"{twin}_uc_d", "as published: profile bert-base or roberta-base"),),
        )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher: the union with the same partner and weight."""
        return {"teacher": f"{self.twin}_uc[uc={options['uc']},w={options['w']}]"}


def add_derived(twin: str, title: str, paper: str, origin: str) -> None:
    """Register a twin's D, UC and UC-D forms."""
    for method in (
        Distilled(twin, title, paper),
        Union(twin, title, paper),
        DistilledUnion(twin, title, paper),
    ):
        METHODS.register(method.card.name, method, origin)


def _train_student(context: StageContext) -> dict[str, Any]:
    from bench.train.distill import train_student

    return train_student(context)
