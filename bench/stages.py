"""Training stages and their cache: content-addressed, checked before use, shared between methods."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from filelock import FileLock, Timeout

from bench.card import OptionValue
from bench.encoder import Encoder, Progress
from bench.errors import InputError, StorageError, storage_reason

_MANIFEST = "MANIFEST.json"
_FACTS = "facts.json"
TRAIN = "train"
SICK = "+sick"
"""Ending of a training text's name: SICK's unlabelled sentences stand at its end."""
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
    return "" if name == TRAIN else name


@dataclass(frozen=True)
class StageContext:
    """Everything a stage may use.

    Args:
        config: Its settings.
        seed: The run's seed; a stage draws from its streams (seed, role) only.
        role: What the stage is in its method (sub1, joint, ...): the name of its random streams.
        model: Folder of the backbone.
        device: "cpu" or "cuda".
        sentences: The training text.
        corpus: Its fingerprint.
        dev_score: Spearman of an encoder on the profile's dev set; its second argument is the similarity,
            see :func:`bench.eval.sts.dev_spearman`.
        inputs: Folder of each earlier stage it builds on, by role.
        out: Empty folder for its files.
        progress: Called with finished sentences.
        members: Encoder of each other method it builds on, by role.
        auxiliaries: Folder of each auxiliary model, by the option that names it.
        partners: A translation of each sentence where the stage asks for a paired text, else empty.
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
        text: Which training text it sees: the profile's own, a round-trip translated copy ("a", "b"), or the
            profile's own together with a copy (see :func:`paired`).
    """

    role: str
    kind: str
    version: int
    config: tuple[tuple[str, OptionValue], ...]
    train: Callable[[StageContext], dict[str, Any]]
    inputs: tuple[str, ...] = ()
    text: str = TRAIN


def planned_steps(config: Mapping[str, OptionValue], sentences: int) -> int:
    """Optimiser steps of a stage: its ``steps``, or where they are 0 its ``epochs`` over the corpus.

    A stage whose config says ``drop_last`` leaves out an epoch's short last batch.
    """
    whole, rest = divmod(sentences, int(config["batch_size"]))
    short = bool(rest) and not config.get("drop_last", False)
    return int(config["steps"]) or int(config["epochs"]) * (whole + short)


@runtime_checkable
class TrainedMethod(Protocol):
    """A method (see :class:`bench.card.Method`) that trains."""

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Return the stages for these options; each stands after its inputs."""
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


def keyed_stages(
    specs: Sequence[StageSpec],
    seed: int,
    fingerprints: Mapping[str, str | int],
    texts: Mapping[str, str],
    members: Mapping[str, str] | None = None,
    copy: str = "",
) -> tuple[Stage, ...]:
    """Give each stage its key, in order; a stage's inputs stand before it.

    Args:
        specs: The stages of one method.
        seed: The run's seed.
        fingerprints: Hashes of backbone and dev set, device and threads.
        texts: Fingerprint of every training text there is.
        members: Key of each other method they build on, by role.
        copy: See :class:`Stage`.

    Raises:
        InputError: a stage needs a round-trip translated copy, and there is none.
    """
    keys: dict[str, str] = dict(members or {})
    stages = []
    for spec in specs:
        if spec.text not in texts:
            raise InputError(
                f"stage '{spec.role}' trains on a round-trip translation of the training text, "
                "and none is at hand",
                hint=f"name it with --copy {copy_name(spec.text)}=FILE (bench data rtt makes it), or train "
                "on the text itself with the method's option rtt=none",
            )
        identity = {
            "role": spec.role,
            "kind": spec.kind,
            "version": spec.version,
            "config": dict(spec.config),
            "seed": seed,
            "inputs": {role: keys[role] for role in spec.inputs},
            **fingerprints,
            "corpus": texts[spec.text],
            **({"copy": copy} if copy else {}),
        }
        keys[spec.role] = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        stages.append(Stage(spec, seed, keys[spec.role], copy))
    return tuple(stages)


class StageCache:
    """Finished stages under one folder, each in a folder named by its key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, stage: Stage) -> Path | None:
        """Return a finished stage's folder if every file is as it was written, else None."""
        folder = self.root / stage.key
        return folder if is_whole(folder) else None

    def facts(self, stage: Stage) -> dict[str, Any]:
        """Facts that the stage's training left for the record."""
        facts: dict[str, Any] = json.loads((self.root / stage.key / _FACTS).read_text(encoding="utf-8"))
        return facts

    def ensure(
        self, stage: Stage, train: Callable[[Path], dict[str, Any]], *, wait: bool = True
    ) -> Path | None:
        """Return the stage's folder, training it first if it isn't there whole.

        A killed training leaves only a temporary folder, which the next training of the stage removes.

        Args:
            stage: The stage.
            train: Gets an empty folder, fills it, returns facts.
            wait: Wait for another process that trains the stage; else return None while one does.

        Raises:
            StorageError: the cache can't be written.
        """
        if (found := self.find(stage)) is not None:
            return found  # also from a cache that can only be read
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / f".{stage.key}.lock", blocking=wait):
                return self.find(stage) or self._train(stage, train)
        except Timeout:
            return None
        except Exception as error:
            if isinstance(error, StorageError) or (reason := self._reason(error)) is None:
                raise
            raise StorageError(
                f"stage '{stage.spec.role}' can't be kept: {reason}",
                where=str(self.root),
                hint="finished cells and stages are kept: mend this and run the same command again",
            ) from error

    def _reason(self, error: Exception) -> str | None:
        """Why the cache can't be written, None for an error of another kind in the training."""
        if isinstance(error, OSError) and Path(error.filename or "").is_relative_to(self.root):
            return error.strerror
        return storage_reason(error)

    def clear_leftovers(self) -> None:
        """Remove what killed processes left half trained, where no other process is at work."""
        for leftover in self.root.glob(".*.tmp"):
            key = leftover.name.split(".")[1]
            with suppress(OSError, Timeout), FileLock(self.root / f".{key}.lock", blocking=False):
                shutil.rmtree(leftover, ignore_errors=True)

    def _train(self, stage: Stage, train: Callable[[Path], dict[str, Any]]) -> Path:
        for leftover in self.root.glob(f".{stage.key}.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        target = self.root / stage.key
        temporary = Path(tempfile.mkdtemp(prefix=f".{stage.key}.", suffix=".tmp", dir=self.root))
        try:
            if (found := self.find(stage)) is not None:
                return found  # on NFS a node may see another's finished stage only once it changes the folder
            facts = train(temporary)
            (temporary / _FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True, allow_nan=False))
            (temporary / _MANIFEST).write_text(json.dumps(_checksums(temporary), indent=1, sort_keys=True))
            shutil.rmtree(target, ignore_errors=True)  # not whole, or we would not be here
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return target


def is_whole(folder: Path) -> bool:
    """True if this is the folder of a finished stage, and every file in it is as it was written."""
    try:
        return bool(json.loads((folder / _MANIFEST).read_text(encoding="utf-8")) == _checksums(folder))
    except (OSError, ValueError):
        return False


def _checksums(folder: Path) -> dict[str, str]:
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            with path.open("rb") as stream:
                sums[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return sums
