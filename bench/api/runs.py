"""Run, try out, train and tune methods from Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack, get_type_hints

from bench.api.command_options import (
    EncoderOptions,
    RunOptions,
    TuneOptions,
    check_path,
    options_by_name,
    parse_options,
    refuse_options,
)
from bench.api.results import Results
from bench.api.session import open_session
from bench.api.session_methods import find_session_methods
from bench.cli.encoder_plan import plan_encoder, prepare_encoder
from bench.cli.options import check_device, make_spec
from bench.cli.run import (
    check_deadline,
    check_log_options,
    execute_plan,
    prepare_plan,
    read_plan_records,
    run_command,
)
from bench.cli.sealing import SealingOptions
from bench.cli.train import tune_command
from bench.config.notebook_methods import register_classes
from bench.errors import InputError
from bench.exchange.export_command import (
    check_adapter_row,
    check_full_precision,
    export_command,
    save_encoder,
)
from bench.render.grid import SCALE

if TYPE_CHECKING:
    import click
    from pandas import DataFrame

    from bench.config.run_spec import RunSpec
    from bench.eval.public_encoder import LoadedEncoder
    from bench.plan.plan import Plan
    from bench.records.record import RecordPlace, RunRecord

Methods = str | type | Sequence[str | type]
Seeds = int | str | Iterable[int]
PRINTING = ("dry_run", "estimate", "price_per_hour", "detect", "spread", "details")
"""Options of ``bench run`` that only print."""
_WRITING = ("vectors", "block", "layout", "methods")
"""Options of ``bench export`` that only write."""


def run(
    methods: Methods,
    *,
    seeds: Seeds = "1-5",
    campaign: str = "local",
    progress: bool = False,
    **options: Unpack[RunOptions],
) -> Results:
    """Train and evaluate methods over seeds and suites, as ``bench run`` does.

    The plan, keys, locks and records are the command's: finished cells are skipped, and each record is on
    disk before the next cell begins. Failed cells and Ctrl-C leave partial results.

    Args:
        methods: Names as for ``--methods``, in a list or one text, and classes of your own.
        seeds: A seed, a range, a list, or a text such as "1-5".
        campaign: Folder of records below ``results``.
        progress: True to show progress on stderr, in a notebook as a live table.
        options: As for ``bench run``, such as ``profile="minilm"``, ``set={"simcse.lr": 1e-5}``,
            ``results="results"``; all are listed below.

    Returns:
        The results of this call's methods, seeds and suites; ``missing`` counts those without a score.

    Raises:
        InputError: bad input, before anything runs.

    >>> import bench, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = bench.run("word_overlap", results=folder)
    ...     print(round(results.to_dataframe(wide=True)["avg"].item(), 2), results.missing)
    19.5 0
    """
    given = {"seeds": seeds, "campaign": campaign, **options}
    begin = time.monotonic()
    with ExitStack() as stack:
        messages = stack.enter_context(open_session(progress=progress))
        parsed, spec = _make_run_spec(methods, given, "bench.run", stack)
        check_log_options(parsed["logs"])
        check_deadline(parsed["deadline"], force=parsed["force"])
        seal = SealingOptions(*(parsed[name] for name in ("sealing", "baseline", "family_kind", "margin")))
        seal.check()
        plan, ends, interrupted = prepare_plan(spec, seal, parsed["shard"]), None, False
        if parsed["deadline"] is not None:
            from bench.execution.runner import Deadline

            ends = Deadline(plan, begin + 60 * parsed["deadline"])
        try:
            execute_plan(plan, ends, parsed["logs"])
        except KeyboardInterrupt:
            interrupted = True
            messages.append("interrupted; finished cells are kept, repeat the call to resume")
        left = [job.place for job in ends.jobs] if ends is not None else []
        records = tuple(read_plan_records(plan))
        unfinished = _explain_unfinished(plan, records)
    early = interrupted or bool(left)
    return Results(plan.store, records, spec.data, tuple(messages), unfinished, interrupted=early)


def _explain_unfinished(plan: Plan, records: Sequence[RunRecord]) -> dict[RecordPlace, str]:
    """Return why planned records have no score, by their places."""
    finished = {record.place for record in records if record.status == "ok"}
    reasons = {job.place: "not run" for job in plan.jobs if job.place not in finished}
    for job, conflict in plan.conflicts():
        hint = f"; {conflict.hint}" if conflict.hint else ""
        reasons[job.place] = f"{conflict.what}{hint}"
    return reasons


def dry_run(
    methods: Methods, *, seeds: Seeds = "1-5", campaign: str = "local", **options: Unpack[RunOptions]
) -> DataFrame:
    """Return what :func:`run` would do, a row for each cell and suite; nothing is written.

    Columns: method, seed, suite, state ("to do", "done", "failed", which runs again, or "conflict", a
    finished run of another specification, which stays) and reason. Arguments and errors
    are those of :func:`run`.

    >>> import bench, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bench.dry_run("simcse", seeds=[1, 2], results=folder)[["seed", "state"]].values.tolist()
    [[1, 'to do'], [2, 'to do']]
    """
    from pandas import DataFrame

    given = {"seeds": seeds, "campaign": campaign, **options}
    with ExitStack() as stack:
        stack.enter_context(open_session(progress=False))
        parsed, spec = _make_run_spec(methods, given, "bench.dry_run", stack)
        plan = prepare_plan(spec, SealingOptions(), parsed["shard"], dry=True)
        rows = []
        for job in plan.jobs:
            state = plan.states[job.place]
            reason = str(state.conflict) if state.conflict else state.fault
            rows.append((job.cell.method, job.cell.seed, job.suite, state.status, reason))
    return DataFrame(rows, columns=["method", "seed", "suite", "state", "reason"]).astype({"seed": "Int64"})


def train(
    method: str | type,
    *,
    seed: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    **options: Unpack[EncoderOptions],
) -> LoadedEncoder:
    """Train one encoder and return it; with ``out`` save it as ``bench export`` does.

    A finished training below ``results`` with the same options is reused.

    Args:
        method: A name as for ``bench run``, or a class of your own.
        seed: Seed of the training; leave it out for a method without seeds.
        out: New folder for the encoder, which transformers, sentence-transformers and :func:`load` read.
        progress: True to show progress on stderr.
        options: As for ``bench export``, such as ``profile="minilm"``, ``checkpoint="last"``, or
            ``adapter=True`` for the LoRA adapter by itself in ``out``.

    Returns:
        An encoder: ``encode(sentences)`` gives float32 (n, dim). It is a model for mteb too.

    Raises:
        InputError: bad input, a missing or superfluous seed, a method without vectors.

    >>> import bench, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encoder = bench.train("untrained", results=folder)
    >>> encoder.encode(["a dog runs", "a cat sleeps"]).shape
    (2, 128)
    """
    from bench.execution.model_card import collect_model_facts
    from bench.nn.device import torch_threads
    from bench.nn.encoder_folder import check_target
    from bench.records.record import safe_name

    where = "bench.train"
    folder = None if out is None else check_path(out, "out", where)
    with ExitStack() as stack:
        stack.enter_context(open_session(progress=progress))
        (name,), register = _register([method], options, stack)
        refuse_options(options, _WRITING, where, "bench export")
        parsed = parse_options(export_command, {"seed": seed, "out": "-", **options}, where, (name,))
        checkpoint, adapter = parsed.pop("checkpoint"), parsed.pop("adapter")
        check_full_precision(parsed["precision"])
        if adapter and folder is None:
            raise InputError("adapter=True writes nothing without out", where=where, expected="out as well")
        parsed |= {"suites": parsed["suites"] or "toy"}  # a plan needs one; nothing is evaluated
        plan = plan_encoder(parsed.pop("method"), parsed.pop("seed"), parsed, where)
        plan = replace(plan, spec=register(plan.spec))
        with torch_threads(plan.spec.threads, needs_torch=True):
            if folder is not None:
                check_target(folder)
            if adapter:
                check_adapter_row(plan)
            builder, encoder = prepare_encoder(plan, checkpoint, where)
            if folder is not None:
                save_encoder(plan, builder, encoder, checkpoint, folder, adapter=adapter)
            facts = collect_model_facts(builder)
        from bench.eval.public_encoder import LoadedEncoder

        return LoadedEncoder(encoder, f"bench/{safe_name(plan.jobs[0].cell.method)}", facts)


def check_method(method: str | type) -> DataFrame:
    """Check that a method meets bench's requirements, as ``bench conformance`` does, in some seconds.

    Args:
        method: A name as for ``bench run``, or a class of your own.

    Returns:
        A row for each check: check, verdict ("passed", "failed", "no case", "not run") and reason.

    Raises:
        InputError: an unknown method.

    >>> import bench
    >>> frame = bench.check_method("word_overlap")
    >>> frame.loc[frame.check == "card", "verdict"].item()
    'passed'
    """
    from pandas import DataFrame

    from bench.conformance.check_run import check_method as run_checks

    with ExitStack() as stack:
        stack.enter_context(open_session(progress=False))
        (name,), _ = _register([method], {}, stack)
        findings = run_checks(name, Path(stack.enter_context(TemporaryDirectory())))
    rows = [(finding.check, finding.verdict, finding.reason) for finding in findings]
    return DataFrame(rows, columns=["check", "verdict", "reason"])


@dataclass(frozen=True, repr=False)
class Tuning:
    """The dev score of each value of an option; :func:`tune` returns it.

    Args:
        method: Name of the method.
        option: Name of the option.
        scores: Dev score of each value, in points.
        failures: The reason of each value that failed.
        toml: Lines for a profile.
        given: Options with which it was tuned.

    >>> Tuning("simcse", "lr", {1e-5: 70.0, 3e-5: 71.0}, {}, "").setting
    {'simcse.lr': 3e-05}
    """

    method: str
    option: str
    scores: Mapping[float, float]
    failures: Mapping[float, str]
    toml: str
    given: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return each value's dev score, and the best value."""
        lines = [f"{self.option}={value!r}: dev {score:.2f}" for value, score in self.scores.items()]
        lines += [f"{self.option}={value!r}: failed, {reason}" for value, reason in self.failures.items()]
        return "\n".join([f"{self.method}, best {self.option}: {self.best!r}", *lines])

    @property
    def best(self) -> float:
        """The value with the highest dev score.

        >>> Tuning("simcse", "lr", {1e-5: 70.0, 3e-5: 71.0}, {}, "").best
        3e-05
        """
        return max(self.scores, key=self.scores.__getitem__)

    @property
    def setting(self) -> dict[str, float | str]:
        """The choice, and the options it was tuned with, for ``set=`` of :func:`run`.

        >>> Tuning("simcse", "joint.lr", {1e-5: 70.0}, {}, "").setting
        {'simcse.joint.lr': 1e-05}
        """
        return {**self.given, f"{self.method}.{self.option}": self.best}


