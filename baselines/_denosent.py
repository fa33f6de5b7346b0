"""What DenoSent trains: prompted pairs, and a decoder that restores one sentence from the other's vector."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines._infocse import Gaps, masked_lm_loss
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.masked_lm import check_layers, check_same_vocabulary, load_masked_lm, mlm_head
from bench.nn.prompt import Prompt
from bench.nn.tokens import Chunk, TokenBatch, chunk_of
from bench.stages import StageContext
from bench.train.chunks import batch_mask_states, token_batch
from bench.train.objective import Objective
from bench.train.precision import lowered, widened
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import train_towers


def fresh_decoder(size: int, layers: int, heads: int, inner: int, dropout: float) -> nn.TransformerDecoder:
    """Return Vaswani's decoder, its layers ReLU and norms behind, drawn from torch's state.

    Linear layers are normal with std 0.02 and biases 0; queries, keys and values are Xavier uniform, the same
    in all layers (released).

    Raises:
        InputError: heads that don't divide the width.
    """
    if size % heads:
        raise InputError(
            f"{heads} heads don't divide the backbone's width {size}",
            where="denosent.decoder_heads",
            expected=f"a divisor of {size}",
        )
    layer = nn.TransformerDecoderLayer(size, heads, inner, dropout, batch_first=True)
    decoder = nn.TransformerDecoder(layer, layers)
    for module in decoder.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    return decoder


class TiedHead(nn.Module):
    """A masked language model's head without its last weights, which are the encoder's word embeddings.

    Args:
        head: Of a BertForMaskedLM or a RobertaForMaskedLM; its layers become this module's.
    """

    def __init__(self, head: Any) -> None:
        super().__init__()
        if hasattr(head, "predictions"):
            self.transform: Any = head.predictions.transform
            self.bias = nn.Parameter(head.predictions.decoder.bias.detach())
        else:
            self.transform = nn.Sequential(head.dense, nn.GELU(), head.layer_norm)
            self.bias = nn.Parameter(head.decoder.bias.detach())

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """States (K, H) and word embeddings (V, H), which may be bfloat16, to logits (K, V)."""
        found = functional.linear(self.transform(states).to(words.dtype), words)
        return widened(found) + self.bias


def tied_head(context: StageContext, tower: tuple[Any, Any]) -> TiedHead:
    """Load the masked language model whose head the decoder's states go through.

    Raises:
        InputError: a head that can't be loaded, of another vocabulary or of another size.
    """
    pretrained, vocabulary = load_masked_lm(context.auxiliaries["mlm_head"])
    where = f"mlm_head {context.config['mlm_head']}"
    check_same_vocabulary(tower[1], vocabulary, where=where)
    own, table = (tuple(model.get_input_embeddings().weight.shape) for model in (pretrained, tower[0]))
    if own != table:
        raise InputError(
            f"its word embeddings are {own}, the backbone's {table}",
            where=where,
            expected="a model of the backbone's size",
        )
    return TiedHead(mlm_head(pretrained))


class DenoSentObjective(Objective):
    """(Sentence number, token row) pairs to prompted InfoNCE and the denoising loss, weighted.

    Args:
        model: The transformer, a BertModel or RobertaModel.
        prompt: The template, with a tokenizer of its own.
        lm_head: V, tied to the model's word embeddings.
        context: The stage; its text and translations are read in the template here, so the token rows don't
            matter.
    """

    def __init__(self, model: Any, prompt: Prompt, lm_head: TiedHead, context: StageContext) -> None:
        super().__init__()
        check_layers(model)
        config, self.prompt = context.config, prompt
        texts, copies = context.sentences, context.partners or context.sentences
        self.read, self.restored = (copies, texts) if config["restored"] == "sentence" else (texts, copies)
        self.weights = float(config["contrastive_weight"]), float(config["generative_weight"])
        self.tau, self.noise = float(config["tau"]), float(config["noise"])
        self.longest = prompt.length - 2 + int(config["max_length"])  # both count the special tokens
        self.pad_id, self.mask_id = (
            getattr(prompt.tokenizer, f"{kind}_token_id") for kind in ("pad", "mask")
        )
        size, generative = model.config.hidden_size, bool(self.weights[1])
        layers, heads, inner = (int(config[f"decoder_{name}"]) for name in ("layers", "heads", "inner"))
        self.head = fresh_linear(size)
        decoder = fresh_decoder(size, layers, heads, inner, float(config["dropout"])) if generative else None
        self.encoder = model
        self.decoder: Any = decoder
        self.lm_head: Any = lm_head if generative else None

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, Gaps | None]:
        """Both sentences of each pair, all first ones before all second ones; and what is to be restored."""
        first, second = (
            self.prompt.rows([texts[number] for number, _ in batch], self.longest)
            for texts in (self.read, self.restored)
        )
        tokens = token_batch([*first, *second], self.pad_id, self.encoder, once=False)
        if self.decoder is None:
            return tokens, None
        chunk = chunk_of(second, self.pad_id)
        places = chunk.mask.flatten().nonzero().flatten()
        return tokens, Gaps(chunk, places, chunk.ids.flatten()[places])

    def compute(self, prepared: tuple[TokenBatch, Gaps | None]) -> Tensor:
        """One call of the encoder for the pairs, one of the decoder for what is restored."""
        tokens, gaps = prepared
        first, second = self.head(batch_mask_states(self.encoder, tokens, self.mask_id)).chunk(2)
        contrastive, generative = self.weights
        loss: Tensor = contrastive * info_nce(first, second, self.tau)
        return loss if gaps is None else loss + generative * self.restoration(gaps, first)

    def restoration(self, gaps: Gaps, vectors: Tensor) -> Tensor:
        """Cross-entropy of all tokens, from their noised embeddings and a vector each, (B, H)."""
        with lowered(vectors.device):
            given = functional.dropout(self.embedded(gaps.chunk), self.noise, self.training)
            padding = gaps.chunk.mask == 0
            states = self.decoder(given, vectors.unsqueeze(1), tgt_key_padding_mask=padding)
            words = self.encoder.embeddings.word_embeddings.weight
            logits = self.lm_head(states.flatten(0, 1)[gaps.places], words)
        return masked_lm_loss(logits, gaps.targets)

    @torch.no_grad()
    def embedded(self, chunk: Chunk) -> Tensor:
        """Output of the embedding layer, constant: (B, L, H)."""
        states: Tensor = widened(self.encoder.embeddings(input_ids=chunk.ids))
        return states


def train(context: StageContext) -> dict[str, Any]:
    """Train with the denoising decoder: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a noise or weights that leave nothing to learn from, a template that can't be used, too
            long a ``max_length``, a masked-LM head that doesn't fit, or a backbone that is no BERT.
    """
    config, tower = context.config, load_backbone(context.model)
    if not 0 <= float(config["noise"]) < 1:
        raise InputError(
            f"noise {config['noise']}", where="denosent.noise", expected="0 or more and less than 1"
        )
    if not (config["contrastive_weight"] or config["generative_weight"]):
        raise InputError(
            "both losses weigh nothing", where="denosent.generative_weight", expected="a weight above 0"
        )
    prompt = Prompt(copy.deepcopy(tower[1]), str(config["template"]))  # a dev evaluation uses the other one
    dev = TransformerEncoder(tower, "mask", template=str(config["template"]), device=context.device)
    room = TransformerEncoder(tower).max_length - prompt.length + 2
    if int(config["max_length"]) > room:
        raise InputError(
            f"max_length {config['max_length']} and a template are longer than the model's longest input",
            expected=f"a max_length up to {room}",
        )
    head = tied_head(context, tower)
    return train_towers(
        replace(context, dev_score=lambda _: context.dev_score(dev)),
        [tower],
        lambda model, _: DenoSentObjective(model, prompt, head, context),
        numbered=True,
    )
