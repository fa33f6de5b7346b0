"""What PromptBERT trains: mask states in templates, without what these say alone; or templates' vectors."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.card import BuildContext, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.nn.architecture import state_size
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.denoising import BareTemplates, DenoisedEncoder, bare_templates, check_positions, noise
from bench.nn.masked_lm import load_masked_lm, mlm_head
from bench.nn.prompt import Prompt
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_mask_states, token_batch
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import checkpoint_folder, train_towers
from bench.train.streams import generator

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


CONTINUOUS = {"[MASK]": TRAINING_TEMPLATES["[MASK]"][1], "<mask>": TRAINING_TEMPLATES["<mask>"][0]}
"""Templates whose tokens get trained vectors: released for BERT, and for RoBERTa its own first view's."""


def prompted_encoder(
    context: BuildContext,
    role: str,
    template: Mapping[str, str] | str,
    *,
    vectors_of: Mapping[str, str] | str | None = None,
) -> Encoder:
    """Return the transformer that stage ``role`` trained, of the asked checkpoint: the mask in its template.

    Args:
        context: Its options name the pooling.
        role: The stage.
        template: The template, or one for each mask token.
        vectors_of: The template, likewise, whose tokens have trained vectors; None: the template is text.

    Raises:
        BenchError: the stage has not run.
        InputError: templates of other tokens than those with vectors.
    """
    if role not in context.stages:
        raise BenchError(f"the stage '{role}' has not run")
    pooling = str(context.options["pooling"])
    tower = load_backbone(
        checkpoint_folder(context.stages[role], context.checkpoint), needs_pooler=pooling == "pooler"
    )
    text, *trained = (
        each if isinstance(each, str) else for_mask_token(each, tower[1].mask_token)
        for each in (template, vectors_of)
        if each is not None
    )
    if trained:
        text = with_vectors(tower[1], text, *trained)
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


def tested_encoder(context: BuildContext) -> Encoder:
    """Return PromptBERT's encoder: see :func:`prompted_encoder`."""
    first, last = (str(context.options[name]) for name in ("template", "test_template"))
    given = first if last == "auto" else last
    if context.options["prompt_form"] == "text":
        return prompted_encoder(context, "promptbert", TEST_TEMPLATES if given == "auto" else given)
    stopped = {mask: text.replace("{sentence}", "{sentence.}") for mask, text in CONTINUOUS.items()}
    return prompted_encoder(
        context,
        "promptbert",
        stopped if given == "auto" else given,
        vectors_of=CONTINUOUS if first == "auto" else first,
    )


def training_templates(config: Mapping[str, OptionValue], mask_token: str | None) -> list[str]:
    """Templates of both views: the options', or where these are auto the released ones.

    Raises:
        InputError: a second one beside trained vectors, or none released for the mask token.
    """
    given = [str(config["template"]), str(config["template2"])]
    if config["prompt_form"] == "continuous":
        if given[1] != "auto":
            raise InputError(
                "trained vectors are those of one template, which both views have",
                where="promptbert.template2",
                expected="template alone, or prompt_form=text",
            )
        return [for_mask_token(CONTINUOUS, mask_token) if given[0] == "auto" else given[0]] * 2
    if "auto" not in given:
        return given
    released = for_mask_token(TRAINING_TEMPLATES, mask_token)
    return [own if text == "auto" else text for text, own in zip(given, released, strict=True)]


def with_vectors(tokenizer: Any, template: str, trained: str) -> str:
    """Return a template as it reads with a token of its own in the place of each of its tokens but the mask.

    Args:
        tokenizer: The tokenizer.
        template: The template, which may end a sentence otherwise than the trained one.
        trained: The template that the vectors were made for.

    Raises:
        InputError: other tokens than the trained one's.
    """
    prompt, own = (Prompt(tokenizer, text) for text in (template, trained))
    if (prompt.before, prompt.after) != (own.before, own.after):
        raise InputError(
            f"the template '{template}' has other tokens than '{trained}', whose vectors were trained",
            where="promptbert.test_template",
            expected="the training template, with {sentence} or {sentence.}",
        )
    numbers = iter(range(1, own.length))
    names = [
        "".join("{mask}" if each == tokenizer.mask_token_id else f"[PROMPT{next(numbers)}]" for each in part)
        for part in (own.before, own.after)
    ]
    (sentence,) = re.findall(r" ?\{sentence ?\.?\}", prompt.text)
    return str(names[0] + sentence + names[1])


