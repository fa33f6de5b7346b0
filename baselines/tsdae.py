"""TSDAE: a decoder with the encoder's own weights restores a sentence from the vector of its remains."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from bench import losses, nn, training
from bench.baselines.denosent import load_tied_head
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import (
    DECODING,
    FIRST_TOKEN,
    MLM_HEAD,
    HeldEncoder,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import TrainedOnce, usual_options


class TSDAEObjective(training.Objective):
    """(Sentence number, token row) pairs to the cross-entropy of their tokens, given remains and prefix.

    The encoder reads what the noise leaves. The decoder is its own layers again, so that their gradient is
    the sum of both passes; ``tied=false`` starts it as a copy that learns separately.
    """

    def __init__(self, model: Any, tokenizer: Any, lm_head: training.TiedHead, context: StageContext) -> None:
        super().__init__()
        config = context.config
        self.context, self.noise = context, float(config["noise"])
        self.draws = training.generator(context.seed, f"noise/{context.role}")
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self.tokenizer = copy.deepcopy(tokenizer)
        self.pad_id, self.longest = tokenizer.pad_token_id, int(config["max_length"])
        self.encoder, self.lm_head = model, lm_head
        self.decoder = nn.VectorDecoder(model)
        self.body = None if config["tied"] else copy.deepcopy(model)
        nn.set_dropout(self.decoder, float(config["dropout"]))

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[nn.TokenBatch, training.MaskedRows]:
        """Delete words of each sentence; the tokens behind the first of its row are to be restored."""
        remains = [self.remains(number, row) for number, row in batch]
        tokens = training.token_batch(remains, self.pad_id, self.encoder)
        chunk = nn.pad_chunk([row[:-1] for _, row in batch], self.pad_id)
        places = chunk.mask.flatten().nonzero().flatten()
        targets = torch.tensor([token for _, row in batch for token in row[1:]], dtype=torch.long)
        return tokens, training.MaskedRows(nn.mask_later_tokens(chunk), places, targets)

    def remains(self, number: int, row: list[int]) -> list[int]:
        """Return the token row of what the noise leaves of a sentence."""
        if self.context.config["unit"] == "subword":
            kept = training.draw_kept(max(0, len(row) - 2), self.noise, self.draws)
            return [*row[:1], *(row[1 + place] for place in kept), *row[1:][-1:]]
        text = training.delete_words(self.context.sentences[number], self.noise, self.draws)
        return nn.tokenize_rows(self.tokenizer, [text], self.longest)[0]

    def compute(self, prepared: tuple[nn.TokenBatch, training.MaskedRows]) -> torch.Tensor:
        """Encode the remains in one call, decode in one call."""
        tokens, gaps = prepared
        return self.restoration(gaps, training.batch_states(self.encoder, tokens))

    def restoration(self, gaps: training.MaskedRows, vectors: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of all tokens behind the first of each row, from vectors (B, H)."""
        body = self.encoder if self.body is None else self.body
        with training.autocast_towers(vectors.device):
            states = training.to_float32(self.decoder.decode(body, gaps.chunk, vectors))
            words = training.to_float32(body.get_input_embeddings().weight)
            logits = self.lm_head(states.flatten(0, 1)[gaps.places], words)
        return losses.masked_lm_loss(logits, gaps.targets)


@add_method
class TSDAE(TrainedOnce):
    """TSDAE."""

    card = MethodCard(
        name="tsdae",
        printed="TSDAE",
        family="denoising",
        adds="a decoder that restores a sentence from the vector of its remains, in place of the contrast",
        cites=("wang-etal-2021-tsdae",),
        tags=("decoder", "deletion"),
        passes=5.4,
        encoders=(
            HeldEncoder(returned=True, when=(("tied", True),)),
            HeldEncoder(views=1, returned=True, when=(("tied", False),)),
            HeldEncoder(views=1, when=(("tied", False),)),
        ),
        kind="baseline",
        summary="TSDAE: a decoder of the encoder's weights restores a sentence from a vector of its remains",
        version=1,
        paper="Wang, Reimers, Gurevych 2021, TSDAE: Using Transformer-based Sequential Denoising "
        "Auto-Encoder for Unsupervised Sentence Embedding Learning, Findings of EMNLP",
        code="sentence-transformers 6.2.0, losses/denoising_auto_encoder.py and "
        "datasets/denoising_auto_encoder.py",
        equations=(
            "x~: x without each of its words with probability p, one drawn at random where none is left",
            "v = E(x~)[0], the last state of [CLS]",
            "D: the layers of E with E's weights, self-attention under a causal mask; behind it in each "
            "layer x <- LayerNorm(x + W_o W_v v + b), fresh",
            "u_t = V(D(x_0 ... x_t-1; v)), V the masked-LM head with E's word embeddings",
            "L = mean over all x_t of the batch, t > 0, of CE(u_t, x_t)",
            "dL/dE is the sum over the encoder's pass, the decoder's and the words at both ends",
            "at inference E(x)[0], without D",
        ),
        needs=(Need(FIRST_TOKEN), Need(DECODING), Need(MLM_HEAD, of="mlm_head")),
        options=(
            Option("noise", 0.6, "p, probability with which a word is deleted", minimum=0, below=1),
            Option(
                "unit",
                "word",
                "what is deleted: words of the text, or subwords of the cut row",
                ("word", "subword"),
            ),
            Option("tied", True, "the decoder has the encoder's weights; false: a copy that learns apart"),
            Option(
                "mlm_head",
                "backbone",
                "model whose masked-LM head V starts from: a model folder, a hub name, or backbone",
            ),
            *usual_options(
                least_batch=1,
                lr=3e-5,
                batch_size=8,
                steps=100_000,
                eval_every=1000,
                max_length=75,
                schedule="constant",
            ),
        ),
        deviations=(
            "released: words are nltk's, joined again by its detokenizer; here runs of letters and digits, "
            "and each other character, joined as they are in the text",
            "released: the noise function in the docstring of sentence-transformers 6.2.0 keeps a word with "
            "probability 0.6; its DenoisingAutoEncoderDataset, read here, deletes it with 0.6",
            "the cross-attention has no queries and keys: over one vector the softmax is 1, so the released "
            "ones never change",
            "released: a checkpoint without a masked-LM head gets a fresh one; here mlm_head names one",
            "released example for STS: a warm-up of 100 steps, linear decay, fp16 autocast, lines below 10 "
            "characters left out; here the constant rate of its guide, float32 and all lines",
            "steps: 100,000 is not verified in the paper; the guide advises 1,000 to 100,000 sentences",
            "chosen on the profile's dev set by the Spearman of cosines; released: by the best of several "
            "similarities",
        ),
        auxiliaries=("mlm_head",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: gradient caching, or the mask token of a prompt."""
        if options.get("chunk"):
            what = f"chunk={options['chunk']}: the decoder reads the whole batch at once"
            raise InputError(what, where="tsdae.chunk", expected="chunk=0")
        why = "has no place in the remains of a sentence"
        check_train_pooling(self.card.name, options, PROMPTLESS, why)
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the decoder, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        head = load_tied_head(context, tower)
        return training.train_towers(
            context, [tower], lambda model, _: TSDAEObjective(model, tower[1], head, context), numbered=True
        )
