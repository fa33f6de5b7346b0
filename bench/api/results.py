"""Results of a campaign: tables, comparisons and plots for a notebook."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api.command_options import (
    check_path,
    format_list,
    name_of_method,
    parse_options,
    refuse_options,
)
from bench.api.comparisons import Comparison
from bench.api.frames import make_long_frame, make_reason_frame, make_wide_frame
from bench.api.leaderboards import Leaderboard
from bench.api.notebook_tables import render_html
from bench.api.plots import Plots
from bench.cli.messages import hand_lines_to
from bench.comparison.row_lookup import find_row
from bench.comparison.selection import format_seeds
from bench.config.method_ids import parse_seeds
from bench.errors import CellFailedError, InputError, not_one_of, printable, suggest_name
from bench.eval.recomputation import split_contradictions
from bench.records.fingerprint import compute_family_key
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from bench.render.formats import render_text
from bench.render.grid import DASH, SCALE, Grid, Value
from bench.reports import merge_campaigns
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, summarise_scores

if TYPE_CHECKING:
    from pandas import DataFrame

_OK = "ok"
_RECORDS = "[!.]*/[!.]*/*seed*/*.json"
"""Records below a campaign's folder."""
_OF_COMMAND = (
    *("results", "campaign", "against", "format", "details"),
    *("show_items", "seed", "task", "count"),
)
"""Options of ``bench compare`` that choose records, or print."""
_MOST_POINTS = 100
_MIXED = "several specifications"
"""In place of an average over seeds that don't belong together."""


