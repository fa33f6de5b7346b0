"""SNCSE: prompted mask states, with the negated sentence as a soft negative that is neither near nor far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bench.baselines._trained import ADAMW_EPS, TrainedApart
from bench.baselines.promptbert import PROMPT_POOLING_OPTION, prompt_training_options
from bench.card import MASK_TOKEN, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.registry import add_method
from bench.stages import StageSpec
from bench.train.recipe import TEXT_OPTION

SPACY_MODEL = "spacy_model"
"""Setting of the stage that holds the spaCy model's hash."""


@add_method
class SNCSE(TrainedApart):
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
            ADAMW_EPS,
        ),
        published_names=(("sncse", "negation=spacy, as published: profile bert-base or roberta-base"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage; a spaCy model's hash is one of its settings.

        Raises:
            InputError: negation=spacy without spaCy or a model.
        """
        from bench.train.negation import folder_hash, spacy_folder

        (stage,) = super().stages(options)
        if options["negation"] == "rule":
            return (stage,)
        return (replace(stage, config=(*stage.config, (SPACY_MODEL, folder_hash(spacy_folder())))),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: template and mask token."""
        from bench.baselines._promptbert import prompted_encoder

        return prompted_encoder(context, "sncse", str(context.options["template"]))
