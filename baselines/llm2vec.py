"""LLM2Vec: a decoder that attends in both directions, taught to predict masked tokens, then by SimCSE."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.simcse import SimCSEObjective
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.lazy import torch
from bench.method_card import BOTH_WAYS, CAUSAL, DROPOUT, BuildContext, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import (
    ENCODER_OPTIONS,
    PROMPTLESS,
    check_train_pooling,
    encoder_options,
)
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, load_trained_encoder, training_options

MNTP, SIMCSE = "mntp", "simcse"
STAGES = {"none": (), MNTP: (MNTP,), SIMCSE: (SIMCSE,), "both": (MNTP, SIMCSE)}
"""Values of the option ``stages``: the trainings that it asks for, in order."""
BLANK = "_"
"""The mask token of a tokenizer without one."""
_ELSEWHERE = ("stages", "text", "pooling")  # no settings of a stage
_LORA: dict[str, OptionValue] = {"lora_rank": 16, "lora_alpha": 32.0, "lora_dropout": 0.05}
_MNTP_RATES: dict[str, OptionValue] = {"lr": 5e-5, "batch_size": 32, "max_length": 512, "dropout": 0.0}
_SIMCSE_RATES: dict[str, OptionValue] = {"lr": 3e-5, "batch_size": 128, "max_length": 128, "dropout": 0.3}
_COMMON: dict[str, OptionValue] = {"steps": 1000, "schedule": "constant"}


def mntp_options() -> tuple[Option, ...]:
    """Return the options of masked next-token prediction, ``mntp.NAME``."""
    options = (
        *training_options(least_batch=1, **_MNTP_RATES, **_COMMON),
        Option("mask_share", 0.2, "q, share of the tokens to predict", minimum=0, maximum=1),
        Option(
            "masking",
            "bert",
            "of the chosen tokens 80% become the mask token, 10% another, 10% stay (bert), or all are masked "
            "(all; released for Mistral, with mask_share=0.8)",
            ("bert", "all"),
        ),
        Option(
            "mask_token",
            "blank",
            "mask token where the tokenizer has none: _ (blank), or the end-of-text token (eos)",
            ("blank", "eos"),
        ),
    )
    return tuple(
        replace(option, name=f"{MNTP}.{option.name}", help=f"mntp: {option.help}") for option in options
    )


def adapter_options() -> tuple[Option, ...]:
    """Return the options of all transformers with the released adapters, without which nothing is trained."""
    rank = "rank r of the LoRA adapters of each stage"
    return tuple(
        replace(each, minimum=1, help=rank) if each.name == "lora_rank" else each
        for each in encoder_options(**_LORA)
    )


def choose_mask_token(tokenizer: Any, kind: str, where: str) -> Any:
    """Return a copy of a tokenizer with a mask token: its own, a blank or the end-of-text token.

    Raises InputError where the vocabulary lacks that.
    """
    tokenizer = copy.deepcopy(tokenizer)
    if tokenizer.mask_token_id is not None:
        return tokenizer
    token = BLANK if kind == "blank" else tokenizer.eos_token
    known = tokenizer.get_vocab()
    if token not in known:
        what = f"the tokenizer has no token {token!r} for mntp.mask_token={kind}"
        raise InputError(what, where=where, expected="mntp.mask_token=blank or eos, whose token it has")
    tokenizer.mask_token = token
    return tokenizer


class MNTPObjective(training.Objective):
    """Token rows to masked next-token prediction: a masked token is read off the state before it.

    Args:
        model: The decoder, which attends in both directions.
        pad_id: Id to pad with.
        tokenizer: Has a mask token.
        head: From states (K, H) to logits (K, V).
        share: Share of the tokens to predict.
        only_masks: All of these become the mask token, in place of BERT's three ways.
        draws: Generator of the masks.
    """

    def __init__(
        self,
        model: Any,
        pad_id: int,
        *,
        tokenizer: Any,
        head: torch.nn.Module,
        share: float,
        only_masks: bool,
        draws: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder, self.pad_id, self.head = model, pad_id, head.requires_grad_(False)
        self.tokenizer, self.share, self.only_masks, self.draws = tokenizer, share, only_masks, draws

    def prepare(self, batch: Sequence[list[int]]) -> training.MaskedRows:
        """Mask the rows; the places are those of the states that predict, one before each target."""
        rows = [row or [self.pad_id] for row in batch]  # a row without a token reads a padding token
        chunk = nn.pad_chunk(rows, self.pad_id, masked=self.device.type == "cuda")
        masked = training.mask_text(
            chunk.ids, self.tokenizer, self.share, self.draws, only_masks=self.only_masks
        )
        behind = masked.places % chunk.ids.shape[1] > 0  # no state precedes a row's first token
        return training.MaskedRows(
            chunk._replace(ids=masked.inputs), masked.places[behind] - 1, masked.targets[behind]
        )

    def compute(self, prepared: training.MaskedRows) -> torch.Tensor:
        """Cross-entropy of the masked tokens; only the states before them pass the head."""
        with training.autocast_towers(prepared.places.device):
            states = nn.compute_last_states(self.encoder, prepared.chunk)
            logits = self.head(states.flatten(0, 1)[prepared.places])
        return losses.masked_lm_loss(training.to_float32(logits), prepared.targets)


class MeanObjective(SimCSEObjective):
    """Token rows to InfoNCE between two dropout views, each the mean of its tokens' states."""

    def views(self, tokens: nn.TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the means of both views, (B, H) each."""
        first, second = training.batch_states(self.encoder, tokens, "avg").chunk(2)
        return first, second


def train_mntp(context: StageContext) -> dict[str, Any]:
    """Train adapters by masked next-token prediction, and merge them into the decoder: the first stage."""
    config = context.config
    model, tokenizer, head = nn.load_bidirectional_lm(context.model)
    objective = partial(
        MNTPObjective,
        tokenizer=choose_mask_token(tokenizer, str(config["mask_token"]), context.model.name),
        head=head,
        share=float(config["mask_share"]),
        only_masks=config["masking"] == "all",
        draws=training.generator(context.seed, f"mask/{context.role}"),
    )
    # its views, if any, are the next stage's: the rate of dropout may be 0 here
    plain = replace(context, needs=context.needs - {DROPOUT})
    return train_merged(plain, (model, tokenizer), objective)


def train_simcse(context: StageContext) -> dict[str, Any]:
    """Train fresh adapters on two dropout views of a sentence, and merge them too."""
    if MNTP in context.inputs:
        folder = training.checkpoint_folder(context.inputs[MNTP], "last")
        context = replace(context, model=folder, model_name="", model_sha256="")
    objective = partial(MeanObjective, tau=float(context.config["tau"]), head=False)
    return train_merged(context, nn.load_bidirectional(context.model), objective)


def train_merged(context: StageContext, tower: tuple[Any, Any], objective: Any) -> dict[str, Any]:
    """Train a bidirectional decoder's adapters; each checkpoint becomes a whole model."""
    facts = training.train_towers(context, [tower], objective, pooling="avg")
    if training.is_first_process():
        for folder in (context.out / name for name in ("selected", "last")):
            if folder.is_dir():
                nn.write_merged_folder(folder)
    return facts


@add_method
class LLM2Vec:
    """LLM2Vec without supervision."""

    card = MethodCard(
        name="llm2vec",
        printed="LLM2Vec",
        family="decoders",
        adds="a causal model made bidirectional, a training on masked tokens before, and LoRA adapters",
        cites=("behnamghader-etal-2024-llm2vec",),
        tags=("bidirectional attention", "masked LM", "dropout views"),
        passes=6.0,
        kind="baseline",
        summary="LLM2Vec: a decoder with bidirectional attention, masked next-token prediction, then SimCSE",
        version=1,
        paper="BehnamGhader et al. 2024, LLM2Vec: Large Language Models Are Secretly Powerful Text Encoders",
        code="McGill-NLP/llm2vec 312adcf",
        equations=(
            "h_i: last state of token i, which attends to all tokens of its sentence; v = mean_i h_i",
            "stage mntp: L = mean over masked tokens i > 1 of CE(V h_(i-1)(x~), x_i), x~ the masked "
            "sentence; V the language-model head, frozen",
            "stage simcse: S_ij = cos(v_i, v'_j) / tau, two dropout views; L = mean_i -log softmax(S_i)_i",
            "each stage: W + (alpha / r) B A for each linear module W of the layers; A and B are trained, "
            "then the sum is the next stage's W",
        ),
        needs=(
            Need(CAUSAL),
            Need(BOTH_WAYS),
            Need(DROPOUT, "stages", (SIMCSE, "both"), instead=f"stages={MNTP}"),
        ),
        options=(
            Option("stages", "both", "trainings; none is bidirectional attention by itself", tuple(STAGES)),
            Option("tau", 0.05, "simcse: temperature (released: scale 20)", minimum=1e-4),
            *training_options(least_batch=2, **_SIMCSE_RATES, **_COMMON),
            *mntp_options(),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
            *adapter_options(),
        ),
        deviations=(
            "float32 throughout, adapters are merged in it; released: bfloat16",
            "mntp trains on the sentences of the training text; released: WikiText-103 in pieces of 512 "
            "tokens",
            "schedule=constant; released: linear decay over three epochs, and the end after 1,000 steps, "
            "about 4% of them",
            "released: training's mean takes the padding's states too (a sentence without an instruction "
            "has an empty embed_mask), and the evaluation's leaves out the beginning-of-text token; here "
            "both are of the sentence's tokens, special ones included",
            "released: sentences in the evaluation stand in the model's chat template; here as they are",
            "rows are padded on the right; released: on the left",
            "simcse: dropout is set wherever a model has it; released: in attention, the only place in "
            "Llama, Mistral, Qwen2 and Gemma",
            "mntp: a random token is an ordinary one (released: any); the mask token itself is never chosen",
            "lora_targets: all linear modules of the layers; released: q, k, v, o, gate, up and down, all "
            "that Llama, Mistral, Qwen2 and Gemma have",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the trainings that ``stages`` asks for; InputError: a prompt's mask as their pooling."""
        why = "would put sentences into a prompt, whose words the first stage masks"
        check_train_pooling(self.card.name, options, PROMPTLESS, why)
        shared = {option.name: options[option.name] for option in ENCODER_OPTIONS}
        prefix = f"{MNTP}."
        first = {n.removeprefix(prefix): value for n, value in options.items() if n.startswith(prefix)}
        second = {n: value for n, value in options.items() if "." not in n and n not in _ELSEWHERE}
        configs = {MNTP: first | shared | {"chunk": 0}, SIMCSE: second | shared}
        trains = {MNTP: train_mntp, SIMCSE: train_simcse}
        text, specs = str(options["text"]), list[StageSpec]()
        for role in STAGES[str(options["stages"])]:
            settings, earlier = tuple(sorted(configs[role].items())), tuple(spec.role for spec in specs)
            kind, version = f"llm2vec_{role}", self.card.version
            spec = StageSpec(role, kind, version, settings, trains[role], inputs=earlier, text=text)
            specs.append(spec)
        return tuple(specs)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the last training's checkpoint, or of the bidirectional decoder itself."""
        asked = STAGES[str(context.options["stages"])]
        if asked:
            return load_trained_encoder(context, asked[-1])
        if context.model is None:
            raise BenchError("no model folder was given")
        tower = nn.load_bidirectional(context.model)
        pooling = str(context.options["pooling"])
        return nn.TransformerEncoder(tower, pooling, first_layer="layer1", device=context.device)
