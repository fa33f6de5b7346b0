"""``static:X`` or ``distill:static:X``: any method distilled into vectors of its tokens, as Model2Vec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.methods.ensemble import weighted_members
from bench.registry import METHODS, add_method
from bench.request.parse import parse_method
from bench.request.spec import MethodRequest
from bench.stages import StageContext, StageSpec

STAGE = "static"
_WHY = {
    "st": "an st: folder doesn't say how single tokens go through it",
    "echo": "it reads a sentence inside a template",
    "prompteol": "it reads a sentence inside a template",
    "whitening": "it maps the vectors of sentences",
}
_HINTS = {"st": "use hf:PATH:POOLING, such as hf:PATH:avg"}
_STEPLESS: tuple[tuple[str, OptionValue], ...] = (("batch_size", 1), ("epochs", 0), ("steps", 0))


def refuse_without_tokens(text: str, where: str) -> None:
    """Raise InputError if a method, or a part of an ensemble, has no transformer that reads single tokens."""
    request = parse_method(text, where)
    card = METHODS.get(request.name, where=where).card
    if card.name == "ensemble":
        for _, part in weighted_members(request.argument or ""):
            refuse_without_tokens(part, where)
    why = _WHY.get(card.name) or _why_not(card, request)
    if why:
        raise InputError(
            f"{card.name} has no vectors of single tokens: {why}",
            where=where,
            expected="a transformer with its tokenizer, or a sum of such ones",
            hint=_HINTS.get(card.name),
        )


def _why_not(card: MethodCard, request: MethodRequest) -> str:
    if card.scores_pairs or card.takes_file:
        return "it has no transformer"
    if any(name.endswith("prompt") and value for name, value in request.options):
        return "its prompt stands before a sentence"
    return ""


@add_method
class Static:
    """Token vectors of a teacher, reduced, weighted and averaged."""

    card = MethodCard(
        name="static",
        kind="baseline",
        summary="static:X or distill:static:X, any method X distilled into vectors of its tokens (Model2Vec)",
        version=1,
        paper="Tulkens and van Dongen 2024, Model2Vec: Fast State-of-the-Art Static Embeddings (software)",
        code="MinishLab/model2vec c901407 (0.8.2), model2vec/distill; 0.3.8 for weighting=zipf",
        equations=(
            "t_i = X([CLS] token_i [SEP]) with X's own pooling, for every token i of its vocabulary",
            "e_i = w_i P (t_i - mean t), P the first principal components of all t",
            "sif: w_i = a / (a + p_i), p_i = (1 / (r_i + 2)) / sum_j 1 / (r_j + 2), r_i = 0, 1, ... the "
            "token's place in the vocabulary; zipf: w_i = log(1 + r_i)",
            "v_s = mean of e_i over the tokens of s, without [CLS] and [SEP]; v_s / |v_s|",
        ),
        options=(
            Option("of", "simcse", "the teacher"),
            Option("dimensions", 256, "principal components kept; 0: no PCA", minimum=0),
            Option(
                "weighting",
                "sif",
                "of tokens by their rank: sif (released since 0.3.9), zipf (released before) or none",
                ("sif", "zipf", "none"),
            ),
            Option("sif_coefficient", 1e-4, "a; larger is nearer to no weighting", minimum=1e-12),
        ),
        known_as=(("model2vec", "static:METHOD, or st:PATH for a folder"),),
        deviations=(
            "the teacher's own pooling; released: the mean of the last layer's states unless told otherwise",
            "the table is float32; released: rounded to float16",
            "rows of [unused] and special tokens stay in the table as zeros; released: they are cut out",
            "the unknown token's row is zeros, which leaves it out of a direction as the released code does",
            "sentences are not cut; released: their first 512 tokens count",
            "no word list and no clustering of the vocabulary, which the released code can add",
            "the stage's key holds profile, text and dev set, as every stage's, though it reads none of them",
        ),
        short_option="of",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher.

        Raises:
            InputError: none is named, or one whose tokens have no vectors.
        """
        teacher = str(options["of"])
        if not teacher:
            raise InputError("no teacher", where="--methods static", expected="static:METHOD")
        refuse_without_tokens(teacher, f"--methods static:{teacher}")
        return {"teacher": teacher}

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """The table's stage, which sees no sentence and draws nothing."""
        own = {name: value for name, value in options.items() if name != "of"}
        if own["weighting"] != "sif":
            del own["sif_coefficient"]
        config = tuple(sorted((*own.items(), *_STEPLESS)))
        version = self.card.version
        return (StageSpec(STAGE, STAGE, version, config, make_table, inputs=("teacher",), seeded=False),)

    def build(self, context: BuildContext) -> Encoder:
        """Return the table's encoder.

        Raises:
            BenchError: the stage has not run.
        """
        from bench.nn.static import load_static

        if STAGE not in context.stages:
            raise BenchError(f"the stage '{STAGE}' has not run")
        return load_static(context.stages[STAGE], context.device)


def make_table(context: StageContext) -> dict[str, Any]:
    """The stage; the module that has it, and with it torch, is imported here."""
    from bench.methods._static import make_table as make

    return make(context)