@dataclass(frozen=True, repr=False)
class Results:
    """Records of a campaign, or some of them; :func:`bench.run` and :func:`bench.results` return it.

    Scores are in points, 100 x the metric, unrounded.

    Args:
        store: The campaign's folder.
        records: A record for each run and suite, failed ones included.
        data: Folder of the evaluation data, None for ``BENCH_DATA``.
        messages: Lines that the command would print on stderr.
        unfinished: Why planned records have no score, by place; failed records have their own reason.
        interrupted: True if Ctrl-C or the deadline ended the run early.

    >>> import bench
    >>> results = bench.results("results/mini")
    >>> len(results.filter(methods="simcse").records)
    3
    """

    store: ResultStore
    records: tuple[RunRecord, ...]
    data: Path | None = None
    messages: tuple[str, ...] = ()
    unfinished: Mapping[RecordPlace, str] = field(default_factory=dict, compare=False)
    interrupted: bool = False
    _kept: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def methods(self) -> tuple[str, ...]:
        """The ids of the rows, in the order of their records.

        >>> import bench
        >>> "simcse" in bench.results("results/mini").methods
        True
        """
        return tuple(by_method(self.records))

    @property
    def missing(self) -> int:
        """Number of planned records without a score: failed, left, or blocked by another specification.

        >>> import bench
        >>> bench.results("results/mini").missing
        0
        """
        return len(self._reasons)

    def require_complete(self) -> Results:
        """Return the results; raises CellFailedError, with every reason, if a score is missing.

        >>> import bench
        >>> bench.results("results/mini").require_complete().missing
        0
        """
        if self._reasons:
            reasons = "; ".join(dict.fromkeys(self._reasons.values()))
            what = f"{self.missing} of {self._planned} cells have no score: {reasons}"
            raise CellFailedError(what, where=str(self.store.root))
        return self

    @property
    def failures(self) -> DataFrame:
        """A row for each planned run without a score: profile, suite, method, seed, reason, traceback.

        The traceback of a failed run shows the line: ``print(results.failures.traceback[0])``.

        >>> import bench
        >>> len(bench.results("results/mini").failures)
        0
        """
        return make_reason_frame(self._reasons, self.records)

    def filter(
        self,
        methods: str | type | Sequence[str | type] | None = None,
        seeds: int | str | Iterable[int] | None = None,
        suite: str | None = None,
        profile: str | None = None,
    ) -> Results:
        """Return the records of some rows, seeds, suites or profiles; a method without seeds stays.

        Args:
            methods: Row ids, or names of methods with one row.
            seeds: As for ``bench.run``.

        Raises:
            InputError: an unknown row, suite or profile, or nothing is left.

        >>> import bench
        >>> results = bench.results("results/mini").filter(["simcse", "tncse"], seeds=range(1, 4))
        >>> sorted({record.seed for record in results.records})
        [1, 2, 3]
        """
        kept = list(self.records)
        for name, value in (("profile", profile), ("suite", suite)):
            known = sorted({getattr(record, name) for record in kept})
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name}={value!r}", where="filter", expected="a text")
            if value is not None and value not in known:
                raise not_one_of(f"no record of {name} '{value}'", value, known, where="filter")
            kept = [record for record in kept if value in (None, getattr(record, name))]
        if methods is not None:
            rows = self._match_rows(methods)
            kept = [record for record in kept if record.method in rows]
        if seeds is not None:
            numbers = parse_seeds(format_list(seeds, "seeds", "filter"))
            kept = [record for record in kept if record.seed is None or record.seed in numbers]
        if not kept:
            raise InputError("no record matches", where="filter", expected=", ".join(self.methods))
        return replace(self, records=tuple(kept), unfinished={}, _kept={})

    def to_dataframe(self, *, wide: bool = False) -> DataFrame:
        """Return the scores over all items of each task, in points.

        Args:
            wide: False for a row a score, with columns profile, suite, method, seed, task, metric, score and
                n (items); True for a row a run, a failed one too, with a column a task and ``avg``.

        >>> import bench
        >>> frame = bench.results("results/mini").filter("simcse", suite="mini").to_dataframe(wide=True)
        >>> frame[["seed", "avg"]].round(2).head(2).values.tolist()
        [[1, 63.89], [2, 64.64]]
        """
        make = make_wide_frame if wide else make_long_frame
        return make(self.records)

    def leaderboard(
        self, baseline: str | type | None = None, *, margin: float | None = None, all_rows: bool = False
    ) -> Leaderboard:
        """Return the leaderboard of every profile and suite: averages, tests against a baseline, verdicts.

        Args:
            baseline: Row to compare with; default: the sealed plan's, otherwise simcse, if it has two seeds.
            margin: Points within which a row counts as equal to the baseline.
            all_rows: True to list rows that are set aside too: variants, single seeds.

        Raises:
            InputError: an unknown baseline.

        >>> import bench
        >>> board = bench.results("results/mini").leaderboard(baseline="simcse")
        >>> frame = board.to_dataframe()
        >>> frame.loc[frame.method == "simcse", "answer"].tolist()
        ['baseline']
        """
        if margin is not None and not (isinstance(margin, int | float) and 0 < margin <= _MOST_POINTS):
            raise InputError(f"margin={margin!r}", where="leaderboard", expected="0 < points <= 100")
        campaign = self._make_campaign(baseline, margin=margin)
        return Leaderboard(replace(campaign, all_rows=all_rows))

    def compare(self, first: str | type, second: str | type, **options: Any) -> Comparison:
        """Test whether two rows differ; ``bench compare`` prints the same answer.

        Args:
            first: Row id, a method with one row, its class, or METHOD#SEED for one run.
            second: The same.
            options: As for ``bench compare``, such as ``suite="mini"``, ``test="welch"``, ``margin=0.5``,
                ``seeds_only=True``; ``for_="items"`` is ``--for items``.

        Raises:
            InputError: an unknown row or option, or several suites or profiles with both rows.
            NotComparableError: the rows were measured on different data.

        >>> import bench
        >>> answer = bench.results("results/mini").compare("tncse", "jtcse", seeds_only=True)
        >>> answer.significant, len(answer.seeds)
        (False, 5)
        """
        from bench.cli.compare import compare_command, make_comparisons, make_item_drawer

        given = {name.removesuffix("_"): value for name, value in options.items()}
        refuse_options(given, _OF_COMMAND, "compare", "bench compare")
        sides = name_of_method(first), name_of_method(second)
        parsed = parse_options(compare_command, given, "compare", sides)
        parsed["data_dir"] = parsed["data_dir"] or self.data
        places = {record.place for record in self.records}
        draw = None if parsed["seeds_only"] else make_item_drawer(parsed["draws"], parsed["data_dir"])
        messages: list[str] = []
        with hand_lines_to(messages.append):
            found = make_comparisons(
                sides[0],
                [sides[1]],
                self.store,
                parsed,
                draw=draw,
                keep=lambda record: record.place in places,
            )
        if len(found) > 1:
            what = "several pairs of runs: " + "; ".join(f"{one.profile}, {one.suite}" for one in found)
            raise InputError(what, where="compare", expected="suite=... or profile=...")
        return Comparison(found[0], tuple(messages))

    @property
    def plot(self) -> Plots:
        """Figures of these results, see :class:`bench.api.plots.Plots`.

        >>> import bench
        >>> bench.results("results/mini").plot.seeds().titles[0][:5]
        'Seeds'
        """
        return Plots(self._make_campaign)

    def _make_campaign(self, baseline: str | type | None = None, *, margin: float | None = None) -> Campaign:
        """Return the records as reports read them; raises InputError for an unknown baseline."""
        key = f"campaign {baseline!r}"
        if key not in self._kept:
            row = None if baseline is None else self._match_rows(name_of_method(baseline))[0]
            made = make_campaign(self.store, self.records, baseline=row)
            self._kept[key] = replace(made, whole=False)
        campaign: Campaign = self._kept[key]
        return campaign if margin is None else replace(campaign, margin=margin / SCALE, kept={})

    def _match_rows(self, names: str | type | Sequence[str | type]) -> list[str]:
        rows, known = [], set(self.methods)
        single = isinstance(names, str | type) or not isinstance(names, Iterable)
        listed: list[Any] = [names] if single else [*names]  # type: ignore[misc]
        for name in map(name_of_method, listed):
            rows.append(find_row(name, known, self.records, where=str(self.store.root)))
        return rows

    @cached_property
    def _reasons(self) -> dict[RecordPlace, str]:
        """Why a record has no score, by its place."""
        failed = {
            record.place: record.reason or record.status for record in self.records if record.status != _OK
        }
        return {**self.unfinished, **failed}

    @property
    def _planned(self) -> int:
        return len({*self.unfinished, *(record.place for record in self.records)})

    @cached_property
    def _summary(self) -> Grid:
        """A row for each row, profile and suite: seeds, average, failed runs."""
        rows: list[tuple[Value, ...]] = []
        for group in by_profile_and_suite(self.records):
            for method, runs in by_method(group).items():
                seeds = sorted({run.seed for run in runs if run.seed is not None})
                failed = sum(run.status != _OK for run in runs)
                mixed = len({compute_family_key(run) for run in runs if run.status == _OK}) > 1
                average: Value = _MIXED if mixed else summarise_scores(runs)
                rows.append((method, group[0].suite, format_seeds(seeds), average, str(failed or DASH)))
        return Grid("", ("method", "suite", "seeds", "avg", "failed"), tuple(rows), ())

    @cached_property
    def _state(self) -> list[str]:
        """What a reader has to know first: where the records are, and what is missing."""
        lines = [f"{len(self.records)} records of {printable(str(self.store.root))}"]
        lines += dict.fromkeys(n for r in self.records for n in r.notes if merge_campaigns.is_doubt(n))
        if self.missing:
            first = printable(next(iter(self._reasons.values())))
            lines.append(f"{self.missing} of {self._planned} cells have no score (.failures): {first}")
        if self.interrupted:
            lines.append("interrupted: repeat the call to resume")
        return lines

    def __repr__(self) -> str:
        """Return where the records are, what is missing, and each row's average."""
        return "\n".join([*self._state, render_text([self._summary]).strip("\n")])

    def _repr_html_(self) -> str:
        return render_html([self._summary], self._state)


