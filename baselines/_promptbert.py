"""What PromptBERT trains: mask states in two templates, without what the template alone says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bench.card import BuildContext, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.denoising import DenoisedEncoder, check_positions, denoised
from bench.nn.prompt import Prompt
from bench.stages import StageContext
from bench.train.chunks import prompted_states
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import checkpoint_folder, train_towers

TRAINING_TEMPLATES = {
    "[MASK]": ('This sentence of "{sentence}" means{mask}.', 'This sentence : "{sentence}" means{mask}.'),
    "<mask>": ("This sentence : '{sentence} ' means{mask}.", "The sentence : '{sentence} ' means{mask}."),
}
"""The released templates of both views, by the tokenizer's mask token; the first is the dev set's too."""

TEST_TEMPLATES = {
    "[MASK]": 'This sentence of "{sentence.}" means{mask}.',
    "<mask>": "This sentence : ' {sentence.} ' means{mask}.",
}
"""The released evaluation's: with a final full stop, and RoBERTa reads the first word with its blank."""


def prompted_encoder(context: BuildContext, role: str, template: Mapping[str, str] | str) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the asked checkpoint: the mask in its template.

    Args:
        context: Its options name the pooling.
        role: The stage.
        template: The template, or one for each mask token.

    Raises:
        BenchError: the stage has not run.
    """
    if role not in context.stages:
        raise BenchError(f"the stage '{role}' has not run")
    pooling = str(context.options["pooling"])
    tower = load_backbone(
        checkpoint_folder(context.stages[role], context.checkpoint), needs_pooler=pooling == "pooler"
    )
    text = template if isinstance(template, str) else for_mask_token(template, tower[1].mask_token)
    return TransformerEncoder(tower, pooling, first_layer="layer1", template=text, device=context.device)


def for_mask_token(templates: Mapping[str, Any], mask_token: str | None) -> Any:
    """Return the template of a mask token.

    Raises:
        InputError: there is none.
    """
    if mask_token is None or mask_token not in templates:
        raise InputError(
            f"there is no template for the mask token {mask_token!r}",
            expected=f"one of {', '.join(templates)}",
            hint="name the templates with the method's options",
        )
    return templates[mask_token]


def training_templates(config: Mapping[str, OptionValue], mask_token: str | None) -> list[str]:
    """Templates of both views: the options', or where these are auto the released ones."""
    given = [str(config["template"]), str(config["template2"])]
    if "auto" not in given:
        return given
    released = for_mask_token(TRAINING_TEMPLATES, mask_token)
    return [own if text == "auto" else text for text, own in zip(given, released, strict=True)]


class PromptBERTObjective(nn.Module):
    """(Sentence number, token row) pairs to InfoNCE between two templates.

    Args:
        model: The transformer.
        prompts: The prompt of each view.
        context: The stage; its text is read in the templates here, so the token rows don't matter.
    """

    def __init__(self, model: Any, prompts: Sequence[Prompt], context: StageContext) -> None:
        super().__init__()
        config, self.prompts, self.sentences = context.config, prompts, context.sentences
        self.tau, self.longest = float(config["tau"]), int(config["max_length"])
        self.denoising, self.positions = bool(config["denoising"]), str(config["noise_positions"])
        self.encoder = model
        self.head = fresh_linear(model.config.hidden_size)

    def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
        """Both views, all first ones before all second ones."""
        texts = [self.sentences[number] for number, _ in batch]
        views = [prompt.rows(texts, prompt.length + self.longest) for prompt in self.prompts]
        rows = [row for view in views for row in view]
        states = prompted_states(self.encoder, rows, self.prompts[0].tokenizer)
        halves = list(states.view(2, len(batch), -1).unbind())
        if self.denoising:
            parts = zip(self.prompts, views, halves, strict=True)
            halves = [denoised(self.encoder, prompt, rows, h, self.positions) for prompt, rows, h in parts]
        anchors, positives = (torch.tanh(self.head(h)) for h in halves)
        return info_nce(anchors, positives, self.tau)


def train(context: StageContext) -> dict[str, Any]:
    """Train through the templates: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: no template for the backbone's mask token, or one that leaves no room.
    """
    config, tower = context.config, load_backbone(context.model)
    templates = training_templates(config, tower[1].mask_token)
    prompts = [Prompt(tower[1], template) for template in templates]
    if config["denoising"]:
        check_positions(tower[0])
    if config["denoising"] and config["dev_vectors"] == "denoised":
        dev: Encoder = DenoisedEncoder(
            tower, templates[0], positions=str(config["noise_positions"]), device=context.device
        )
    else:
        dev = TransformerEncoder(tower, "mask", template=templates[0], device=context.device)
    room = TransformerEncoder(tower).max_length - max(prompt.length for prompt in prompts)
    if int(config["max_length"]) > room:
        raise InputError(
            f"max_length {config['max_length']} and a template are longer than the model's longest input",
            expected=f"a max_length up to {room}",
        )
    return train_towers(
        replace(context, dev_score=lambda _: context.dev_score(dev)),
        [tower],
        lambda model, _: PromptBERTObjective(model, prompts, context),
        numbered=True,
    )
