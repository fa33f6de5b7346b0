"""Notes of a plan on stderr: methods that it leaves out, options that rows don't use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.options import print_stderr
from bench.errors import printable

if TYPE_CHECKING:
    from bench.plan.plan import Plan


def print_plan_notes(plan: Plan) -> None:
    """Print a line for each reason to leave methods out, and for each option that rows don't use."""
    for left_out in plan.left_out:
        print_stderr(str(left_out))
    for note in plan.notes:
        print_stderr(printable(f"note: {note}"))
