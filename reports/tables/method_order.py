"""Settings that order methods: every profile and suite of a campaign, and the averages that papers print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedRow, published_rows
from bench.records.record import RunRecord, safe_name
from bench.render.grid import SCALE, Quoted, ScoreCell, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import (
    EXTERNAL_MODELS,
    by_method,
    by_profile_and_suite,
    finished_records,
    is_ranked,
    main_metric,
)
from bench.reports.tables.pairwise_tests import run_pairwise_tests
from bench.reports.tables.published_figures import published_names
from bench.reports.tables.relation import count_independent, trained_stages

if TYPE_CHECKING:
    from bench.stats.ranks import Ranking

LEAST = 4
"""Methods that two settings must have in common: the interval of a correlation takes as many."""
BACKBONES = ("bert-base", "roberta-base")
"""Those on which the papers print the STS average."""
_DIGITS = 10  # of a score: means that differ by rounding alone are equal


@dataclass(frozen=True)
class OrderSetting:
    """What orders methods.

    Args:
        name: Profile and suite, or "published" and the backbone.
        file: The same for the name of a file.
        cells: What is shown of each method, by its id; of a published one by the name on BERT-base.
        names: Ids by the name that papers print on BERT-base, one a name; of a published one empty.
        variants: Further ids that papers would print under such a name, by the name.
        ranking: Which of its methods are told apart; None for a published one: its figures have no seeds.
        records: Its records, none for a published one.
        left_out: Why methods of its records aren't here, by id.
        remarks: Of a published setting what is doubtful about a figure, by its name.
    """

    name: str
    file: str
    cells: Mapping[str, ScoreCell | Quoted]
    names: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranking: Ranking | None = None
    records: tuple[RunRecord, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """True for averages that papers print."""
        return self.ranking is None

    def score(self, method: str) -> float:
        """The average, in the metric's unit."""
        cell = self.cells[method]
        value = float(cell.text) / SCALE if isinstance(cell, Quoted) else cell.mean
        return round(value or 0.0, _DIGITS)

    def order(self, a: str, b: str) -> int:
        """1 where a is better than b, -1 where it is worse, 0 where the two aren't told apart."""
        if self.ranking is None:
            return (self.score(a) > self.score(b)) - (self.score(a) < self.score(b))
        pair = self.ranking.pair(a, b)
        if not pair.differs:
            return 0
        return 1 if (pair.difference > 0) == (pair.first == a) else -1

    @property
    def tells_apart(self) -> bool:
        """False where nothing could be tested."""
        return self.ranking is None or bool(self.ranking.methods)


@dataclass(frozen=True)
class SettingPair:
    """Two settings and the methods of both.

    Args:
        first: One setting.
        second: The other.
        methods: A method in the one and in the other, by what it is called in a report: its id.
    """

    first: OrderSetting
    second: OrderSetting
    methods: Mapping[str, tuple[str, str]]

    @property
    def scores(self) -> tuple[list[float], list[float]]:
        """The averages of both, in the order of ``methods``."""
        both = self.methods.values()
        return [self.first.score(a) for a, _ in both], [self.second.score(b) for _, b in both]

    @property
    def independent(self) -> int:
        """Groups of methods that share no trained stage in either setting, directly or through others."""
        both = (self.first, self.second)
        keys = [
            {method: trained_stages(runs) for method, runs in by_method(setting.records).items()}
            for setting in both
        ]
        return count_independent(
            frozenset().union(*(own.get(name, ()) for own, name in zip(keys, names, strict=True)))
            for names in self.methods.values()
        )

    def agreement(self) -> tuple[int, int]:
        """How many pairs of methods both order alike, of how many that both tell apart."""
        found = [
            (self.first.order(a, c), self.second.order(b, d))
            for (a, b), (c, d) in combinations(self.methods.values(), 2)
        ]
        both = [(x, y) for x, y in found if x and y]
        return sum(x == y for x, y in both), len(both)


SUPERVISED = "supervised (--rank-supervised takes them in)"
PARAPHRASED = "trained on the made-up world's own paraphrases"
NOT_OURS = "a model that isn't the profile's, the same in every setting"


def order_settings(campaign: Campaign) -> list[OrderSetting]:
    """Return the settings of a campaign that have methods, the published ones last."""
    groups = by_profile_and_suite(campaign.records)
    ours = [found for group in groups if (found := _campaign_setting(campaign, finished_records(group)))]
    rows: dict[str, RunRecord] = {}
    for setting in ours:
        runs = by_method(setting.records)
        rows |= {name: runs[method][0] for name, method in setting.names.items()}
    return [*ours, *(found for backbone in BACKBONES if (found := _published_setting(backbone, rows)).cells)]


