"""RankCSE: SimCSE that also learns from frozen teachers how the sentences of a batch rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import MethodCard, Option, OptionValue
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import CLS_VIEWS

TEACHERS = ("teacher1", "teacher2")


@add_method
class RankCSE(TrainedApart):
    """RankCSE."""

    card = MethodCard(
        name="rankcse",
        kind="baseline",
        summary="SimCSE that also learns the ranking of a batch from frozen teachers (ListMLE or ListNet)",
        version=1,
        paper="Liu, Liu, Wang, Wang, Wu, Xian, Zhao, Chen, Yan 2023, RankCSE: Unsupervised Sentence "
        "Representations Learning via Learning to Rank",
        code="perceptiveshawty/RankCSE 17c5226, a community implementation: the authors released none",
        equations=(
            "z = tanh(W h_cls + b); S_ij = cos(z_i, z'_j) / tau; P = softmax(S), P' = softmax(S^T), by rows",
            "T_ij = [alpha cos(t1_i, t1_j) + (1 - alpha) cos(t2_i, t2_j)] / teacher_tau",
            "L = mean_i -log P_ii + beta L_cons + gamma L_rank; L_cons = -1/2 mean_i [H(P_i) + H(P'_i)]",
            "ListMLE: L_rank = mean_i sum_k [ln(sum_{l>=k} e^{s_l} + eps) - s_k], s: S_i less its max, by T",
            "ListNet: L_rank = -mean_i sum_{j != i} softmax(T_i)_j log softmax(S_i)_j",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("teacher1", "diffcse", "a teacher, any method or checkpoint as in --methods"),
            Option("teacher2", "simcse", "another one, or empty for none"),
            Option(
                "alpha",
                0.33,
                "weight of teacher1's similarities; those of teacher2 have 1 - alpha",
                minimum=0,
                maximum=1,
            ),
            Option("tau", 0.05, "temperature of InfoNCE and of the student's lists", minimum=1e-4),
            Option("teacher_tau", 0.05, "temperature of the teachers' lists", minimum=1e-4),
            Option("beta", 1.0, "weight of the consistency term", minimum=0),
            Option("gamma", 1.0, "weight of the ranking term", minimum=0),
            Option(
                "rank_loss",
                "listmle",
                "ranking term (0.1 is the released gamma of listnet)",
                ("listmle", "listnet"),
            ),
            Option(
                "consistency",
                "neg_entropy",
                "consistency term: the community code's, or the paper's Jensen-Shannon divergence",
                ("neg_entropy", "js"),
            ),
            Option(
                "listnet_temps",
                "shared",
                "ListNet's temperatures: tau and teacher_tau, or (paper) teacher_tau and half of it",
                ("shared", "tau2_tau3"),
            ),
            Option("listmle_eps", 1e-7, "ListMLE's constant inside the logarithm", minimum=0),
            Option("listnet_drop_diagonal", True, "ListNet leaves a sentence out of its own list"),
            Option("listmle_drop_diagonal", False, "ListMLE does"),
            *usual_options(batch_size=128),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "published: checkpoints of DiffCSE-bert-base and SimCSE-bert-large teach (the community code's "
            "only script); here DiffCSE and SimCSE on the profile's backbone, trained with the run's seed "
            "(any checkpoint can be named instead: teacher1=hf:FOLDER)",
            "a teacher encodes whole sentences with its own tokenizer; released: the student's 32 token ids",
            "released: the consistency term is a negative entropy (consistency=js is the paper's)",
            "released: beta is stored but never applied; here it is, and the default 1 is the same",
            "released: ListNet shares the temperatures, its teacher temperature is built but not used "
            "(listnet_temps=tau2_tau3)",
            "released ListMLE drops items whose teacher logit is exactly -1 as padding; here they count",
            "no ranking term for a batch of one or two sentences; the released ListNet is not a number there",
            ADAMW_EPS,
        ),
        published_names=(("rankcse", "as published: profile bert-base or roberta-base"),),
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teachers."""
        if not options["teacher1"]:
            raise InputError("no teacher", where="rankcse.teacher1", expected="a method as in --methods")
        return {role: str(options[role]) for role in TEACHERS if options[role]}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; its key names the teachers by what they are, whatever text asked for them."""
        inputs = tuple(self.members(options))
        own = {name: value for name, value in options.items() if name not in TEACHERS}
        return tuple(replace(spec, inputs=inputs) for spec in super().stages(own))
