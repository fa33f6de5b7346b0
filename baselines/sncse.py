"""SNCSE: prompted mask states, with the negated sentence as a soft negative that is neither near nor far."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.promptbert import PROMPT_POOLING_OPTION, PromptedMethod, train_prompted
from bench.errors import BenchError
from bench.lazy import torch
from bench.method_card import MASK_TOKEN, HeldEncoder, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS
from bench.training.recipe import ADAMW_EPS, TEXT_OPTION, init_linear, prompt_training_options

SPACY_MODEL = "spacy_model"  # setting of the stage: the spaCy model's hash


def bidirectional_margin_loss(
    anchors: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, alpha: float, beta: float
) -> torch.Tensor:
    """SNCSE's loss (B, H): a soft negative is less alike than the positive, by alpha to beta."""
    losses.check_same_shape("(B, H)", anchors=anchors, positives=positives, negatives=negatives)
    if alpha > beta:
        raise ValueError(f"alpha {alpha} must be at most beta {beta}")
    a, p, n = (torch.nn.functional.normalize(x, dim=1, eps=1e-8) for x in (anchors, positives, negatives))
    difference = (a * n).sum(1) - (a * p).sum(1)
    relu = torch.nn.functional.relu
    return (relu(difference + alpha) + relu(-difference - beta)).mean()


class SNCSEObjective(training.Objective):
    """(Sentence number, token row) pairs to prompted InfoNCE and margin loss; only the numbers count."""

    def __init__(
        self, model: Any, tokenizer: Any, context: StageContext, negate: Callable[[str], str]
    ) -> None:
        super().__init__()
        config, self.sentences, self.negate = context.config, context.sentences, negate
        self.pad_id, self.mask_id = tokenizer.pad_token_id, tokenizer.mask_token_id
        own = copy.deepcopy(tokenizer)  # a dev evaluation may use the other one meanwhile
        self.prompts = [nn.Prompt(own, str(config[name])) for name in ("template", "template2")]
        self.tau, self.weight = float(config["tau"]), float(config["bml_weight"])
        self.alpha, self.beta = float(config["alpha"]), float(config["beta"])
        self.longest, self.unfinished = int(config["max_length"]), bool(config["negate_unfinished"])
        self.encoder = model
        self.head = init_linear(nn.state_size(model))

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> nn.TokenBatch:
        """Put anchors, positives and (with a weight) soft negatives into one batch."""
        first, second = self.prompts
        texts = [self.sentences[number] for number, _ in batch]
        rows = [*first.rows(texts, self.longest), *second.rows(texts, self.longest)]
        if self.weight:
            rows += second.rows([self.negation(text) for text in texts], self.longest)
        return training.token_batch(rows, self.pad_id, self.encoder, once=False)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode all of them in one call."""
        projected = torch.tanh(self.head(training.batch_mask_states(self.encoder, prepared, self.mask_id)))
        anchors, positives, *soft = projected.chunk(3 if self.weight else 2)
        loss = losses.info_nce(anchors, positives, self.tau)
        for negatives in soft:
            margins = bidirectional_margin_loss(anchors, positives, negatives, self.alpha, self.beta)
            loss = loss + self.weight * margins
        return loss

    def negation(self, text: str) -> str:
        """Negate a sentence; released: one that had to be finished misses its look-up and gets a Not."""
        finished = self.prompts[0].finished(text)
        if finished != text and not self.unfinished:
            return f"Not {finished}"
        return self.negate(text)


def load_negation(config: Mapping[str, OptionValue]) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return the negation of the stage's settings, and the record's facts about it."""
    if config["negation"] == "rule":
        return training.negate_by_rule, {}
    folder = training.find_spacy_folder()
    if training.hash_folder_files(folder) != config[SPACY_MODEL]:
        raise BenchError("the files of the spaCy model changed since the run was planned")
    facts = {SPACY_MODEL: {"name": folder.name, "sha256": config[SPACY_MODEL]}}
    return training.load_spacy_negation(folder), facts


@add_method
class SNCSE(PromptedMethod):
    """SNCSE."""

    card = MethodCard(
        name="sncse",
        printed="SNCSE",
        family="prompts",
        adds="the mask token's state in a template; the negated sentence stays a little less alike",
        cites=("wang-dou-2023-sncse",),
        tags=("prompts", "negated sentences"),
        passes=9.0,
        encoders=(HeldEncoder(views=3, returned=True),),
        kind="baseline",
        summary="SNCSE: prompted mask states and negated sentences as soft negatives",
        version=1,
        paper="Wang and Dou 2023, SNCSE: Contrastive Learning for Unsupervised Sentence Embedding with Soft "
        "Negative Samples",
        code="Sense-GVT/SNCSE faa013e",
        equations=(
            "h(t, x): last state of the mask token in template t around x; z = tanh(W h + b) in training",
            "z = z(t1, x), z^+ = z(t2, x), z^- = z(t2, negation of x)",
            "D_i = cos(z_i, z^-_i) - cos(z_i, z^+_i)",
            "L = mean_i -log softmax_j(cos(z_i, z^+_j) / tau)_i "
            "+ lambda mean_i[relu(D_i + a) + relu(-D_i - b)]",
            "at inference h(t1, x), without the head",
        ),
        needs=(Need(MASK_TOKEN),),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            Option("bml_weight", 1e-3, "lambda, weight of the bidirectional margin loss", minimum=0),
            Option("alpha", 0.1, "a, by how much the soft negative must be less alike", minimum=0),
            Option("beta", 0.3, "b, by how much it may be less alike", minimum=0),
            Option(
                "negation",
                "rule",
                "by a list of auxiliaries and be-forms, or a spaCy model (released) in folder BENCH_SPACY",
                ("rule", "spacy"),
            ),
            Option(
                "negate_unfinished",
                False,
                "negate a sentence without final punctuation too; false puts 'Not ' before it (released)",
            ),
            Option(
                "template",
                'This sentence : " {sentence .} " means {mask} .',
                "t1, of the anchor and at inference; {sentence .} adds a missing full stop",
            ),
            Option(
                "template2",
                'This sentence of " {sentence .} " means {mask} .',
                "t2, of the positive and the soft negative",
            ),
            *prompt_training_options(
                "tokens of a sentence in its template in training, all included", lr=1e-5, batch_size=256
            ),
            TEXT_OPTION,
            PROMPT_POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "the negation goes by a list of words; released: by a spaCy parse (negation=spacy)",
            "released: a sentence without final punctuation misses its negation and gets 'Not ' before it; "
            "paper: all are negated (negate_unfinished=true)",
            "an empty sentence stays empty, and a mask token in the text is left out (released: a crash)",
            "RoBERTa reads the blank before a sentence with its first word, as in the released evaluation; "
            "the released training splits it off",
            ADAMW_EPS,
        ),
        published_names=(("sncse", "negation=spacy, as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; a spaCy model's hash is one of its settings."""
        (stage,) = super().stages(options)
        if options["negation"] == "rule":
            return (stage,)
        digest = training.hash_folder_files(training.find_spacy_folder())
        return (replace(stage, config=(*stage.config, (SPACY_MODEL, digest))),)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with soft negatives, as :func:`bench.training.train_towers`."""
        negate, facts = load_negation(context.config)
        tower = nn.load_backbone(context.model)
        template = str(context.config["template"])
        prompted = nn.TransformerEncoder(tower, "mask", template=template, device=context.device)
        objective = partial(SNCSEObjective, tokenizer=tower[1], context=context, negate=negate)
        return train_prompted(context, tower, prompted, objective) | facts
