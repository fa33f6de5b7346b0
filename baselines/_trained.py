"""What most baselines share: a stage in a module of its own, which imports torch, and the usual options."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench.card import Option, OptionValue
from bench.stages import StageContext
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options


class TrainedApart(TrainedOnce):
    """Base of a method whose stage is ``train`` in the module ``_NAME`` next to its module ``NAME``."""

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage; the module that has it, and with it torch, is imported here."""
        package, _, name = type(self).__module__.rpartition(".")
        facts: dict[str, Any] = import_module(f"{package}._{name}").train(context)
        return facts


def usual_options(**defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults, the training text and the pooling."""
    return (*training_options(**defaults), TEXT_OPTION, POOLING_OPTION)
