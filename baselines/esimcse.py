"""ESimCSE: SimCSE with repeated subwords in the positive and a momentum queue of further negatives."""

from __future__ import annotations

from collections.abc import Mapping

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.card import FIRST_TOKEN, MethodCard, Need, Option, OptionValue
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageSpec


@add_method
class ESimCSE(TrainedApart):
    """ESimCSE."""

    card = MethodCard(
        name="esimcse",
        kind="baseline",
        summary="SimCSE with repeated subwords in the positive and a momentum queue of negatives",
        version=1,
        paper="Wu, Gao, Zang, Han, Wang, Hu 2022, ESimCSE: Enhanced Sample Building Method for Contrastive "
        "Learning of Unsupervised Sentence Embedding",
        code="caskcsg/sentemb 5eeec55, ESimCSE",
        equations=(
            "x+: r subwords of x twice in a row, r uniform on 0 ... c - 1, c = min(10, floor(rate n))",
            "repetition_unit=word: r of x's n words but the last, c = min(10, n, max(2, floor(rate n)))",
            "z = tanh(W h_cls(x) + b), z' of x+; S_ij = cos(z_i, z'_j) / tau; N_ik = cos(z_i, q_k) / tau",
            "L = mean_i -log softmax([S_i ; N_i])_i",
            "phi <- m phi + (1 - m) theta; q: the newest vectors tanh(W h_cls(x; phi) + b), without dropout",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=(Need(FIRST_TOKEN),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("queue", 160, "vectors of earlier batches that are negatives, 0 for none", minimum=0),
            Option("momentum", 0.995, "m of the momentum encoder, 0 to 1", minimum=0, maximum=1),
            Option(
                "momentum_init",
                "random",
                "what the momentum encoder starts from: random weights (released numbers) or the backbone",
                ("random", "pretrained"),
            ),
            Option("repetition_rate", 0.32, "duplication rate, 0 for no repetition", minimum=0, maximum=1),
            Option(
                "repetition_rule",
                "released",
                "most repetitions: min(10, floor(rate n)) - 1 (released) or max(2, floor(rate N)) (paper)",
                ("released", "paper"),
            ),
            Option(
                "repetition_unit",
                "subword",
                "what is repeated: subwords of the cut sentence, or words (released, off in its script)",
                ("subword", "word"),
            ),
            Option(
                "repetition_resample",
                "never",
                "draw a sentence's repetition once (released) or in every epoch",
                ("never", "per_epoch"),
            ),
            *usual_options(),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "released: the momentum encoder starts from random weights, a share of momentum^t after t steps; "
            "paper: from the backbone (momentum_init=pretrained); so do the short profiles mini and minilm",
            "released: another bound of the repetition than the paper's (repetition_rule=paper, unverified)",
            "each sentence's repetition is drawn from its own stream of the seed",
            "repetition_unit=word is released, but no published run has it; the last word is never repeated",
            ADAMW_EPS,
        ),
        published_names=(("esimcse", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage.

        Raises:
            InputError: words by the paper's rule, which counts subwords.
        """
        if options["repetition_unit"] == "word" and options["repetition_rule"] == "paper":
            raise InputError(
                "the paper's rule counts subwords",
                where="esimcse.repetition_rule",
                expected="released with esimcse.repetition_unit=word",
            )
        return super().stages(options)
