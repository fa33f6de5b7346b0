"""PromptBERT: two templates around a sentence, mask states, and what the template alone says taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import TEXT_OPTION, fresh_linear, info_nce, one_stage, training_options

if TYPE_CHECKING:
    from torch import Tensor

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

PROMPT_POOLING_OPTION = Option(
    "pooling",
    "mask",
    "what the trained encoder's vectors are: mask in its template; all others without one",
    ("mask", "cls", "avg", "avg_first_last", "pooler"),
)


def prompt_training_options(max_length: str, **defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults and another meaning of ``max_length``."""
    return tuple(
        replace(option, help=max_length) if option.name == "max_length" else option
        for option in training_options(**defaults)
    )


def prompted_encoder(context: BuildContext, role: str, template: Mapping[str, str] | str) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the asked checkpoint: the mask in its template.

    Args:
        context: Its options name the pooling.
        role: The stage.
        template: The template, or one for each mask token.

    Raises:
        BenchError: the stage has not run.
    """
    from bench.nn.backbone import TransformerEncoder, load_backbone
    from bench.train.sentence_encoder import checkpoint_folder

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


def make_promptbert_objective(
    model: Any, prompts: Sequence[Any], sentences: Sequence[str], config: Mapping[str, OptionValue]
) -> Any:
    """Return the module: (sentence number, token row) pairs to InfoNCE between two templates.

    Args:
        model: The transformer.
        prompts: The :class:`bench.nn.prompt.Prompt` of each view.
        sentences: The training text; it is read in the templates here, so the token rows don't matter.
        config: tau, max_length, denoising, noise_positions.
    """
    import torch
    from torch import nn

    from bench.nn.denoising import denoised
    from bench.train.chunks import prompted_states

    tau, longest = float(config["tau"]), int(config["max_length"])
    positions = str(config["noise_positions"])

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size)

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            texts = [sentences[number] for number, _ in batch]
            views = [prompt.rows(texts, prompt.length + longest) for prompt in prompts]
            states = prompted_states(model, [row for rows in views for row in rows], prompts[0].tokenizer)
            halves = list(states.view(2, len(batch), -1).unbind())
            if config["denoising"]:
                parts = zip(prompts, views, halves, strict=True)
                halves = [denoised(model, prompt, rows, h, positions) for prompt, rows, h in parts]
            anchors, positives = (torch.tanh(self.head(h)) for h in halves)
            return info_nce(anchors, positives, tau)

    return Objective()


def train_promptbert(context: StageContext) -> dict[str, Any]:
    """Train through the templates: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: no template for the backbone's mask token, or one that leaves no room.
    """
    from bench.nn.backbone import TransformerEncoder, load_backbone
    from bench.nn.denoising import DenoisedEncoder, check_positions
    from bench.nn.prompt import Prompt
    from bench.train.sentence_encoder import train_towers

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
        lambda model, _: make_promptbert_objective(model, prompts, context.sentences, config),
        numbered=True,
    )


@add_method
class PromptBERT:
    """PromptBERT."""

    card = MethodCard(
        name="promptbert",
        kind="baseline",
        summary="PromptBERT: two templates as views, mask states, template denoising",
        version=1,
        paper="Jiang et al. 2022, PromptBERT: Improving BERT Sentence Embeddings with Prompts",
        code="kongds/Prompt-BERT 690ba6e",
        equations=(
            "h(t, x): last state of the mask token in template t around x",
            "delta(t, l): the same without x, positions behind x shifted by l tokens of x; with gradient",
            "z = tanh(W (h(t1, x) - delta(t1, l)) + b); z' likewise with t2",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i",
            "at inference h(t1, x), without delta and head; a full stop ends x unless . ? \" or ' does",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("denoising", True, "take delta away in training"),
            Option(
                "noise_positions",
                "released",
                "delta's position ids count from 0 (released) or as the model does (differs for RoBERTa)",
                ("released", "aligned"),
            ),
            Option(
                "dev_vectors",
                "denoised",
                "what the dev set is scored on: h - delta (released) or h, as the test is",
                ("denoised", "plain"),
            ),
            Option("template", "auto", "t1: text with {sentence} and {mask}; auto: as released"),
            Option("template2", "auto", "t2, of the second view"),
            Option(
                "test_template",
                "auto",
                "t1 at inference, {sentence.} adds a full stop; auto: as released, or template where given",
            ),
            *prompt_training_options(
                "subwords a sentence keeps in training, the template not included", lr=1e-5, batch_size=256
            ),
            TEXT_OPTION,
            PROMPT_POOLING_OPTION,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "released: the dev set is scored on h - delta, the test on h (dev_vectors=plain: both on h)",
            "released: test sentences get a final full stop, training and dev sentences don't "
            "(test_template with {sentence} in place of {sentence.}: no sentence does)",
            "released: delta's positions start at 0 for RoBERTa too, whose sentences start at 2 "
            "(noise_positions=aligned)",
            "delta is computed for the batch's lengths; the released code tabulates 0 to 49 each step, on "
            "the dev set 0 to 127, and fails on longer sentences",
            "a mask token in the text itself is left out",
        ),
        published_names=(("promptbert", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; the template of the test is none of its settings."""
        (stage,) = one_stage(self.card, options, train_promptbert)
        config = tuple((name, value) for name, value in stage.config if name != "test_template")
        return (replace(stage, config=config),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        first, last = (str(context.options[name]) for name in ("template", "test_template"))
        given = first if last == "auto" else last
        return prompted_encoder(context, "promptbert", TEST_TEMPLATES if given == "auto" else given)
