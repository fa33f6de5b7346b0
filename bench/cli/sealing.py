"""``bench run --plan``: seal a plan before results, and name cells beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cli.options import print_stderr
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from bench.plan.plan import Plan


@dataclass(frozen=True)
class SealingOptions:
    """``--plan`` and the options of its test: baseline, family, and margin in points."""

    sealing: bool = False
    baseline: str | None = None
    family: str | None = None
    margin: float | None = None

    def check(self) -> None:
        """Raise InputError for options of a sealed plan without ``--plan``."""
        test = {"--baseline": self.baseline, "--family": self.family, "--margin": self.margin}
        given = [name for name, value in test.items() if value is not None]
        if given and not self.sealing:
            hint = "bench report takes it for a table"
            raise InputError("it is for a sealed plan", where=given[0], expected="--plan as well", hint=hint)


def prepare_sealed_plan(plan: Plan, seal: SealingOptions, *, dry: bool) -> None:
    """Seal the plan of a run (``dry``: only check it), or compare the run with the campaign's sealed plan."""
    if not seal.sealing:
        print_unplanned_cells(plan)
        return
    from bench.execution.runner import check_pending_cells
    from bench.plan.plan_sealing import check_equal_plans, propose_plan, seal_plan
    from bench.records.sealed_plan import FILE, load_plan
    from bench.reports.campaign import MARGIN
    from bench.reports.planned_runs import describe_plan

    margin = MARGIN if seal.margin is None else seal.margin / 100
    path = plan.store.root / FILE
    proposed = propose_plan(plan, seal.baseline, seal.family, margin)
    if dry:
        sealed = load_plan(plan.store.root)
        if sealed is not None:
            check_equal_plans(sealed, proposed, path)
        print_stderr(
            printable(f"{'sealed' if sealed else 'to be sealed'}: {describe_plan(sealed or proposed)}")
        )
        return
    check_pending_cells(plan)
    sealed = seal_plan(plan.store, proposed)
    print_stderr(printable(f"{path}: {describe_plan(sealed)}"))
    if sealed is proposed:
        print_stderr(f"identity {sealed.identity}: publish it now, as only that proves when you planned")


def print_unplanned_cells(plan: Plan) -> None:
    """Print on stderr how many pending cells are beside the campaign's sealed plan, if there is one."""
    from bench.records.sealed_plan import load_plan

    sealed = load_plan(plan.store.root)
    if sealed is None:
        return
    planned = {cell.place for cell in sealed.cells}
    if beside := sum(job.place not in planned for job in plan.jobs):
        print_stderr(f"{beside} of {len(plan.jobs)} cells are beside the sealed plan; reports will list them")
