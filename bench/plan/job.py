"""A job, one cell on one suite: the record that it will leave, and its keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import stages
from bench.config.run_spec import RunSpec
from bench.data.corpus import Corpus
from bench.data.data_source import DataSource
from bench.data.label_origin import note_labels
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import FILES, suite_label
from bench.data.suites import MINI_SUITES, is_accepted, make_pair_task
from bench.data.training_data import TrainingData
from bench.errors import InputError
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.method_card import OptionValue
from bench.nn.adapter_view import open_plain_folder
from bench.nn.folder_facts import ARCHITECTURE, find_dropout_scope
from bench.nn.model_folder import AdapterModel, ModelFolder, RecipeModel
from bench.plan.cell import Cell, collect_cell_plugins
from bench.records import fingerprint
from bench.records.environment import read_rounding, sourceless_classes
from bench.records.record import RecordPlace, RunRecord
from bench.registry import METHODS


def expected_record(cell: Cell, spec: RunSpec, training: TrainingData | None) -> RunRecord:
    """Return the record of a cell before its evaluation, which counts as failed."""
    plugins = collect_cell_plugins(cell, spec.whole_files)
    provenance: dict[str, Any] = {"device": spec.device, "threads": spec.threads}
    if plugins:
        provenance["plugins"] = plugins
    return RunRecord(
        profile=cell.profile,
        method=cell.method,
        name=cell.card.name,
        version=cell.card.version,
        options=dict(cell.options),
        backbone=cell_model_block(cell),
        seed=cell.seed,
        suite="",
        tasks={},
        key="",
        status="failed",
        training=training_block(cell, training),
        provenance=provenance,
    )


def stage_record(cell: Cell, spec: RunSpec, training: TrainingData) -> RunRecord:
    """Return the record of a cell's own training for the keys of its stages."""
    plugin = collect_cell_plugins(cell, spec.whole_files).get(cell.card.name)
    record = expected_record(replace(cell, members=()), spec, None)
    shared = {"dev": {"sha256": training.dev.sha256}, **_training_settings([cell])}
    # without the method's name: methods of one file share their stages
    provenance = {**record.provenance, "plugins": {"method": plugin} if plugin else {}}
    return replace(record, training=record.training | shared, provenance=provenance)


def training_block(cell: Cell, training: TrainingData | None) -> dict[str, Any]:
    """Return a record's training block before the training; {} for untrained encoders."""
    block = _dependency_blocks(cell)
    if cell.supervised:
        block["supervised"] = True
    if training is None or not cell.trains:
        return block
    corpus, dev = training.text_of(cell.texts), training.dev
    text: dict[str, Any] = {"name": corpus.name, "sha256": corpus.sha256}
    text["pairs" if corpus.partners else "sentences"] = len(corpus.sentences)
    if corpus.source:
        text["source"] = corpus.source
    text |= _label_facts(corpus)
    dev_block: dict[str, Any] = {"task": dev.id, "sha256": dev.sha256}
    if is_accepted(dev):
        dev_block["reference"] = False
    blocks = {role: _stage_block(stage, owner, training) for role, owner, stage in cell.named_stages}
    settings = _training_settings([owner for _, owner, _ in cell.named_stages])
    return block | {"corpus": text, "dev": dev_block, **settings, "stages": blocks}


