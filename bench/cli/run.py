"""``bench run``, and the parts that other commands with a plan share: dry run, estimate, progress."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.messages import is_quiet
from bench.cli.options import (
    POSITIVE_POINTS,
    NumberRange,
    check_device,
    details_option,
    make_spec,
    print_stderr,
    run_options,
    seeds_option,
)
from bench.cli.plan_notes import print_plan_notes
from bench.cli.sealing import SealingOptions, prepare_sealed_plan
from bench.cli.strict_options import Panel, strict_option
from bench.errors import InputError, MisplacedRecordError, printable
from bench.records.record import ALL, RunRecord, name_label_models

if TYPE_CHECKING:
    from bench.config.run_spec import RunSpec
    from bench.execution.cell_run import Outcome
    from bench.execution.runner import Deadline
    from bench.plan.job import Job
    from bench.plan.plan import Plan

estimate_option = strict_option(
    "--estimate",
    is_flag=True,
    panel=Panel.PLANNING,
    help="Dry run that also times every method.",
)


@bench_command()
@strict_option(
    "--methods",
    required=True,
    shell_complete=completion.methods_or_all,
    panel=Panel.MAIN,
    help="Comma-separated: NAME, NAME[option=value], hf:PATH, st:PATH, vectors:FILE, ROW=METHOD; all: every "
    "method without a path; those with missing inputs are named and left out.",
)
@seeds_option("1-5")
@strict_option(
    "--dims",
    metavar="N,N,...",
    panel=Panel.EVALUATION,
    rare=True,
    help="For each method, a row of its vectors' first N dimensions too (Matryoshka).",
)
@strict_option(
    "--quantize",
    metavar="int8,binary",
    panel=Panel.EVALUATION,
    rare=True,
    help="For each method, a row of its vectors as int8 or as bits too.",
)
@run_options
@strict_option(
    "--dry-run", is_flag=True, panel=Panel.PLANNING, help="Only list cells, their states and inputs."
)
@estimate_option
@strict_option(
    "--detect",
    type=POSITIVE_POINTS,
    metavar="POINTS",
    panel=Panel.PLANNING,
    rare=True,
    help="With --dry-run: seeds needed to detect this difference, and the difference that --seeds detect.",
)
@strict_option(
    "--spread",
    type=POSITIVE_POINTS,
    metavar="SD",
    panel=Panel.PLANNING,
    rare=True,
    help="With --detect: standard deviation over seeds, in points; default: estimated from records.",
)
@strict_option(
    "--price-per-hour",
    type=NumberRange(0),
    metavar="PRICE",
    panel=Panel.PLANNING,
    rare=True,
    help="Add the cost to the estimate.",
)
@strict_option(
    "--probes",
    metavar="all|NAME,...",
    panel=Panel.OUTPUT,
    help="Add probes to every record: `bench list probes`.",
)
@details_option
@strict_option(
    "--precision-effect",
    is_flag=True,
    panel=Panel.EVALUATION,
    rare=True,
    help="With --precision bf16 or fp16: evaluate in fp32 too, and record the difference of each score.",
)
@strict_option(
    "--keep-vectors",
    is_flag=True,
    panel=Panel.EVALUATION,
    rare=True,
    help="Cache sentence vectors below --results, and reuse them for equal weights, tokenizer, options and "
    "sentences.",
)
@strict_option(
    "--deadline",
    type=NumberRange(0, 525_600, min_open=True),
    metavar="MIN",
    panel=Panel.PLANNING,
    rare=True,
    help="Start only cells that end within this many minutes. Exit code 130 if cells remain.",
)
@strict_option(
    "--shard",
    metavar="I/N",
    panel=Panel.DEVICES,
    rare=True,
    help="Run only this share of the cells, such as 3/16. Cells that share a training stage stay together.",
)
@strict_option(
    "--log",
    "logs",
    type=click.Choice(["tensorboard", "wandb"]),
    multiple=True,
    panel=Panel.OUTPUT,
    rare=True,
    help="Also write training curves there, below --results; wandb is offline unless WANDB_MODE is set. "
    "Repeatable.",
)
@strict_option(
    "--force",
    is_flag=True,
    panel=Panel.OUTPUT,
    help="Run finished cells again; replaces their records.",
)
@strict_option(
    "--plan",
    "sealing",
    is_flag=True,
    panel=Panel.SEALING,
    rare=True,
    help="First seal methods, seeds, suites and tests in the campaign's folder. Reports then say what is "
    "missing of them, and what is beside them.",
)
@strict_option(
    "--baseline",
    metavar="METHOD",
    panel=Panel.SEALING,
    rare=True,
    help="With --plan: row to compare with; default: simcse, if it has two seeds.",
)
@strict_option(
    "--family",
    "family_kind",
    type=click.Choice(["baseline", "all"]),
    panel=Panel.SEALING,
    rare=True,
    help="With --plan: tests of rows against the baseline, or of all pairs.",
)
@strict_option(
    "--margin",
    type=POSITIVE_POINTS,
    metavar="POINTS",
    panel=Panel.SEALING,
    rare=True,
    help="With --plan: points within which a row counts as equal to the baseline; default: 0.5.",
)
def run_command(
    dry_run: bool,
    estimate: bool,
    price_per_hour: float | None,
    details: bool,
    detect: float | None,
    spread: float | None,
    deadline: float | None,
    shard: str | None,
    logs: tuple[str, ...],
    sealing: bool,
    baseline: str | None,
    family_kind: str | None,
    margin: float | None,
    **options: Any,
) -> None:
    """Train and evaluate methods over seeds and suites.

    Finished cells are skipped. Progress goes to stderr, the answer to stdout.
    """
    from bench.cli.seed_power_table import check_detection_options, print_detection
    from bench.execution.runner import Deadline

    begin, dry = time.monotonic(), dry_run or estimate
    check_log_options(logs)
    check_detection_options(detect, spread, shard, dry=dry)
    if price_per_hour is not None and not dry:
        expected = "--estimate or --dry-run as well"
        raise InputError("a price needs an estimate", where="--price-per-hour", expected=expected)
    check_deadline(deadline, force=options["force"])
    seal = SealingOptions(sealing, baseline, family_kind, margin)
    seal.check()
    plan = prepare_plan(make_spec(options), seal, shard, dry=dry)
    warn_missing_effects(plan)
    warn_other_label_models(plan)
    if dry:
        conflicts = print_plan(plan)
        if detect is not None:
            print_detection(plan, detect, spread)
        if estimate or price_per_hour is not None:
            print_estimate(plan, price_per_hour, deadline)
        elif deadline is not None:
            click.echo(f"deadline: {deadline:g} min; --estimate says how many cells fit")
        exit_if_failed(conflicts)
        return
    ends = None if deadline is None else Deadline(plan, begin + 60 * deadline)
    failed = execute_plan(plan, ends, logs)
    if records := read_plan_records(plan):
        from bench.cli.terminal import get_screen
        from bench.reports.campaign import make_campaign
        from bench.reports.report import TableOptions  # loads pandas and scipy
        from bench.reports.short_report import render_short_report

        look = TableOptions(screen=get_screen())
        source = replace(make_campaign(plan.store, records), whole=False)
        click.echo(render_short_report(source, look, details=details), nl=False)
    if ends is not None and ends.jobs:
        print_pending_jobs(ends.jobs, len(plan.jobs), failed)
        sys.exit(130)
    exit_if_failed(failed)


def check_log_options(logs: Sequence[str]) -> None:
    """Raise InputError for logs whose library is missing."""
    if logs:
        from bench.execution.tracker_logs import check_log_libraries

        check_log_libraries(logs)


def warn_missing_effects(plan: Plan) -> None:
    """Warn of finished records without the effect of their precision, if it is asked for."""
    if not plan.spec.precision_effect or plan.spec.force:
        return
    records = [state.record for state in plan.states.values() if state.status == "done" and state.record]
    blocks = [record.provenance.get("evaluation_precision", {}) for record in records]
    if lacking := sum("tasks" not in block for block in blocks):
        what = f"--precision-effect: {lacking} finished record(s) lack it"
        print_stderr(f"{what}; to measure them again, add --force")


def warn_other_label_models(plan: Plan) -> None:
    """Warn of finished records that name another language model of their labels, or none."""
    if plan.spec.force:
        return
    differing = 0
    for job in plan.jobs:
        record = plan.states[job.place].record
        if plan.status(job) == "done" and record is not None:
            differing += name_label_models(record) != name_label_models(job.record)
    if differing:
        what = f"{differing} finished record(s) name another language model of their labels, or none"
        print_stderr(f"{what}; to run them again, add --force")


def prepare_plan(spec: RunSpec, seal: SealingOptions, shard: str | None = None, *, dry: bool = False) -> Plan:
    """Return the checked plan of a run, or a share of it; seal it if asked (``dry``: only check)."""
    from bench.execution.runner import check_early_data
    from bench.plan.plan import check_folder_names, make_plan

    check_early_data(spec)
    plan = make_plan(spec)
    print_plan_notes(plan)
    check_folder_names(plan)
    prepare_sealed_plan(plan, seal, dry=dry)
    plan = select_shard(plan, shard)
    if plan.spec.executor == "local":  # a cluster has its own devices
        check_device(plan.spec.device, plan.spec.ranks)
    return plan


def check_deadline(deadline: float | None, *, force: bool) -> None:
    """Raise InputError for --deadline with --force: resuming would run finished cells again."""
    if deadline is not None and force:
        raise InputError(
            "resuming would run finished cells again",
            where="--deadline",
            expected="no --force",
            hint="name another --campaign",
        )


def select_shard(plan: Plan, shard: str | None) -> Plan:
    """Return the share of a plan that ``--shard`` names, or the whole plan; print its size on stderr."""
    if shard is None:
        return plan
    from bench.config.method_ids import parse_shard
    from bench.plan.plan import split_plan

    number, count = parse_shard(shard)
    shares = split_plan(plan, count)
    jobs, filled = shares[number - 1], sum(map(bool, shares))
    line = f"shard {number}/{count}: {len(jobs)} of {len(plan.jobs)} cells"
    print_stderr(line + (f"; {filled} of the {count} shards have cells" if filled < count else ""))
    return replace(plan, jobs=jobs)


def print_pending_jobs(pending: Sequence[Job], planned: int, failed: int) -> None:
    """Print the jobs that a deadline left, with the command that resumes them."""
    from bench.comparison.selection import format_seeds, group_by

    names = []
    for (method, suite), jobs in group_by(pending, lambda job: (job.cell.method, job.suite)).items():
        seeds = [job.cell.seed for job in jobs if job.cell.seed is not None]
        names.append(f"{method}{f' {format_seeds(seeds)}' if seeds else ''} on {suite}")
    arguments = click.get_current_context().obj
    command = shlex.join(["bench", *arguments]) if arguments else "the same command"
    failures = f", {failed} failed or not run" if failed else ""
    print_stderr(
        f"deadline: {len(pending)} of {planned} cells left ({printable('; '.join(names))}){failures}; "
        f"resume with: {printable(command)}"
    )


def read_plan_records(plan: Plan) -> list[RunRecord]:
    """Return the records of a plan's jobs; records of another specification or place are left out.

    One whose scores contradict its predictions is returned as failed.
    """
    from bench.eval.recomputation import split_contradictions
    from bench.records.fingerprint import find_fact_differences

    records = []
    for job in plan.jobs:
        with suppress(MisplacedRecordError):  # a conflict, which was printed
            record = plan.store.read(job.place)
            if record and (record.status == "failed" or not find_fact_differences(record, job.record)):
                records.append(record)
    records, errors = split_contradictions(plan.store, records, plan.spec.data)
    for number, record in enumerate(records):
        if error := errors.get(record.place):  # kept, as running it again failed
            records[number] = replace(record, status="failed", scores=(), reason=error.what)
    return records


def exit_if_failed(cells: int) -> None:
    """Exit with 1 if cells failed or conflict with existing records."""
    if cells:
        why = "the lines above and their records say why"
        print_stderr(f"error: {cells} cell(s) failed or were not run; {why}")
        sys.exit(1)


def print_plan(plan: Plan) -> int:
    """Print the cells, their states and their inputs; return the number of conflicts."""
    from bench.execution.dry_run import describe_checkpoints, describe_plan_costs, list_plan_inputs
    from bench.execution.record_probes import find_unprobed_jobs
    from bench.execution.runner import check_pending_cells
    from bench.execution.stage_cache import StageCache

    check_pending_cells(plan)
    pending = plan.pending()
    repeated = [job.place for job in pending if plan.spec.force]
    unprobed = [job.place for job in find_unprobed_jobs(plan)] if plan.spec.probes else []
    building = list(pending)
    for job in plan.jobs:
        state = "run again" if job.place in repeated else plan.status(job)
        fault = plan.states[job.place].fault
        details = f" ({printable(fault)})" if fault else ""
        if state == "done" and job.place in unprobed:
            building.append(job)
            details = ", probes to do" + details
        click.echo(f"{job.cell.describe():40} {job.suite:12} {state}{details}")
    stages = {stage.key: stage for job in building for stage in job.cell.all_stages}
    cache = StageCache(plan.spec.results / ".stages")
    done = sum(cache.find(stage) is not None for stage in stages.values())
    uses = {(job.cell.method, job.cell.seed, stage.key) for job in building for stage in job.cell.all_stages}
    probed = len(building) - len(pending)
    to_probe = f", {probed} to probe" if probed else ""
    click.echo(
        f"{len(pending)} of {len(plan.jobs)} cells to run{to_probe}; {len(stages)} training stages "
        f"({done} done already, {len(uses) - len(stages)} uses shared)"
    )
    if line := describe_checkpoints(building, cache):
        click.echo(line)
    if line := describe_plan_costs(plan):
        click.echo(printable(line))
    for kind, name in list_plan_inputs(plan):
        click.echo(f"reads {kind}: {printable(name)}")
    return print_conflicts(plan)


def print_conflicts(plan: Plan) -> int:
    """Print the jobs that existing records block, a line for the seeds of one reason; return their number."""
    conflicts = plan.conflicts()
    if not conflicts:
        return 0
    from bench.comparison.selection import format_seeds, group_by

    groups = group_by(conflicts, lambda pair: (pair[0].cell.method, pair[0].suite, str(pair[1])))
    for same in groups.values():
        (job, reason), seeds = same[0], [job.cell.seed for job, _ in same if job.cell.seed is not None]
        name = _name_job(job)
        if len(same) > 1:
            name = f"{printable(job.cell.method)} {format_seeds(seeds)} on {job.suite}"
        print_stderr(f"{name}: not run, {reason}")
    return len(conflicts)


def print_estimate(plan: Plan, price: float | None = None, deadline: float | None = None) -> None:
    """Print the time of all cells; with an hour's price the cost, with a deadline in minutes what fits."""
    from bench.eval.suite_measures import measure_of
    from bench.execution.dry_run import TimeEstimate, estimate_times, format_cost, format_estimate
    from bench.execution.gpu_sharing import choose_cells_per_gpu
    from bench.execution.monitor import format_duration
    from bench.execution.runner import count_fitting_cells, find_pending_jobs

    pending = plan.pending()
    jobs = [job for job in pending if measure_of(job.suite).encodes_once]
    if plan.spec.probes and (probed := len(find_pending_jobs(plan))):
        click.echo(f"no estimate for the probes of {probed} cell(s)")
    if len(jobs) < len(pending):
        click.echo(f"no estimate for the {len(pending) - len(jobs)} that mteb measures")
    if not jobs:
        return
    seconds, devices, without = 0.0, plan.spec.ranks, ""
    workers = min(plan.spec.workers or choose_cells_per_gpu(plan, len(jobs)), len(jobs))
    cell_seconds: dict[str, float] = {}
    for estimate in estimate_times(plan, jobs):
        if isinstance(estimate, TimeEstimate):
            seconds += estimate.seconds
            cell_seconds[estimate.method] = estimate.seconds / estimate.cells
            click.echo(format_estimate(estimate, price, devices))
        else:  # the reason of a method that fails; the run makes it a failed cell
            without = " without those"
            click.echo(printable(estimate))
    duration = format_duration(seconds / workers)
    line = f"about {duration}{without} with {workers} worker(s), start-up not counted"
    click.echo(line if price is None else f"{line}; cost {format_cost(seconds, price, devices)}")
    if deadline is not None:
        cells = {(job.cell.method, job.cell.seed): cell_seconds.get(job.cell.method, 0.0) for job in jobs}
        fitting = count_fitting_cells(list(cells.values()), workers, 60 * deadline)
        click.echo(f"deadline: about {fitting} of {len(cells)} cells end within {deadline:g} min")


