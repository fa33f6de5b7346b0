"""``distill:X``: any registered method distilled into one plain encoder."""

from __future__ import annotations

from bench.card import FIRST_TOKEN, MethodCard, Need, Option
from bench.methods._derived import CONTRASTIVE, DISTILCSE, STUDENT_OPTIONS, WHOLE, Distilled
from bench.registry import METHODS

_CARD = MethodCard(
    name="distill",
    kind="method",
    summary="distill:X: a fresh encoder that learns the vectors of any method X",
    version=1,
    paper="Zong et al. 2025 (TNCSE), TNCSE-D; contrastive: Gao et al. 2021, DistilCSE: Effective Knowledge "
    "Distillation For Contrastive Sentence Embeddings",
    code="caskcsg/sentemb 5eeec55, DistilCSE",
    equations=("L = mean (h_cls - X(s))^2, the teacher X frozen and in evaluation mode", CONTRASTIVE),
    needs=(Need(FIRST_TOKEN),),
    options=(Option("of", "", "the teacher"), *STUDENT_OPTIONS),
    deviations=("TNCSE's distillation script is not released", WHOLE, *DISTILCSE),
    known_as=(("distilcse", "distill[of=METHOD,student_loss=contrastive]"),),
    short_option="of",
    takes_methods=True,
)

METHODS.register("distill", Distilled(_CARD, "{of}"), __name__)
