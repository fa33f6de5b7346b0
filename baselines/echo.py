"""Echo embeddings: a causal language model reads a sentence twice, and the second reading counts."""

from __future__ import annotations

from bench import nn
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import CAUSAL, BuildContext, MethodCard, Need, Option
from bench.registry import add_method


@add_method
class Echo:
    """States of a sentence's second occurrence, which have read all of the first."""

    card = MethodCard(
        name="echo",
        family="decoders",
        instead="no training; a causal model reads the sentence twice; states of the second time",
        cites=("springer-etal-2025-repetition",),
        kind="external",
        summary="echo:PATH[:avg|last], a causal model that reads each sentence twice, untrained",
        version=1,
        paper="Springer et al. 2024, Repetition Improves Language Model Embeddings",
        code="jakespringer/echo-embeddings echo_embeddings.py",
        equations=(
            "x = Rewrite the sentence: s, rewritten sentence: s",
            "avg: v_s = (1 / |S|) sum_{t in S} h_t of the last layer, S the tokens of the second s",
            "last: v_s = h_t, t the last token of the second s",
            "s without any token: the zero vector",
        ),
        options=(
            Option(
                "pooling", "avg", "mean of the second time's tokens, or the last of them", ("avg", "last")
            ),
            Option(
                "template",
                "Rewrite the sentence: {sentence}, rewritten sentence: {sentence}",
                "the prompt, with {sentence} twice",
            ),
        ),
        deviations=(
            "the template is that of the paper's section 3; its zero-shot figures are of several wordings, "
            "and the released template (Document: ..., Document again: ...) is of a trained model",
            "the texts around the sentence are tokenised separately, as released; the sentence keeps a blank "
            "before it",
            "the prompt has no end token; the released template pools one too",
            "a sentence that exceeds the model's input is cut both times; released: to a fixed length",
        ),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
        named_rows=True,
        short_option="pooling",
        needs=(Need(CAUSAL),),
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        options = context.options
        return nn.EchoEncoder(
            context.model, str(options["template"]), pooling=str(options["pooling"]), device=context.device
        )
