"""Tensors of a checkpoint that nothing reads: heads may be left out, parts of the encoder may not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench.errors import InputError

_NUMBER = re.compile(r"\.\d+\.")
_BUFFER = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids|token_type_ids)$")
"""Tensors of a layer that are no weights: they follow from the configuration."""
_HEAD = re.compile(
    r"^(\w+\.)?(cls|lm_head|classifier|score|qa_outputs|\w+_predictions|generator_lm_head|predictions|head|mlm|decoder|"
    r"sop_classifier|logits_proj|lm_loss|summary|sequence_summary|seq_relationship|vocab_\w+|embed_out|out_proj)\."
)
"""Heads for words, classes and spans, which a sentence's vector doesn't pass."""


def check_read(model: Any, unread: Sequence[str], where: str) -> list[str]:
    """Refuse a checkpoint of whose encoder something isn't read; return what else nothing reads.

    Args:
        model: The loaded model.
        unread: Names of the tensors that it left out.
        where: The folder's name.

    Raises:
        InputError: a tensor of a layer that the model doesn't count, or of one that it has, or of its
            embeddings.
    """
    prefix = f"{model.base_model_prefix}."
    names = [name for name, _ in model.named_parameters()]
    own = {_NUMBER.sub(".0.", name) for name in names}
    stacks = {name[: match.start()] for name in names if (match := _NUMBER.search(name))}
    for name in unread:
        bare = name.removeprefix(prefix)
        match = _NUMBER.search(bare)
        if _BUFFER.search(bare) or not (match or bare.startswith("embeddings.")):
            continue
        layer = "" if match is None else bare[: match.start()]
        if match and (_NUMBER.sub(".0.", bare) in own or (not stacks and not _HEAD.match(bare))):
            raise InputError(
                f"nothing reads {name}, a tensor of a layer that config.json doesn't count",
                where=where,
                expected="a config.json that names every layer of the weights",
            )
        if match is None or layer in stacks:
            raise InputError(
                f"nothing reads {name}, which is trained with the encoder",
                where=where,
                expected=f"weights of a {type(model).__name__} as config.json describes it",
            )
    return list(unread)


def projections(unread: Sequence[str]) -> list[str]:
    """Return the matrices among those that nothing reads that may project an encoder's vectors."""
    return [
        name for name in unread if name.endswith(".weight") and not _HEAD.match(name) and "orm" not in name
    ]


def later_projection(names: Sequence[str], where: str) -> InputError:
    """Return the error for a pooler that comes from before the training of a projection."""
    return InputError(
        f"its pooler is the one from before the training that made {names[0]}, which nothing reads",
        where=where,
        hint="use pooling cls, which its training read too, or convert the checkpoint",
    )
