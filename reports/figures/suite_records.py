"""The finished records of one profile and suite as figures need them, with names and titles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.comparison.method_family import find_default_baseline
from bench.records.record import RunRecord, safe_name
from bench.render.figure import MOST_ROWS, Figure, Kind, Series
from bench.render.method_names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.method_choice import use_published_names
from bench.reports.record_groups import by_method, describe_provenance, main_metric, metric_title

Points = Mapping[str, tuple[float, float]]


class SuiteRecords:
    """Finished records of one profile and suite, with the names and titles of their figures."""

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        first = records[0]
        self.campaign, self.every_record, self.records = campaign, records, campaign.listed(records)
        methods = by_method(self.records)
        self.names = figure_names(campaign, methods)
        footnotes = use_published_names(campaign).footnotes
        self._options = {f"{footnotes[name]}." for name in self.names.values() if name in footnotes}
        self.runs = {self.names[method]: runs for method, runs in methods.items()}
        self.baseline = self.names.get(campaign.baseline or find_default_baseline(self.names) or "", "")
        self.metric = main_metric(records)
        self.average = f"average, {metric_title(records)} x 100"
        self._name = f"{safe_name(first.profile)}-{safe_name(first.suite)}"
        self._on = f"{first.suite}, {first.profile}"
        self.source = describe_provenance(records, campaign.name)

    def figure(
        self, name: str, section: str, subject: str, kind: Kind, axes: tuple[str, str], **fields: Any
    ) -> Figure:
        """Return a figure of these records; its note ends with the options that names leave out."""
        facts = fields | {"note": self.note(fields.get("note", ""))}
        return Figure(self.name(name), section, self.title(subject), kind, *axes, self.source, **facts)

    def note(self, note: str) -> str:
        """Return a figure's note with the options that its names leave out."""
        return " ".join(filter(None, [note, *sorted(self._options)]))

    def name(self, name: str) -> str:
        """Return a figure's full name, which is its file's."""
        return f"{self._name}-{name}"

    def title(self, subject: str) -> str:
        """Return a figure's title."""
        return f"{subject}: {self._on}"

    def scatter(
        self, name: str, section: str, subject: str, axes: tuple[str, str], points: Points, note: str = ""
    ) -> Iterator[Figure]:
        """Yield a figure with a point a method, if there are two."""
        if len(points) > 1:
            facts = {"series": point_series(points), "note": note, "highlight": self.baseline}
            yield self.figure(name, section, subject, "points", axes, **facts)


def figure_names(campaign: Campaign, methods: Iterable[str]) -> dict[str, str]:
    """Return methods' names in figures by id: the chosen ones, otherwise those of papers."""
    named = use_published_names(campaign).names
    names = {method: named.get(method) or printed_name(method) for method in methods}
    counts = Counter(names.values())
    return {method: name if counts[name] == 1 else method for method, name in names.items()}


def point_series(points: Points) -> tuple[Series, ...]:
    """Return a labelled series of one point a method, or one series of many methods."""
    if len(points) > MOST_ROWS:
        x, y = zip(*points.values(), strict=True)
        return (Series("methods", x, y, labels=tuple(points)),)
    return tuple(Series(method, (x,), (y,), (), (method,)) for method, (x, y) in points.items())
