"""What most baselines share: a stage in a module of its own, which imports torch, and the usual options."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench.card import Option, OptionValue
from bench.stages import PAIRS, StageContext, StageSpec
from bench.train.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, one_stage, training_options

ADAMW_EPS = (
    "released: AdamW of transformers 4.2.1 adds eps before it corrects the bias of the second moment; "
    "torch's, used here, adds it after"
)
"""A deviation of SimCSE and of the methods whose code is built on its trainer."""


class TrainedApart(TrainedOnce):
    """Base of a method whose stage is ``train`` in the module ``_NAME`` next to its module ``NAME``."""

    def train(self, context: StageContext) -> dict[str, Any]:
        """The stage; the module that has it, and with it torch, is imported here."""
        package, _, name = type(self).__module__.rpartition(".")
        facts: dict[str, Any] = import_module(f"{package}._{name}").train(context)
        return facts


class TrainedOnPairs(TrainedApart):
    """Base of a method whose one stage learns from labelled pairs."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, {**options, "text": PAIRS}, self.train)


def usual_options(**defaults: OptionValue) -> tuple[Option, ...]:
    """SimCSE's training options with other defaults, the training text and the pooling."""
    return (*training_options(**defaults), TEXT_OPTION, POOLING_OPTION)
