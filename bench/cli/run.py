"""``bench run``, and what else runs a plan: its dry run, its progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import NumberRange, check_device, make_spec, run_options, seeds_option
from bench.errors import InputError, printable
from bench.records.record import ALL, RunRecord

if TYPE_CHECKING:
    from bench.plan.job import Job
    from bench.plan.plan import Plan
    from bench.run.task import Outcome

estimate_option = click.option(
    "--estimate",
    is_flag=True,
    help="A dry run that also trains and encodes a little with every method: how long would the run take?",
)


@click.command()
@click.option(
    "--methods",
    required=True,
    help="Comma-separated: NAME, NAME:POOLING, NAME[option=value], hf:PATH[:POOLING], [ALIAS=]st:PATH, "
    "vectors:FILE[:avg|sif]; all for every registered method that needs no path.",
)
@seeds_option("1-5")
@run_options
@click.option("--dry-run", is_flag=True, help="Show the cells, what is done and what they read; run nothing.")
@estimate_option
@click.option(
    "--detect",
    type=NumberRange(0, 100, min_open=True),
    metavar="POINTS",
    help="With --dry-run: seeds that show a difference of so many points, and what the planned ones show.",
)
@click.option(
    "--spread",
    type=NumberRange(0, 100, min_open=True),
    metavar="SD",
    help="With --detect: standard deviation over seeds, in points; default: that of earlier records.",
)
@click.option(
    "--price-per-hour",
    type=NumberRange(0),
    metavar="PRICE",
    help="What an hour of one device costs: estimate a cell's cost too.",
)
@click.option(
    "--probes",
    metavar="all|NAME,...",
    help="Add these (`bench list probes`) to every record, also to those that are finished.",
)
@click.option(
    "--keep-vectors",
    is_flag=True,
    help="Keep every suite's vectors below --results, and take them from there where weights, tokenizer, "
    "options and sentences are the same.",
)
@click.option("--force", is_flag=True, help="Run finished cells again and replace their records.")
def run(
    dry_run: bool,
    estimate: bool,
    price_per_hour: float | None,
    detect: float | None,
    spread: float | None,
    **options: Any,
) -> None:
    """Evaluate methods over seeds and suites; finished cells are never computed twice.

    Progress goes to stderr, the leaderboard of this run to stdout.
    """
    from bench.cli.detect import check_options, show_detection
    from bench.plan.plan import make_plan

    check_options(detect, spread, dry=dry_run or estimate)
    if price_per_hour is not None and not (dry_run or estimate):
        raise InputError(
            "a price needs an estimate", where="--price-per-hour", expected="--estimate or --dry-run as well"
        )
    plan = make_plan(make_spec(options))
    if plan.spec.executor == "local":  # else the nodes' devices count
        check_device(plan.spec.device, plan.spec.ranks)
    if dry_run or estimate:
        conflicts = show_plan(plan)
        if detect is not None:
            show_detection(plan, detect, spread)
        if estimate or price_per_hour is not None:
            show_estimate(plan, price_per_hour)
        leave_if_failed(conflicts)
        return
    failed = execute(plan)
    if records := own_records(plan):
        from bench.reports.campaign import make_campaign
        from bench.reports.report import report  # loads pandas and scipy, which no plan needs

        click.echo(report(make_campaign(plan.store, records), "text"), nl=False)
    leave_if_failed(failed)


def own_records(plan: Plan) -> list[RunRecord]:
    """Return the records of a plan's jobs, without those of another specification in their place."""
    from bench.records.facts import differing

    found = ((job, plan.store.read(job.place)) for job in plan.jobs)
    return [
        record
        for job, record in found
        if record is not None and (record.status == "failed" or not differing(record, job.record))
    ]


def leave_if_failed(cells: int) -> None:
    """Exit with 1 if cells failed or conflict with what is there."""
    if cells:
        line = f"error: {cells} cell(s) failed or were not run; the lines above and their records say why"
        click.echo(line, err=True)
        sys.exit(1)


