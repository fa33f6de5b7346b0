"""What is made from a trained twin: its distilled form (D), its union with another encoder (UC), and both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import METHODS
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import training_options

DISTILL_VERSION = 1
_TRAINING = training_options(lr=1e-5, max_length=64, eval_every=100)
"""The supplement's rate, length and interval; SimCSE's where it doesn't say."""
_SICK_OPTION = Option("sick", False, "the student learns from SICK's unlabelled sentences too")
STUDENT_OPTIONS = (*_TRAINING, _SICK_OPTION)
_UNRELEASED = (
    "the distillation script is not released",
    "'cumulative training' is read as: D and UC-D each start from the fresh backbone",
)
_UNION = (
    Option("uc", "infocse", "the other encoder of the union, any registered method"),
    Option("w", 0.7, "its weight; the twin's is 1 - w", minimum=0),
)


class Distilled:
    """A method distilled into one plain encoder.

    Args:
        card: Its card.
        teacher: The method to distil, with this method's options in braces.
    """

    def __init__(self, card: MethodCard, teacher: str) -> None:
        self.card, self.teacher = card, teacher

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher.

        Raises:
            InputError: none is named.
        """
        teacher = self.teacher.format(**options)
        if not teacher:
            raise InputError("no teacher", where="--methods distill", expected="distill:METHOD")
        return {"teacher": teacher}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """The student's stage, which methods with the same teacher and options share."""
        names = {option.name for option in _TRAINING}
        config = tuple(sorted((name, value) for name, value in options.items() if name in names))
        text = TRAIN + (SICK if options["sick"] else "")
        return (
            StageSpec("distill", "distill", DISTILL_VERSION, config, _train, inputs=("teacher",), text=text),
        )

    def build(self, context: BuildContext) -> Encoder:
        """Return the student."""
        from bench.nn.backbone import TransformerEncoder
        from bench.train.sentence_encoder import checkpoint_folder

        folder = checkpoint_folder(context.stages["distill"], context.checkpoint)
        return TransformerEncoder(folder, "cls", device=context.device)


def _train(context: StageContext) -> dict[str, Any]:
    from bench.train.distill import train_student

    return train_student(context)


class Union:
    """A twin in a weighted union with another encoder: (1 - w)(CLS_I + CLS_II) + w CLS_UC.

    Args:
        card: Its card.
        twin: The twin.
    """

    def __init__(self, card: MethodCard, twin: str) -> None:
        self.card, self.twin = card, twin

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Twin and partner."""
        return {"twin": self.twin, "uc": str(options["uc"])}

    def build(self, context: BuildContext) -> Encoder:
        """Return the weighted sum."""
        from bench.nn.sum_encoder import SumEncoder

        weight = float(context.options["w"])
        return SumEncoder([context.members["twin"], context.members["uc"]], [1 - weight, weight])


def add_derived(twin: str, title: str, paper: str, origin: str) -> None:
    """Register a twin's D, UC and UC-D forms."""
    card = partial(MethodCard, kind="method", version=1, paper=paper)
    published = "as published: profile bert-base or roberta-base"
    distilled = card(
        name=f"{twin}_d",
        summary=f"{title} distilled into one plain encoder",
        equations=("L = mean (h_cls - (CLS_I + CLS_II))^2, the teacher frozen and in evaluation mode",),
        options=STUDENT_OPTIONS,
        deviations=_UNRELEASED,
        published_names=((f"{twin}_d", published),),
    )
    union = card(
        name=f"{twin}_uc",
        summary=f"{title} in a weighted union with another unsupervised encoder",
        equations=("(1 - w)(CLS_I + CLS_II) + w CLS_UC",),
        options=_UNION,
        deviations=("the partner is trained here (option uc); the paper takes a released InfoCSE",),
        published_names=((f"{twin}_uc", published),),
    )
    both = card(
        name=f"{twin}_uc_d",
        summary=f"the union {twin}_uc distilled into one plain encoder",
        equations=("L = mean (h_cls - ((1 - w)(CLS_I + CLS_II) + w CLS_UC))^2, the teacher frozen",),
        options=(*_UNION, *training_options(lr=1.5e-5, max_length=64, eval_every=100), _SICK_OPTION),
        deviations=_UNRELEASED,
        published_names=((f"{twin}_uc_d", published),),
    )
    for method in (
        Distilled(distilled, twin),
        Union(union, twin),
        Distilled(both, f"{twin}_uc[uc={{uc}},w={{w}}]"),
    ):
        METHODS.register(method.card.name, method, origin)