def train_vectors(tower: tuple[Any, Any], template: str, draw: torch.Generator | None) -> str:
    """Give each token of a template but the mask a trained vector (OptiPrompt, Zhong et al. 2021).

    Tokenizer and table of embeddings get a row for each; nothing else of the model is trained.

    Args:
        tower: (model, tokenizer); both are changed.
        template: The template.
        draw: Makes the vectors, normal with std 0.02; None: they start as the tokens' embeddings.

    Returns:
        The template with the new tokens, see :func:`with_vectors`.
    """
    model, tokenizer = tower
    prompt = Prompt(tokenizer, template)
    tokens = [each for each in (*prompt.before, *prompt.after) if each != tokenizer.mask_token_id]
    text = with_vectors(tokenizer, template, template)
    names = [f"[PROMPT{number}]" for number in range(1, len(tokens) + 1)]
    tokenizer.add_tokens(names, special_tokens=True)
    places = torch.tensor(tokenizer.convert_tokens_to_ids(names))
    old = model.get_input_embeddings()
    rows = max(len(old.weight), int(places.max()) + 1)
    weights = old.weight.new_zeros(rows, old.embedding_dim)
    start = old.weight.detach()[torch.tensor(tokens)]
    weights[: len(old.weight)] = old.weight.detach()
    weights[places] = start if draw is None else torch.empty_like(start).normal_(0, 0.02, generator=draw)
    table = nn.Embedding(rows, old.embedding_dim, old.padding_idx, _weight=weights)
    model.set_input_embeddings(table)
    model.config.vocab_size = rows
    model.requires_grad_(False)
    table.weight.requires_grad_(True)
    table.weight.register_hook(partial(_only, places))  # type: ignore[no-untyped-call]
    return text


def _only(places: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of some rows; all others stay as they are."""
    kept, rows = torch.zeros_like(gradient), places.to(gradient.device)
    kept[rows] = gradient[rows]
    return kept


def masked_word_head(context: StageContext) -> nn.Module:
    """The layer between mask states and logits of the backbone's masked language model, with its weights.

    Raises:
        InputError: a backbone without one.
    """
    head: Any = mlm_head(load_masked_lm(context.model)[0])
    if hasattr(head, "predictions"):
        transform: nn.Module = head.predictions.transform
        return transform
    return nn.Sequential(head.dense, nn.GELU(), head.layer_norm)


class PromptBERTObjective(Objective):
    """(Sentence number, token row) pairs to InfoNCE between two templates, which may be the same.

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
        self.noise_gradient, self.fresh = bool(config["noise_gradient"]), config["prompt_head"] == "tanh"
        self.pad_id, self.mask_id = (
            getattr(prompts[0].tokenizer, f"{kind}_token_id") for kind in ("pad", "mask")
        )
        self.encoder = model
        self.head = fresh_linear(state_size(model)) if self.fresh else masked_word_head(context)

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
        """InfoNCE between the views, each without its noise; a masked word's head stands over both apart."""
        tokens, bare = prepared
        early = nn.Identity() if self.fresh else self.head
        halves = [early(h) for h in batch_mask_states(self.encoder, tokens, self.mask_id).chunk(2)]
        for number, templates in enumerate(bare):
            with torch.set_grad_enabled(self.noise_gradient):
                delta = early(noise(self.encoder, templates, self.mask_id))
            halves[number] = halves[number] - delta
        anchors, positives = (torch.tanh(self.head(h)) for h in halves) if self.fresh else halves
        return info_nce(anchors, positives, self.tau)


def train(context: StageContext) -> dict[str, Any]:
    """Train through the templates, or their vectors: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: no template for the backbone's mask token, or one that leaves no room; weight decay, which
            would reach the frozen rows beside the trained vectors.
    """
    config, tower = context.config, load_backbone(context.model)
    templates = training_templates(config, tower[1].mask_token)
    if config["prompt_form"] == "continuous":
        if config["weight_decay"]:
            raise InputError(
                "weight decay would shrink the embeddings that prompt_form=continuous keeps",
                where="promptbert.weight_decay",
                expected="0",
            )
        draw = (
            generator(context.seed, f"prompt/{context.role}") if config["prompt_init"] == "random" else None
        )
        templates = [train_vectors(tower, templates[0], draw)] * 2
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
