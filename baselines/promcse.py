"""PromCSE: SimCSE's loss with a frozen encoder; only prompts in every layer, and the head, are trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench import nn, training
from bench.baselines.simcse import SimCSEObjective
from bench.errors import InputError
from bench.method_card import FROZEN, HeldEncoder, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import refuse_lora
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options

_KINDS = ("bert", "roberta")


@add_method
class PromCSE(TrainedOnce):
    """Unsupervised PromCSE."""

    card = MethodCard(
        name="promcse",
        printed="PromCSE",
        family="contrastive",
        adds="trained keys and values before a sentence's, in every layer, in place of the encoder's weights",
        cites=("jiang-etal-2022-improved",),
        tags=("dropout views", "deep prompts"),
        passes=4.0,
        encoders=(HeldEncoder(FROZEN, returned=True),),
        kind="baseline",
        summary="SimCSE that trains deep soft prompts around a frozen encoder",
        version=1,
        paper="Jiang, Zhang, Wang 2022, Improved Universal Sentence Embeddings with Prompt-based Contrastive "
        "Learning and Energy-based Learning",
        code="YJiangcm/PromCSE 4b31938",
        equations=(
            "K^l = [drop(P_K^l) ; h^(l-1) W_K + b_K], V^l = [drop(P_V^l) ; h^(l-1) W_V + b_V]: p places "
            "before a sentence's in layer l; queries are the sentence's only",
            "position ids begin at p: they count the prompt's places (positions=own: at 0)",
            "z = tanh(W h_cls + b) in training; S_ij = cos(z_i, z'_j) / tau; L = mean_i -log softmax(S_i)_i",
            "only P_K, P_V, W and b are trained; at inference h_cls with the prompts, without head and drop",
        ),
        needs=CLS_VIEWS,
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("prompt_length", 16, "p, places of the prompt in every layer", minimum=1),
            Option(
                "positions",
                "behind",
                "position ids of a sentence: behind the prompt (released), or its own, from the first",
                ("behind", "own"),
            ),
            *usual_options(lr=3e-2, batch_size=256),
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "without labels, so without the energy-based hinge loss: released only with hard negatives (NLI)",
            "prompts are weights of their own; a two-layer map makes them with the released "
            "prefix_projection, which its scripts leave off",
            "BERT and RoBERTa only, as released",
            ADAMW_EPS,
        ),
        published_names=(("promcse", "as published: profile bert-base"),),
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for another architecture, and for a prompt that fills its input."""
        if facts.kind not in _KINDS:
            raise InputError(
                f"deep prompts can't be put into a {facts.kind} model",
                expected=f"a backbone of one of the kinds {', '.join(_KINDS)}",
            )
        length, shifted = int(options["prompt_length"]), options["positions"] == "behind"
        if shifted and facts.positions is not None and length + int(options["max_length"]) > facts.positions:
            what = f"a prompt of {length} and {options['max_length']} tokens exceed the model's positions"
            raise InputError(what, expected=f"{facts.positions} together")

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: adapters besides the prompts."""
        reason = "its weights stay as they are, only prompts are trained"
        refuse_lora(options, self.card.name, reason, "lora_rank=0")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train prompts and head, as :func:`bench.training.train_towers`."""
        config, tower = context.config, nn.load_backbone(context.model)
        draw = training.generator(context.seed, f"prompt/{context.role}")
        shifted = config["positions"] == "behind"
        nn.add_prompts(tower[0], int(config["prompt_length"]), draw, shifted=shifted)
        return training.train_towers(context, [tower], partial(SimCSEObjective, tau=float(config["tau"])))
