"""The record that a cell is going to leave, as far as it is known before anything runs.

Keys are made from it, and by :mod:`bench.records.fingerprint` differences from finished records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.card import OptionValue
from bench.config.spec import RunSpec
from bench.data.corpus import Corpus
from bench.data.suites import accepted
from bench.data.training import TrainingData
from bench.nn.folder import MadeModel, ModelFolder
from bench.nn.folder_facts import ARCHITECTURE, dropout_of
from bench.plan.cell import Cell, plugins_of
from bench.records.record import RunRecord
from bench.stages import ARITHMETIC, TRAIN, Stage, StageSpec, is_paired


def expected_record(cell: Cell, spec: RunSpec, training: TrainingData | None) -> RunRecord:
    """Return the record of a cell on no suite yet; it is failed until there are scores."""
    plugins = plugins_of(cell)
    return RunRecord(
        profile=cell.profile,
        method=cell.method,
        name=cell.card.name,
        version=cell.card.version,
        options=dict(cell.options),
        backbone=named_model(cell),
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
        **_compiled([cell]),
        **_dropout([cell]),
        "ranks": cell.ranks,
    }
    # without the method's name: methods of one file share their stages
    provenance = {**record.provenance, "plugins": {"method": plugin} if plugin else {}}
    return replace(record, training=record.training | shared, provenance=provenance)


def training_block(cell: Cell, training: TrainingData | None) -> dict[str, Any]:
    """What a record says of its training before it has begun; nothing without stages and members."""
    block = _built_on(cell) | ({"supervised": True} if cell.supervised else {})
    if training is None or not cell.trains:
        return block
    trained = [owner for _, owner, _ in cell.named_stages]
    corpus, dev = training.text_of(cell.texts), training.dev
    size = {"pairs" if corpus.partners else "sentences": len(corpus.sentences)}
    text = {"name": corpus.name, "sha256": corpus.sha256, **size}
    return block | {
        "corpus": text | ({"source": corpus.source} if corpus.source else {}),
        "dev": {"task": dev.id, "sha256": dev.sha256, **({"reference": False} if accepted(dev) else {})},
        "arithmetic": ARITHMETIC,
        "precision": max((each.train_precision for each in trained), key=lambda name: name != "fp32"),
        **_compiled(trained),
        **_dropout(trained),
        "ranks": max(each.ranks for each in trained),
        "stages": {role: _stage(stage, owner, training) for role, owner, stage in cell.named_stages},
    }


def _compiled(cells: Sequence[Cell]) -> dict[str, str]:
    """How the steps of any of them are compiled, nothing where they aren't."""
    return next(({"compiled": cell.compiled} for cell in cells if cell.compiled != "none"), {})


def _dropout(cells: Sequence[Cell]) -> dict[str, str]:
    """Where the training of any of them sets dropout, nothing where it is in modules alone."""
    for cell in cells:
        models = [model for model in (cell.model, *(m for _, m in cell.auxiliaries)) if model is not None]
        drawing = any(name.split(".")[-1] == "dropout" for name, _ in cell.options)
        # A backbone that is made on first use is a BERT, whether it is there already or not
        found = [dropout_of(m.path) for m in models if drawing and not isinstance(m, MadeModel)]
        if ARCHITECTURE in found:
            return {"dropout": ARCHITECTURE}
    return {}


def _stage(stage: Stage, cell: Cell, training: TrainingData) -> dict[str, Any]:
    """What is known of a stage of a cell."""
    text = training.texts[stage.spec.text]
    settings = _settings(stage.spec, dict(cell.options))
    return {
        "key": stage.key,
        "version": stage.spec.version,
        **({} if stage.spec.text == TRAIN else {"text": _text(text, stage.spec.text)}),
        **({"settings": settings} if settings else {}),
    }


def _settings(stage: StageSpec, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """What a stage depends on that the options don't say, such as the model of another package."""
    return {
        name: value
        for name, value in stage.config
        if value not in (options.get(name), options.get(f"{stage.role}.{name}"))
    }


def _text(text: Corpus, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": text.name, "sha256": text.sha256}
    if text.partners:
        facts["pairs"] = len(text.partners)
    return {**facts, "paired": True} if is_paired(name) else facts


def _member(cell: Cell) -> dict[str, Any]:
    """What a record says of a method that its own builds on, apart from the stages."""
    said = {"method": cell.method, "version": cell.card.version, "options": dict(cell.options)}
    return said | ({"backbone": _named(cell.model)} if cell.model else {}) | _built_on(cell)


def _built_on(cell: Cell) -> dict[str, Any]:
    """The methods that a cell builds on, and the models it needs in training in addition to its own."""
    blocks = {
        "members": {role: _member(member) for role, member in cell.members},
        "auxiliaries": {option: _named(folder) for option, folder in cell.auxiliaries},
    }
    return {name: block for name, block in blocks.items() if block}


def named_model(cell: Cell) -> dict[str, str] | None:
    """What a record says of the model that a cell starts from, or brings."""
    return _named(cell.model) if cell.model else None


def _named(folder: ModelFolder) -> dict[str, str]:
    recipe = {"recipe": folder.recipe} if isinstance(folder, MadeModel) else {}
    return {"name": folder.name, "sha256": folder.sha256, **recipe}
