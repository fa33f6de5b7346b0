"""Shapes of a record's blocks, for tables, statistics and reruns.

Blocks may hold more than their shapes: methods and later versions add facts.
"""

from __future__ import annotations

from bench.schema import (
    Block,
    ListOf,
    MapOf,
    Maybe,
    Shape,
    accept_any,
    is_boolean,
    is_byline,
    is_count,
    is_label,
    is_number,
    is_option_value,
    is_text,
    is_whole_number,
)

_NAMED = Block({"name": is_text, "sha256": is_text}, {"recipe": is_text})
_CURVE = ListOf(ListOf(is_number, least=2))
_STAGE = Block(
    {"sentences_seen": is_count},
    {
        "key": is_text,
        "version": is_whole_number,
        "settings": MapOf(accept_any),
        "text": Block({"name": is_text, "sha256": is_text}, {"paired": is_boolean, "pairs": is_count}),
        "dev_curve": _CURVE,
        "loss_curve": _CURVE,
        "collapse_curve": _CURVE,
        "mean_cls_norm": ListOf(is_number),
        "numerics": is_count,
        "precision": is_text,
        "ranks": is_count,
        "selected_dev": Maybe(is_number),
        "selected_step": is_count,
        "steps": is_count,
    },
)
_DEEPER: dict[str, Shape] = {}
_MEMBERS = MapOf(Block({"method": is_label, "options": MapOf(is_option_value)}, _DEEPER))
_DEEPER["backbone"] = Maybe(_NAMED)
_DEEPER["members"] = _MEMBERS
TRAINING = Block(
    optional={
        "arithmetic": is_count,
        "precision": is_text,
        "compiled": is_text,
        "dropout": is_text,
        "ranks": is_count,
        "corpus": Block(
            {"sha256": is_text},
            {"name": is_text, "sentences": is_count, "pairs": is_count, "source": is_label},
        ),
        "supervised": is_boolean,
        "dev": Block({"sha256": is_text}, {"task": is_text, "reference": is_boolean}),
        "stages": MapOf(_STAGE),
        "members": _MEMBERS,
        "auxiliaries": MapOf(_NAMED),
    }
)
_TIMING = Block(
    optional={
        "wall_seconds": is_number,
        "cpu_seconds": is_number,
        "processor": is_text,
        "training_cpu_seconds": MapOf(is_number),
        "training_processor": MapOf(is_text),
        "probes": Block(
            optional={
                "wall_seconds": is_number,
                "sentences_per_second": Maybe(is_number),
                "peak_memory_mb": Maybe(is_number),
            }
        ),
        "merged": Block({"bundle": is_text, "campaign": is_label}, {"by": is_byline}),
    }
)
ENCODER = Block(optional={"parts": is_count})
_VERSIONS = MapOf(Maybe(is_text))
_PROVENANCE = Block(
    optional={
        "device": is_text,
        "threads": is_count,
        "encoder": ENCODER,
        "versions": _VERSIONS,
        "trained_with": MapOf(
            Block(optional={"python": is_text, "platform": is_text, "device": is_text, "versions": _VERSIONS})
        ),
        "git": Maybe(Block(optional={"commit": Maybe(is_text), "dirty": Maybe(is_boolean)})),
        "transfer": Block(optional={"solver": is_text}),
        "evaluation_precision": Block(optional={"name": is_text}),
    }
)
_SCORE = Block({"task": is_label, "subset": is_label, "metric": is_label, "value": is_number, "n": is_count})
_PROBES = Block(
    optional={
        "data": Block({"tasks": MapOf(accept_any), "sentences": is_count}),
        "cost": Block(optional={"gmac": is_number, "parameters": is_number}),
        "attention_sink": Block(optional={"layers": ListOf(ListOf(is_number))}),
    }
)
RECORD = Block(
    {
        "profile": is_label,
        "method": is_label,
        "name": is_label,
        "version": is_whole_number,
        "options": MapOf(is_option_value),
        "backbone": Maybe(_NAMED),
        "seed": Maybe(is_count),
        "suite": is_label,
        "tasks": MapOf(
            Block(
                {"sha256": is_text, "reference": is_boolean},
                {"pairs": is_count, "items": is_count, "pairs_sha256": is_text},
            )
        ),
        "key": is_text,
        "status": lambda value: value in ("ok", "failed"),
        "scores": ListOf(_SCORE),
    },
    {
        "family": is_text,
        "evaluation": Block(optional={"version": is_whole_number, "precision": is_text, "solver": is_text}),
        "predictions": Maybe(Block({"file": is_text, "sha256": is_text})),
        "reason": Maybe(is_text),
        "traceback": Maybe(ListOf(is_text)),
        "training": TRAINING,
        "notes": ListOf(is_text),
        "world": Maybe(Block({"seed": is_count}, {"generator": is_count, "split": is_count})),
        "probes": _PROBES,
        "provenance": _PROVENANCE,
        "timing": _TIMING,
    },
)
