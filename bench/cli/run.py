"""``bench run``, and what else runs a plan: its dry run, its progress."""

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
from bench.cli.options import NumberRange, check_device, make_spec, print_stderr, run_options, seeds_option
from bench.cli.strict_option import strict_option
from bench.errors import InputError, MisplacedRecordError, printable
from bench.records.record import ALL, RunRecord

if TYPE_CHECKING:
    from bench.execution.cell_run import Outcome
    from bench.execution.runner import Deadline
    from bench.plan.job import Job
    from bench.plan.plan import Plan


estimate_option = strict_option(
    "--estimate",
    is_flag=True,
    help="A dry run that also trains and encodes a little with every method: how long would the run take?",
)


@click.command()
@strict_option(
    "--methods",
    required=True,
    shell_complete=completion.methods_or_all,
    help="Comma-separated: NAME, NAME:POOLING, NAME[option=value], hf:PATH[:POOLING], [ALIAS=]st:PATH, "
    "vectors:FILE[:avg|sif]; all for every registered method that needs no path.",
)
@seeds_option("1-5")
@run_options
@strict_option(
    "--dry-run", is_flag=True, help="Show the cells, what is done and what they read; run nothing."
)
@estimate_option
@strict_option(
    "--detect",
    type=NumberRange(0, 100, min_open=True),
    metavar="POINTS",
    help="With --dry-run: seeds that show a difference of so many points, and what the planned ones show.",
)
@strict_option(
    "--spread",
    type=NumberRange(0, 100, min_open=True),
    metavar="SD",
    help="With --detect: standard deviation over seeds, in points; default: that of earlier records.",
)
@strict_option(
    "--price-per-hour",
    type=NumberRange(0),
    metavar="PRICE",
    help="What an hour of one device costs: estimate a cell's cost too.",
)
@strict_option(
    "--probes",
    metavar="all|NAME,...",
    help="Add these (`bench list probes`) to every record, also to those that are finished.",
)
@strict_option(
    "--keep-vectors",
    is_flag=True,
    help="Keep every suite's vectors below --results, and take them from there where weights, tokenizer, "
    "options and sentences are the same.",
)
@strict_option(
    "--deadline",
    type=NumberRange(0, 525_600, min_open=True),
    metavar="MIN",
    help="End within so many minutes: begin no cell that would take longer. Exit code 130 if cells are left.",
)
@strict_option(
    "--shard",
    metavar="I/N",
    help="Run this share of the cells alone, such as 3/16; cells that share a training stage stay together.",
)
@strict_option(
    "--log",
    "logs",
    type=click.Choice(["tensorboard", "wandb"]),
    multiple=True,
    help="Write the curves of training there too, below --results; wandb is offline unless WANDB_MODE says "
    "otherwise. Repeatable.",
)
@strict_option("--force", is_flag=True, help="Run finished cells again and replace their records.")
def run_command(
    dry_run: bool,
    estimate: bool,
    price_per_hour: float | None,
    detect: float | None,
    spread: float | None,
    deadline: float | None,
    shard: str | None,
    logs: tuple[str, ...],
    **options: Any,
) -> None:
    """Evaluate methods over seeds and suites; finished cells are never computed twice.

    Progress goes to stderr, the leaderboard of this run to stdout.
    """
    from bench.execution.runner import check_early_data
    from bench.plan.plan import check_folder_names, make_plan

    begin = time.monotonic()
    _check_extras(logs, detect, spread, shard, dry=dry_run or estimate)
    if price_per_hour is not None and not (dry_run or estimate):
        raise InputError(
            "a price needs an estimate", where="--price-per-hour", expected="--estimate or --dry-run as well"
        )
    check_deadline(deadline, force=options["force"])
    spec = make_spec(options)
    check_early_data(spec)
    plan = make_plan(spec)
    check_folder_names(plan)
    plan = select_shard(plan, shard)
    if plan.spec.executor == "local":  # else the nodes' devices count
        check_device(plan.spec.device, plan.spec.ranks)
    if dry_run or estimate:
        conflicts = print_plan(plan)
        if detect is not None:
            from bench.cli.detection_table import print_detection

            print_detection(plan, detect, spread)
        if estimate or price_per_hour is not None:
            print_estimate(plan, price_per_hour, deadline)
        elif deadline is not None:
            click.echo(f"deadline: {deadline:g} min; --estimate says how many cells fit")
        exit_if_failed(conflicts)
        return
    from bench.execution.runner import Deadline

    ends = None if deadline is None else Deadline(plan, begin + 60 * deadline)
    failed = execute_plan(plan, ends, logs)
    if records := read_plan_records(plan):
        from bench.cli.terminal import get_screen
        from bench.reports.campaign import make_campaign
        from bench.reports.report import (  # loads pandas and scipy, which no plan needs
            TableOptions,
            render_report,
        )

        click.echo(
            render_report(make_campaign(plan.store, records), "text", look=TableOptions(screen=get_screen())),
            nl=False,
        )
    if ends is not None and ends.jobs:
        print_pending_jobs(ends.jobs, len(plan.jobs), failed)
        sys.exit(130)
    exit_if_failed(failed)