def pair_settings(found: Sequence[OrderSetting]) -> list[SettingPair]:
    """Return every two settings, also those without a method in common."""
    ids = {name: method for setting in reversed(found) for name, method in setting.names.items()}
    return [SettingPair(a, b, dict(_common_methods(a, b, ids))) for a, b in combinations(found, 2)]


def _common_methods(
    a: OrderSetting, b: OrderSetting, ids: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Methods of both: by their ids, and with a published setting by the names that papers print."""
    if a.published:
        yield from ((ids[name], (name, name)) for name in a.cells if name in b.cells)
    elif b.published:
        yield from ((method, (method, name)) for name, method in a.names.items() if name in b.cells)
    else:
        yield from ((method, (method, method)) for method in a.cells if method in b.cells)


def _campaign_setting(campaign: Campaign, done: Sequence[RunRecord]) -> OrderSetting | None:
    """The setting of finished records of one profile and suite, None where no method has an average."""
    runs_of = by_method(done)
    metric = main_metric(record for record in done if record.method not in campaign.apart)
    left_out = {method: why for method, runs in runs_of.items() if (why := _omission_reason(campaign, runs))}
    averages = {
        method: summarise_values([record.score("avg", metric=metric) for record in runs])
        for method, runs in runs_of.items()
        if method not in left_out
    }
    cells = {method: cell for method, cell in averages.items() if cell.mean is not None}
    if not cells:
        return None
    profile, suite = done[0].profile, done[0].suite
    same = group_by(cells, lambda method: _published_name(runs_of[method][0], BACKBONES[0]))
    named = {name: sorted(ids, key=lambda one: (len(one), one)) for name, ids in same.items() if name}
    return OrderSetting(
        f"{profile}, {suite}",
        f"{safe_name(profile)}-{safe_name(suite)}",
        cells,
        {name: ids[0] for name, ids in named.items()},
        {name: tuple(ids[1:]) for name, ids in named.items() if len(ids) > 1},
        run_pairwise_tests(campaign, done).of(),
        tuple(record for record in done if record.method in cells),
        left_out,
    )


def _omission_reason(campaign: Campaign, runs: Sequence[RunRecord]) -> str:
    """Why a method isn't compared between settings, "" if it is."""
    if runs[0].method in campaign.apart:
        return SUPERVISED
    if not all(is_ranked(record, supervised=campaign.rank_supervised) for record in runs):
        return PARAPHRASED
    return NOT_OURS if runs[0].name in EXTERNAL_MODELS else ""


def _published_name(record: RunRecord, backbone: str) -> str:
    """The name under which tables of a backbone print a method, "" for none."""
    return next(iter(published_names(replace(record, backbone={"name": backbone}))), "")


def _published_setting(backbone: str, rows: Mapping[str, RunRecord]) -> OrderSetting:
    """What the papers' STS tables print of some methods, by their names on BERT-base."""
    there = [
        line for line in published_rows("sts7") if line.first.section == "sts7" and "avg" in line.figures
    ]
    tables = group_by(
        (line for line in there if line.first.backbone == backbone), lambda line: line.first.method
    )
    found = {name: own for name, one in rows.items() if (own := tables.get(_published_name(one, backbone)))}
    return OrderSetting(
        f"published, {backbone}",
        f"published-{backbone}",
        {name: Quoted(_average_text(own), grey=False) for name, own in found.items()},
        remarks={name: doubts for name, own in found.items() if (doubts := _figure_remarks(own))},
    )


def _average_text(found: Sequence[PublishedRow]) -> str:
    """The average as tables print it; the median of tables that print several."""
    texts = {line.figures["avg"].text for line in found}
    return texts.pop() if len(texts) == 1 else f"{median(map(float, texts)):.6g}"


def _figure_remarks(found: Sequence[PublishedRow]) -> tuple[str, ...]:
    """What is known to be wrong or doubtful about averages, and which ones no table prints as such."""
    said = []
    for line in found:
        figure = line.figures["avg"]
        what = [text for text, tasks in line.misprints.items() if "avg" in tasks]
        what += [part for part in figure.note.split("; ") if part.startswith("implied")]
        said += [f"{figure.source}, {figure.method}: {text}" for text in what]
    return tuple(dict.fromkeys(said))
