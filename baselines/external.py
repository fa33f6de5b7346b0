"""Anybody's model from a folder: transformers (``hf:``), sentence-transformers (``st:``), ``exported:``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench import nn
from bench.baselines.untrained import POOLING_OPTIONS, build_transformer_encoder
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.nn.folder_checks import check_folder_kind, check_transformer_alone, describe_unread_settings
from bench.registry import add_method

_QUOTED = "in double quotes it keeps its blanks, and \\n is a new line"
PROMPT_OPTIONS = (
    Option("prompt", "", f"text before every sentence; {_QUOTED}"),
    Option("query_prompt", "", 'before queries of retrieval and reranking; default: prompt, "": none'),
    Option("passage_prompt", "", 'before their documents; default: prompt, "": none'),
)


@add_method
class HuggingFace:
    """A transformers folder with a pooling."""

    card = MethodCard(
        name="hf",
        family="any-encoder",
        instead="no training; any transformers model, by a pooling or a template",
        kind="external",
        summary="hf:PATH[:pooling], any transformers folder or cached hub name",
        version=1,
        equations=("the poolings of 'untrained'",),
        options=(*POOLING_OPTIONS, *PROMPT_OPTIONS),
        deviations=("a sentence-transformers folder's own prompts, similarity and pooling need st:PATH",),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
        short_option="pooling",
    )

    check_folder = staticmethod(check_transformer_alone)

    @staticmethod
    def folder_note(folder: Path, options: Mapping[str, OptionValue]) -> str:
        """Return the dry run's note on the folder's own settings."""
        prompted = any(options[option.name] for option in PROMPT_OPTIONS)
        return describe_unread_settings(folder, str(options["pooling"]), prompted=prompted)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder; InputError: the folder has trained modules beyond a transformer."""
        if context.model is not None:
            self.check_folder(context.model)
        encoder = build_transformer_encoder(context)
        if context.model is not None and (note := self.folder_note(context.model, context.options)):
            encoder.facts["unread_settings"] = note
        prompt, query, passage = (_parse_prompt(context, option.name) for option in PROMPT_OPTIONS)
        if prompt is None and query is None and passage is None:
            return encoder
        return nn.PrefixedEncoder(encoder, prompt or "", query, passage)


def _parse_prompt(context: BuildContext, name: str) -> str | None:
    """A prompt as given, or as JSON in double quotes; None: not given."""
    given = str(context.options[name])
    if not given.startswith('"'):
        return given or None
    try:
        text = str(json.loads(given))
        text.encode()  # half a character is a ValueError too
    except ValueError as error:
        message = f"{given} is not valid JSON text"
        raise InputError(message, where=f"hf.{name}", expected='such as "query: "') from error
    return text


@add_method
class SentenceTransformers:
    """A sentence-transformers folder with its own settings."""

    card = MethodCard(
        name="st",
        family="any-encoder",
        instead="no training; any sentence-transformers model with its own settings",
        kind="external",
        summary="st:PATH, any sentence-transformers folder with its own prompts, pooling and similarity",
        version=2,
        equations=("the folder's modules.json and config_sentence_transformers.json",),
        deviations=(
            "suites of pairs that bench itself measures compare by the cosine, as SentEval does",
            "a Model2Vec folder without modules.json is read as Model2Vec does, with whole sentences "
            "(released: their first 512 tokens)",
        ),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
    )

    check_folder = staticmethod(check_folder_kind)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        if nn.is_model2vec(context.model):
            return nn.load_model2vec(context.model, context.device)
        return nn.SentenceTransformerEncoder(context.model, device=context.device)


@add_method
class Exported:
    """A folder that ``bench export`` wrote, a sum of transformers too."""

    card = MethodCard(
        name="exported",
        family="any-encoder",
        instead="no training; a model that bench exported",
        kind="external",
        summary="exported:PATH, any folder that bench export wrote",
        version=1,
        equations=("the folder's bench.json or twin.json",),
        deterministic=True,
        needs_backbone=False,
        takes_path=True,
    )

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        return nn.load_encoder(context.model, context.device)
