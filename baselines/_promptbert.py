"""What PromptBERT trains: mask states in two templates, without what the template alone says."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bench.card import BuildContext, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.denoising import BareTemplates, DenoisedEncoder, bare_templates, check_positions, noise
from bench.nn.prompt import Prompt
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_mask_states, token_batch
from bench.train.objective import Objective
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


class PromptBERTObjective(Objective):
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
        self.pad_id, self.mask_id = (
            getattr(prompts[0].tokenizer, f"{kind}_token_id") for kind in ("pad", "mask")
        )
        self.encoder = model
        self.head = fresh_linear(model.config.hidden_size)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[TokenBatch, list[BareTemplates]]:
        """Both views, all first ones before all second ones; and what says the noise of each."""
        texts = [self.sentences[number] for number, _ in batch]
        views = [prompt.rows(texts, prompt.length + self.longest) for prompt in self.prompts]
        tokens = token_batch([row for view in views for row in view], self.pad_id, self.encoder, once=False)
        if not self.denoising:
            return tokens, []
        parts = zip(self.prompts, views, strict=True)
        return tokens, [bare_templates(self.encoder, *part, self.positions) for part in parts]

    def compute(self, prepared: tuple[TokenBatch, list[BareTemplates]]) -> Tensor:
        """InfoNCE between the views, each without its noise."""
        tokens, bare = prepared
        halves = list(batch_mask_states(self.encoder, tokens, self.mask_id).chunk(2))
        for number, templates in enumerate(bare):
            halves[number] = halves[number] - noise(self.encoder, templates, self.mask_id)
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
    own = copy.deepcopy(tower[1])  # a dev evaluation may use the other one at the same time
    prompts = [Prompt(own, template) for template in templates]
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
