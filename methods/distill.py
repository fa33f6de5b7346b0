"""``distill:X``: any registered method distilled into one plain encoder."""

from __future__ import annotations

from collections.abc import Mapping

from bench.card import MethodCard, Option, OptionValue
from bench.errors import InputError
from bench.methods._derived import STUDENT_OPTIONS, Student
from bench.registry import add_method


@add_method
class Distill(Student):
    """Any method, distilled."""

    card = MethodCard(
        name="distill",
        kind="method",
        summary="distill:X: a fresh encoder that learns the vectors of any method X",
        version=1,
        paper="Zong et al. 2025 (TNCSE), TNCSE-D",
        equations=("L = mean (h_cls - X(s))^2, the teacher X frozen and in evaluation mode",),
        options=(Option("of", "", "the teacher"), *STUDENT_OPTIONS),
        deviations=("the distillation script is not released",),
        short_option="of",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """The teacher.

        Raises:
            InputError: none is named.
        """
        if not options["of"]:
            raise InputError("no teacher", where="--methods distill", expected="distill:METHOD")
        return {"teacher": str(options["of"])}
