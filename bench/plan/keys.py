"""From facts to the keys of stages and jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.data.training import TrainingData
from bench.errors import InputError
from bench.plan.cell import Cell
from bench.registry import METHODS
from bench.request.spec import RunSpec
from bench.stages import ARITHMETIC, Stage, StageSpec, TrainedMethod, copy_name


def digest(identity: Mapping[str, object]) -> str:
    """Return the sha256 of facts in canonical JSON."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def with_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    """Return the cell with its training stages keyed, its members' before its own."""
    members = tuple((role, with_stages(member, spec, training)) for role, member in cell.members)
    cell = replace(cell, members=members)
    method = METHODS.get(cell.card.name)
    if not isinstance(method, TrainedMethod) or training is None or cell.model is None:
        return cell
    fingerprints: dict[str, str | int] = {
        "model": cell.model.sha256,
        "dev": training.dev.sha256,
        "device": spec.device,
        "threads": spec.threads,
        **({"ranks": cell.ranks} if cell.ranks > 1 else {}),
        **({"precision": cell.train_precision} if cell.train_precision != "fp32" else {}),
        "numerics": ARITHMETIC,
        **{f"auxiliary/{option}": folder.sha256 for option, folder in cell.auxiliaries},
        **({"plugin": cell.plugin} if cell.plugin else {}),
    }
    texts = {name: corpus.sha256 for name, corpus in training.texts.items()}
    keys = {role: digest(member.identity()) for role, member in members}
    specs = method.stages(dict(cell.options))
    seed = 0 if cell.seed is None else cell.seed  # a deterministic method's stage draws nothing
    stages = keyed_stages(specs, seed, fingerprints, texts, keys, cell.copy)
    return replace(cell, stages=stages)


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