def _training_settings(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the settings that cells of one training share; leave some out at their default."""
    settings: dict[str, Any] = {"arithmetic": stages.ARITHMETIC, "precision": "fp32", "ranks": 1}
    for cell in cells:
        settings["ranks"] = max(settings["ranks"], cell.ranks)
        if settings["precision"] == "fp32":
            settings["precision"] = cell.train_precision
        if cell.compiled != "none":
            settings.setdefault("compiled", cell.compiled)
        drops = any(name.split(".")[-1] == "dropout" for name, _ in cell.options)
        for model in cell.models if drops else ():
            # A recipe's backbone is a BERT, which may be still to be made
            if not isinstance(model, RecipeModel) and _read_dropout_scope(model) == ARCHITECTURE:
                settings["dropout"] = ARCHITECTURE
    return settings


def _read_dropout_scope(model: ModelFolder) -> str:
    with open_plain_folder(model.path) as plain:
        return find_dropout_scope(plain)


def _stage_block(stage: stages.Stage, cell: Cell, training: TrainingData) -> dict[str, Any]:
    text, options = training.texts[stage.spec.text], dict(cell.options)
    block: dict[str, Any] = {"key": stage.key, "version": stage.spec.version}
    if stage.spec.text != stages.TRAIN:
        block["text"] = {"name": text.name, "sha256": text.sha256}
        if text.partners:
            block["text"] |= {"pairs": len(text.partners), **_label_facts(text)}
        if stages.is_paired(stage.spec.text):
            block["text"]["paired"] = True
    settings = {}  # beyond the options, such as the model of another package
    for name, value in stage.spec.config:
        if value not in (options.get(name), options.get(f"{stage.spec.role}.{name}")):
            settings[name] = value
    if settings:
        block["settings"] = settings
    return block


def _label_facts(text: Corpus) -> dict[str, str]:
    """Return the language model that wrote the labels, if any: of the hash's text, so in no key."""
    return {"label_model": text.label_model} if text.label_model else {}


def _member_block(cell: Cell) -> dict[str, Any]:
    """Return the block of a member; its stages are in the training block."""
    block = {"method": cell.method, "version": cell.card.version, "options": dict(cell.options)}
    if cell.model:
        block["backbone"] = _model_block(cell.model)
    return block | _dependency_blocks(cell)


def _dependency_blocks(cell: Cell) -> dict[str, Any]:
    """Return the blocks of the methods that a cell builds on, and of its auxiliary models."""
    blocks: dict[str, Any] = {}
    if cell.members:
        blocks["members"] = {role: _member_block(member) for role, member in cell.members}
    if cell.auxiliaries:
        blocks["auxiliaries"] = {option: _model_block(folder) for option, folder in cell.auxiliaries}
    return blocks


def cell_model_block(cell: Cell) -> dict[str, Any] | None:
    """Return the block of a cell's model."""
    return _model_block(cell.model) if cell.model else None


def _model_block(folder: ModelFolder) -> dict[str, Any]:
    block: dict[str, Any] = {"name": folder.name, "sha256": folder.sha256}
    if isinstance(folder, RecipeModel):
        block["recipe"] = folder.recipe
    if isinstance(folder, AdapterModel):
        block["bases"] = {base.name: base.sha256 for base in folder.bases}
    return block


MATCHED = ("steps", "eval_every")  # options that ``match`` sets; the user may set ``eval_every``


def check_match(match: str, given: Collection[str], matching: Collection[str], where: str) -> None:
    """Raise InputError for an untrained method, or a further option for the training length."""
    if lengths := sorted({"steps", "epochs"} & set(given)):
        what = f"{' and '.join(lengths)} beside match={match}, which says itself how long to train"
        expected = "one of them (--set holds for every row of a method, brackets for one)"
        raise InputError(what, where=where, expected=expected)
    if match in matching:
        raise InputError(f"'{match}' is matched to itself", where=where)
    method = METHODS.get(match, where=f"match={match}")
    if not isinstance(method, stages.TrainedMethod | stages.ComposedMethod):
        raise _no_training_error(match)


def compute_matching_length(
    match: str, other: Cell, options: Mapping[str, OptionValue], size: int
) -> dict[str, int]:
    """Return steps for as many sentences as another method's stages see, with as many dev evaluations."""
    other = _add_planned_stages(other)
    if other.supervised:
        raise InputError(f"'{match}' learns from pairs, not from the training text", where=f"match={match}")
    trains, sentences = False, 0
    for stage in other.all_stages:
        config = dict(stage.spec.config)
        trains = trains or bool(config["steps"] or config["epochs"])
        sentences += stages.planned_steps(config, size) * int(config["batch_size"])
    if not trains:
        raise _no_training_error(match)
    steps = -(-sentences // int(options["batch_size"]))
    evaluations = max(1, stages.planned_steps(options, size) // int(options["eval_every"]))
    return {"steps": steps, "eval_every": max(1, steps // evaluations)}


def _add_planned_stages(cell: Cell) -> Cell:
    """Return the cell and its members with their stages, whose keys ignore models and texts."""
    members = tuple((role, _add_planned_stages(member)) for role, member in cell.members)
    method = METHODS.get(cell.card.name)
    specs = method.stages(dict(cell.options)) if isinstance(method, stages.TrainedMethod) else ()
    keys = {}
    for role, member in members:
        keys[role] = fingerprint.hash_canonical_json([member.card.name, member.options, member.copy])
    texts = {spec.text: spec.text for spec in specs}
    return replace(cell, members=members, stages=assign_stage_keys(specs, 0, {}, texts, keys, cell.copy))


def _no_training_error(match: str) -> InputError:
    return InputError(f"'{match}' doesn't train, so there is no budget to match", where=f"match={match}")


def add_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    """Return the cell with its training stages keyed, its members' before its own."""
    members = tuple((role, add_stages(member, spec, training)) for role, member in cell.members)
    cell = replace(cell, members=members)
    method = METHODS.get(cell.card.name)
    if not isinstance(method, stages.TrainedMethod) or training is None or cell.model is None:
        return cell
    specs = method.stages(dict(cell.options))
    seed = cell.seed or 0  # a deterministic method's stage draws nothing
    texts = {name: corpus.sha256 for name, corpus in training.texts.items()}
    keys = {}
    for role, member in members:
        facts = fingerprint.fact_values(expected_record(member, spec, training), fingerprint.ENCODER_FACTS)
        keys[role] = fingerprint.hash_canonical_json([facts, member.copy])
    facts = fingerprint.fact_values(stage_record(cell, spec, training), fingerprint.IN_STAGE)
    return replace(cell, stages=assign_stage_keys(specs, seed, facts, texts, keys, cell.copy))


def assign_stage_keys(
    specs: Sequence[stages.StageSpec],
    seed: int,
    facts: Mapping[str, object],
    texts: Mapping[str, str],
    members: Mapping[str, str] | None = None,
    copy: str = "",
) -> tuple[stages.Stage, ...]:
    """Return the stages of one method with their keys, in order; a stage's inputs come before it."""
    # ``facts`` are the other facts that determine them, ``texts`` the hash of every training text,
    # ``members`` the key of each method they build on. Raises InputError for a missing text.
    keys: dict[str, str] = dict(members or {})
    keyed = []
    for spec in specs:
        if spec.text not in texts and spec.text == stages.PAIRS:
            raise InputError(f"stage '{spec.role}' learns from labelled pairs", expected="--pairs FILE")
        if spec.text not in texts:
            what = "a round-trip translation of the training text, and none is at hand"
            command = f"--copy {stages.copy_name(spec.text)}=FILE (bench data rtt makes it)"
            hint = f"name it with {command}, or train on the text itself with the method's option rtt=none"
            raise InputError(f"stage '{spec.role}' trains on {what}", hint=hint)
        identity = {
            "role": spec.role,
            "kind": spec.kind,
            "version": spec.version,
            "config": fingerprint.drop_latest_defaults(dict(spec.config)),
            "seed": seed,
            "inputs": {role: keys[role] for role in spec.inputs},
            "facts": facts,
            "text": texts[spec.text],
            "copy": copy,
        }
        keys[spec.role] = fingerprint.hash_canonical_json(identity)
        keyed.append(stages.Stage(spec, seed, keys[spec.role], copy))
    return tuple(keyed)


@dataclass(frozen=True)
class Job:
    """One cell on one suite, with the record that it will leave."""

    cell: Cell
    record: RunRecord
    source: str = ""  # loads the suite, where records have another name: a ``local:`` file

    @property
    def suite(self) -> str:
        """Name of the suite in records."""
        return self.record.suite

    @property
    def key(self) -> str:
        """Key of everything that determines the scores."""
        return self.record.key

    @property
    def place(self) -> RecordPlace:
        """Place of the record."""
        return self.cell.place(self.suite)


def make_job(
    cell: Cell, name: str, tasks: list[SuiteTask], spec: RunSpec, training: TrainingData | None
) -> Job:
    """Return the job of a cell on the suite of that name."""
    measure, suite = measure_of(name), suite_label(name)
    facts: dict[str, dict[str, Any]] = {}
    for task in tasks:
        reference = measure.is_reference(task)
        facts[task.id] = {measure.counted: task.items, "sha256": task.sha256, "reference": reference}
        local: LocalTask | None = getattr(task, "local", None)
        if local is not None and local.type == "sts" and name.startswith(FILES):
            # a dev set of the same pairs has the same hash
            facts[task.id]["pairs_sha256"] = make_pair_task(local.name, local.table("file")).sha256
    world = DataSource.of_run(spec).world.facts
    from_world = training is not None and cell.trains and training.text_of(cell.texts).world == world
    settings = {"version": measure.version, "precision": spec.precision}
    record = replace(
        expected_record(cell, spec, training),
        suite=suite,
        tasks=facts,
        evaluation=settings | measure.settings(spec.transfer_solver),
        notes=(*cell.notes, *measure.notes, *_cell_notes(cell, training)),
        world=world if suite in MINI_SUITES or from_world else None,
    )
    record = replace(record, key=fingerprint.compute_record_key(record))
    return Job(cell, record, "" if name == suite else name)


def _cell_notes(cell: Cell, training: TrainingData | None) -> Iterator[str]:
    """Yield footnotes on the texts of a cell's training, its labels and its weights."""
    if training is not None and cell.trains:
        yield from training.notes(cell.texts)
        dev = training.dev
        if is_accepted(dev):
            yield f"Dev set {dev.id} differs from the reference version ({dev.sha256[:12]})."
        if training.corpus.world is not None and any(map(stages.is_paired, cell.texts)):
            what = "the grammar's own paraphrases are positives in its training"
            yield f"{cell.method}: {what}: not ranked here."
    for name in sourceless_classes({"plugins": collect_cell_plugins(cell)}):
        yield f"{cell.method}: the class of {name} had no source: not repeatable."
    if cell.supervised:
        learned = "it learned from labels"
        if training is not None and stages.PAIRS in cell.texts:
            learned = f"its training learned from the labelled pairs {training.texts[stages.PAIRS].name}"
        yield f"{cell.method} is supervised: {learned}."
        if training is not None and stages.PAIRS in cell.texts:
            pairs = training.texts[stages.PAIRS]
            if pairs.label_model:
                yield note_labels(pairs.name, pairs.label_model)
    if cell.model and (rounding := read_rounding(cell.model.path)):
        origin = f"rounded to {rounding['weights']}, from {rounding['sha256'][:12]}"
        yield f"Weights of {cell.model.name} are {origin}."