def tune(
    method: str | type,
    values: Sequence[object],
    *,
    option: str = "lr",
    seed: int = 100,
    progress: bool = False,
    **options: Unpack[TuneOptions],
) -> Tuning:
    """Choose an option of a method on the dev set, as ``bench tune`` does; no test set is read.

    Args:
        method: A name as for ``bench run``, or a class of your own.
        values: At most six values.
        option: Option to choose, a stage's as "STAGE.OPTION".
        seed: Any seed but 1 to 10, which are reported.
        progress: True to show progress on stderr.
        options: As for ``bench tune``, such as ``profile="minilm"`` or ``workers=2``.

    Raises:
        InputError: bad input, or a method that doesn't train.
        CellFailedError: every value failed.
        Exception: an error of the method's own code, with its traceback.

    >>> import bench, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     short = {"simcse.steps": 2, "simcse.eval_every": 2, "simcse.batch_size": 8}
    ...     tuned = bench.tune("simcse", [1e-4, 1e-3], set=short, results=folder)
    >>> sorted(tuned.scores), tuned.failures
    ([0.0001, 0.001], {})
    """
    from bench.execution.tuning import tune_option

    scores: dict[float, float] = {}
    failures: dict[float, str] = {}

    def report(value: float, outcome: float | str) -> None:
        if isinstance(outcome, str):
            failures[value] = outcome
        else:
            scores[value] = SCALE * outcome

    with ExitStack() as stack:
        stack.enter_context(open_session(progress=progress))
        (name,), register = _register([method], options, stack)
        if not isinstance(option, str):
            raise InputError(f"option={option!r}", where="bench.tune", expected="a name such as 'lr'")
        given = {"values": values, "option": option, "seed": seed, **options}
        parsed = parse_options(tune_command, given, "bench.tune", (name,))
        check_device(parsed["device"], parsed["ranks"])
        texts, first = parsed.pop("values").split(","), parsed.pop("first")
        workers = parsed["workers"] or (0 if parsed["executor"] == "ray" else 1)
        chosen = {"seeds": (parsed.pop("seed"),), "suites": None, "workers": workers}
        spec = register(make_spec({**parsed, **chosen}))
        if len(spec.methods) > 1:
            raise InputError(f"'{name}' names several methods", where="bench.tune", expected="one of them")
        toml = tune_option(spec, option, texts, report, first.split(",") if first else ())
    settings = {override.text.partition("=")[0]: override.value for override in spec.overrides}
    return Tuning(spec.methods[0].name, option, scores, failures, toml, settings)