def check_deadline(deadline: float | None, *, force: bool) -> None:
    """Raise InputError for a deadline whose run could not be gone on with."""
    if deadline is not None and force:
        raise InputError(
            "the run that goes on would run finished cells again",
            where="--deadline",
            expected="no --force",
            hint="name another --campaign",
        )


def select_shard(plan: Plan, shard: str | None) -> Plan:
    """Return a plan's share that ``--shard`` names, or the whole plan; say which on stderr."""
    if shard is None:
        return plan
    from bench.config.method_ids import parse_shard
    from bench.plan.shard import split_plan

    number, count = parse_shard(shard)
    dealt = split_plan(plan, count)
    own, filled = dealt[number - 1], sum(map(bool, dealt))
    line = f"shard {number}/{count}: {len(own)} of {len(plan.jobs)} cells"
    print_stderr(line + (f"; {filled} of the {count} shards have cells" if filled < count else ""))
    return replace(plan, jobs=own)


def print_pending_jobs(left: Sequence[Job], planned: int, failed: int) -> None:
    """Name the jobs that a deadline left, with the command that goes on."""
    from bench.comparison.selection import format_seeds, group_by

    groups = group_by(left, lambda job: (job.cell.method, job.suite))
    named = []
    for (method, suite), jobs in groups.items():
        seeds = [job.cell.seed for job in jobs if job.cell.seed is not None]
        named.append(f"{method}{f' {format_seeds(seeds)}' if seeds else ''} on {suite}")
    arguments = click.get_current_context().obj
    command = shlex.join(["bench", *arguments]) if arguments else "the same command"
    print_stderr(
        f"deadline: {len(left)} of {planned} cells left ({printable('; '.join(named))})"
        f"{f', {failed} failed or not run' if failed else ''}; go on with: {printable(command)}"
    )


def read_plan_records(plan: Plan) -> list[RunRecord]:
    """Return the records of a plan's jobs, without those of another specification or place in theirs."""
    from bench.records.fingerprint import find_fact_differences

    found = []
    for job in plan.jobs:
        with suppress(MisplacedRecordError):  # a conflict, which was said
            record = plan.store.read(job.place)
            if record and (record.status == "failed" or not find_fact_differences(record, job.record)):
                found.append(record)
    return found


def exit_if_failed(cells: int) -> None:
    """Exit with 1 if cells failed or conflict with what is there."""
    if cells:
        line = f"error: {cells} cell(s) failed or were not run; the lines above and their records say why"
        click.echo(line, err=True)
        sys.exit(1)


