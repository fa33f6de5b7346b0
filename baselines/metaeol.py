"""MetaEOL: the mean of a causal language model's one-word answers to several tasks, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import nn
from bench.baselines.pretended_cot import OUTPUT_LAYER
from bench.baselines.prompteol import FORM, PROMPT_DEVIATIONS, RELEASED_FORM, PromptEol
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.method_card import BuildContext, OptionValue
from bench.registry import add_method

PROMPTS = (
    "In this task, you're presented with a text excerpt. Your task is to categorize the excerpt into a broad "
    "category such as 'Education', 'Technology', 'Health', 'Business', 'Environment', 'Politics', or "
    "'Culture'. These categories help in organizing content for better accessibility and targeting. For this "
    'task, this sentence : "{sentence}" should be classified under one general category in one word:"',
    "In this task, you're given a statement and you need to determine whether it's presenting an 'Opinion' "
    "or a 'Fact'. This distinction is vital for information verification, educational purposes, and content "
    'analysis. For this task, this sentence : "{sentence}" discriminates between opinion and fact in one '
    'word:"',
    "In this task, you're given a review from an online platform. Your task is to generate a rating for the "
    "product based on the review on a scale of 1-5, where 1 means 'extremely negative' and 5 means "
    "'extremely positive'. For this task, this sentence : "
    '"{sentence}" reflects the sentiment in one word:"',
    "In this task, you're reading a personal diary entry. Your task is to identify the predominant emotion "
    'expressed, such as joy, sadness, anger, fear, or love. For this task, this sentence : "{sentence}" '
    'conveys the emotion in one word:"',
    "In this task, you're presented with two sentences. Your task is to assess whether the sentences convey "
    "the same meaning. Use 'identical', 'similar', 'different', or 'unrelated' to describe the relationship. "
    'To enhance the performance of this task, this sentence : "{sentence}" means in one word:"',
    "In this task, you're given a sentence and a phrase. Your task is to determine if the phrase can be a "
    "contextual synonym within the given sentence. Options include 'yes', 'no', or 'partially'. To enhance "
    'the performance of this task, this sentence : "{sentence}" means in one word:"',
    "In this task, you're examining a news article. Your task is to extract the most critical fact from the "
    'article. For this task, this sentence : "{sentence}" encapsulates the key fact in one word:"',
    "In this task, you're reviewing a scientific abstract. Your task is to identify the main entities (e.g., "
    "proteins, diseases) and their relations (e.g., causes, treats). For this task, this sentence : "
    '"{sentence}" highlights the primary entity or relation in one word:"',
)
"""Released prompts: two each of classification, sentiment, similarity and information extraction."""
COST = f"encodes {len(PROMPTS)} long prompts a sentence, 20 to 30 times as slow as one short prompt"
"""The dry run's note of a method that reads all of them."""


@add_method
class MetaEol(PromptEol):
    """The mean of PromptEOL's state over eight tasks."""

    card = replace(
        PromptEol.card,
        name="metaeol",
        instead="no training; the mean of eight one-word prompts about different tasks",
        cites=("lei-etal-2024-meta",),
        printed="MetaEOL",
        summary="metaeol:PATH, the mean of a causal model's one word for eight tasks, untrained",
        paper="Lei et al. 2024, Meta-Task Prompting Elicits Embeddings from Large Language Models",
        code="Yibin-Lei/MetaEOL c62096d evaluation.py",
        equations=(
            'x_k = the prompt of task k about s, k = 1 ... 8; each ends with: in one word:"',
            "v_s = (1 / 8) sum_k h_n(x_k) of the last layer, n the last token of x_k",
            RELEASED_FORM,
        ),
        options=(FORM, replace(OUTPUT_LAYER, default=-1)),
        deviations=PROMPT_DEVIATIONS,
    )

    @staticmethod
    def folder_note(folder: Path, options: Mapping[str, OptionValue]) -> str:
        """Return the dry run's note on the time that the prompts take."""
        return COST

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder."""
        if context.model is None:
            raise BenchError("no model folder was given")
        options = context.options
        return nn.MeanPromptEncoder(
            context.model,
            PROMPTS,
            form=str(options["form"]),
            layer=int(options["output_layer"]),
            device=context.device,
        )
