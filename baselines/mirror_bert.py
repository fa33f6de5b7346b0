"""Mirror-BERT: a sentence against its copy with a masked span, contrasted from both sides."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import DROPOUT, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, PROMPTLESS, check_train_pooling
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options

MASK = " [MASK] "
SHORTEST = 30
"""Characters of the shortest sentence that has a span masked."""


def mask_span(sentence: str, length: int, draw: torch.Generator) -> str:
    """Put " [MASK] " in place of ``length`` characters of a sentence.

    A span of the sentence is drawn, all but its last one with equal probability, and the first place where
    these characters stand is masked (Liu et al. 2021, data_loader.py: erase_and_mask).

    Args:
        sentence: Under 30 characters, or no longer than the span, it stays.
        length: Characters of the span; 0 masks none.
        draw: Source of the one draw.
    """
    places = len(sentence) - length
    if not length or places <= 0 or len(sentence) < SHORTEST:
        return sentence
    start = int(torch.randint(places, (), generator=draw))
    return MASK.join(sentence.split(sentence[start : start + length], 1))


class MirrorBERTObjective(training.Objective):
    """(Sentence number, token row) pairs to NT-Xent of sentences and masked copies, without a head."""

    def __init__(self, model: Any, pad_id: int, context: StageContext, tokenizer: Any) -> None:
        super().__init__()
        self.encoder, self.pad_id, self.context = model, pad_id, context
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer)
        self.tau, self.span = float(context.config["tau"]), int(context.config["span"])
        self.draws = training.generator(context.seed, f"augment/{context.role}")
        if drophead := float(context.config["drophead"]):
            nn.add_head_dropout(model, drophead)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Put the sentences before their masked copies."""
        own = [row for _, row in batch]
        masked = [self.mask_row(number, row) for number, row in batch]
        return training.token_batch([*own, *masked], self.pad_id, self.encoder)

    def mask_row(self, number: int, row: list[int]) -> list[int]:
        """Return the token row of a sentence's masked copy."""
        sentence = self.context.sentences[number]
        masked = mask_span(sentence, self.span, self.draws)
        if masked == sentence:
            return row
        return nn.tokenize_rows(self.tokenizer, [masked], int(self.context.config["max_length"]))[0]

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode both views in one call, with a dropout mask each."""
        first, second = training.batch_states(self.encoder, prepared, "avg").chunk(2)
        return losses.near_nce(first, second, None, self.tau)


@add_method
class MirrorBERT(TrainedOnce):
    """Mirror-BERT, for sentences."""

    card = MethodCard(
        name="mirror_bert",
        printed="Mirror-BERT",
        family="contrastive",
        adds="a masked span of characters in the second view; negatives of both views; no head",
        cites=("liu-etal-2021-fast",),
        tags=("masked span", "dropout views"),
        passes=6.0,
        kind="baseline",
        summary="Mirror-BERT: a sentence and its copy with a masked span, contrasted from both sides",
        version=1,
        paper="Liu, Vulić, Korhonen, Collier 2021, Fast, Effective, and Self-Supervised: Transforming Masked "
        "Language Models into Universal Lexical and Sentence Encoders",
        code="cambridgeltl/mirror-bert 8b6b9de, mirror_scripts/mirror_sentence_bert.sh",
        equations=(
            "x': x with [MASK] in place of span characters, where x has 30 or more; f(x): mean of the last "
            "layer's states of x",
            "l(u, v)_i = -log[exp(cos(u_i, v_i) / tau) / (exp(cos(u_i, v_i) / tau) "
            "+ sum_{j != i} (exp(cos(u_i, v_j) / tau) + exp(cos(u_i, u_j) / tau)))]",
            "L = 1/2 mean_i [l(f(x), f(x'))_i + l(f(x'), f(x))_i]",
            "drophead p: each head of each attention and row is 0 with probability p, the others are scaled "
            "by heads / kept heads; in training only",
            "at inference f(x)",
        ),
        needs=(Need(DROPOUT, "span", (0,), instead="span=5"),),
        options=(
            Option("tau", 0.04, "temperature", minimum=1e-4),
            Option("span", 5, "characters masked in the second view, 0 for none", minimum=0),
            Option(
                "drophead",
                0.0,
                "p, probability of leaving out an attention head (released: 0.2 with dropout 0)",
                minimum=0,
                below=1,
            ),
            Option("drop_last", True, "leave out an epoch's last short batch"),
            Option("decay_all", True, "weight decay on biases and LayerNorms too"),
            *training_options(
                lr=2e-5,
                batch_size=200,
                steps=50,
                eval_every=50,
                max_length=50,
                weight_decay=0.01,
                clip=0.0,
                schedule="constant",
            ),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg"),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "trains on 50 batches of the profile's text; released: once on 10,000 sentences of STS-B's "
            "training set",
            "the mean is over a sentence's tokens; released (agg_mode mean): over the states of padding too, "
            "to 50 tokens in training and to 64 in evaluation",
            "[MASK] is written as text, as released: only a tokenizer with that token reads it as one",
            "released with drophead: a row that keeps no head of an attention is 0 / 0; here it is 0",
            "drophead needs a BERT or RoBERTa, as released",
        ),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a prompt's mask with a masked span."""
        if options["span"]:
            why = "reads a mask token, and a masked span puts in another one"
            check_train_pooling(self.card.name, options, PROMPTLESS, why)
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on sentences and masked copies, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context,
            [tower],
            lambda model, pad_id: MirrorBERTObjective(model, pad_id, context, tower[1]),
            numbered=True,
            pooling="avg",
        )
