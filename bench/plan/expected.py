"""The record that a cell is going to leave, as far as it is known before anything runs.

Keys are made from it, and differences from finished records are found in it, by :mod:`bench.records.facts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bench.card import OptionValue
from bench.data.corpus import Corpus
from bench.data.training import TrainingData
from bench.nn.folder import ModelFolder
from bench.plan.cell import Cell, auxiliary_facts, plugins_of
from bench.records.record import RunRecord
from bench.request.spec import RunSpec
from bench.stages import ARITHMETIC, StageSpec, is_paired


def expected_record(cell: Cell, spec: RunSpec, training: TrainingData | None) -> RunRecord:
    """Return the record of a cell on no suite yet; it is failed until there are scores."""
    plugins = plugins_of(cell)
    return RunRecord(
        profile=cell.profile,
        method=cell.method,
        name=cell.card.name,
        version=cell.card.version,
        options=dict(cell.options),
        backbone=_named(cell.model) if cell.model else None,
        seed=cell.seed,
        suite="",
        tasks={},
        key="",
        status="failed",
        training=training_block(cell, training),
        provenance={
            "device": spec.device,
            "threads": spec.threads,
            **({"plugins": plugins} if plugins else {}),
        },
    )


def stage_record(cell: Cell, spec: RunSpec, training: TrainingData) -> RunRecord:
    """Return the record of a training of the cell's own, for what enters the keys of its stages."""
    plugin = plugins_of(cell).get(cell.card.name)
    record = expected_record(replace(cell, members=()), spec, None)
    shared = {
        "dev": {"sha256": training.dev.sha256},
        "arithmetic": ARITHMETIC,
        "precision": cell.train_precision,
        "ranks": cell.ranks,
    }
    # without the method's name: methods of one file share their stages
    provenance = {**record.provenance, "plugins": {"method": plugin} if plugin else {}}
    return replace(record, training=record.training | shared, provenance=provenance)


def training_block(cell: Cell, training: TrainingData | None) -> dict[str, Any]:
    """What a record says of its training before it has begun; nothing without stages and members."""
    members = {role: _member(member) for role, member in cell.members}
    auxiliaries = auxiliary_facts(cell)
    block: dict[str, Any] = {
        **({"members": members} if members else {}),
        **({"auxiliaries": auxiliaries} if auxiliaries else {}),
    }
    if training is None or not cell.trains:
        return block
    trained = list(_trained(cell))
    corpus, dev = training.corpus, training.dev
    return block | {
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "sentences": len(corpus.sentences)},
        "dev": {"task": dev.id, "sha256": dev.sha256},
        "arithmetic": ARITHMETIC,
        "precision": max((each.train_precision for each in trained), key=lambda name: name != "fp32"),
        "ranks": max(each.ranks for each in trained),
        "stages": _stages(cell, training),
    }


def _trained(cell: Cell) -> Iterator[Cell]:
    """The cell and its members, at any depth, that have stages of their own."""
    if cell.stages:
        yield cell
    for _, member in cell.members:
        yield from _trained(member)


def _stages(cell: Cell, training: TrainingData) -> dict[str, dict[str, Any]]:
    """What is known of each stage, the members' under their role and a slash."""
    found = {
        f"{role}/{name}": facts
        for role, member in cell.members
        for name, facts in _stages(member, training).items()
    }
    for stage in cell.stages:
        text = training.texts[stage.spec.text]
        settings = _settings(stage.spec, dict(cell.options))
        found[stage.spec.role] = {
            "key": stage.key,
            "version": stage.spec.version,
            **({} if text is training.corpus else {"text": _text(text, stage.spec.text)}),
            **({"settings": settings} if settings else {}),
        }
    return found


def _settings(stage: StageSpec, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """What a stage depends on that the options don't say, such as the model of another package."""
    return {
        name: value
        for name, value in stage.config
        if value not in (options.get(name), options.get(f"{stage.role}.{name}"))
    }


def _text(text: Corpus, name: str) -> dict[str, Any]:
    facts = {"name": text.name, "sha256": text.sha256}
    return {**facts, "paired": True} if is_paired(name) else facts


def _member(cell: Cell) -> dict[str, Any]:
    """What a record says of a method that its own builds on, apart from the stages."""
    members = {role: _member(member) for role, member in cell.members}
    auxiliaries = auxiliary_facts(cell)
    return {
        "method": cell.method,
        "version": cell.card.version,
        "options": dict(cell.options),
        **({"backbone": _named(cell.model)} if cell.model else {}),
        **({"members": members} if members else {}),
        **({"auxiliaries": auxiliaries} if auxiliaries else {}),
    }


def _named(folder: ModelFolder) -> dict[str, str]:
    return {"name": folder.name, "sha256": folder.sha256}
