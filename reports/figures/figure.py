"""What a figure shows, free of how it is drawn: inline SVG for the page, matplotlib for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.records.record import RunRecord

Kind = Literal["points", "lines", "strip", "heat"]


@dataclass(frozen=True)
class Series:
    """Points or a line.

    Args:
        name: For the legend.
        x: Places; the row's number of a strip's points are in ``y``.
        y: Places, as many.
        spread: Standard deviations: of ``y``, in a strip of ``x``; empty for none.
        labels: What each point is; empty for none.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One figure.

    Args:
        name: Short name, of its file.
        title: What it shows.
        kind: "points" and "lines" over numbers, "strip" (a row a category), "heat" (a matrix).
        x: Label of the x axis, of a heat map's columns.
        y: Label of the y axis, of a heat map's rows.
        provenance: From what it was made.
        series: Of all kinds but "heat".
        rows: Names of a strip's or heat map's rows, from the top.
        columns: Names of a heat map's columns.
        cells: A heat map's values, a row a row; None where there is none.
        note: What one must know to read it.
    """

    name: str
    title: str
    kind: Kind
    x: str
    y: str
    provenance: tuple[str, ...]
    series: tuple[Series, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[float | None, ...], ...] = ()
    note: str = ""


def short(text: str, most: int = 40) -> str:
    """A name cut to what has room in a figure."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def provenance(records: Sequence[RunRecord], campaign: str) -> tuple[str, ...]:
    """Say from which records a figure was made, and how these were."""
    seeds = sorted({record.seed for record in records if record.seed is not None})
    data = sorted({f"{task} {facts['sha256'][:8]}" for r in records for task, facts in r.tasks.items()})
    facts = {
        "campaign": [campaign],
        "profile": _distinct([record.profile for record in records]),
        "suite": _distinct([record.suite for record in records]),
        "records": [str(len(records))],
        "seeds": [", ".join(map(str, seeds)) or "none"],
        "commit": _distinct([_commit(record) for record in records]),
        "device": _distinct([str(record.provenance.get("device", "")) for record in records]),
        "torch": _distinct([str(r.provenance.get("versions", {}).get("torch", "")) for r in records]),
        "data": data,
    }
    return tuple(
        f"{name}: {', '.join(filter(None, values))}" for name, values in facts.items() if any(values)
    )


def _commit(record: RunRecord) -> str:
    git = record.provenance.get("git") or {}
    commit = str(git.get("commit") or "")[:10]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _distinct(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if value})
