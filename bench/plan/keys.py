"""From facts to the keys of stages and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.data.training import TrainingData
from bench.errors import InputError
from bench.plan.cell import Cell
from bench.plan.expected import expected_record, stage_record
from bench.records.blocks import without_latest
from bench.records.facts import ENCODER, IN_STAGE, digest, values
from bench.registry import METHODS
from bench.request.spec import RunSpec
from bench.stages import PAIRS, Stage, StageSpec, TrainedMethod, copy_name


def with_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    """Return the cell with its training stages keyed, its members' before its own."""
    members = tuple((role, with_stages(member, spec, training)) for role, member in cell.members)
    cell = replace(cell, members=members)
    method = METHODS.get(cell.card.name)
    if not isinstance(method, TrainedMethod) or training is None or cell.model is None:
        return cell
    specs = method.stages(dict(cell.options))
    seed = 0 if cell.seed is None else cell.seed  # a deterministic method's stage draws nothing
    texts = {name: corpus.sha256 for name, corpus in training.texts.items()}
    keys = {role: encoder_key(member, spec, training) for role, member in members}
    facts = values(stage_record(cell, spec, training), IN_STAGE)
    return replace(cell, stages=keyed_stages(specs, seed, facts, texts, keys, cell.copy))


def encoder_key(cell: Cell, spec: RunSpec, training: TrainingData | None) -> str:
    """Return the sha256 of everything that determines a cell's encoder, whatever it is measured on."""
    return digest([values(expected_record(cell, spec, training), ENCODER), cell.copy])


def keyed_stages(
    specs: Sequence[StageSpec],
    seed: int,
    facts: Mapping[str, object],
    texts: Mapping[str, str],
    members: Mapping[str, str] | None = None,
    copy: str = "",
) -> tuple[Stage, ...]:
    """Give each stage its key, in order; a stage's inputs stand before it.

    Args:
        specs: The stages of one method.
        seed: The run's seed.
        facts: What else determines them, by name: backbone, dev set, device and the like.
        texts: Fingerprint of every training text there is.
        members: Key of each other method they build on, by role.
        copy: See :class:`Stage`.

    Raises:
        InputError: a stage needs a round-trip translated copy, and there is none.
    """
    keys: dict[str, str] = dict(members or {})
    stages = []
    for spec in specs:
        if spec.text not in texts and spec.text == PAIRS:
            raise InputError(f"stage '{spec.role}' learns from labelled pairs", expected="--pairs FILE")
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
            "config": without_latest(dict(spec.config)),
            "seed": seed,
            "inputs": {role: keys[role] for role in spec.inputs},
            "facts": facts,
            "text": texts[spec.text],
            "copy": copy,
        }
        keys[spec.role] = digest(identity)
        stages.append(Stage(spec, seed, keys[spec.role], copy))
    return tuple(stages)
