"""PromptEOL, trained: InfoNCE between one-word prompts of a causal language model, with LoRA adapters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from bench import losses, nn, training
from bench.baselines.promptbert import check_template_room, train_prompted
from bench.baselines.prompteol import PROMPT_DEVIATIONS, PromptEol
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.lazy import torch
from bench.method_card import (
    CAUSAL,
    DROPOUT,
    SUPERVISED,
    BuildContext,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import OWN_POOLING, check_train_pooling, encoder_options
from bench.training.recipe import TEXT_OPTION, TrainedOnce, TrainedOnPairs, prompt_training_options

_FORM = Option(
    "form",
    "released",
    "the sentence in its prompt: as it is in training, its end as prompteol's form=released at "
    "inference (released); so in both (stopped); as it is in both (paper)",
    ("released", "stopped", "paper"),
)
_ADAPTERS = encoder_options(lora_rank=64, lora_dropout=0.05)
_DEVIATIONS = (
    "float32 throughout; released: weights in 4 bits (NF4), fp16 autocast",
    "one process has the whole batch; released: four, each with its share, exchange vectors and average "
    "their gradients, which makes them smaller: AdamW cancels that, clipping doesn't",
    "a sentence of up to max_length tokens stays as it is; released: every sentence is decoded from its "
    "tokens, where some tokenizers clean up blanks",
    "warmup is a share of the steps; released: 100 steps",
    *PROMPT_DEVIATIONS[:1],
    PROMPT_DEVIATIONS[2],
)


def _training_options(*, least_batch: int = 2, **defaults: OptionValue) -> tuple[Option, ...]:
    """Return the options of both forms, with defaults of their own."""
    rise = defaults.pop("warmup")
    length = "subwords a sentence keeps in training, without the prompt and special tokens"
    return (
        Option("tau", 0.05, "temperature", minimum=1e-4),
        PromptEol.card.options[0],
        _FORM,
        *prompt_training_options(length, least_batch=least_batch, batch_size=256, dropout=0.0, **defaults),
        Option("warmup", rise, "share of the steps over which the rate rises", minimum=0, maximum=1),
    )


class OneWordObjective(training.Objective):
    """(Sentence number, token row) pairs to InfoNCE between prompts; only the numbers count.

    The second view is the sentence's labelled positive, or without one the same prompt again, which differs
    by its dropout masks. Hard negatives join the positives.
    """

    def __init__(self, model: Any, reader: nn.OneWordEncoder, context: StageContext) -> None:
        super().__init__()
        config, labelled = context.config, list(filter(None, (context.partners, context.negatives)))
        self.encoder, self.reader = model, reader
        self.columns = [context.sentences, *(labelled or [context.sentences])]
        self.tau, self.longest = float(config["tau"]), int(config["max_length"])
        self.weight = float(config.get("hard_negative_weight", 0.0))

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Put the prompts of all columns into one call."""
        texts = [column[number] for column in self.columns for number, _ in batch]
        rows = self.reader.token_ids([self.reader.keep_first_tokens(text, self.longest) for text in texts])
        return training.token_batch(rows, self.reader.tokenizer.pad_token_id, self.encoder)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """InfoNCE over positives and hard negatives of the last tokens' states."""
        states = training.batch_states(self.encoder, prepared, "last")
        anchors, positives, *hard = states.chunk(len(self.columns))
        return losses.hard_negative_nce(anchors, positives, hard[0] if hard else None, self.tau, self.weight)


