"""``ensemble:a+b``: the weighted sum of the vectors of any registered methods."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench import nn
from bench.config.method_ids import split_outside_brackets
from bench.encoder import Encoder
from bench.errors import InputError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method

_WEIGHT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\*(.+)")
_FORM = "ensemble:METHOD+METHOD, or with weights ensemble:0.3*METHOD+0.7*METHOD"


def parse_weighted_members(text: str) -> list[tuple[float, str]]:
    """Split ``0.3*a+0.7*b`` into (weight, method); the default weight is 1."""
    where = f"--methods ensemble:{text}"
    parts = split_outside_brackets(text, "+")
    if len(parts) < 2:
        raise InputError("an ensemble of one method", where=where, expected=_FORM)
    members = []
    for part in parts:
        match = _WEIGHT.fullmatch(part)
        weight, method = (float(match[1]), match[2].strip()) if match else (1.0, part)
        if not method or weight == 0:
            raise InputError(f"'{part}' is not a weighted method", where=where, expected=_FORM)
        members.append((weight, method))
    return members


@add_method
class Ensemble:
    """The weighted sum of any methods."""

    card = MethodCard(
        name="ensemble",
        family="ensembles",
        instead="no training of its own; the weighted sum of other methods' vectors",
        cites=(
            "zong-etal-2025-tncse",
            "zong-etal-2025-jtcse",
        ),
        kind="method",
        summary="ensemble:a+b, weights optional: the sum of any methods' vectors; a+a trains two copies",
        version=1,
        paper="Zong et al. 2025 (TNCSE), Table 3; JTCSE, Table VII: ensembles of two baselines",
        equations=("w_1 h_1 + w_2 h_2 + ..., weights 1 by default, unnormalised",),
        options=(Option("of", "", "the methods, METHOD+METHOD or WEIGHT*METHOD+WEIGHT*METHOD"),),
        deviations=("each copy of a method has its own random streams, as a second sub-encoder has",),
        short_option="of",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the methods, by number."""
        methods = parse_weighted_members(str(options["of"]))
        return {str(number): method for number, (_, method) in enumerate(methods, start=1)}

    def build(self, context: BuildContext) -> Encoder:
        """Return the weighted sum."""
        weights = [weight for weight, _ in parse_weighted_members(str(context.options["of"]))]
        return nn.SumEncoder([context.members[role] for role in sorted(context.members, key=int)], weights)
