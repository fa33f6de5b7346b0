"""A job, one cell on one suite: the record that it is going to leave, its keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.card import SUPERVISED, OptionValue
from bench.config.spec import RunSpec
from bench.data.corpus import Corpus
from bench.data.local_tasks import LocalTask
from bench.data.mteb_names import FILES, suite_label
from bench.data.source import DataSource
from bench.data.suites import MINI_SUITES, is_accepted, make_pair_task
from bench.data.training_data import TrainingData
from bench.errors import InputError
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.nn.model_folder import ARCHITECTURE, ModelFolder, RecipeModel, find_dropout_scope
from bench.plan.cell import Cell, collect_cell_plugins
from bench.records.environment import read_rounding
from bench.records.fingerprint import (
    ENCODER_FACTS,
    IN_STAGE,
    compute_record_key,
    drop_latest_defaults,
    fact_values,
    hash_canonical_json,
)
from bench.records.record import RecordPlace, RunRecord
from bench.registry import METHODS
from bench.stages import (
    ARITHMETIC,
    PAIRS,
    TRAIN,
    ComposedMethod,
    Stage,
    StageSpec,
    TrainedMethod,
    copy_name,
    is_paired,
    planned_steps,
)


def expected_record(cell: Cell, spec: RunSpec, training: TrainingData | None) -> RunRecord:
    """Return the record of a cell on no suite yet; it is failed until there are scores."""
    plugins = collect_cell_plugins(cell)
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
        provenance={
            "device": spec.device,
            "threads": spec.threads,
            **({"plugins": plugins} if plugins else {}),
        },
    )


def stage_record(cell: Cell, spec: RunSpec, training: TrainingData) -> RunRecord:
    """Return the record of a training of the cell's own, for what enters the keys of its stages."""
    plugin = collect_cell_plugins(cell).get(cell.card.name)
    record = expected_record(replace(cell, members=()), spec, None)
    shared = {
        "dev": {"sha256": training.dev.sha256},
        "arithmetic": ARITHMETIC,
        "precision": cell.train_precision,
        **_compilation_block([cell]),
        **_dropout_block([cell]),
        "ranks": cell.ranks,
    }
    # without the method's name: methods of one file share their stages
    provenance = {**record.provenance, "plugins": {"method": plugin} if plugin else {}}
    return replace(record, training=record.training | shared, provenance=provenance)


def training_block(cell: Cell, training: TrainingData | None) -> dict[str, Any]:
    """What a record says of its training before it has begun; nothing without stages and members."""
    block = _dependency_blocks(cell) | ({"supervised": True} if cell.supervised else {})
    if training is None or not cell.trains:
        return block
    trained = [owner for _, owner, _ in cell.named_stages]
    corpus, dev = training.text_of(cell.texts), training.dev
    size = {"pairs" if corpus.partners else "sentences": len(corpus.sentences)}
    text = {"name": corpus.name, "sha256": corpus.sha256, **size}
    return block | {
        "corpus": text | ({"source": corpus.source} if corpus.source else {}),
        "dev": {"task": dev.id, "sha256": dev.sha256, **({"reference": False} if is_accepted(dev) else {})},
        "arithmetic": ARITHMETIC,
        "precision": max((each.train_precision for each in trained), key=lambda name: name != "fp32"),
        **_compilation_block(trained),
        **_dropout_block(trained),
        "ranks": max(each.ranks for each in trained),
        "stages": {role: _stage_block(stage, owner, training) for role, owner, stage in cell.named_stages},
    }


def _compilation_block(cells: Sequence[Cell]) -> dict[str, str]:
    """How the steps of any of them are compiled, nothing where they aren't."""
    return next(({"compiled": cell.compiled} for cell in cells if cell.compiled != "none"), {})


def _dropout_block(cells: Sequence[Cell]) -> dict[str, str]:
    """Where the training of any of them sets dropout, nothing where it is in modules alone."""
    for cell in cells:
        models = [model for model in (cell.model, *(m for _, m in cell.auxiliaries)) if model is not None]
        drawing = any(name.split(".")[-1] == "dropout" for name, _ in cell.options)
        # A backbone that is made on first use is a BERT, whether it is there already or not
        found = [find_dropout_scope(m.path) for m in models if drawing and not isinstance(m, RecipeModel)]
        if ARCHITECTURE in found:
            return {"dropout": ARCHITECTURE}
    return {}


def _stage_block(stage: Stage, cell: Cell, training: TrainingData) -> dict[str, Any]:
    """What is known of a stage of a cell."""
    text = training.texts[stage.spec.text]
    settings = _stage_settings(stage.spec, dict(cell.options))
    return {
        "key": stage.key,
        "version": stage.spec.version,
        **({} if stage.spec.text == TRAIN else {"text": _text_block(text, stage.spec.text)}),
        **({"settings": settings} if settings else {}),
    }