def execute_plan(plan: Plan, deadline: Deadline | None = None, logs: Sequence[str] = ()) -> int:
    """Run the plan with progress on stderr; return the number of cells that failed or conflict.

    A listener (:mod:`bench.cli.messages`) gets the lines instead, and no progress is shown.
    """
    from rich.console import Console

    from bench.cli.terminal import watch_run
    from bench.config import profiles
    from bench.execution.runner import check_pending_cells, find_pending_jobs, run_plan
    from bench.plan.backbones import describe_weight_difference

    check_pending_cells(plan)
    pending = find_pending_jobs(plan)
    conflicts = _announce_run(plan, pending)
    console = Console(stderr=True)
    finished = 0

    def report(outcome: Outcome) -> None:
        nonlocal finished
        finished += 1
        line = f"[{finished}/{len(pending)}] {_describe_outcome(outcome)}"
        if is_quiet():
            print_stderr(line)
        else:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    opened: AbstractContextManager[Any] = nullcontext(())
    if logs:
        from bench.execution.tracker_logs import open_logs

        opened = open_logs(logs, plan.spec.results, plan.store.campaign, print_stderr)
    with opened as writers:
        watch = partial(watch_run, console=None if is_quiet() else console, logs=writers)
        outcomes = run_plan(plan, on_outcome=report, watch=watch, deadline=deadline)
    if finished:
        print_stderr(f"records: {printable(str(plan.store.root))}")
        profile = profiles.load_profile(plan.spec.profile)
        if difference := describe_weight_difference(profile, (job.cell.model for job in plan.jobs)):
            print_stderr(difference)
    return conflicts + sum(outcome.state in ("failed", "conflict") for outcome in outcomes)


