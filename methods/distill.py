"""``distill:X``: any registered method distilled into one plain encoder; students and unions of a twin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench import nn, training
from bench.encoder import Encoder
from bench.errors import InputError
from bench.method_card import FIRST_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.registry import METHODS
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, refuse_batch_size
from bench.training.recipe import FIRST_ROWS, POOLING_OPTION, load_trained_encoder, training_options

DISTILL_VERSION = 1
_TRAINING = (*training_options(least_batch=1, lr=1e-5, max_length=64, eval_every=100), *ENCODER_OPTIONS)
"""The supplement's rate, length and interval; the other settings are SimCSE's."""
_LOSS = (
    Option(
        "student_loss",
        "mse",
        "mean squared error, or contrastive: DistilCSE's, for a teacher of any width",
        ("mse", "contrastive"),
    ),
    Option(
        "student_queue", 65536, "teacher's vectors of earlier batches, if contrastive; 0: none", minimum=0
    ),
    Option("student_scale", 1.0, "g at the start, the logarithm of the cosines' factor, if contrastive"),
)
STUDENT_OPTIONS = (
    *_TRAINING,
    *_LOSS,
    Option("sick", False, "the student learns from SICK's unlabelled sentences too"),
    POOLING_OPTION,
)
_SICK_OPTION = Option("sick", False, "the twin, and a student, learn from SICK's unlabelled sentences too")
_WITH_SICK = "[sick=true]"
CONTRASTIVE = "contrastive: L = mean_i -log softmax_k(e^g cos(A h_cls,i + b, t_k))_i over batch and queue"
DISTILCSE = (
    "contrastive: [CLS] is distilled (released: the pooler's output), the teacher's dropout is off "
    "(released: on); rates, batches and text are this method's",
    "contrastive, released: lr 2e-4 with a cosine schedule and AdamW's betas 0.9 and 0.98, 8 batches of 512, "
    "20 epochs of 5M news sentences cut to 64 tokens for teacher and student",
    "contrastive: a queue of whole batches that meets an epoch's short batch keeps the last rows of the "
    "oldest one; released: its first rows, as every other queue here",
)
WHOLE = "the teacher encodes whole sentences, the student their first max_length tokens"
_UNRELEASED = (
    "the distillation script is unreleased",
    "'cumulative training' is read as: D and UC-D each start from the fresh backbone",
    WHOLE,
    *DISTILCSE,
)
_UNION = (
    Option("uc", "infocse", "the other encoder of the union, any registered method"),
    Option("w", 0.7, "its weight; the twin's is 1 - w", minimum=0, maximum=1),
)


class Distilled:
    """A method distilled into one plain encoder; ``teacher`` and ``with_sick`` name it, options in braces."""

    def __init__(self, card: MethodCard, teacher: str, with_sick: str = "") -> None:
        self.card, self.teacher, self.with_sick = card, teacher, with_sick or teacher

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the teacher; InputError: none is named."""
        teacher = (self.with_sick if options["sick"] else self.teacher).format(**options)
        if not teacher:
            raise InputError("the teacher is missing", where="--methods distill", expected="distill:METHOD")
        return {"teacher": teacher}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the student's stage, which methods with the same teacher and options share."""
        names = {option.name for option in (*_TRAINING, *_LOSS)}
        settings = {name: value for name, value in options.items() if name in names}
        if settings["student_loss"] == "contrastive" and not settings["student_queue"]:
            reason = "student_loss=contrastive has no negative without a queue"
            refuse_batch_size(settings, self.card.name, 2, reason)
        cuts_batches = int(settings["student_queue"]) % int(settings["batch_size"])
        if options["student_loss"] == "contrastive" and cuts_batches:
            settings["queue_cut"] = FIRST_ROWS  # part of the key only where the queue differs from before
        config = tuple(sorted(settings.items()))
        text = TRAIN + (SICK if options["sick"] else "")
        version, inputs = DISTILL_VERSION, ("teacher",)
        return (StageSpec("distill", "distill", version, config, _train, inputs=inputs, text=text),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the student."""
        return load_trained_encoder(context, "distill")


def _train(context: StageContext) -> dict[str, Any]:
    return training.train_student(context)


class Union:
    """A twin in a weighted union with another encoder: (1 - w)(CLS_I + CLS_II) + w CLS_UC."""

    def __init__(self, card: MethodCard, twin: str) -> None:
        self.card, self.twin = card, twin

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name twin and partner."""
        twin = self.twin + (_WITH_SICK if options["sick"] else "")
        return {"twin": twin, "uc": str(options["uc"])}

    def build(self, context: BuildContext) -> Encoder:
        """Return the weighted sum."""
        weight = float(context.options["w"])
        return nn.SumEncoder([context.members["twin"], context.members["uc"]], [1 - weight, weight])


def register_derived_methods(twin: str, title: str, paper: str, cites: tuple[str, ...], origin: str) -> None:
    """Register a twin's D, UC and UC-D forms."""
    card = partial(MethodCard, kind="method", version=1, paper=paper, cites=cites)
    published = "as published: profile bert-base or roberta-base"
    sick = "published: {} on SICK's unlabelled sentences too (sick=true; off by default)"
    distilled = card(
        name=f"{twin}_d",
        printed=f"{title} D",
        family="distilled",
        instead=f"a fresh encoder that learns the added vectors of {title}'s two encoders",
        summary=f"{title} distilled into one plain encoder",
        equations=(
            "L = mean (h_cls - (CLS_I + CLS_II))^2, the teacher frozen and in evaluation mode",
            CONTRASTIVE,
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(*_TRAINING, *_LOSS, _SICK_OPTION, POOLING_OPTION),
        deviations=(sick.format("teacher and student trained"), *_UNRELEASED),
        published_names=((f"{twin}_d", published),),
    )
    union = card(
        name=f"{twin}_uc",
        printed=f"{title}+UC",
        family="ensembles",
        adds=f"{title}'s two encoders, in a weighted sum with a third one (by default InfoCSE)",
        summary=f"{title} in a weighted union with another unsupervised encoder",
        equations=("(1 - w)(CLS_I + CLS_II) + w CLS_UC",),
        options=(*_UNION, _SICK_OPTION),
        deviations=(
            sick.format("the twin trained"),
            "the partner is trained here (option uc), without SICK's sentences and from the backbone; the "
            "paper takes the released InfoCSE of bert-base, for RoBERTa too (uc=hf:FOLDER)",
        ),
        published_names=((f"{twin}_uc", published),),
    )
    both = card(
        name=f"{twin}_uc_d",
        printed=f"{title}+UC D",
        family="distilled",
        instead=f"a fresh encoder that learns the weighted sum of {title}'s encoders and a third one",
        summary=f"the union {twin}_uc distilled into one plain encoder",
        equations=(
            "L = mean (h_cls - ((1 - w)(CLS_I + CLS_II) + w CLS_UC))^2, the teacher frozen",
            CONTRASTIVE,
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            *_UNION,
            *training_options(least_batch=1, lr=1.5e-5, max_length=64, eval_every=100),
            *ENCODER_OPTIONS,
            *_LOSS,
            _SICK_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            sick.format("twin and student trained"),
            f"the teacher's partner is trained here, see {twin}_uc",
            *_UNRELEASED,
        ),
        published_names=((f"{twin}_uc_d", published),),
    )
    union_of = f"{twin}_uc[uc={{uc}},w={{w}}"
    for method in (
        Distilled(distilled, twin, twin + _WITH_SICK),
        Union(union, twin),
        Distilled(both, f"{union_of}]", f"{union_of},sick=true]"),
    ):
        METHODS.register(method.card.name, method, origin)


_CARD = MethodCard(
    name="distill",
    family="distilled",
    instead="a fresh encoder that learns another method's vectors",
    cites=(
        "zong-etal-2025-tncse",
        "gao-etal-2021-distilcse",
    ),
    kind="method",
    summary="distill:X: a fresh encoder that learns the vectors of any method X",
    version=1,
    paper="Zong et al. 2025 (TNCSE), TNCSE-D; contrastive: Gao et al. 2021, DistilCSE: Effective Knowledge "
    "Distillation For Contrastive Sentence Embeddings",
    code="caskcsg/sentemb 5eeec55, DistilCSE",
    equations=("L = mean (h_cls - X(s))^2, the teacher X frozen and in evaluation mode", CONTRASTIVE),
    needs=(Need(FIRST_TOKEN),),
    options=(Option("of", "", "the teacher"), *STUDENT_OPTIONS),
    deviations=("TNCSE's distillation script is unreleased", WHOLE, *DISTILCSE),
    known_as=(("distilcse", "distill[of=METHOD,student_loss=contrastive]"),),
    short_option="of",
    takes_methods=True,
)

METHODS.register("distill", Distilled(_CARD, "{of}"), __name__)