def _stage_settings(stage: StageSpec, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """What a stage depends on that the options don't say, such as the model of another package."""
    return {
        name: value
        for name, value in stage.config
        if value not in (options.get(name), options.get(f"{stage.role}.{name}"))
    }


def _text_block(text: Corpus, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": text.name, "sha256": text.sha256}
    if text.partners:
        facts["pairs"] = len(text.partners)
    return {**facts, "paired": True} if is_paired(name) else facts


def _member_block(cell: Cell) -> dict[str, Any]:
    """What a record says of a method that its own builds on, apart from the stages."""
    said = {"method": cell.method, "version": cell.card.version, "options": dict(cell.options)}
    return said | ({"backbone": _model_block(cell.model)} if cell.model else {}) | _dependency_blocks(cell)


def _dependency_blocks(cell: Cell) -> dict[str, Any]:
    """The methods that a cell builds on, and the models it needs in training in addition to its own."""
    blocks = {
        "members": {role: _member_block(member) for role, member in cell.members},
        "auxiliaries": {option: _model_block(folder) for option, folder in cell.auxiliaries},
    }
    return {name: block for name, block in blocks.items() if block}


def cell_model_block(cell: Cell) -> dict[str, str] | None:
    """What a record says of the model that a cell starts from, or brings."""
    return _model_block(cell.model) if cell.model else None


def _model_block(folder: ModelFolder) -> dict[str, str]:
    recipe = {"recipe": folder.recipe} if isinstance(folder, RecipeModel) else {}
    return {"name": folder.name, "sha256": folder.sha256, **recipe}


MATCHED = ("steps", "eval_every")
"""Options that ``match`` sets; ``eval_every`` only where the user doesn't."""


def check_match(match: str, given: Collection[str], matching: Collection[str], where: str) -> None:
    """Raise InputError for a method that can't be matched, or beside options that say how long to train.

    Args:
        match: Its name.
        given: Options that the user gave.
        matching: Methods whose length is being found.
        where: The place of the option, for the error.
    """
    if beside := sorted({"steps", "epochs"} & set(given)):
        raise InputError(
            f"{' and '.join(beside)} beside match={match}, which says itself how long to train",
            where=where,
            expected="one of them (--set holds for every row of a method, brackets for one)",
        )
    if match in matching:
        raise InputError(f"'{match}' is matched to itself", where=where)
    other = METHODS.get(match, where=f"match={match}")
    if not isinstance(other, TrainedMethod | ComposedMethod):
        raise _no_training_error(match)


def compute_matching_length(
    match: str, other: Cell, options: Mapping[str, OptionValue], size: int
) -> dict[str, int]:
    """Steps that show a method as many sentences as another's stages see, and as many dev evaluations.

    Args:
        match: The other method's name.
        other: Its cell with its members, whose stages count too, each once.
        options: The method's own options.
        size: Sentences of the training text.

    Raises:
        InputError: the other method trains nothing, or on labelled pairs.
    """
    other = _add_planned_stages(other)
    if other.card.kind == SUPERVISED or other.supervised:
        raise InputError(f"'{match}' learns from pairs, not from the training text", where=f"match={match}")
    configs = [dict(stage.spec.config) for stage in other.all_stages]
    if not any(config["steps"] or config["epochs"] for config in configs):
        raise _no_training_error(match)
    sentences = sum(planned_steps(config, size) * int(config["batch_size"]) for config in configs)
    steps = -(-sentences // int(options["batch_size"]))
    evaluations = max(1, planned_steps(options, size) // int(options["eval_every"]))
    return {"steps": steps, "eval_every": max(1, steps // evaluations)}


def _add_planned_stages(cell: Cell) -> Cell:
    """The cell and its members with their stages, keyed by what is known without models and texts."""
    members = tuple((role, _add_planned_stages(member)) for role, member in cell.members)
    method = METHODS.get(cell.card.name)
    specs = method.stages(dict(cell.options)) if isinstance(method, TrainedMethod) else ()
    keys = {
        role: hash_canonical_json([member.card.name, member.options, member.copy]) for role, member in members
    }
    texts = {spec.text: spec.text for spec in specs}
    return replace(cell, members=members, stages=assign_stage_keys(specs, 0, {}, texts, keys, cell.copy))


def _no_training_error(match: str) -> InputError:
    return InputError(f"'{match}' doesn't train, so there is no budget to match", where=f"match={match}")


def add_stages(cell: Cell, spec: RunSpec, training: TrainingData | None) -> Cell:
    """Return the cell with its training stages keyed, its members' before its own."""
    members = tuple((role, add_stages(member, spec, training)) for role, member in cell.members)
    cell = replace(cell, members=members)
    method = METHODS.get(cell.card.name)
    if not isinstance(method, TrainedMethod) or training is None or cell.model is None:
        return cell
    specs = method.stages(dict(cell.options))
    seed = 0 if cell.seed is None else cell.seed  # a deterministic method's stage draws nothing
    texts = {name: corpus.sha256 for name, corpus in training.texts.items()}
    keys = {role: encoder_key(member, spec, training) for role, member in members}
    facts = fact_values(stage_record(cell, spec, training), IN_STAGE)
    return replace(cell, stages=assign_stage_keys(specs, seed, facts, texts, keys, cell.copy))


def encoder_key(cell: Cell, spec: RunSpec, training: TrainingData | None) -> str:
    """Return the sha256 of everything that determines a cell's encoder, whatever it is measured on."""
    return hash_canonical_json([fact_values(expected_record(cell, spec, training), ENCODER_FACTS), cell.copy])


def assign_stage_keys(
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
            "config": drop_latest_defaults(dict(spec.config)),
            "seed": seed,
            "inputs": {role: keys[role] for role in spec.inputs},
            "facts": facts,
            "text": texts[spec.text],
            "copy": copy,
        }
        keys[spec.role] = hash_canonical_json(identity)
        stages.append(Stage(spec, seed, keys[spec.role], copy))
    return tuple(stages)


@dataclass(frozen=True)
class Job:
    """One cell on one suite.

    Args:
        cell: The cell.
        record: The record that it is going to leave, as far as it is known now.
        source: What loads the suite where its name in records doesn't: a ``local:`` file.
    """

    cell: Cell
    record: RunRecord
    source: str = ""

    @property
    def suite(self) -> str:
        """Name of the suite in records."""
        return self.record.suite

    @property
    def key(self) -> str:
        """The key of everything that determines the scores."""
        return self.record.key

    @property
    def place(self) -> RecordPlace:
        """Where the record belongs."""
        return self.cell.place(self.suite)


def make_job(
    cell: Cell, name: str, tasks: list[SuiteTask], spec: RunSpec, training: TrainingData | None
) -> Job:
    """Return the job of a cell on the suite of that name."""
    measure = measure_of(name)
    suite = suite_label(name)
    settings = {"version": measure.version, "precision": spec.precision}
    record = replace(
        expected_record(cell, spec, training),
        suite=suite,
        tasks={
            task.id: {
                measure.counted: task.items,
                "sha256": task.sha256,
                "reference": measure.is_reference(task),
                **_pairs_hash(task, name),
            }
            for task in tasks
        },
        evaluation=settings | measure.settings(spec.transfer_solver),
        notes=(
            *cell.notes,
            *measure.notes,
            *_text_notes(cell, training),
            *_dev_notes(cell, training),
            *_paired_notes(cell, training),
            *_supervision_notes(cell, training),
            *_weight_notes(cell),
        ),
        world=_world_block(cell, suite, spec, training),
    )
    return Job(cell, replace(record, key=compute_record_key(record)), "" if name == suite else name)


def _pairs_hash(task: SuiteTask, suite: str) -> dict[str, str]:
    """Fingerprint of the pairs alone of a file of the user's own: a dev set of them has the same."""
    local: LocalTask | None = getattr(task, "local", None)
    if local is None or local.type != "sts" or not suite.startswith(FILES):
        return {}
    return {"pairs_sha256": make_pair_task(local.name, local.table("file")).sha256}


def _text_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """What must be said of the training text."""
    return training.notes(cell.texts) if training is not None and cell.trains else ()


def _dev_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where the dev set isn't the reference version of its name."""
    if training is None or not cell.trains or not is_accepted(training.dev):
        return ()
    return (f"Dev set {training.dev.id} differs from the reference version ({training.dev.sha256[:12]}).",)


def _supervision_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where a method or one that it builds on learned from labels."""
    if not cell.supervised:
        return ()
    pairs = training.texts[PAIRS].name if training is not None and PAIRS in cell.texts else ""
    learned = f"its training learned from the labelled pairs {pairs}" if pairs else "it learned from labels"
    return (f"{cell.method} is supervised: {learned}.",)


def _paired_notes(cell: Cell, training: TrainingData | None) -> tuple[str, ...]:
    """The footnote where a method or its teacher learned from pairs of the mini world's grammar."""
    if training is None or training.corpus.world is None:
        return ()
    if not any(is_paired(stage.spec.text) for stage in cell.all_stages):
        return ()
    return (f"{cell.method}: the grammar's own paraphrases are positives in its training: not ranked here.",)


def _weight_notes(cell: Cell) -> tuple[str, ...]:
    """What must be said of a model whose weights `bench pack` rounded."""
    found = read_rounding(cell.model.path) if cell.model else {}
    if not found or cell.model is None:
        return ()
    return (f"Weights of {cell.model.name} are rounded to {found['weights']}, from {found['sha256'][:12]}.",)


def _world_block(
    cell: Cell, suite: str, spec: RunSpec, training: TrainingData | None
) -> dict[str, int] | None:
    """Name the made-up world where the suite, the training text or the dev set comes from it."""
    world = DataSource.of_run(spec).world.facts
    trained = training is not None and cell.trains and training.text_of(cell.texts).world == world
    return world if suite in MINI_SUITES or trained else None
