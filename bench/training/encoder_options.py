"""Options of every method that trains a transformer: its vectors in training, LoRA, memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bench.errors import InputError
from bench.method_card import Option, OptionValue
from bench.stages import planned_steps

TRAIN_POOLINGS = ("cls", "avg", "avg_first_last", "last", "weighted_mean", "mask")
"""Poolings that training can compare."""
PROMPTLESS = TRAIN_POOLINGS[:-1]
"""Those of plain rows: "mask" puts sentences into a prompt, which edits of a row would change."""
OWN_POOLING = "auto"
"""Value of ``train_pooling`` for the method's own."""
LORA_TARGETS = "all-linear"
"""Value of ``lora_targets`` for every linear module of the layers."""

ENCODER_OPTIONS = (
    Option(
        "train_pooling",
        OWN_POOLING,
        "vector of a sentence in training (auto: the method's own)",
        (OWN_POOLING, *TRAIN_POOLINGS),
    ),
    Option("lora_rank", 0, "rank r of LoRA adapters on the frozen backbone; 0 trains all weights", minimum=0),
    Option("lora_alpha", 16.0, "adapters are scaled by alpha / r", minimum=0, maximum=1e6),
    Option("lora_dropout", 0.0, "dropout on the input of the adapters", minimum=0, below=1),
    Option(
        "lora_targets",
        LORA_TARGETS,
        "modules with adapters: the last parts of their names joined by +, such as query+value",
    ),
    Option("lora_base", "fp32", "weights of the frozen backbone in training", ("fp32", "bf16")),
    Option(
        "chunk",
        0,
        "token rows held in memory at a time (gradient caching); 0: the whole batch",
        minimum=0,
    ),
    Option("checkpoint_layers", False, "compute the layers again in the backward pass, to save memory"),
)


def encoder_options(**defaults: OptionValue) -> tuple[Option, ...]:
    """Return the options with other defaults, such as adapters that a method always trains."""
    given = (defaults.get(option.name, option.default) for option in ENCODER_OPTIONS)
    return tuple(
        replace(option, default=default) for option, default in zip(ENCODER_OPTIONS, given, strict=True)
    )


def find_train_pooling(config: Mapping[str, OptionValue], own: str) -> str:
    """Return the pooling that a training compares, ``own`` where its settings leave it to the method."""
    asked = str(config.get("train_pooling", OWN_POOLING))
    return own if asked == OWN_POOLING else asked


def check_train_pooling(
    name: str,
    options: Mapping[str, OptionValue],
    allowed: Collection[str],
    why: str,
    *,
    expected: str = "",
) -> None:
    """Raise InputError, in the plan, for a training pooling that a method can't have.

    Args:
        name: The method's name.
        options: Its options.
        allowed: Values besides "auto".
        why: The reason, without a subject: it follows the value.
        expected: What to give instead; by default the allowed values.
    """
    asked = find_train_pooling(options, OWN_POOLING)
    if asked != OWN_POOLING and asked not in allowed:
        raise InputError(
            f"train_pooling={asked} {why}",
            where=f"{name}.train_pooling",
            expected=expected or f"one of {', '.join((OWN_POOLING, *allowed))}",
        )


def refuse_lora(options: Mapping[str, OptionValue], method: str, reason: str, expected: str) -> None:
    """Raise InputError where ``lora_rank`` asks for adapters that a method can't train, in its ``stages``."""
    if options.get("lora_rank"):
        what = f"lora_rank={options['lora_rank']}: {reason}"
        raise InputError(what, where=method, expected=expected)


def refuse_batch_size(
    options: Mapping[str, OptionValue], method: str, least: int, reason: str, *, instead: str = ""
) -> None:
    """Raise InputError, in the plan, for a ``batch_size`` below ``least``; ``instead`` is another way out."""
    if int(options["batch_size"]) < least:
        what = f"batch_size={options['batch_size']}: {reason}"
        raise InputError(what, where=f"{method}.batch_size", expected=f"{least} or more{instead}")


def check_short_batch(
    config: Mapping[str, OptionValue], sentences: int, least: int, *, where: str | None = None
) -> None:
    """Raise InputError where a batch, an epoch's last one too, would be smaller than a method needs.

    Args:
        config: The settings of a stage.
        sentences: Sentences of its text.
        least: Sentences that every batch has to have.
        where: The row, for the message.
    """
    size = int(config["batch_size"])
    last, dropped = sentences % size, config.get("drop_last")
    reached = not dropped and planned_steps(config, sentences) > sentences // size
    if size >= least and not (reached and 0 < last < least):
        return
    what = f"batch_size {size}" if size < least else f"an epoch's last batch has {last} of {size} sentences"
    ways = "drop_last=true leaves a short one out" if dropped is not None else "give another batch_size"
    raise InputError(what, where=where, expected=f"{least} or more, which this method needs", hint=ways)