def print_plan(plan: Plan) -> int:
    """Print the cells, what is done, and what they read; return the number of conflicts."""
    from bench.execution.preview import list_plan_inputs
    from bench.execution.record_probes import find_unprobed_jobs
    from bench.execution.runner import check_pending_cells
    from bench.execution.stage_cache import StageCache

    check_pending_cells(plan)

    again = {job.place for job in plan.pending()} if plan.spec.force else set()
    states = [(job, "run again" if job.place in again else plan.status(job)) for job in plan.jobs]
    unprobed = {job.place for job in find_unprobed_jobs(plan)} if plan.spec.probes else set()
    for job, state in states:
        lacks = ", probes to do" if state == "done" and job.place in unprobed else ""
        fault = plan.states[job.place].fault
        why = f" ({printable(fault)})" if fault else ""
        click.echo(f"{job.cell.describe():40} {job.suite:12} {state}{lacks}{why}")
    pending = plan.pending()
    probed = [job for job, state in states if state == "done" and job.place in unprobed]
    building = [*pending, *probed]
    stages = {stage.key: stage for job in building for stage in job.cell.all_stages}
    cache = StageCache(plan.spec.results / ".stages")
    done = sum(cache.find(stage) is not None for stage in stages.values())
    uses = {(job.cell.method, job.cell.seed, stage.key) for job in building for stage in job.cell.all_stages}
    to_probe = f", {len(probed)} to probe" if probed else ""
    click.echo(
        f"{len(pending)} of {len(states)} cells to run{to_probe}; {len(stages)} training stages "
        f"({done} done already, {len(uses) - len(stages)} uses shared)"
    )
    for what, which in list_plan_inputs(plan):
        click.echo(f"reads {what}: {printable(which)}")
    return print_conflicts(plan)


def print_conflicts(plan: Plan) -> int:
    """Say which jobs don't run because of what is there, a line for the seeds of one reason; count them."""
    if not (found := plan.conflicts()):
        return 0
    from bench.comparison.selection import format_seeds, group_by

    for same in group_by(found, lambda one: (one[0].cell.method, one[0].suite, str(one[1]))).values():
        (first, why), seeds = same[0], [job.cell.seed for job, _ in same if job.cell.seed is not None]
        what = f"{printable(first.cell.method)} {format_seeds(seeds)} on {first.suite}"
        click.echo(f"{what if len(same) > 1 else _name_job(first)}: not run, {why}", err=True)
    return len(found)


def print_faults(plan: Plan) -> None:
    """Say of which jobs the run replaces what is there, as it is no result."""
    for job in plan.pending():
        if fault := plan.states[job.place].fault:
            print_stderr(printable(f"{_name_job(job)}: made anew, {plan.store.path(job.place)}: {fault}"))


def print_estimate(plan: Plan, price: float | None = None, deadline: float | None = None) -> None:
    """Print how long each method's cells take, and all together.

    And the cost where an hour has a price, and how many cells end before a deadline, in minutes.
    """
    from bench.eval.suite_measures import measure_of
    from bench.execution.monitor import format_duration
    from bench.execution.preview import TimeEstimate, estimate_times, format_cost, format_estimate
    from bench.execution.runner import count_fitting_cells, find_pending_jobs
    from bench.execution.sharing import choose_cells_per_gpu

    pending = plan.pending()
    jobs = [job for job in pending if measure_of(job.suite).encodes_once]
    if plan.spec.probes and (probed := len(find_pending_jobs(plan))):
        click.echo(f"no estimate for the probes of {probed} cell(s)")
    if len(jobs) < len(pending):
        click.echo(f"no estimate for the {len(pending) - len(jobs)} that mteb measures")
    if not jobs:
        return
    seconds, devices, whole = 0.0, plan.spec.ranks, True
    workers = min(plan.spec.workers or choose_cells_per_gpu(plan, len(jobs)), len(jobs))
    each: dict[str, float] = {}
    for found in estimate_times(plan, jobs):
        if isinstance(found, TimeEstimate):
            seconds += found.seconds
            each[found.method] = found.seconds / found.cells
            click.echo(format_estimate(found, price, devices))
        else:  # a method that fails: the run makes it a failed cell
            whole = False
            click.echo(printable(found))
    without = "" if whole else " without those"
    line = (
        f"about {format_duration(seconds / workers)}{without} with {workers} worker(s), start-up not counted"
    )
    click.echo(line if price is None else f"{line}; cost {format_cost(seconds, price, devices)}")
    if deadline is not None:
        cells = [job.cell.method for job in {(j.cell.method, j.cell.seed): j for j in jobs}.values()]
        fit = count_fitting_cells([each.get(method, 0.0) for method in cells], workers, 60 * deadline)
        click.echo(f"deadline: about {fit} of {len(cells)} cells end within {deadline:g} min")


