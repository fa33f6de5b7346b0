"""PromptBERT: two templates around a sentence, mask states, and what the template alone says taken away."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.lazy import torch
from bench.method_card import (
    MASK_TOKEN,
    MLM_HEAD,
    MLM_TRANSFORM,
    POSITIONS,
    BuildContext,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, OWN_POOLING, check_train_pooling, refuse_lora
from bench.training.recipe import ADAMW_EPS, TEXT_OPTION, TrainedOnce, init_linear, prompt_training_options

PROMPT_POOLING_OPTION = Option(
    "pooling",
    "mask",
    "vectors of the trained encoder: mask in its template; all others without one",
    ("mask", "cls", "avg", "avg_first_last", "pooler"),
)
TRAINING_TEMPLATES = {
    "[MASK]": ('This sentence of "{sentence}" means{mask}.', 'This sentence : "{sentence}" means{mask}.'),
    "<mask>": ("This sentence : '{sentence} ' means{mask}.", "The sentence : '{sentence} ' means{mask}."),
}
"""Released templates of both views by mask token; the first is the dev set's too."""
TEST_TEMPLATES = {
    "[MASK]": 'This sentence of "{sentence.}" means{mask}.',
    "<mask>": "This sentence : ' {sentence.} ' means{mask}.",
}
"""Released templates of the evaluation: with a full stop; RoBERTa reads the first word with its blank."""
CONTINUOUS = {"[MASK]": TRAINING_TEMPLATES["[MASK]"][1], "<mask>": TRAINING_TEMPLATES["<mask>"][0]}
"""Templates whose tokens get trained vectors: as released for BERT, the first view's for RoBERTa."""


def build_prompted_encoder(
    context: BuildContext,
    role: str,
    template: Mapping[str, str] | str,
    *,
    vectors_of: Mapping[str, str] | str | None = None,
) -> Encoder:
    """Return the asked checkpoint of a stage with the mask in its template, one or one a mask token."""
    if role not in context.stages:
        raise BenchError(f"the stage '{role}' has not run")
    pooling = str(context.options["pooling"])
    folder = training.checkpoint_folder(context.stages[role], context.checkpoint)
    tower = nn.load_backbone(folder, needs_pooler=pooling == "pooler")
    text = select_template(template, tower[1].mask_token)
    if vectors_of is not None:
        text = name_vector_tokens(tower[1], text, select_template(vectors_of, tower[1].mask_token))
    return nn.TransformerEncoder(tower, pooling, first_layer="layer1", template=text, device=context.device)


def train_prompted(
    context: StageContext,
    tower: tuple[Any, Any],
    dev: Encoder,
    objective: Callable[[Any], training.Objective],
    *,
    pooling: str = "cls",
) -> dict[str, Any]:
    """Train on (sentence number, token row) pairs; ``dev`` reads the dev set with the same tower."""
    scored = replace(context, dev_score=lambda _: context.dev_score(dev))
    return training.train_towers(
        scored, [tower], lambda model, _: objective(model), numbered=True, pooling=pooling
    )


def check_template_room(max_length: int, room: int) -> None:
    """Raise InputError if a sentence in its template can exceed the model's longest input."""
    if max_length > room:
        message = f"max_length {max_length} and the template exceed the model's longest input"
        raise InputError(message, expected=f"a max_length up to {room}")


