"""Anybody's model from a folder: transformers (``hf:``), sentence-transformers (``st:``), ``exported:``."""

from __future__ import annotations

from bench.baselines.untrained import POOLING_OPTIONS, transformer_encoder
from bench.card import BuildContext, MethodCard
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.registry import add_method


@add_method
class HuggingFace:
    """A transformers folder with a pooling."""

    card = MethodCard(
        name="hf",
        kind="external",
        summary="hf:PATH[:pooling], any transformers folder or cached hub name",
        version=1,
        equations=("the poolings of 'untrained'",),
        options=POOLING_OPTIONS,
        deviations=(
            "a sentence-transformers folder's own pooling settings are not read: use st:PATH for them",
        ),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
        short_option="pooling",
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        return transformer_encoder(context)


@add_method
class SentenceTransformers:
    """A sentence-transformers folder with its own settings."""

    card = MethodCard(
        name="st",
        kind="external",
        summary="st:PATH, any sentence-transformers folder with its own pooling",
        version=1,
        equations=("what the folder's modules.json says",),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        from bench.nn.sentence_transformer import SentenceTransformerEncoder

        if context.model is None:
            raise BenchError("no model folder was given")
        return SentenceTransformerEncoder(context.model, device=context.device)


@add_method
class Exported:
    """A folder that ``bench export`` wrote, a sum of transformers too."""

    card = MethodCard(
        name="exported",
        kind="external",
        summary="exported:PATH, any folder that bench export wrote",
        version=1,
        equations=("what the folder's bench.json or twin.json says",),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        from bench.nn.export import load_encoder

        if context.model is None:
            raise BenchError("no model folder was given")
        return load_encoder(context.model, context.device)
