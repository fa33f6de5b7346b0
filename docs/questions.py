"""Questions to a campaign, answered together from its records: a table of ``docs/results.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.comparison.comparison import Comparison, compare, correct_comparisons
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.questions import Questions
from bench.comparison.selection import Group, resolve_sides
from bench.comparison.wording import format_p_value
from bench.config import profiles
from bench.records.store import ResultStore
from bench.render.grid import SCALE

MARGIN = 0.005
"""Half a point counts as equal: what ``bench run --dry-run`` plans to detect, unless it is told otherwise."""
HEADER = (
    "question",
    "first - second",
    "runs",
    "ahead in",
    "points",
    "interval at its step",
    "p, Holm",
    "answer",
)


def table(results: Path, campaign: str, lines: str) -> str:
    """A row a question; every p is Holm's over the table, each interval that of its step of the correction.

    Where runs are pairs it says in how many of them the first is ahead. Equal within ``MARGIN`` is what two
    one-sided tests of each row show at 5% divided by the number of rows.

    Args:
        results: The folder of campaigns.
        campaign: The campaign.
        lines: A question a line, ``FIRST vs SECOND: words``; the methods as ``bench compare`` takes them.

    Raises:
        ValueError: a line of another form.
        BenchError: a method that the campaign lacks, or sides that can't be compared.
    """
    store = ResultStore(results, campaign)
    asked = [_asked(line) for line in lines.strip().splitlines()]
    sides = groups(store, {name for *both, _ in asked for name in both})
    margin = Questions(margin=MARGIN)
    found = [compare(sides[first], sides[second], asked=margin) for first, second, _ in asked]
    answered = correct_comparisons(found, f"questions of {campaign}", "holm")
    rows = [
        _row(question, one, _ahead(one, sides[first], sides[second]))
        for (first, second, question), one in zip(asked, answered, strict=True)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADER, *_rule(), *rows)) + "\n"


def _asked(line: str) -> tuple[str, str, str]:
    sides, colon, question = line.partition(": ")
    first, versus, second = sides.partition(" vs ")
    if not (colon and versus):
        raise ValueError(f"'{line}' is no question; expected FIRST vs SECOND: words")
    return first, second, question


def groups(store: ResultStore, names: Iterable[str]) -> dict[str, Group]:
    """The runs of each method on its profile's own suite, as ``bench compare`` takes them."""
    own = {
        side.text: tuple(run for run in side.runs if _of_profile(run))
        for side in resolve_sides(names, store, "docs")
    }
    return {text: Group(text, runs) for text, runs in own.items()}


def _of_profile(run: CampaignRun) -> bool:
    return run.record.suite in profiles.load_profile(run.record.profile).suites


def _rule() -> Iterator[Sequence[str]]:
    yield ("---", "---", "---", "---", "---:", "---", "---:", "---")


def _ahead(found: Comparison, first: Group, second: Group) -> str:
    """In how many pairs the first has the higher average; nothing where runs aren't pairs."""
    if found.headline.test != "paired":
        return ""
    one, other = (
        {run.record.seed: run.record.score("avg") or 0 for run in side.runs} for side in (first, second)
    )
    return f"{sum(one[seed] > other[seed] for seed in found.seeds[0])} of {len(found.seeds[0])}"


def _row(question: str, found: Comparison, ahead: str) -> Sequence[str]:
    head = found.headline
    a, b = (len(seeds) for seeds in found.seeds)
    runs = f"{a} pairs" if head.test == "paired" else f"{a or 1} and {b or 1}"
    ends = head.interval
    between = f"[{SCALE * ends[0]:+.2f}, {SCALE * ends[1]:+.2f}]" if ends else "none"
    points = f"{SCALE * head.difference:+.2f}"
    sides = f"`{found.first}` - `{found.second}`"
    return (question, sides, runs, ahead, points, between, format_p_value(head.final_p), _answer(found))


def _answer(found: Comparison) -> str:
    head, margin = found.headline, found.answers.margin
    said = [] if head.verdict != "differs" else ["yes" if head.difference > 0 else "no, the second is ahead"]
    if margin and margin.verdict == "equal within":
        said.append(f"equal within {SCALE * MARGIN:g}")
    return "; ".join(said) or head.verdict
