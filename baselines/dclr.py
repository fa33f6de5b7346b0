"""DCLR: SimCSE with noise among the negatives and without those that another model finds too alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import CLS_VIEWS


@add_method
class DCLR(TrainedApart):
    """DCLR."""

    card = MethodCard(
        name="dclr",
        kind="baseline",
        summary="SimCSE with noise negatives, and weight 0 for negatives that a frozen model finds alike",
        version=1,
        paper="Zhou, Zhang, Zhao, Wen 2022, Debiased Contrastive Learning of Unsupervised Sentence "
        "Representations",
        code="RUCAIBox/DCLR e2c3430",
        equations=(
            "z = tanh(W tanh(W_p h_cls + b_p) + b), W_p the backbone's pooler; head=tanh: tanh(W h_cls + b)",
            "g_1 ... g_M ~ N(0, I), M = floor(noise_times B); then noise_steps times g <- g + noise_rate d / "
            "||d||, d the gradient to g of mean_i -log softmax([cos(z_i, z'_j) ; cos(z_i, g_k)] / tau)_i",
            "w_ij = 0 where j != i and cos(t_i, t_j) > phi, t the complement's vectors; else 1",
            "s_i = [cos(z_i, z'_j) ; cos(z_i, g_k)] / tau",
            "paper: L = mean_i -log(e^{s_ii} / sum_j w_ij e^{s_ij})",
            "released: p_i = softmax(w_ij s_ij), L = -mean over cells of log p_ii and log(1 - p_ij), j != i",
            "at inference h_cls of the last layer, without pooler and head",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("complement", "simcse", "frozen model that weighs negatives, as in --methods, or empty"),
            Option("phi", 0.9, "the complement's cosine above which a negative has weight 0", minimum=-1),
            Option("noise_times", 1.0, "noise negatives a sentence of the batch", minimum=0),
            Option("noise_steps", 4, "steps of gradient ascent on the noise", minimum=0),
            Option("noise_rate", 1e-3, "length of such a step", minimum=0),
            Option(
                "loss",
                "released",
                "binary cross-entropy of all cells, weights on logits (released), or InfoNCE (paper)",
                ("released", "paper"),
            ),
            Option(
                "head",
                "stacked",
                "training-only head: a tanh layer on the backbone's own pooler (released), or SimCSE's",
                ("stacked", "tanh"),
            ),
            Option("mask_padding", False, "attention in training leaves padding out (released: it doesn't)"),
            Option("tau", 0.05, "temperature", minimum=1e-4),
            *usual_options(batch_size=128, epochs=3),
        ),
        deviations=(
            "released: a SimCSE checkpoint weighs by the output of its head, with dropout, on 32 tokens and "
            "attending to padding; here a method on the profile's backbone, trained with the run's seed, "
            "weighs by its own vectors of whole sentences (complement=hf:FOLDER takes a checkpoint)",
            "phi is a cosine at every tau; released: the cosine / tau is compared with 20 phi, so phi itself "
            "holds at tau 0.05 alone",
            "released: a weight of 0 turns a logit into 0, so a term e^0 stays; loss=paper leaves it out of "
            "InfoNCE's sum, which holds the positive here, and may not in the paper (unverified)",
            "released: log(1 - p) is not a number where p rounds to 1; here it is exact",
            "the gradient to the noise is written out, and a noise vector without one stays (released: 0)",
            "the noise's gradient is of the released objective, with batch negatives; the paper's has none "
            "(unverified), and the temperature is the same",
            "released: STS-B and SICK-R are the dev set, read by the pooler; here the profile's by [CLS]",
            "a backbone without a pooler gets a fresh one in training",
            ADAMW_EPS,
        ),
        published_names=(("dclr", "as published: profile bert-base or roberta-base"),),
        padding_matters=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The complement, if any."""
        return {"complement": str(options["complement"])} if options["complement"] else {}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; its key names the complement by what it is, whatever text asked for it."""
        own = {name: value for name, value in options.items() if name != "complement"}
        return tuple(replace(spec, inputs=tuple(self.members(options))) for spec in super().stages(own))
