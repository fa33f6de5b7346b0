"""What must hold before the first cell runs, beyond what a plan resolves."""

from __future__ import annotations

from glob import escape

from bench.data.mteb_names import suite_label
from bench.errors import InputError
from bench.eval.suite import measure_of
from bench.plan.backbone_needs import check_backbones
from bench.plan.checks import method_cards
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.registry import METHODS, discover
from bench.request.spec import ALL_METHODS, RunSpec
from bench.run.backbone import check_text


def check_early(spec: RunSpec) -> None:
    """Refuse missing data before a plan is made, which may take seconds, where nothing is finished yet.

    A finished cell needs no data, and only a plan tells which are. What :func:`check_ready` says first stays
    first.

    Raises:
        InputError: an unknown method, or data that can't be had now.
    """
    discover()
    cards = method_cards([request for request in spec.methods if request.text != ALL_METHODS])
    if spec.executor != "local" or any(card.scores_pairs for card in cards):
        return
    root = ResultStore(spec.results, spec.campaign).root
    for suite in spec.suites:
        if not any(root.glob(f"*/*/*/{escape(safe_name(suite_label(suite)))}.json")):
            measure_of(suite).check_early()


def check_ready(plan: Plan) -> None:
    """Refuse, before anything runs, what a plan's pending cells could only fail by.

    Raises:
        InputError: a method without vectors on a suite that needs them, or data that can't be had now.
    """
    check_text(job.cell for job in plan.pending())
    check_backbones((job.cell for job in plan.pending()), plan.training)
    suites = dict.fromkeys((job.source or job.suite, job.suite) for job in plan.pending())
    for name, label in suites:
        measure = measure_of(name)
        pairs = sorted({job.cell.method for job in plan.pending() if job.suite == label and _is_scorer(job)})
        if measure.needs_vectors and pairs:
            raise InputError(
                f"{' and '.join(pairs)} {'compares' if len(pairs) == 1 else 'compare'} pairs and "
                f"{'has' if len(pairs) == 1 else 'have'} no vectors, which this suite needs",
                where=f"--suite {name}",
                hint="leave it out of --methods" if len(pairs) == 1 else "leave them out of --methods",
            )
        if plan.spec.executor == "local":  # else the nodes' caches count
            measure.check(plan.suites[label])


def _is_scorer(job: Job) -> bool:
    """True for a method that has no vectors, by its card or by the options of this cell."""
    by_options = getattr(METHODS.get(job.cell.card.name), "scores_pairs", None)
    return job.cell.card.scores_pairs or (by_options is not None and by_options(dict(job.cell.options)))
