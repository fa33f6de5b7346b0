"""What a record's blocks must hold for tables, statistics and reruns to read them.

A block may hold more than its shape names: methods and later versions say more of themselves. What a shape
names has its type, so that nothing of another type is computed with or left out in silence.
"""

from __future__ import annotations

from bench.schema import (
    Block,
    Each,
    Maybe,
    Rows,
    Shape,
    anything,
    byline,
    count,
    flag,
    label,
    number,
    setting,
    text,
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
