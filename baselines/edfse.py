"""EDFSE: six SimCSE encoders, each on another round-trip translation, added; EDFSE-D: distilled into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.simcse import SimCSE, SimCSEObjective
from bench.encoder import Encoder
from bench.lazy import torch
from bench.method_card import DROPOUT, FIRST_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import SICK, TRAIN, StageContext, StageSpec, paired
from bench.training.encoder_options import ENCODER_OPTIONS, refuse_batch_size
from bench.training.recipe import POOLING_OPTION, load_trained_encoder, training_options

# the six encoders, and the round-trip translated copy that each of them learns from
SUBMODELS = tuple((f"sub{number}", copy) for number, copy in enumerate("abcdef", start=1))
_PAPER = (
    "Zong, Zhang 2023, An Ensemble Distillation Framework for Sentence Embeddings with Multilingual "
    "Round-Trip Translation"
)
_UNVERIFIED = "languages, rates and lengths of the original are unknown; they are TNCSE's first stage's"
_OUTSIDE = ("rtt", "pairing", "sick", "pooling")  # options that aren't settings of the stage


def _training_text(options: Mapping[str, OptionValue], copy: str) -> str:
    suffix = SICK if options["sick"] else ""
    if options["rtt"] == "none":
        return TRAIN + suffix
    return (paired(copy) if options["pairing"] == "positive" else copy) + suffix


def distillation_loss(student: torch.Tensor, teacher: torch.Tensor, form: str, tau: float) -> torch.Tensor:
    """EDFSE-D's loss of vectors (B, H), the teacher constant: InfoNCE (abstract) or mse (JTCSE)."""
    if form == "contrastive":
        return losses.info_nce(student, teacher.detach(), tau)
    if form != "mse":
        raise ValueError(f"form {form!r}; expected contrastive or mse")
    if student.shape != teacher.shape:
        raise ValueError(f"student {tuple(student.shape)} and teacher {tuple(teacher.shape)} must be alike")
    return torch.nn.functional.mse_loss(student, teacher.detach())