def keep_mask_pooling(name: str, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options with the method's own training pooling; InputError: it isn't the prompt's mask."""
    check_train_pooling(name, options, ("mask",), "isn't trained by a prompt, whose vector is the mask's")
    return {**options, "train_pooling": OWN_POOLING}


class PromptedMethod(TrainedOnce):
    """Base of a method whose encoder reads the mask in the option ``template``."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: another training pooling than the mask's."""
        return super().stages(keep_mask_pooling(self.card.name, options))

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        return build_prompted_encoder(context, self.card.name, str(context.options["template"]))


def select_template(templates: Mapping[str, Any] | str, mask_token: str | None) -> Any:
    """Return the template of a mask token; InputError: there is none."""
    if isinstance(templates, str):
        return templates
    if mask_token is None or mask_token not in templates:
        raise InputError(
            f"the mask token {mask_token!r} has no template",
            expected=f"one of {', '.join(templates)}",
            hint="give template and template2, texts with {sentence} and {mask}",
        )
    return templates[mask_token]


def select_view_templates(config: Mapping[str, OptionValue], mask_token: str | None) -> list[str]:
    """Return the templates of both views: the options', or (auto) the released ones."""
    given = [str(config["template"]), str(config["template2"])]
    if config["prompt_form"] == "continuous":
        if given[1] != "auto":
            raise InputError(
                "both views share one template of trained vectors",
                where="promptbert.template2",
                expected="only template, or prompt_form=text",
            )
        return [select_template(CONTINUOUS, mask_token) if given[0] == "auto" else given[0]] * 2
    for view, text in enumerate(given):
        if text == "auto":
            given[view] = select_template(TRAINING_TEMPLATES, mask_token)[view]
    return given


def name_vector_tokens(tokenizer: Any, template: str, trained: str) -> str:
    """Replace a template's tokens except the mask by [PROMPTk]; InputError: ``trained`` has other tokens."""
    prompt, own = (nn.Prompt(tokenizer, text) for text in (template, trained))
    if (prompt.before, prompt.after) != (own.before, own.after):
        raise InputError(
            f"the template '{template}' has other tokens than the trained '{trained}'",
            where="promptbert.test_template",
            expected="the training template, with {sentence} or {sentence.}",
        )
    (text,) = re.findall(r" ?\{sentence ?\.?\}", prompt.text)
    numbers = iter(range(1, own.length))
    for part, after in ((own.before, False), (own.after, True)):
        masks = [token == tokenizer.mask_token_id for token in part]
        names = "".join("{mask}" if mask else f"[PROMPT{next(numbers)}]" for mask in masks)
        text = text + names if after else names + text
    return str(text)


def add_vector_tokens(tower: tuple[Any, Any], template: str, draw: torch.Generator | None) -> str:
    """Give each token of a template except the mask a trained vector (OptiPrompt, Zhong et al. 2021).

    Tokenizer and embedding table of the tower get a row for each; only these rows are trained. ``draw`` makes
    them normal with std 0.02; None: they start as the tokens' embeddings. Returns the template with the new
    tokens.
    """
    model, tokenizer = tower
    prompt = nn.Prompt(tokenizer, template)
    tokens = [token for token in (*prompt.before, *prompt.after) if token != tokenizer.mask_token_id]
    text = name_vector_tokens(tokenizer, template, template)
    names = [f"[PROMPT{number}]" for number in range(1, len(tokens) + 1)]
    tokenizer.add_tokens(names, special_tokens=True)
    places = torch.tensor(tokenizer.convert_tokens_to_ids(names))
    old = model.get_input_embeddings()
    rows = max(len(old.weight), int(places.max()) + 1)
    weights = old.weight.new_zeros(rows, old.embedding_dim)
    start = old.weight.detach()[torch.tensor(tokens)]
    weights[: len(old.weight)] = old.weight.detach()
    weights[places] = start if draw is None else torch.empty_like(start).normal_(0, 0.02, generator=draw)
    table = torch.nn.Embedding(rows, old.embedding_dim, old.padding_idx, _weight=weights)
    model.set_input_embeddings(table)
    model.config.vocab_size = rows
    model.requires_grad_(False)
    table.weight.requires_grad_(True)
    table.weight.register_hook(partial(_keep_gradient_rows, places))  # type: ignore[no-untyped-call]
    return text


def _keep_gradient_rows(places: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Keep the gradient of some rows; all others get 0."""
    kept, rows = torch.zeros_like(gradient), places.to(gradient.device)
    kept[rows] = gradient[rows]
    return kept


def load_mlm_transform(context: StageContext) -> torch.nn.Module:
    """Load the layer between mask states and logits of the backbone's masked language model."""
    head = nn.copy_mlm_head(nn.load_masked_lm(context.model)[0])
    return nn.split_mlm_head(head)[0]


class PromptBERTObjective(training.Objective):
    """(Sentence number, token row) pairs to InfoNCE between two templates; only the numbers count."""

    def __init__(self, model: Any, prompts: Sequence[nn.Prompt], context: StageContext) -> None:
        super().__init__()
        config, self.prompts, self.sentences = context.config, prompts, context.sentences
        self.tau, self.longest = float(config["tau"]), int(config["max_length"])
        self.denoising, self.positions = bool(config["denoising"]), str(config["noise_positions"])
        self.noise_gradient, self.fresh = bool(config["noise_gradient"]), config["prompt_head"] == "tanh"
        tokenizer = prompts[0].tokenizer
        self.pad_id, self.mask_id = tokenizer.pad_token_id, tokenizer.mask_token_id
        self.encoder = model
        self.head = init_linear(nn.state_size(model)) if self.fresh else load_mlm_transform(context)

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> tuple[nn.TokenBatch, list[nn.BareTemplates]]:
        """Put all first views before all second ones; collect the inputs of the noise."""
        texts = [self.sentences[number] for number, _ in batch]
        views = [prompt.rows(texts, prompt.length + self.longest) for prompt in self.prompts]
        rows = [row for view in views for row in view]
        tokens = training.token_batch(rows, self.pad_id, self.encoder, once=False)
        if not self.denoising:
            return tokens, []
        parts = zip(self.prompts, views, strict=True)
        return tokens, [nn.build_bare_templates(self.encoder, *part, self.positions) for part in parts]

    def compute(self, prepared: tuple[nn.TokenBatch, list[nn.BareTemplates]]) -> torch.Tensor:
        """Compare the denoised views; a masked-LM head maps states and noise separately."""
        tokens, bare = prepared
        early = torch.nn.Identity() if self.fresh else self.head
        halves = [early(h) for h in training.batch_mask_states(self.encoder, tokens, self.mask_id).chunk(2)]
        for number, templates in enumerate(bare):
            with torch.set_grad_enabled(self.noise_gradient):
                delta = early(nn.compute_template_noise(self.encoder, templates, self.mask_id))
            halves[number] = halves[number] - delta
        if self.fresh:
            halves = [torch.tanh(self.head(h)) for h in halves]
        anchors, positives = halves
        return losses.info_nce(anchors, positives, self.tau)


@add_method
class PromptBERT(TrainedOnce):
    """PromptBERT."""

    card = MethodCard(
        name="promptbert",
        printed="PromptBERT",
        family="prompts",
        adds="the mask token's state in place of [CLS]; two templates as views, less the template's own part",
        cites=("jiang-etal-2022-promptbert",),
        tags=("prompts",),
        passes=7.8,
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
            "prompt_form=continuous: t1 = t2, vectors v_k in place of its tokens' embeddings; only v and the "
            "head are trained (OptiPrompt: prompt_head=mlm, denoising=false, lr=3e-5, epochs=5, "
            "eval_every=1000)",
            "prompt_head=mlm: z = f(h(t1, x)) - f(delta(t1, l)), f the dense layer, GELU and LayerNorm under "
            "the masked language model's logits",
        ),
        needs=(
            Need(MASK_TOKEN),
            Need(POSITIONS, "denoising", (True,), instead="denoising=false"),
            Need(MLM_HEAD, "prompt_head", ("mlm",), instead="prompt_head=tanh"),
            Need(MLM_TRANSFORM, "prompt_head", ("mlm",), instead="prompt_head=tanh"),
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("denoising", True, "take delta away in training"),
            Option(
                "noise_positions",
                "released",
                "delta's position ids: from 0 (released), as the model counts (aligned; other for RoBERTa), "
                "or from 0 without the shift by l (unshifted; released delta_no_position)",
                ("released", "aligned", "unshifted"),
            ),
            Option("noise_gradient", True, "gradient through delta too (false: released delta_freeze)"),
            Option(
                "dev_vectors",
                "denoised",
                "the dev set is scored on h - delta (released) or on h, as the test",
                ("denoised", "plain"),
            ),
            Option(
                "prompt_form",
                "text",
                "templates are text, or trained vectors around a frozen model (OptiPrompt)",
                ("text", "continuous"),
            ),
            Option(
                "prompt_init",
                "tokens",
                "vectors start as the embeddings of the template's tokens, or at random with std 0.02",
                ("tokens", "random"),
            ),
            Option(
                "prompt_head",
                "tanh",
                "head in training: fresh, or the masked language model's (released org_mlp)",
                ("tanh", "mlm"),
            ),
            Option("template", "auto", "t1: text with {sentence} and {mask}; auto: as released"),
            Option("template2", "auto", "t2, of the second view"),
            Option(
                "test_template",
                "auto",
                "t1 at inference, {sentence.} adds a full stop; auto: as released, or template where given",
            ),
            *prompt_training_options(
                "subwords a sentence keeps in training, without the template", lr=1e-5, batch_size=256
            ),
            TEXT_OPTION,
            PROMPT_POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "released: the dev set is scored on h - delta, the test on h (dev_vectors=plain: both on h)",
            "released: only test sentences get a final full stop (test_template with {sentence} in place of "
            "{sentence.} omits it)",
            "released: delta's positions start at 0 for RoBERTa too, whose sentences start at 2 "
            "(noise_positions=aligned)",
            "delta is computed for the batch's lengths; the released code tabulates 0 to 49 each step, on "
            "the dev set 0 to 127, and fails on longer sentences",
            "a mask token in the text itself is left out",
            "each vector has its own place, as a token [PROMPTk]; released OptiPrompt (only "
            "BERT) puts it at the last place of its token in a row, which the sentence may hold",
            "released: where vectors are trained, delta on the dev set still reads the template's text",
            ADAMW_EPS,
        ),
        published_names=(("promptbert", "as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage, without the test's template; InputError: adapters to trained vectors."""
        if options["prompt_form"] == "continuous":
            reason = "trained vectors would be missing from an adapter"
            refuse_lora(options, "promptbert", reason, "prompt_form=text with it")
        (stage,) = super().stages(keep_mask_pooling(self.card.name, options))
        config = tuple((name, value) for name, value in stage.config if name != "test_template")
        return (replace(stage, config=config),)

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for a mask token without released templates."""
        if facts.mask_word is not None:
            select_view_templates(options, facts.mask_word)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        first, last = (str(context.options[name]) for name in ("template", "test_template"))
        given = first if last == "auto" else last
        if context.options["prompt_form"] == "text":
            return build_prompted_encoder(context, "promptbert", TEST_TEMPLATES if given == "auto" else given)
        stopped = {mask: text.replace("{sentence}", "{sentence.}") for mask, text in CONTINUOUS.items()}
        template = stopped if given == "auto" else given
        trained = CONTINUOUS if first == "auto" else first
        return build_prompted_encoder(context, "promptbert", template, vectors_of=trained)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train through the templates, or their vectors, as :func:`bench.training.train_towers`."""
        config, tower = context.config, nn.load_backbone(context.model)
        templates = select_view_templates(config, tower[1].mask_token)
        if config["prompt_form"] == "continuous":
            if config["weight_decay"]:
                message = "weight decay would shrink the embeddings that prompt_form=continuous freezes"
                raise InputError(message, where="promptbert.weight_decay", expected="0")
            draw = None
            if config["prompt_init"] == "random":
                draw = training.generator(context.seed, f"prompt/{context.role}")
            templates = [add_vector_tokens(tower, templates[0], draw)] * 2
        own = copy.deepcopy(tower[1])  # a dev evaluation may use the other one at the same time
        prompts = [nn.Prompt(own, template) for template in templates]
        if config["denoising"]:
            nn.check_positions(tower[0])
        if config["denoising"] and config["dev_vectors"] == "denoised":
            dev: Encoder = nn.DenoisedEncoder(
                tower, templates[0], positions=str(config["noise_positions"]), device=context.device
            )
        else:
            dev = nn.TransformerEncoder(tower, "mask", template=templates[0], device=context.device)
        room = nn.TransformerEncoder(tower).max_length - max(prompt.length for prompt in prompts)
        check_template_room(int(config["max_length"]), room)
        objective = partial(PromptBERTObjective, prompts=prompts, context=context)
        return train_prompted(context, tower, dev, objective)
