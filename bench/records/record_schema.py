"""Shapes of a record's blocks, for tables, statistics and reruns.

Blocks may hold more than their shapes: methods and later versions add facts.
"""

from __future__ import annotations

from bench import schema
from bench.schema import Block, ListOf, MapOf, Maybe, Shape, is_amount, is_count, is_label, is_number, is_text


def _each(shape: Shape, *names: str) -> dict[str, Shape]:
    """Give several entries of a block one shape."""
    return dict.fromkeys(names, shape)


_OPTIONAL_TEXT, _WHOLE = Maybe(is_text), schema.is_whole_number
_ANY = MapOf(schema.accept_any)
_NAMED = Block(_each(is_text, "name", "sha256"), {"recipe": is_text, "bases": MapOf(is_text)})
_VERSIONS = MapOf(_OPTIONAL_TEXT)
_LABELLED: dict[str, Shape] = {"pairs": is_count, "label_model": is_label}
_STAGE = Block(
    {"sentences_seen": is_count},
    {
        **_each(is_text, "key", "precision"),
        **_each(is_count, "numerics", "ranks", "selected_step", "steps"),
        **_each(is_count, "trained_parameters", "parameters"),
        **_each(ListOf(ListOf(is_number, least=2)), "dev_curve", "loss_curve", "collapse_curve"),
        "version": _WHOLE,
        "settings": _ANY,
        "text": Block(_each(is_text, "name", "sha256"), {"paired": schema.is_boolean, **_LABELLED}),
        "mean_cls_norm": ListOf(is_number),
        "gradient_norms": ListOf(Maybe(is_number)),
        "selected_dev": Maybe(is_number),
    },
)
_DEEPER: dict[str, Shape] = {}
_MEMBERS = MapOf(Block({"method": is_label, "options": MapOf(schema.is_option_value)}, _DEEPER))
_DEEPER |= {"backbone": Maybe(_NAMED), "members": _MEMBERS}
_CORPUS = {"name": is_text, "source": is_label, "sentences": is_count, **_LABELLED}
TRAINING = Block(
    optional={
        **_each(is_count, "arithmetic", "ranks"),
        **_each(is_text, "precision", "compiled", "dropout"),
        "corpus": Block({"sha256": is_text}, _CORPUS),
        "supervised": schema.is_boolean,
        "dev": Block({"sha256": is_text}, {"task": is_text, "reference": schema.is_boolean}),
        "stages": MapOf(_STAGE),
        "members": _MEMBERS,
        "auxiliaries": MapOf(_NAMED),
    }
)
_PROBE_TIMES = _each(Maybe(is_amount), "sentences_per_second", "peak_memory_mb")
_TIMING = Block(
    optional={
        **_each(is_amount, "wall_seconds", "cpu_seconds"),
        "started": schema.is_moment,
        "cores": Maybe(is_count),
        "processor": is_text,
        "training_cpu_seconds": MapOf(is_amount),
        "training_processor": MapOf(is_text),
        "probes": Block(optional={**_each(is_amount, "wall_seconds", "cpu_seconds"), **_PROBE_TIMES}),
        "plan": is_label,
        "merged": Block({"bundle": is_text, "campaign": is_label}, {"by": schema.is_byline}),
    }
)
ENCODER = Block(optional={"parts": is_count})
_ENVIRONMENT = {**_each(is_text, "python", "platform", "device"), "versions": _VERSIONS}
_GIT = {"commit": _OPTIONAL_TEXT, "dirty": Maybe(schema.is_boolean)}
_ABOUT = Block(optional={"revision": is_text, **_each(Maybe(is_count), "n_parameters", "embed_dim")})
_IMPORTED = Block(
    {**_each(is_label, "kind", "label"), "sha256": is_text},
    {**_each(is_text, "repository", "commit", "date", "licence"), "about": _ABOUT},
)
_PROVENANCE = Block(
    optional={
        "device": is_text,
        "threads": is_count,
        "encoder": ENCODER,
        "versions": _VERSIONS,
        "trained_with": MapOf(Block(optional=_ENVIRONMENT)),
        "git": Maybe(Block(optional=_GIT)),
        "transfer": Block(optional={"solver": is_text}),
        "imported": _IMPORTED,
        "evaluation_precision": Block(optional={"name": is_text}),
    }
)
_PROBES = Block(
    optional={
        "data": Block({"tasks": _ANY, "sentences": is_count}),
        "cost": Block(optional=_each(is_amount, "gmac", "parameters")),
        "attention_sink": Block(optional={"layers": ListOf(ListOf(is_number))}),
    }
)
_TASK_COUNTS = {**_each(is_count, "pairs", "items"), "pairs_sha256": is_text}
_SCORE = {**_each(is_label, "task", "subset", "metric"), "value": is_number, "n": is_count}
RECORD = Block(
    {
        **_each(is_label, "profile", "method", "name", "suite"),
        "version": _WHOLE,
        "options": MapOf(schema.is_option_value),
        "backbone": Maybe(_NAMED),
        "seed": Maybe(is_count),
        "tasks": MapOf(Block({"sha256": is_text, "reference": schema.is_boolean}, _TASK_COUNTS)),
        "key": is_text,
        "status": lambda value: value in ("ok", "failed"),
        "scores": ListOf(Block(_SCORE)),
    },
    {
        "family": is_text,
        "evaluation": Block(optional={"version": _WHOLE, **_each(is_text, "precision", "solver")}),
        "predictions": Maybe(Block(_each(is_text, "file", "sha256"))),
        "reason": _OPTIONAL_TEXT,
        "traceback": Maybe(ListOf(is_text)),
        "training": TRAINING,
        "notes": ListOf(is_text),
        "world": Maybe(Block({"seed": is_count}, _each(is_count, "generator", "split"))),
        "probes": _PROBES,
        "provenance": _PROVENANCE,
        "timing": _TIMING,
    },
)
