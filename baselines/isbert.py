"""IS-BERT: a sentence's vector against the features of its own and of other sentences' tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bench import nn, training
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import HeldEncoder, MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, OWN_POOLING, check_train_pooling, refuse_lora
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, select_option, training_options

_POOLINGS = ("ngrams", *(name for name in POOLING_OPTION.choices if name != "mask"))


def jensen_shannon_loss(features: torch.Tensor, vectors: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    """Minus the Jensen-Shannon estimate of the information that tokens and sentences share.

    Args:
        features: Tokens of all sentences, (N, F).
        vectors: Sentences, (B, F), B at least 2.
        owner: Each token's sentence, (N,), 0 to B - 1.

    Raises:
        ValueError: fewer than two sentences.
    """
    if len(vectors) < 2:
        raise ValueError("a negative needs a second sentence")
    scores = features @ vectors.T
    own = owner.unsqueeze(1) == torch.arange(len(vectors), device=owner.device)
    softplus = torch.nn.functional.softplus
    positive = math.log(2) - softplus(-scores.gather(1, owner.unsqueeze(1))).mean()
    others = softplus(scores).masked_fill(own, 0).sum() / (len(features) * (len(vectors) - 1))
    return others - math.log(2) - positive


class Tokens(NamedTuple):
    """A step's sentences in one chunk."""

    chunk: nn.Chunk
    places: torch.Tensor  # of the tokens among all (B * L) places, (N,)
    owner: torch.Tensor  # the sentence of each, (N,)


class ISBERTObjective(training.Objective):
    """Token rows to the loss between sentences and tokens, both from the encoder's convolutions."""

    least = 2

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.pad_id = model, pad_id

    def prepare(self, batch: Sequence[list[int]]) -> Tokens:
        """Pad all sentences to one chunk, and number its tokens' places."""
        chunk = nn.pad_chunk(batch, self.pad_id, masked=self.device.type == "cuda")
        owner, _ = chunk.mask.nonzero(as_tuple=True)
        return Tokens(chunk, chunk.mask.flatten().nonzero().flatten(), owner)

    def compute(self, prepared: Tokens) -> torch.Tensor:
        """Take the mean features of a sentence as its vector."""
        chunk, places, owner = prepared
        with training.autocast_towers(places.device):
            states = nn.compute_last_states(self.encoder, chunk)
        features = self.encoder.ngram_layers(training.to_float32(states), chunk.mask)
        vectors = nn.average_states(features, chunk.mask)
        return jensen_shannon_loss(features.flatten(0, 1)[places], vectors, owner)


@add_method
class ISBERT(TrainedOnce):
    """IS-BERT."""

    least_rows = 2

    card = MethodCard(
        name="isbert",
        printed="IS-BERT",
        family="contrastive",
        instead="a sentence's mean feature tells its own tokens' features from other sentences'",
        cites=("zhang-etal-2020-unsupervised",),
        tags=("mutual information", "n-grams"),
        passes=3.0,
        encoders=(HeldEncoder(views=1, returned=True),),
        kind="baseline",
        summary="IS-BERT: mutual information between a sentence and its n-gram features",
        version=1,
        paper="Zhang, He, Liu, Lim, Bing 2020, An Unsupervised Sentence Embedding Method by Mutual "
        "Information Maximization",
        code="yanzhangnlp/IS-BERT ea6622c",
        equations=(
            "c_t = [conv_1(h)_t ; conv_3(h)_t ; conv_5(h)_t], h the last states, 0 beyond the sentence",
            "u = mean_t c_t, [CLS] and [SEP] included",
            "L = mean over tokens t of x and sentences x' != x of softplus(c_t . u_x') "
            "+ mean over tokens t of x of softplus(-c_t . u_x) - 2 log 2",
            "all weights are trained; at inference u",
            "activation=relu: c_t = max(0, the same)",
        ),
        options=(
            Option("channels", 256, "features of each of the three windows", minimum=1),
            Option(
                "activation",
                "none",
                "of the convolutions: none (released) or relu (the paper's)",
                ("none", "relu"),
            ),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
            Option("decay_all", False, "weight decay on biases and LayerNorms too"),
            Option(
                "adam_eps",
                1e-7,
                "AdamW's eps, added to the root of the second moment before its bias is corrected (released)",
                minimum=1e-12,
            ),
            select_option("best_of_four"),
            *training_options(lr=2e-6, batch_size=32, eval_every=1000, max_length=131, weight_decay=0.01),
            TEXT_OPTION,
            replace(
                POOLING_OPTION,
                default="ngrams",
                help="vectors of the trained encoder: ngrams (u), or those of its states",
                choices=_POOLINGS,
            ),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "the profile's text; released: the sentences of SNLI and MNLI",
            "paper: a ReLU behind the convolutions; released: none (activation=relu)",
            "released: the convolutions of a sentence's last tokens read states of padding, so its vector "
            "depends on its batch; here 0, as beyond the longest sentence",
            "torch's AdamW; released: transformers' without the correction of both moments' bias: larger "
            "steps, at first 3.2 times",
            "the paper names windows and width, not padding, [CLS] and [SEP] among the tokens, or the number "
            "of negatives: as released",
            "a last batch of one sentence is refused; released: 0 / 0",
        ),
        published_names=(("is_bert", "profile bert-base; the paper trains on NLI sentences"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: another training pooling, adapters, or chunks."""
        name = self.card.name
        check_train_pooling(
            name, options, (), "isn't trained, the loss compares mean features", expected=OWN_POOLING
        )
        refuse_lora(options, name, "an adapter would be without the convolutions", "lora_rank=0")
        if options["chunk"]:
            what = f"chunk={options['chunk']}: the loss compares the tokens of a whole batch"
            raise InputError(what, where=f"{name}.chunk", expected="0")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train encoder and convolutions, as :func:`bench.training.train_towers`."""
        config, tower = context.config, nn.load_backbone(context.model)
        width, channels = nn.state_size(tower[0]), int(config["channels"])
        with training.randomness.own_random_state(context.seed, f"ngrams/{context.role}"):
            tower[0].ngram_layers = nn.NgramLayers(width, channels, str(config["activation"]))
        return training.train_towers(
            context, [tower], ISBERTObjective, pooling="ngrams", select=str(config["select"])
        )
