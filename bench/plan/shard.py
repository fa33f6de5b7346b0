"""A share of a plan's cells for one of several machines that know nothing of each other."""

from __future__ import annotations

from bench.plan.cell import Cell
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.stages import Stage, planned_steps

_STEP, _PAIR = 6, 2
"""Forward passes of a trained sentence (two views, there and back) and of an evaluated item."""


def split_plan(plan: Plan, count: int) -> list[tuple[Job, ...]]:
    """Deal a plan's jobs out to so many shares, of like work and in the plan's order.

    Cells that share a training stage, or share one with a third, go together, so that nothing is trained
    twice. The shares follow from the plan alone: what is done already moves no cell.

    Args:
        plan: The plan.
        count: How many; those that get nothing are empty.
    """
    groups = _group_jobs(plan)
    order = sorted(range(len(groups)), key=lambda group: -_count_work(plan, groups[group]))
    load, dealt = [0] * count, list[set[tuple[str, int | None]]](set() for _ in range(count))
    for group in order:  # the largest first, each to the share that has least
        least = load.index(min(load))
        load[least] += _count_work(plan, groups[group])
        dealt[least] |= {_cell_name(job.cell) for job in groups[group]}
    return [tuple(job for job in plan.jobs if _cell_name(job.cell) in names) for names in dealt]


def _cell_name(cell: Cell) -> tuple[str, int | None]:
    return cell.method, cell.seed


def _group_jobs(plan: Plan) -> list[list[Job]]:
    """Jobs whose cells hang together by their stages, in the order of their first."""
    groups: list[tuple[set[object], list[Job]]] = []
    for job in plan.jobs:
        ties: set[object] = {_cell_name(job.cell), *(stage.key for stage in job.cell.all_stages)}
        tied = [group for group in groups if group[0] & ties]
        jobs = [each for group in tied for each in group[1]]
        ties = ties.union(*(group[0] for group in tied))
        at = groups.index(tied[0]) if tied else len(groups)
        groups = [group for group in groups if group not in tied]
        groups.insert(at, (ties, [*jobs, job]))
    return [jobs for _, jobs in groups]


def _count_work(plan: Plan, jobs: list[Job]) -> int:
    """About how many sentences go through a transformer."""
    stages = {stage.key: stage for job in jobs for stage in job.cell.all_stages}
    trained = sum(_count_stage_sentences(plan, stage) for stage in stages.values())
    items = sum(task.items for job in jobs for task in plan.suites[job.suite])
    return _STEP * trained + _PAIR * items


def _count_stage_sentences(plan: Plan, stage: Stage) -> int:
    config = dict(stage.spec.config)
    sentences = plan.training.texts[stage.spec.text].sentences if plan.training else ()
    return planned_steps(config, len(sentences)) * int(config["batch_size"])
