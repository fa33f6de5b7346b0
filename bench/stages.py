"""Training stages: their inputs, settings and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bench.encoder import Encoder, Progress
from bench.method_card import OptionValue

ARITHMETIC = 2
"""Version of the arithmetic and random draws of a training step; part of every stage's key.

1, until 2026-11-22: every state of every layer. 2: the last layer for [CLS] only if a loss reads only that,
one lookup of each word embedding a batch, AdamW fused on the CPU too. The mathematics are equal, but dropout
draws for fewer states and sums are added in another order.
"""
TRAIN = "train"
Report = Callable[[Mapping[str, Any]], None]
"""Called with news of a training: numbers and short texts by name, such as "step" and "loss"."""

RESUMED = "resumed"
"""News of a training that goes on from a checkpoint: its finished steps."""

SICK = "+sick"
"""Ending of the name of a training text with SICK's unlabelled sentences at its end."""

PAIRS = "pairs"
"""Name of the training text that is a file of labelled pairs, for supervised methods."""
_PAIRED = f"{TRAIN}:"


def paired(copy: str) -> str:
    """Return the name of the training text with its translations in a copy."""
    return _PAIRED + copy


def is_paired(text: str) -> bool:
    """Return whether a training text comes with translations."""
    return text.startswith(_PAIRED)


def copy_name(text: str) -> str:
    """Return the round-trip translated copy of a training text, "" for none."""
    name = text.removesuffix(SICK).removeprefix(_PAIRED)
    return "" if name in (TRAIN, PAIRS) else name


@dataclass(frozen=True)
class StageContext:
    """Inputs of a stage's training.

    Args:
        config: Its settings.
        seed: The run's seed; a stage draws only from its streams (seed, role).
        role: Name of the stage in its method (sub1, joint, ...), and of its random streams.
        model: Folder of the backbone.
        device: "cpu", "cuda" or "mps".
        sentences: The training text.
        corpus: Fingerprint of the training text.
        dev_score: Spearman of an encoder on the dev set; its second argument is the similarity, see
            :func:`bench.eval.sts.dev_spearman`.
        inputs: Folders of the earlier stages it builds on, by role.
        out: Empty folder for its files.
        progress: Called with the number of finished sentences.
        report: Called with the facts of each step and dev evaluation.
        members: Encoders of the methods it builds on, by role.
        auxiliaries: Folders of auxiliary models, by the option that names them.
        partners: Translations of the sentences for a paired text, their positives for pairs, otherwise empty.
        negatives: Hard negatives of the sentences for pairs that have them, otherwise empty.
        needs: Requirements for the backbone, see :class:`bench.method_card.Need`.
        checkpoint: File for the state of a long training, from which a killed one goes on.
        model_name: Name of the backbone, "" for its folder's.
        model_sha256: Hash of the backbone, "" where it is unknown.
    """

    config: Mapping[str, OptionValue]
    seed: int
    role: str
    model: Path
    device: str
    sentences: Sequence[str]
    corpus: str
    dev_score: Callable[..., float]
    inputs: Mapping[str, Path]
    out: Path
    progress: Progress | None = None
    members: Mapping[str, Encoder] = field(default_factory=dict)
    auxiliaries: Mapping[str, Path] = field(default_factory=dict)
    partners: Sequence[str] = ()
    report: Report | None = None
    negatives: Sequence[str] = ()
    needs: frozenset[str] = frozenset()
    checkpoint: Path | None = None
    model_name: str = ""
    model_sha256: str = ""


@dataclass(frozen=True)
class StageSpec:
    """The declaration of a stage.

    Args:
        role: Name within the method, and of its random streams.
        kind: Kind of training. Kind, version, config, role, seed and data make the key, so methods share
            equal stages.
        version: Raised when the kind's numbers change.
        config: Settings that affect the result.
        train: Writes files into ``context.out`` and returns facts for the record (JSON values).
        inputs: Roles of the earlier stages and members it builds on.
        text: Training text: the profile's, a round-trip translated copy ("a", "b"), the profile's with a copy
            (see :func:`paired`), or the file of labelled pairs (PAIRS).
        seeded: False without random draws; a method without any runs once.
    """

    role: str
    kind: str
    version: int
    config: tuple[tuple[str, OptionValue], ...]
    train: Callable[[StageContext], dict[str, Any]]
    inputs: tuple[str, ...] = ()
    text: str = TRAIN
    seeded: bool = True


_COPIES = 4  # weights, AdamW's two moments, the best weights so far


def estimate_checkpoint_size(weights: int) -> int:
    """Return about the bytes of a checkpoint of so many float32 weights, without a method's own state.

    >>> estimate_checkpoint_size(1_000_000)
    16000000
    """
    return 4 * _COPIES * weights


def planned_steps(config: Mapping[str, OptionValue], sentences: int) -> int:
    """Return the optimiser steps of a stage: ``steps``, or if that is 0 ``epochs`` over the corpus.

    With ``drop_last`` in the config an epoch's short last batch is left out.
    """
    whole, rest = divmod(sentences, int(config["batch_size"]))
    short = bool(rest) and not config.get("drop_last", False)
    return int(config["steps"]) or int(config["epochs"]) * (whole + short)


def planned_sentences(config: Mapping[str, OptionValue], sentences: int) -> int:
    """Return the sentences of a stage's steps; an epoch's last batch may be short, or left out.

    >>> planned_sentences({"batch_size": 4, "steps": 0, "epochs": 2}, 10)  # 4 + 4 + 2, twice
    20
    >>> planned_sentences({"batch_size": 4, "steps": 5, "epochs": 2, "drop_last": True}, 10)
    20
    """
    size = int(config["batch_size"])
    epoch = sentences - sentences % size if config.get("drop_last", False) else sentences
    epochs, steps = divmod(planned_steps(config, sentences), max(1, -(-epoch // size)))
    return epochs * epoch + steps * size


@runtime_checkable
class TrainedMethod(Protocol):
    """A method (see :class:`bench.method_card.Method`) that trains.

    Options for which it has no stages leave one cell without a seed, unless its ``build_draws`` is true.
    """

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the stages for these options; each after its inputs."""
        ...


@runtime_checkable
class ComposedMethod(Protocol):
    """A method that builds on encoders of other methods, such as a teacher or the parts of an ensemble."""

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Return role to method, each as in ``--methods``."""
        ...


@dataclass(frozen=True)
class Stage:
    """A stage with its key, the sha256 of everything that determines its result.

    Args:
        copy: Number of the member among equal members of an ensemble, "" for the first.
    """

    spec: StageSpec
    seed: int
    key: str
    copy: str = ""

    @property
    def stream(self) -> str:
        """Return the name of its random streams: its role, with the copy's number for a further copy."""
        return f"{self.spec.role}/{self.copy}" if self.copy else self.spec.role