class StudentObjective(training.Objective):
    """(Sentence number, token row) pairs to the distillation loss."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id
        self.teacher = training.Teacher(context.members["teacher"], context.sentences)
        self.form, self.tau = str(context.config["distillation"]), float(context.config["tau"])

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[nn.TokenBatch, training.TeacherQuery]:
        """Return the student's rows and the teacher's query."""
        tokens = training.token_batch([row for _, row in batch], self.pad_id, self.encoder)
        return tokens, self.teacher.prepare([number for number, _ in batch], self.device)

    def compute(self, prepared: tuple[nn.TokenBatch, training.TeacherQuery]) -> torch.Tensor:
        """Compare the student's [CLS] with the teacher's vectors."""
        tokens, asked = prepared
        states = training.batch_states(self.encoder, tokens)
        goal = self.teacher.vectors(asked).to(states.dtype)
        return distillation_loss(states, goal, self.form, self.tau)

    def why_not_finite(self) -> str | None:
        """Explain a non-finite loss by the teacher."""
        return self.teacher.why_not_finite()


@add_method
class EDFSE:
    """EDFSE."""

    card = MethodCard(
        name="edfse",
        printed="EDFSE",
        family="ensembles",
        adds="six encoders, each with another translation as its positive; their vectors are added",
        cites=("zong-zhang-2023-ensemble",),
        tags=("translated text",),
        kind="baseline",
        summary="the sum of six SimCSE encoders, each on another round-trip translation (copies a to f)",
        version=1,
        paper=_PAPER,
        equations=(
            "k = 1 ... 6: z = tanh(W_k h_cls(x) + b_k), z' of x's k-th translation; "
            "L_k = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i, each encoder separately",
            "at inference h_1 + ... + h_6, the [CLS] of the last layers, without the heads",
        ),
        needs=(Need(FIRST_TOKEN), Need(DROPOUT, "rtt", ("none",), instead="rtt=copies")),
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
                "a translation is its sentence's positive (abstract) or replaces it (as in TNCSE)",
                ("positive", "replace"),
            ),
            Option("sick", False, "add SICK's unlabelled sentences, untranslated, to all training text"),
            *training_options(lr=1.5e-5, max_length=64, eval_every=100),
            POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "no code was released; the abstract names translations as augmentation, the rest is our reading",
            _UNVERIFIED,
            "in the mini world the copies are the grammar's own paraphrases: never ranked there",
        ),
        published_names=(("edfse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe one stage an encoder; without translations only their random streams differ."""
        config = tuple(sorted((name, value) for name, value in options.items() if name not in _OUTSIDE))
        stages = []
        for role, copy in SUBMODELS:
            text = _training_text(options, copy)
            stages.append(StageSpec(role, "edfse_sub", self.card.version, config, self.train, text=text))
        return tuple(stages)

    def build(self, context: BuildContext) -> Encoder:
        """Return the sum of the six."""
        return nn.SumEncoder([load_trained_encoder(context, role) for role, _ in SUBMODELS])

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train one encoder as SimCSE, with the translations as positives where the text is paired."""
        if not context.partners:
            return SimCSE().train(context)
        tau, tower = float(context.config["tau"]), nn.load_backbone(context.model)
        partners = training.build_rows(tower[1], context.partners, context.config)
        objective = partial(SimCSEObjective, tau=tau, partners=partners)
        return training.train_towers(context, [tower], objective, numbered=True)


@add_method
class DistilledEDFSE:
    """EDFSE-D."""

    card = MethodCard(
        name="edfse_d",
        printed="EDFSE D",
        family="distilled",
        instead="a fresh encoder that learns the added vectors of EDFSE's six encoders",
        cites=("zong-zhang-2023-ensemble",),
        tags=("translated text",),
        kind="baseline",
        summary="EDFSE distilled into one plain encoder",
        version=1,
        paper=_PAPER,
        equations=(
            "s = h_cls of the student, t = h_1 + ... + h_6 of the frozen teacher in evaluation mode",
            "L = mean_i -log softmax_j(cos(s_i, t_j) / tau)_i, or (distillation=mse) mean (s - t)^2",
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            Option(
                "distillation",
                "contrastive",
                "the objective: contrastive (the paper's abstract) or mse (by JTCSE's description)",
                ("contrastive", "mse"),
            ),
            Option("tau", 0.05, "temperature of the contrastive objective", minimum=1e-4),
            *training_options(least_batch=1, lr=1e-5, max_length=64, eval_every=100),
            POOLING_OPTION,
            *ENCODER_OPTIONS,
            Option("sick", False, "the student learns from SICK's unlabelled sentences too"),
        ),
        deviations=(
            "no code was released; the objective of the published rows is unknown",
            _UNVERIFIED,
            "the teacher encodes whole sentences, the student their first max_length tokens",
        ),
        published_names=(("edfse_d", "as published: profile bert-base or roberta-base"),),
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the teacher."""
        return {"teacher": "edfse"}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the student's stage; InputError: a contrast of one sentence."""
        if options["distillation"] == "contrastive":
            refuse_batch_size(options, self.card.name, 2, "distillation=contrastive needs another sentence")
        config = tuple(sorted((n, value) for n, value in options.items() if n not in ("pooling", "sick")))
        version, text = self.card.version, TRAIN + (SICK if options["sick"] else "")
        return (StageSpec("distill", "edfse_d", version, config, self.train, inputs=("teacher",), text=text),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the student of the asked checkpoint."""
        return load_trained_encoder(context, "distill")

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train the student on the member ``teacher``, as :func:`bench.training.train_towers`."""
        objective = partial(StudentObjective, context=context)
        return training.train_towers(context, [nn.load_backbone(context.model)], objective, numbered=True)
