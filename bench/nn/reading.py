"""Tensors of a checkpoint that nothing reads: heads may be left out, parts of the encoder may not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench.errors import InputError

_NUMBER = re.compile(r"\.\d+\.")
_PROJECTION = re.compile(r"(^|\.)(mlp\.dense|projection|projector|proj|sentence_projection)\.weight$")
"""Layers on top of an encoder that are trained with it, such as SimCSE's."""


def check_read(model: Any, unread: Sequence[str], where: str) -> list[str]:
    """Refuse a checkpoint whose encoder has layers that the model hasn't; return what else nothing reads.

    Args:
        model: The loaded model.
        unread: Names of the tensors that it left out.
        where: The folder's name.

    Raises:
        InputError: a tensor of a layer beyond the model's, so that its config.json names too few.
    """
    own = {_NUMBER.sub(".0.", name) for name, _ in model.named_parameters()}
    prefix = f"{model.base_model_prefix}."
    numbered = [name for name in unread if _NUMBER.search(name)]
    beyond = [name for name in numbered if _NUMBER.sub(".0.", name.removeprefix(prefix)) in own]
    if beyond:
        raise InputError(
            f"nothing reads {beyond[0]}, a tensor of a layer that config.json doesn't count",
            where=where,
            expected="a config.json that names every layer of the weights",
        )
    return list(unread)


def projections(unread: Sequence[str]) -> list[str]:
    """Return the tensors among those that nothing reads that project an encoder's vectors."""
    return [name for name in unread if _PROJECTION.search(name)]
