"""The verdicts on all pairs of methods of a campaign, as numbers for the page that compares two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import Any

from bench.errors import printable
from bench.records.imported import describe_import
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import SCALE, no_width
from bench.reports.campaign import Campaign
from bench.reports.method_choice import paper_name
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records, task_scores
from bench.reports.tables.pairwise_tests import LEVEL, PairwiseTests
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.task_pairwise import TaskPairwiseTests
from bench.site.pair_verdict import PairVerdict, round_p_value, round_points


def compare_method_pairs(campaign: Campaign) -> list[dict[str, Any]]:
    """Return a block of every profile and suite with two methods.

    A block has "profile", "suite", "rows" (method ids), "names" (as printed), "aside" (why the leaderboard
    sets rows aside, by their index), "imported" (notes on imported rows as indexes of "texts", by the rows'
    index), "tested" (number of the leaderboard's tested pairs), "texts" (names of tests, reasons for none,
    notes) and "pairs". A pair is [first row, second row, answer, difference, low, high, seeds of the first,
    seeds of the second, test, p, corrected p], for the first minus the second: rows are indexes of "rows",
    answer and test of "texts". The statistics over items are left to ``bench compare``.
    """
    blocks = []
    for records in by_profile_and_suite(campaign.records):
        done = [record for record in finished_records(records) if record.score(AVERAGE) is not None]
        if len({record.method for record in done}) > 1:
            blocks.append(_compare_block(campaign, done))
    return blocks


def _compare_block(campaign: Campaign, records: Sequence[RunRecord]) -> dict[str, Any]:
    judge, methods = PairJudge(campaign, records), by_method(records)
    rows, texts = list(methods), dict[str, int]()
    lines = []
    for i, j in combinations(range(len(rows)), 2):
        verdict = judge.judge(rows[i], rows[j])
        answer, test = (texts.setdefault(text, len(texts)) for text in (verdict.answer, verdict.test))
        lines.append([i, j, answer, *_list_numbers(verdict, test)])
    imported = {}
    for method, note in judge.imported.items():
        imported[str(rows.index(method))] = texts.setdefault(note, len(texts))
    return {
        "profile": records[0].profile,
        "suite": records[0].suite,
        "rows": rows,
        "names": [judge.names[method] for method in rows],
        "aside": {str(rows.index(method)): reason for method, reason in judge.aside.items()},
        "imported": imported,
        "tested": judge.tested,
        "texts": list(texts),
        "pairs": lines,
    }


def _list_numbers(verdict: PairVerdict, test: int) -> list[float | int | None]:
    """Return the numbers of a pair's line, rounded as they are printed."""
    ends = [None, None] if verdict.interval is None else list(map(round_points, verdict.interval))
    p_values = [None if p is None else round_p_value(p) for p in (verdict.p, verdict.corrected)]
    return [round_points(verdict.difference), *ends, *verdict.seeds, test, *p_values]


class PairJudge:
    """The tests of one profile and suite: the leaderboard's, and those of the rows that it sets aside."""

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        methods = by_method(records)
        self.names = {method: printable(paper_name(runs)) for method, runs in methods.items()}
        self.aside = {m: why for m, why in campaign.family(records).aside.items() if m in methods}
        notes = {method: printable(describe_import(runs[0])) for method, runs in methods.items()}
        self.imported = {method: note for method, note in notes.items() if note}
        self._board = run_pairwise_tests(campaign, records)
        self.tested = sum(pair.p is not None for pair in self._board.of().pairs)
        every = replace(campaign, named=tuple(methods), rank_supervised=True, names=self.names)
        self._every = PairwiseTests(every, records)
        self._untestable = every.family(records).aside
        self._seeds = {m: sum(run.seed is not None for run in runs) for m, runs in methods.items()}
        self._means = {method: fmean(task_scores(runs)) for method, runs in methods.items()}

    def judge(self, first: str, second: str) -> PairVerdict:
        """Return the verdict on two rows."""
        for method in (first, second):
            if reason := self._untestable.get(method):
                difference = SCALE * (self._means[first] - self._means[second])
                obstacle = f"{self.names[method]} is set aside ({reason})"
                seeds = self._seeds[first], self._seeds[second]
                return PairVerdict(difference, None, seeds, obstacle, None, None, self.tested)
        pair = self._board.of().find_pair(first, second)
        tests = self._every if pair is None or pair.p is None else self._board
        test = tests.test(first, second, level=LEVEL)
        ends = None if test.interval is None or no_width(*test.interval) else test.interval
        # a test of pairs leaves out the seeds of one side; a row without seeds has one run
        n, m = tests.sizes(first, second)
        seeds = min(n, self._seeds[first]), min(m, self._seeds[second])
        if isinstance(tests, TaskPairwiseTests):
            seeds = len(tests.tasks), len(tests.tasks)
        return PairVerdict(
            SCALE * test.difference,
            ends and (SCALE * ends[0], SCALE * ends[1]),
            seeds,
            test.test,
            test.p,
            pair.adjusted if pair else None,
            self.tested,
        )