def execute_plan(plan: Plan, deadline: Deadline | None = None, logs: Sequence[str] = ()) -> int:
    """Run the plan with progress on stderr; return the number of cells that failed or conflict.

    Args:
        plan: The plan.
        deadline: When it has to end.
        logs: Names of what else gets its curves, see :mod:`bench.execution.logs`.
    """
    from rich.console import Console

    from bench.cli.terminal import watch_run
    from bench.config import profiles
    from bench.execution.encoder_builder import find_missing_backbone
    from bench.execution.runner import check_pending_cells, find_pending_jobs, run_plan
    from bench.plan.backbones import describe_weight_difference

    check_pending_cells(plan)
    if model := find_missing_backbone([job.cell for job in find_pending_jobs(plan)]):
        words = f"bench {' '.join(model.command)} --out {model.path}"
        print_stderr(f"{model.name} is made first, once a machine: {printable(words)}")
    pending, conflicts = len(find_pending_jobs(plan)), print_conflicts(plan)
    print_faults(plan)
    if done := len(plan.jobs) - pending - conflicts:
        click.echo(f"{done} of {len(plan.jobs)} cells are done already", err=True)
    console = Console(stderr=True)
    finished = 0

    def report(outcome: Outcome) -> None:
        nonlocal finished
        finished += 1
        console.print(
            f"[{finished}/{pending}] {_describe_outcome(outcome)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    with _open_logs(logs, plan) as writers:
        watch = partial(watch_run, console=console, logs=writers)
        outcomes = run_plan(plan, on_outcome=report, watch=watch, deadline=deadline)
    if finished:
        click.echo(f"records: {printable(str(plan.store.root))}", err=True)
        if other := describe_weight_difference(
            profiles.load_profile(plan.spec.profile), (job.cell.model for job in plan.jobs)
        ):
            print_stderr(other)
    return conflicts + sum(outcome.state in ("failed", "conflict") for outcome in outcomes)


def _name_job(job: Job) -> str:
    return f"{job.cell.describe()} on {job.suite}"


def _check_extras(
    logs: Sequence[str], detect: float | None, spread: float | None, shard: str | None, *, dry: bool
) -> None:
    """Raise InputError for what else is asked for, where it can't be done."""
    if logs:
        from bench.execution.logs import check_log_libraries

        check_log_libraries(logs)
    if detect is not None or spread is not None:
        from bench.cli.detection_table import check_detection_options

        check_detection_options(detect, spread, shard, dry=dry)


def _open_logs(logs: Sequence[str], plan: Plan) -> AbstractContextManager[Any]:
    """What else gets the curves; nothing is loaded where nobody asks for them."""
    if not logs:
        return nullcontext(())
    from bench.execution.logs import open_logs

    return open_logs(logs, plan.spec.results, plan.store.campaign, print_stderr)


def _describe_outcome(outcome: Outcome) -> str:
    what, record = _name_job(outcome.job), outcome.record
    if outcome.conflict is not None:
        return f"{what}: not run, {outcome.conflict}"
    if record is None or outcome.state == "done":
        return f"{what}: done by another process"
    if record.status == "failed":
        return f"{what}: FAILED, {record.reason}"
    if outcome.state == "probed":
        return f"{what}: probes in {record.timing['probes']['wall_seconds']:.1f} s"
    average = next(score.value for score in record.scores if (score.task, score.subset) == ("avg", ALL))
    return f"{what}: avg {100 * average:.2f} in {record.timing['wall_seconds']:.1f} s"
