"""ESimCSE: SimCSE with repeated subwords in the positive and a momentum queue of further negatives."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench import losses, nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import (
    AVERAGE,
    FIRST_TOKEN,
    ONE_ENCODER,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling, refuse_lora
from bench.training.recipe import ADAMW_EPS, TrainedOnce, usual_options


class ESimCSEStep(NamedTuple):
    """Inputs of a step: sentences before their positives, sentences for the copy, whether an epoch begins."""

    views: nn.TokenBatch
    sentences: nn.TokenBatch | None
    fresh: bool


class ESimCSEObjective(training.EncoderWithHead):
    """(Sentence number, token row) pairs to the loss of a step.

    The momentum copy moves in the forward pass, before the optimiser step; its vectors of this batch join the
    queue after the loss, so a batch never meets its own.
    """

    def __init__(self, model: Any, pad_id: int, context: StageContext, tokenizer: Any) -> None:
        super().__init__(model, pad_id)
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer) if repeats_words(context) else None
        config, self.context = context.config, context
        self.tau, size = float(config["tau"]), int(config["queue"])
        self.rate, self.rule = float(config["repetition_rate"]), str(config["repetition_rule"])
        self.anew = config["repetition_resample"] == "per_epoch"
        start = build_random_copy(model) if config["momentum_init"] == "random" and size else None
        self.slow = training.MomentumCopy(model, float(config["momentum"]), start=start) if size else None
        self.queue = training.VectorQueue(size) if size else None
        self.seen = 0

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> ESimCSEStep:
        """Draw the positives; only a queue makes the copy read."""
        epoch, place = divmod(self.seen, len(self.context.sentences))
        self.seen += len(batch)
        rows = [row for _, row in batch]
        stream = epoch if self.anew else 0
        repeated = [self.positive(number, row, stream) for number, row in batch]
        copied = None if self.slow is None else self.tokens(rows)
        return ESimCSEStep(self.tokens([*rows, *repeated]), copied, place == 0)

    def compute(self, prepared: ESimCSEStep) -> torch.Tensor:
        """Encode anchors and repeated positives in one call."""
        anchors, positives = self.projected(prepared.views).chunk(2)
        if self.slow is None or self.queue is None or prepared.sentences is None:
            return losses.info_nce(anchors, positives, self.tau)
        self.slow.update(self.encoder)
        if prepared.fresh:
            self.queue.clear()
        loss = losses.queue_nce(anchors, positives, self.queue.vectors, self.tau)
        with torch.no_grad():
            states = training.batch_states(self.slow.model, prepared.sentences)
            self.queue.push(torch.tanh(self.head(states)))
        return loss

    def positive(self, number: int, row: list[int], epoch: int) -> list[int]:
        """Draw a sentence's positive from its own stream, whatever the order of the sentences."""
        draw = training.generator(self.context.seed, f"augment/{self.context.role}/{epoch}/{number}")
        if self.tokenizer is not None:
            sentence = training.repeat_words(self.context.sentences[number], self.rate, draw)
            return nn.tokenize_rows(self.tokenizer, [sentence], int(self.context.config["max_length"]))[0]
        return training.repeat_subwords(row, self.rate, draw, self.rule)


def repeats_words(context: StageContext) -> bool:
    """Whether whole words are repeated, before a sentence is cut into tokens."""
    return context.config.get("repetition_unit") == "word"


def build_random_copy(model: Any) -> Any:
    """Return a network like the model with unpretrained weights from torch's random state."""
    network = type(model)(copy.deepcopy(model.config))
    if getattr(model, "pooler", True) is None:
        network.pooler = None
    return network.to(device=model.device, dtype=model.dtype)


@add_method
class ESimCSE(TrainedOnce):
    """ESimCSE."""

    card = MethodCard(
        name="esimcse",
        printed="ESimCSE",
        family="contrastive",
        adds="positives of other lengths by repeated subwords; further negatives from a momentum encoder",
        cites=("wu-etal-2022-esimcse",),
        tags=("repeated words", "queue"),
        passes=8.6,
        encoders=(*ONE_ENCODER, HeldEncoder(AVERAGE, views=0, unless=(("queue", 0),))),
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
        """Describe the one stage; InputError: the paper's rule for words, a prompt, or adapters."""
        if options["repetition_unit"] == "word" and options["repetition_rule"] == "paper":
            raise InputError(
                "the paper's rule counts subwords",
                where="esimcse.repetition_rule",
                expected="released with esimcse.repetition_unit=word",
            )
        why = "has its prompt's tokens repeated too"
        check_train_pooling(self.card.name, options, PROMPTLESS, why)
        if options["queue"] and options["momentum_init"] == "random":
            reason = "a momentum encoder of random weights has no frozen backbone"
            refuse_lora(options, "esimcse", reason, "momentum_init=pretrained with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on repeated words with a momentum queue, as :func:`bench.training.train_towers`."""
        config = context.config
        backbone = nn.load_backbone(context.model)
        kept, room = int(config["max_length"]), nn.TransformerEncoder(backbone, "avg").max_length
        rate, rule = float(config["repetition_rate"]), str(config["repetition_rule"])
        longest = kept + training.repetition_bound(kept, rate, rule)
        if longest > room and not repeats_words(context):
            raise InputError(
                f"max_length {kept} and repetitions are {longest} tokens; the model's limit is {room}",
                expected=f"a max_length below {room}",
                hint="set a smaller esimcse.max_length or esimcse.repetition_rate",
            )
        objective = partial(ESimCSEObjective, context=context, tokenizer=backbone[1])
        return training.train_towers(context, [backbone], objective, numbered=True)
