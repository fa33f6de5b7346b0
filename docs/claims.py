"""Papers' claims against a campaign's records: a table of ``docs/results.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from questions import groups

from bench.comparison.comparison import Comparison, compare, correct_comparisons
from bench.comparison.questions import Questions
from bench.records.store import ResultStore
from bench.render.grid import SCALE
from bench.reports.campaign import make_campaign
from bench.reports.tables.method_order import order_settings

HEADER = ("method", "printed lead", "lead here", "runs", "at least", "at most", "the claim is")


def table(results: Path, campaign: str, backbone: str = "bert-base", baseline: str = "simcse") -> str:
    """A row a method that papers print above the baseline: do the records support as large a lead?

    A method with one seed has no row, as one run says nothing of its spread.
    What the papers' STS tables print on the backbone is taken as the claim. The bounds are those of
    ``bench compare METHOD simcse --claim LEAD``; all lower ones hold together at 95%, and all upper ones.

    Args:
        results: The folder of campaigns.
        campaign: The campaign.
        backbone: Whose printed averages.
        baseline: Name of the method that the others are said to be ahead of.

    Raises:
        BenchError: no such campaign, or sides that can't be compared.
        StopIteration: the campaign has no method of a paper's.
    """
    store = ResultStore(results, campaign)
    found = order_settings(make_campaign(store, store.records()))
    ours = next(one for one in found if not one.published)
    printed = next(one for one in found if one.name == f"published, {backbone}")
    leads = {
        name: printed.score(name) - printed.score(baseline) for name in printed.cells if name in ours.names
    }
    asked = sorted((name for name, lead in leads.items() if lead > 0), key=lambda name: (-leads[name], name))
    first, *others = groups(store, [ours.names[name] for name in (baseline, *asked)]).values()
    made = [
        compare(other, first, asked=Questions(claim=leads[name]))
        for name, other in zip(asked, others, strict=True)
        if other.deterministic or len(other.runs) > 1
    ]
    rows = [_row(one) for one in correct_comparisons(made, f"claims on {campaign}", "holm")]
    rule = ("---", *("---:",) * 5, "---")
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADER, rule, *rows)) + "\n"


def _row(found: Comparison) -> Sequence[str]:
    said, (a, b) = found.answers.claim, (len(seeds) for seeds in found.seeds)
    runs = f"{a} pairs" if found.headline.test == "paired" else f"{a or 1} and {b or 1}"
    if said is None:
        raise ValueError(f"{found.first}: nothing varies over seeds")
    numbers = (said.size, found.headline.difference, said.low, said.high)
    size, lead, low, high = (f"{SCALE * value:+.2f}" for value in numbers)
    return f"`{found.first}`", size, lead, runs, low, high, said.verdict