def results(path: str | Path, *, data: str | Path | None = None) -> Results:
    """Return the results of a campaign's folder; ``bench.results`` is this function.

    Scores are recomputed from predictions first, where the evaluation data are there. A record that
    contradicts its predictions, or can't be read, counts as failed.

    Args:
        path: Folder of the campaign, such as results/local.
        data: Folder of the evaluation data; default ``BENCH_DATA``.

    Raises:
        InputError: no such folder, or one without records.

    >>> import bench
    >>> bench.results("results/mini").filter("simcse").leaderboard().to_dataframe().seeds.tolist()
    [3]
    """
    folder = check_path(path, "path", "bench.results")
    if folder.name in ("", ".."):
        folder = folder.resolve()
    try:
        records = list(folder.glob(_RECORDS))
        campaigns = sorted({each.parts[-5] for each in folder.glob(f"[!.]*/{_RECORDS}")})
        missing = not folder.is_dir()
    except (OSError, ValueError) as error:
        raise InputError(f"it can't be read: {error}", where=str(folder)) from error
    if missing:
        near = suggest_name(folder.name, (each.name for each in folder.parent.glob("*/")))
        if (Path("results") / folder).is_dir():
            near = f"did you mean '{Path('results') / folder}'?"
        raise InputError("there is no such folder", where=str(folder), expected="results/CAMPAIGN", hint=near)
    if not records:
        hint = f"the campaigns here: {', '.join(campaigns)}" if campaigns else None
        raise InputError("no record is here", where=str(folder), expected="results/CAMPAIGN", hint=hint)
    gold = None if data is None else check_path(data, "data", "bench.results")
    store, check = ResultStore(folder.parent, folder.name), partial(split_contradictions, data=gold)
    messages: list[str] = []
    with hand_lines_to(messages.append):
        collected = merge_campaigns.refuse_contradictions(merge_campaigns.collect_records([store]), check)
    errors = [str(error) for entry in collected for error in entry.errors]
    found = tuple(entry.record for entry in collected)
    doubts = [note for record in found for note in record.notes if merge_campaigns.is_doubt(note)]
    return Results(store, found, gold, (*messages, *errors, *dict.fromkeys(doubts)))


def _is_among(places: Container[RecordPlace], record: RunRecord) -> bool:
    return record.place in places
