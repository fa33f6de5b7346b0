"""What a record's blocks must hold for tables, statistics and reruns to read them.

A block may hold more than its shape names: methods and later versions say more of themselves. What a shape
names has its type, so that nothing of another type is computed with or left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.errors import BenchError
from bench.schema import (
    DEEPEST,
    Block,
    Each,
    Maybe,
    Rows,
    Shape,
    anything,
    byline,
    count,
    fault,
    flag,
    label,
    number,
    setting,
    text,
    unwritable,
    whole,
)

_NAMED = Block({"name": text, "sha256": text}, {"recipe": text})
_CURVE = Rows(Rows(number, least=2))
_STAGE = Block(
    {"sentences_seen": count},
    {
        "key": text,
        "version": whole,
        "settings": Each(anything),
        "text": Block({"name": text, "sha256": text}, {"paired": flag, "pairs": count}),
        "dev_curve": _CURVE,
        "loss_curve": _CURVE,
        "collapse_curve": _CURVE,
        "mean_cls_norm": Rows(number),
        "numerics": count,
        "precision": text,
        "ranks": count,
        "selected_dev": Maybe(number),
        "selected_step": count,
        "steps": count,
    },
)
_DEEPER: dict[str, Shape] = {}
_MEMBERS = Each(Block({"method": label, "options": Each(setting)}, _DEEPER))
_DEEPER["backbone"] = Maybe(_NAMED)
_DEEPER["members"] = _MEMBERS
TRAINING = Block(
    optional={
        "arithmetic": count,
        "precision": text,
        "compiled": text,
        "dropout": text,
        "ranks": count,
        "corpus": Block(
            {"sha256": text}, {"name": text, "sentences": count, "pairs": count, "source": label}
        ),
        "supervised": flag,
        "dev": Block({"sha256": text}, {"task": text, "reference": flag}),
        "stages": Each(_STAGE),
        "members": _MEMBERS,
        "auxiliaries": Each(_NAMED),
    }
)
_TIMING = Block(
    optional={
        "wall_seconds": number,
        "cpu_seconds": number,
        "processor": text,
        "training_cpu_seconds": Each(number),
        "training_processor": Each(text),
        "probes": Block(
            optional={
                "wall_seconds": number,
                "sentences_per_second": Maybe(number),
                "peak_memory_mb": Maybe(number),
            }
        ),
        "merged": Block({"bundle": text, "campaign": label}, {"by": byline}),
    }
)
ENCODER = Block(optional={"parts": count})
_VERSIONS = Each(Maybe(text))
_PROVENANCE = Block(
    optional={
        "device": text,
        "threads": count,
        "encoder": ENCODER,
        "versions": _VERSIONS,
        "trained_with": Each(
            Block(optional={"python": text, "platform": text, "device": text, "versions": _VERSIONS})
        ),
        "git": Maybe(Block(optional={"commit": Maybe(text), "dirty": Maybe(flag)})),
        "transfer": Block(optional={"solver": text}),
        "evaluation_precision": Block(optional={"name": text}),
    }
)
_SCORE = Block({"task": label, "subset": label, "metric": label, "value": number, "n": count})
_PROBES = Block(
    optional={
        "data": Block({"tasks": Each(anything), "sentences": count}),
        "cost": Block(optional={"gmac": number, "parameters": number}),
        "attention_sink": Block(optional={"layers": Rows(Rows(number))}),
    }
)
RECORD = Block(
    {
        "profile": label,
        "method": label,
        "name": label,
        "version": whole,
        "options": Each(setting),
        "backbone": Maybe(_NAMED),
        "seed": Maybe(count),
        "suite": label,
        "tasks": Each(
            Block({"sha256": text, "reference": flag}, {"pairs": count, "items": count, "pairs_sha256": text})
        ),
        "key": text,
        "status": lambda value: value in ("ok", "failed"),
        "scores": Rows(_SCORE),
    },
    {
        "family": text,
        "evaluation": Block(optional={"version": whole, "precision": text, "solver": text}),
        "predictions": Maybe(Block({"file": text, "sha256": text})),
        "reason": Maybe(text),
        "traceback": Maybe(Rows(text)),
        "training": TRAINING,
        "notes": Rows(text),
        "world": Maybe(Block({"seed": count}, {"generator": count, "split": count})),
        "probes": _PROBES,
        "provenance": _PROVENANCE,
        "timing": _TIMING,
    },
)


LATEST: dict[str, Any] = {
    "mlm_term": 0.0,
    "mlm_share": 0.15,
    "noise_negatives": 0,
    "repetition_unit": "subword",
    "student_loss": "mse",
    "student_queue": 65536,
    "student_scale": 1.0,
    "pooler": "cls",
    "freeze_layers": 0,
    "kernel": "exponential",
    "kernel_power": 4.0,
    "nu_after": 1.0,
    "augs": "sf+rv+de+rp",
    "posi_cst": True,
    "peer_coop": True,
    "fix_peer": False,
    "engine": "zca",
    "prompt_form": "text",
    "prompt_init": "tokens",
    "prompt_head": "tanh",
    "noise_gradient": True,
    "fresh_pooler": "each",
    "ltn_input": "pooler",
}
"""Those of LATER that no key has at these values, neither of a record nor of a stage nor of a member."""
LATER = {"text": "train", "pooling": "cls", "sick": False, "drop_norms": 0} | LATEST
LATER |= dict.fromkeys(("prompt", "query_prompt", "passage_prompt"), "")
"""Options that older records may lack, as they came later, with the value that held before."""
_SAID = (
    *("prompt", "prompts", "similarity", "pooling", "dtype", "folder_dtype", "parameters"),
    *("routes", "unread", "unread_settings", "length", "coverage", "own_code"),
)
"""What an encoder says of itself that its options and weights determine; with _FROM: who says so."""
_FROM = "_from"


def without_latest(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, or the settings of a stage, without those of LATEST that have the value there."""
    return {name: value for name, value in options.items() if name not in LATEST or value != LATEST[name]}


def not_in_key(said: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an encoder says of itself but for what the key says already, which older records lack."""
    return {name: value for name, value in (said or {}).items() if name.removesuffix(_FROM) not in _SAID}


def kept_facts(facts: Any, shape: Block, what: str) -> dict[str, Any]:
    """Facts as a record keeps them: what JSON holds, tuples as lists.

    Args:
        facts: What a method says.
        shape: Of the block that they become.
        what: For messages.

    Raises:
        BenchError: no facts, or something among them that a record can't hold.
    """
    try:
        found = json.loads(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BenchError(f"{what} can't be kept: {error}") from error
    if place := fault(found, shape) or unwritable(found, DEEPEST // 2):  # they stand below others there
        raise BenchError(f"{what} can't be kept: '{place}' isn't what it should be")
    kept: dict[str, Any] = found
    return kept