def _make_run_spec(
    methods: Methods, given: Mapping[str, Any], where: str, stack: ExitStack
) -> tuple[dict[str, Any], RunSpec]:
    """Return the parsed options of a run and its specification."""
    entries = (
        list(methods) if isinstance(methods, Iterable) and not isinstance(methods, str | type) else [methods]
    )
    names, register = _register(entries, given, stack)
    refuse_options(given, PRINTING, where, "bench run")
    parsed = parse_options(run_command, {"methods": ",".join(names), **given}, where)
    return parsed, register(make_spec(parsed))


def _register(entries: Sequence[str | type], options: Mapping[str, Any], stack: ExitStack) -> Any:
    """Register classes until the stack closes; return all names, and what completes a specification."""
    for entry in entries:
        if not isinstance(entry, str | type):
            expected = "a name such as 'simcse', or a class of a method"
            hint = "give its class, without ()" if hasattr(entry, "card") else None
            raise InputError(f"{entry!r} is no method", where="methods", expected=expected, hint=hint)
    classes = [entry for entry in entries if isinstance(entry, type)]
    texts = [*(entry for entry in entries if isinstance(entry, str)), *map(str, options.values())]
    found, packages = find_session_methods(texts)
    classes += [kind for kind in found if kind not in classes]
    plugins, own, in_process = stack.enter_context(register_classes(classes))
    of_class = dict(zip(classes, own, strict=True))
    names = [of_class[entry] if isinstance(entry, type) else entry for entry in entries]

    def complete(spec: RunSpec) -> RunSpec:
        spec = replace(spec, plugins=(*spec.plugins, *plugins, *packages))
        if not in_process:
            return spec
        if spec.executor != "local" or spec.ranks > 1:
            what = "a class without source runs in this process only"
            raise InputError(what, where="methods", hint="put it into a file: plugin='method.py'")
        return replace(spec, workers=1)

    return names, complete


def _list_options(function: Any, command: click.Command, names: Iterable[str]) -> None:
    """Add the command's help of options to a function's docstring, for ``help()``."""
    options = options_by_name(command)
    lines = [f"    {name}: {options[name].help}" for name in names]
    if function.__doc__:  # absent under python -OO
        function.__doc__ += "\n".join(["", f"Options of ``bench {command.name}``:", *lines, ""])


for _function, _command, _options in (
    (run, run_command, RunOptions),
    (dry_run, run_command, RunOptions),
    (train, export_command, EncoderOptions),
    (tune, tune_command, TuneOptions),
):
    _list_options(_function, _command, get_type_hints(_options))
