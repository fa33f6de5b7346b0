"""SNCSE: prompted mask states, with the negated sentence as a soft negative that is neither near nor far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.baselines.promptbert import (
    PROMPT_POOLING_OPTION,
    prompt_training_options,
    prompted_encoder,
)
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import TEXT_OPTION, fresh_linear, info_nce, one_stage

if TYPE_CHECKING:
    from torch import Tensor

SPACY_MODEL = "spacy_model"
"""Setting of the stage that holds the spaCy model's hash."""


def bidirectional_margin_loss(
    anchors: Tensor, positives: Tensor, negatives: Tensor, alpha: float, beta: float
) -> Tensor:
    """SNCSE's loss: a soft negative is less alike than the positive, by alpha at least and beta at most.

    D_i = cos(z_i, z^-_i) - cos(z_i, z^+_i); L = mean_i[relu(D_i + alpha) + relu(-D_i - beta)], 0 where D_i is
    within [-beta, -alpha]. Gradient flows through all three (Wang and Dou 2023, bidirectional margin loss).

    Args:
        anchors: z, (B, H).
        positives: z^+, (B, H).
        negatives: z^-, (B, H).
        alpha: Smallest difference.
        beta: Largest difference, at least alpha.

    Returns:
        Scalar, 0 to 2 + alpha.

    Raises:
        ValueError: different shapes, or alpha above beta.
    """
    from torch.nn import functional

    if not anchors.shape == positives.shape == negatives.shape or anchors.ndim != 2:
        raise ValueError(
            f"anchors {tuple(anchors.shape)}, positives {tuple(positives.shape)} and negatives "
            f"{tuple(negatives.shape)} must be (B, H)"
        )
    if alpha > beta:
        raise ValueError(f"alpha {alpha} must be at most beta {beta}")
    a, p, n = (functional.normalize(x, dim=1, eps=1e-8) for x in (anchors, positives, negatives))
    difference = (a * n).sum(1) - (a * p).sum(1)
    return (functional.relu(difference + alpha) + functional.relu(-difference - beta)).mean()


def make_sncse_objective(
    model: Any,
    prompts: Sequence[Any],
    sentences: Sequence[str],
    negate: Callable[[str], str],
    config: Mapping[str, OptionValue],
) -> Any:
    """Return the module: (sentence number, token row) pairs to prompted InfoNCE and the weighted margin loss.

    Args:
        model: The transformer.
        prompts: The anchor's :class:`bench.nn.prompt.Prompt`, and that of positive and soft negative.
        sentences: The training text; it is read in the templates here, so the token rows don't matter.
        negate: From a sentence to its negation.
        config: tau, alpha, beta, bml_weight, max_length, negate_unfinished.
    """
    import torch
    from torch import nn

    from bench.train.chunks import prompted_states

    tau, weight = float(config["tau"]), float(config["bml_weight"])
    alpha, beta = float(config["alpha"]), float(config["beta"])
    longest = int(config["max_length"])
    first, second = prompts

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = fresh_linear(model.config.hidden_size)

        def forward(self, batch: list[tuple[int, list[int]]]) -> Tensor:
            texts = [sentences[number] for number, _ in batch]
            rows = [*first.rows(texts, longest), *second.rows(texts, longest)]
            if weight:
                rows += second.rows([self.negation(text) for text in texts], longest)
            projected = torch.tanh(self.head(prompted_states(model, rows, first.tokenizer)))
            anchors, positives, *soft = projected.view(-1, len(batch), projected.shape[1]).unbind()
            loss = info_nce(anchors, positives, tau)
            for negatives in soft:
                loss = loss + weight * bidirectional_margin_loss(anchors, positives, negatives, alpha, beta)
            return loss

        def negation(self, text: str) -> str:
            """Released: the look-up of a sentence that had to be finished fails, so it gets a Not."""
            finished = first.finished(text)
            if finished != text and not config["negate_unfinished"]:
                return f"Not {finished}"
            return negate(text)

    return Objective()


def train_sncse(context: StageContext) -> dict[str, Any]:
    """Train with soft negatives: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: a backbone without a mask token, or a template that leaves no room.
    """
    from bench.nn.backbone import TransformerEncoder, load_backbone
    from bench.nn.prompt import Prompt
    from bench.train.sentence_encoder import train_towers

    config, tower = context.config, load_backbone(context.model)
    negate, negation_facts = negation_of(config)
    template = str(config["template"])
    prompts = [Prompt(tower[1], text) for text in (template, str(config["template2"]))]
    prompted = TransformerEncoder(tower, "mask", template=template, device=context.device)
    facts = train_towers(
        replace(context, dev_score=lambda _: context.dev_score(prompted)),
        [tower],
        lambda model, _: make_sncse_objective(model, prompts, context.sentences, negate, config),
        numbered=True,
    )
    return facts | negation_facts


def negation_of(config: Mapping[str, OptionValue]) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return the negation that a stage's settings ask for, and what the record should say of it.

    Raises:
        BenchError: the spaCy model's files aren't those that were planned with.
    """
    from bench.train.negation import folder_hash, negate_by_rule, spacy_folder, spacy_negation

    if config["negation"] == "rule":
        return negate_by_rule, {}
    folder = spacy_folder()
    if folder_hash(folder) != config[SPACY_MODEL]:
        raise BenchError("the files of the spaCy model changed since the run was planned")
    return spacy_negation(folder), {SPACY_MODEL: {"name": folder.name, "sha256": config[SPACY_MODEL]}}


@add_method
class SNCSE:
    """SNCSE."""

    card = MethodCard(
        name="sncse",
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
                "t1, of the anchor and at inference; {sentence .} adds a full stop where no punctuation is",
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
        ),
        deviations=(
            "the negation goes by a list of words; released: by a spaCy parse (negation=spacy)",
            "released: a sentence without final punctuation misses its negation and gets 'Not ' before it; "
            "paper: all are negated (negate_unfinished=true)",
            "a sentence that is empty stays empty, where the released code crashes",
            "a mask token in the text itself is left out, where the released code crashes",
            "RoBERTa reads the blank before a sentence with its first word, as in the released evaluation; "
            "the released training splits it off",
        ),
        published_names=(("sncse", "negation=spacy, as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; a spaCy model's hash is one of its settings.

        Raises:
            InputError: negation=spacy without spaCy or a model.
        """
        from bench.train.negation import folder_hash, spacy_folder

        (stage,) = one_stage(self.card, options, train_sncse)
        if options["negation"] == "rule":
            return (stage,)
        return (replace(stage, config=(*stage.config, (SPACY_MODEL, folder_hash(spacy_folder())))),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        return prompted_encoder(context, "sncse", str(context.options["template"]))