def show_plan(plan: Plan) -> int:
    """Print the cells, what is done, and what they read; return the number of conflicts."""
    from bench.run.preview import inputs
    from bench.run.probing import jobs_without_probes
    from bench.run.stage_cache import StageCache

    again = {job.place for job in plan.pending()} if plan.spec.force else set()
    states = [(job, "run again" if job.place in again else plan.status(job)) for job in plan.jobs]
    unprobed = {job.place for job in jobs_without_probes(plan)}
    for job, state in states:
        lacks = ", probes to do" if state == "done" and job.place in unprobed else ""
        click.echo(f"{job.cell.describe():40} {job.suite:12} {state}{lacks}")
    pending = plan.pending()
    building = [*pending, *(job for job, state in states if state == "done" and job.place in unprobed)]
    stages = {stage.key: stage for job in building for stage in job.cell.all_stages}
    cache = StageCache(plan.spec.results / ".stages")
    done = sum(cache.find(stage) is not None for stage in stages.values())
    uses = {(job.cell.method, job.cell.seed, stage.key) for job in building for stage in job.cell.all_stages}
    click.echo(
        f"{len(pending)} of {len(states)} cells to run; {len(stages)} training stages "
        f"({done} done already, {len(uses) - len(stages)} uses shared)"
    )
    for what, which in inputs(plan):
        click.echo(f"reads {what}: {printable(which)}")
    return tell_conflicts(plan)


def tell_conflicts(plan: Plan) -> int:
    """Say which jobs don't run because of what is there, a line for the seeds of one reason; count them."""
    if not (found := plan.conflicts()):
        return 0
    from bench.compare.select import grouped
    from bench.compare.wording import seed_list

    for same in grouped(found, lambda one: (one[0].cell.method, one[0].suite, str(one[1]))).values():
        (first, why), seeds = same[0], [job.cell.seed for job, _ in same if job.cell.seed is not None]
        what = f"{printable(first.cell.method)} {seed_list(seeds)} on {first.suite}"
        click.echo(f"{what if len(same) > 1 else _named(first)}: not run, {why}", err=True)
    return len(found)


def show_estimate(plan: Plan, price: float | None = None) -> None:
    """Print how long each method's cells take, and all together; and the cost where an hour has a price."""
    from bench.eval.suite import measure_of
    from bench.run.preview import Estimate, cost, described, estimates, span

    pending = plan.pending()
    jobs = [job for job in pending if measure_of(job.suite).encodes_once]
    if len(jobs) < len(pending):
        click.echo(f"no estimate for the {len(pending) - len(jobs)} that mteb measures")
    if not jobs:
        return
    seconds, devices, workers = 0.0, plan.spec.ranks, min(plan.spec.workers or 1, len(jobs))
    whole = True
    for found in estimates(plan, jobs):
        if isinstance(found, Estimate):
            seconds += found.seconds
            click.echo(described(found, price, devices))
        else:  # a method that fails: the run makes it a failed cell
            whole = False
            click.echo(printable(found))
    without = "" if whole else " without those"
    line = f"about {span(seconds / workers)}{without} with {workers} worker(s), start-up not counted"
    click.echo(line if price is None else f"{line}; cost {cost(seconds, price, devices)}")


def execute(plan: Plan) -> int:
    """Run the plan with progress on stderr; return the number of cells that failed or conflict."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from bench.run.runner import pending_jobs, run_plan

    pending, conflicts = len(pending_jobs(plan)), tell_conflicts(plan)
    if done := len(plan.jobs) - pending - conflicts:
        click.echo(f"{done} of {len(plan.jobs)} cells are done already", err=True)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} sentences"), TimeElapsedColumn())
    finished = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        counter = bar.add_task("encode", total=None)

        def report(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            bar.console.print(
                f"[{finished}/{pending}] {_describe(outcome)}", markup=False, highlight=False, soft_wrap=True
            )

        outcomes = run_plan(plan, on_outcome=report, progress=lambda n: bar.advance(counter, n))
    return conflicts + sum(outcome.state in ("failed", "conflict") for outcome in outcomes)


def _named(job: Job) -> str:
    return f"{job.cell.describe()} on {job.suite}"


def _describe(outcome: Outcome) -> str:
    what, record = _named(outcome.job), outcome.record
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
