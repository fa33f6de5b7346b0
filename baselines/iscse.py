"""IS-CSE: SimCSE with a second positive, smoothed over its neighbours in a memory of earlier vectors."""

from __future__ import annotations

from collections.abc import Mapping

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import MethodCard, Option, OptionValue
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import CLS_VIEWS


@add_method
class ISCSE(TrainedApart):
    """IS-CSE."""

    card = MethodCard(
        name="iscse",
        kind="baseline",
        summary="SimCSE whose positive is also smoothed over its neighbours in a memory of earlier vectors",
        version=1,
        paper="He, Zhang, Lan, Zhang 2023, Instance Smoothed Contrastive Learning for Unsupervised Sentence "
        "Embedding",
        code="dll-wu/IS-CSE 10757da",
        equations=(
            "z = tanh(W h_cls + b), z' of the second dropout view; u' = z' / |z'|",
            "M: the newest `buffer` vectors u', this batch's among them, without gradient",
            "G_i = u'_i and `neighbours` vectors of M, those nearest to u'_i after the nearest one",
            "s_i = sum over g in G_i of softmax_g(u'_i g / attention_tau) g; aggregation=mean: their mean",
            "nce(a, b) = mean_i -log softmax_j(cos(a_i, b_j) / tau)_i",
            "L = nce(z, z') + alpha_t nce(z, s), the second term once M is full",
            "alpha_schedule=cosine: alpha_t = min(alpha, cos(pi t / T) (alpha_start - alpha) + alpha)",
            "grouping=pddp: G_i = the group of u'_i among this batch's u' and the rest of M, cut in two "
            "again and again, each time the largest group along its first principal direction",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("buffer", 1024, "vectors of the memory", minimum=2),
            Option("neighbours", 16, "vectors of the memory in a group; pddp: its mean size", minimum=1),
            Option(
                "grouping",
                "knn",
                "groups: nearest neighbours, or principal direction divisive partitioning (released, off)",
                ("knn", "pddp"),
            ),
            Option(
                "aggregation",
                "attention",
                "a group's vector: by self-attention, or its mean (released, off)",
                ("attention", "mean"),
            ),
            Option("attention_tau", 2.0, "what the attention's scores are divided by", minimum=1e-4),
            Option("alpha", 0.1, "weight of the smoothed term; cosine: its last value", minimum=0),
            Option(
                "alpha_schedule",
                "constant",
                "the weight: constant (base models), or rising by a cosine over the first half of the steps "
                "(large ones, with alpha=0.05)",
                ("constant", "cosine"),
            ),
            Option("alpha_start", 0.005, "alpha_schedule=cosine: its first value", minimum=0),
            *usual_options(),
        ),
        deviations=(
            "read in the released code; where the paper differs is unverified",
            "released: a group leaves out the nearest vector of the memory, as a rule the own one's copy",
            "pddp: of groups of one size the one that is older is cut next; released: another one may be",
            "pddp with aggregation=mean: released, it stops with an error",
            "a masked-LM term, off in the released scripts, is simcse's alone",
            ADAMW_EPS,
        ),
        published_names=(("iscse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage.

        Raises:
            InputError: a memory smaller than a batch, or without enough neighbours, or a falling weight.
        """
        buffer, neighbours, batch = (int(options[n]) for n in ("buffer", "neighbours", "batch_size"))
        if buffer < max(batch, neighbours + 1):
            raise InputError(
                f"a memory of {buffer} vectors",
                where="iscse.buffer",
                expected=f"at least a batch, {batch}, and a group, {neighbours + 1}",
            )
        if options["alpha_schedule"] == "cosine" and float(options["alpha_start"]) > float(options["alpha"]):
            raise InputError(
                f"alpha_start {options['alpha_start']} is above alpha {options['alpha']}",
                where="iscse.alpha_start",
                expected="a weight that rises",
            )
        return super().stages(options)
