"""The forest plot of every leaderboard that has a baseline: the page's first screen as a file."""

from __future__ import annotations

from dataclasses import replace

from bench.records.record import safe_name
from bench.render.figure import Figure
from bench.reports.campaign import Campaign
from bench.reports.method_choice import use_published_names
from bench.reports.record_groups import by_profile_and_suite, describe_provenance
from bench.reports.tables.answers import collect_answers
from bench.reports.tables.leaderboard import make_leaderboard
from bench.reports.tables.row_tests import run_pairwise_tests

SECTION = "differences"
"""The tab that shows these rows as a table; the page draws no figure of them."""


def forest_figures(campaign: Campaign) -> list[Figure]:
    """Return a forest plot for every profile and suite whose rows are compared with a baseline."""
    campaign, figures = use_published_names(campaign), []
    for number, records in enumerate(by_profile_and_suite(campaign.records), start=1):
        table = make_leaderboard(replace(campaign, all_rows=True), records)
        tests = run_pairwise_tests(campaign, records)
        answers = collect_answers(campaign, records, table, tests, number, pickable=False)
        if (plot := answers.plot) is None:
            continue
        counts = ", ".join(f"{len(card.names)} {card.title}" for card in answers.cards)
        name = f"{safe_name(records[0].profile)}-{safe_name(records[0].suite)}-forest"
        title = f"{answers.title}: {counts}"
        source = describe_provenance(records, campaign.name)
        head = name, SECTION, title
        figures.append(Figure(*head, "forest", "points", "method", source, forest=plot, alt=answers.setting))
    return figures