class OneWordTraining(TrainedOnce):
    """Base of both forms: a subclass adds the card."""

    dropout_views: ClassVar[bool] = True
    """The views of a sentence differ by dropout alone."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the one stage; InputError: another training pooling, or two equal views."""
        name = self.card.name
        why = "isn't trained by a one-word prompt, whose vector is its last token's"
        check_train_pooling(name, options, ("last",), why)
        adapters_drop = options["lora_rank"] and options["lora_dropout"]
        if self.dropout_views and not (options["dropout"] or adapters_drop):
            raise InputError(
                "without dropout both views of a sentence are equal",
                where=name,
                expected="lora_dropout (with lora_rank) or dropout above 0",
            )
        return super().stages({**options, "train_pooling": OWN_POOLING})

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: prompt and last token."""
        if self.card.name not in context.stages:
            raise BenchError(f"the stage '{self.card.name}' has not run")
        folder = training.checkpoint_folder(context.stages[self.card.name], context.checkpoint)
        return _read_with_prompt(folder, context.options, context.device)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train through the prompt, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        dev = _read_with_prompt(tower, context.config, context.device)
        stopped = context.config["form"] == "stopped"
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        own = (tower[0], copy.deepcopy(tower[1]))
        template, form = str(context.config["template"]), "released" if stopped else "paper"
        reader = nn.OneWordEncoder(own, template, form=form, device=context.device)
        room = reader.max_length - len(reader.token_ids([""])[0])
        check_template_room(int(context.config["max_length"]), room)
        return train_prompted(
            context, tower, dev, partial(OneWordObjective, reader=reader, context=context), pooling="last"
        )


def _read_with_prompt(source: Any, options: Mapping[str, OptionValue], device: str) -> nn.OneWordEncoder:
    """Return the encoder of inference."""
    form = "paper" if options["form"] == "paper" else "released"
    return nn.OneWordEncoder(source, str(options["template"]), form=form, device=device)


@add_method
class PromptEolCse(OneWordTraining):
    """PromptEOL with dropout views."""

    card = MethodCard(
        name="prompteol_cse",
        printed="PromptEOL-CSE",
        family="decoders",
        adds="a causal model, read by a one-word prompt, with LoRA adapters",
        cites=("jiang-etal-2024-scaling",),
        tags=("dropout views", "prompts"),
        passes=6.0,
        kind="baseline",
        summary="a causal model's one-word prompt, trained: LoRA, dropout views, InfoNCE",
        version=1,
        paper="Jiang et al. 2023, Scaling Sentence Embeddings with Large Language Models",
        code="kongds/scaling_sentemb 8567aa0 ft_llm.py; settings: ZBWpro/CSE-SFP 5a5adc2 code/train.py",
        equations=(
            'x = This sentence : "s" means in one word:"; h: last layer\'s state of its last token',
            "W + (alpha / r) B A in place of W, B and A trained",
            "z = h(x), z' = h(x) with other dropout masks",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i",
            "at inference h(x)",
        ),
        needs=(Need(CAUSAL), Need(DROPOUT)),
        options=(
            *_training_options(lr=5e-5, eval_every=150, warmup=0.0255),
            TEXT_OPTION,
            *_ADAPTERS,
        ),
        deviations=(
            *_DEVIATIONS,
            "dropout=0: adapters alone draw, as in Llama; released: OPT's own 0.1 too",
            "lr: CSE-SFP's for Llama 3 8B (Llama 2 4e-5, OPT 3e-5, Mistral 2e-5), whose positive is another "
            "token of the same pass; released PromptEOL: dropout views in its code, which no script runs",
        ),
    )


@add_method
class SupPromptEolCse(OneWordTraining, TrainedOnPairs):
    """PromptEOL with labelled positives and hard negatives."""

    dropout_views: ClassVar[bool] = False
    card = replace(
        PromptEolCse.card,
        name="sup_prompteol_cse",
        printed="Supervised PromptEOL-CSE",
        family="supervised",
        adds="a causal model, read by a one-word prompt, with LoRA adapters; labelled pairs",
        tags=("labelled pairs", "prompts"),
        passes=9.0,
        encoders=(HeldEncoder(views=3, returned=True),),
        kind=SUPERVISED,
        summary="a causal model's one-word prompt, trained: LoRA, labelled positives and hard negatives",
        code="kongds/scaling_sentemb 8567aa0 ft_llm.py, train_llm.sh",
        equations=(
            'x = This sentence : "s" means in one word:"; z = h(x): last layer\'s state of its last token',
            "W + (alpha / r) B A in place of W, B and A trained",
            "S_ij = cos(z_i, z^+_j) / tau; N_ij = cos(z_i, z^-_j) / tau + w [i = j]",
            "L = mean_i -log softmax([S_i ; N_i])_i; of pairs without hard negatives -log softmax(S_i)_i",
            "at inference h(x)",
        ),
        needs=(Need(CAUSAL),),
        options=(
            *_training_options(least_batch=1, lr=5e-4, eval_every=50, warmup=0.0925),
            Option(
                "hard_negative_weight",
                0.0,
                "w, added to a sentence's own hard negative (released z3_weight)",
            ),
            *_ADAPTERS,
        ),
        deviations=(
            *_DEVIATIONS,
            "released: batches of 200 for 13B models; adapters to q_proj and v_proj unless weights have 4 "
            "bits (lora_targets=q_proj+v_proj)",
            "dropout=0: adapters alone draw, as in Llama; released: OPT's own 0.1 too",
        ),
    )