def _announce_run(plan: Plan, pending: Sequence[Job]) -> int:
    """Print what a run makes first, replaces and skips; return the number of conflicts."""
    from bench.execution.encoder_builder import find_missing_backbone

    if model := find_missing_backbone([job.cell for job in pending]):
        command = f"bench {' '.join(model.command)} --out {model.path}"
        print_stderr(f"{model.name} is made first, once a machine: {printable(command)}")
    conflicts = print_conflicts(plan)
    for job in plan.pending():
        if fault := plan.states[job.place].fault:
            print_stderr(printable(f"{_name_job(job)}: replaces {plan.store.path(job.place)}: {fault}"))
    if done := len(plan.jobs) - len(pending) - conflicts:
        print_stderr(f"{done} of {len(plan.jobs)} cells are done already")
    if pending:
        warn_missing_locks(plan)
    return conflicts


def warn_missing_locks(plan: Plan) -> None:
    """Print a warning where the results folder has no locks: two runs would train cells twice."""
    plan.store.prepare()
    if not plan.store.has_locks():
        where = printable(str(plan.spec.results))
        print_stderr(f"{where}: no locks here (flock): start no second run in it before this one ends")


def _name_job(job: Job) -> str:
    return f"{job.cell.describe()} on {job.suite}"


def _describe_outcome(outcome: Outcome) -> str:
    name, record = _name_job(outcome.job), outcome.record
    if outcome.conflict is not None:
        return f"{name}: not run, {outcome.conflict}"
    if record is None or outcome.state == "done":
        return f"{name}: done by another process"
    if record.status == "failed":
        return f"{name}: FAILED, {record.reason}"
    if outcome.state == "probed":
        return f"{name}: probes in {record.timing['probes']['wall_seconds']:.1f} s"
    average = next(score.value for score in record.scores if (score.task, score.subset) == ("avg", ALL))
    return f"{name}: avg {100 * average:.2f} in {record.timing['wall_seconds']:.1f} s"
