"""Training stages and their cache: content-addressed, checked before use, shared between methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bench.card import OptionValue
from bench.encoder import Encoder, Progress

ARITHMETIC = 2
"""How a training step rounds and draws: part of every stage's key, raised when a faster step changes it.

1, until 2026-11-22: every state of every layer. 2: the last layer for [CLS] alone where a loss reads no more
of it, one lookup of each word embedding a batch, AdamW fused on the CPU too. The mathematics are the same,
but dropout draws for fewer states and sums are added in another order.
"""
TRAIN = "train"
Report = Callable[[Mapping[str, Any]], None]
"""Called with what a training has to say of itself: numbers and short texts by name, as "step" and "loss"."""


SICK = "+sick"
"""Ending of a training text's name: SICK's unlabelled sentences stand at its end."""


PAIRS = "pairs"
"""Name of the training text that is a file of labelled pairs: what learns from it is supervised."""
_PAIRED = f"{TRAIN}:"


def paired(copy: str) -> str:
    """Name of the training text whose sentences come with their translations in a copy."""
    return _PAIRED + copy


def is_paired(text: str) -> bool:
    """True if a training text's sentences come with their translations."""
    return text.startswith(_PAIRED)


def copy_name(text: str) -> str:
    """The round-trip translated copy that a training text needs, "" for none."""
    name = text.removesuffix(SICK).removeprefix(_PAIRED)
    return "" if name in (TRAIN, PAIRS) else name


@dataclass(frozen=True)
class StageContext:
    """Everything a stage may use.

    Args:
        config: Its settings.
        seed: The run's seed; a stage draws from its streams (seed, role) only.
        role: What the stage is in its method (sub1, joint, ...): the name of its random streams.
        model: Folder of the backbone.
        device: "cpu", "cuda" or "mps".
        sentences: The training text.
        corpus: Its fingerprint.
        dev_score: Spearman of an encoder on the profile's dev set; its second argument is the similarity,
            see :func:`bench.eval.sts.dev_spearman`.
        inputs: Folder of each earlier stage it builds on, by role.
        out: Empty folder for its files.
        progress: Called with finished sentences.
        report: Called with the news of each step and dev evaluation, for who watches.
        members: Encoder of each other method it builds on, by role.
        auxiliaries: Folder of each auxiliary model, by the option that names it.
        partners: A translation of each sentence where the stage asks for a paired text, its positive where it
            asks for pairs, else empty.
        negatives: A hard negative of each sentence where the stage asks for pairs and the file has them, else
            empty.
        needs: What the method needs of the backbone, see :class:`bench.card.Need`.
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


@dataclass(frozen=True)
class StageSpec:
    """A stage as a method asks for it.

    Args:
        role: Name within the method, and of its random streams.
        kind: What is trained; with version, config, role, seed and data it makes the key, so two methods that
            ask for the same share it.
        version: Raised when the kind's numbers change.
        config: Settings that matter.
        train: Does it: writes files into ``context.out`` and returns facts for the record (JSON values).
        inputs: Roles of the earlier stages and of the members it builds on.
        text: Which training text it sees: the profile's own, a round-trip translated copy ("a", "b"), the
            profile's own together with a copy (see :func:`paired`), or the file of labelled pairs (PAIRS).
        seeded: False if it draws nothing: a method runs once where neither its stages nor its members do.
    """

    role: str
    kind: str
    version: int
    config: tuple[tuple[str, OptionValue], ...]
    train: Callable[[StageContext], dict[str, Any]]
    inputs: tuple[str, ...] = ()
    text: str = TRAIN
    seeded: bool = True


def planned_steps(config: Mapping[str, OptionValue], sentences: int) -> int:
    """Optimiser steps of a stage: its ``steps``, or where they are 0 its ``epochs`` over the corpus.

    A stage whose config says ``drop_last`` leaves out an epoch's short last batch.
    """
    whole, rest = divmod(sentences, int(config["batch_size"]))
    short = bool(rest) and not config.get("drop_last", False)
    return int(config["steps"]) or int(config["epochs"]) * (whole + short)


def planned_sentences(config: Mapping[str, OptionValue], sentences: int) -> int:
    """Sentences that a stage sees in its steps: an epoch's last batch may be short, or is left out.

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
    """A method (see :class:`bench.card.Method`) that trains."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the stages for these options; each after its inputs."""
        ...


@runtime_checkable
class ComposedMethod(Protocol):
    """A method that builds on encoders of others: a distilled one on its teacher, a union on its parts."""

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Return role to method, each as in ``--methods``."""
        ...


@dataclass(frozen=True)
class Stage:
    """A stage with its key: sha256 of everything that determines its result.

    Args:
        spec: The stage.
        seed: The run's seed.
        key: Its key.
        copy: Which of several equal members of an ensemble trains it, "" for the first.
    """

    spec: StageSpec
    seed: int
    key: str
    copy: str = ""

    @property
    def stream(self) -> str:
        """Name of its random streams: its role, and of a further copy the copy's number."""
        return f"{self.spec.role}/{self.copy}" if self.copy else self.spec.role
