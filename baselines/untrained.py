"""The backbone as it is, without any training: the floor of every table."""

from __future__ import annotations

from bench import nn
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import BuildContext, MethodCard, Option
from bench.registry import add_method

POOLING_OPTIONS = (
    Option(
        "pooling",
        "cls",
        "how token states become a sentence vector",
        ("cls", "avg", "avg_first_last", "avg_last_two", "pooler", "mask", "last", "weighted_mean"),
    ),
    Option(
        "first_layer",
        "embedding",
        "first layer of avg_first_last: the embedding output (published rows) or layer 1 (SimCSE's fix)",
        ("embedding", "layer1"),
    ),
    Option(
        "template",
        "auto",
        "for mask: {mask} and {sentence} ({sentence.} adds a full stop) once each; auto: PromptBERT's",
    ),
)


def build_transformer_encoder(context: BuildContext) -> Encoder:
    """Build the encoder of a model folder with the card's pooling options."""
    if context.model is None:
        raise BenchError("no model folder was given")
    return nn.TransformerEncoder(
        context.model,
        str(context.options["pooling"]),
        first_layer=str(context.options["first_layer"]),
        template=str(context.options["template"]),
        device=context.device,
    )


@add_method
class Untrained:
    """The profile's backbone with a pooling."""

    card = MethodCard(
        name="untrained",
        family="untrained",
        instead="no training; the pretrained model's own states, by any pooling",
        cites=(
            "gao-etal-2021-simcse",
            "li-etal-2020-sentence",
        ),
        kind="baseline",
        summary="the backbone without training, any pooling",
        version=1,
        paper="Gao et al. 2021 (SimCSE), Table 5, rows 'BERT-base'; Li et al. 2020",
        code="princeton-nlp/SimCSE evaluation.py",
        equations=(
            "cls: h_0 of the last layer, before any pooler",
            "avg: sum_t m_t h_t / sum_t m_t over the last layer, [CLS] and [SEP] in, padding out",
            "avg_first_last: avg of (h^first + h^L) / 2; avg_last_two: avg of (h^(L-1) + h^L) / 2",
            "pooler: tanh(W h_0 + b) with the checkpoint's own pooler",
            "mask: h at the mask token of a template around the sentence (PromptBERT)",
            "last: h_n, n the last token; weighted_mean: sum_i (i / sum_j j) h_i, i = 1 ... n (SGPT)",
        ),
        options=POOLING_OPTIONS,
        deviations=(
            "avg_first_last takes the embedding output as first layer, as the published rows did; "
            "SimCSE's code takes layer 1 since (first_layer=layer1)",
            "mask keeps the sentence as it is; PromptBERT's evaluation adds a full stop ({sentence.} in the "
            "template)",
        ),
        deterministic=True,
        short_option="pooling",
        published_names=(("bert_base", "pooling=avg_first_last"), ("roberta_base", "pooling=avg_first_last")),
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        return build_transformer_encoder(context)
