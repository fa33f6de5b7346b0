"""The command line in tests: its type, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.records.record import RunRecord, from_json, to_json

Cli = Callable[..., tuple[int, str, str]]


def records(folder: Path, campaign: str = "local") -> dict[str, RunRecord]:
    """All records of a campaign by their path below it."""
    root = folder / "results" / campaign
    return {
        str(p.relative_to(root)): from_json(p.read_text(), str(p)) for p in sorted(root.glob("*/*/*/*.json"))
    }


def stable_bytes(folder: Path, campaign: str = "local") -> dict[str, bytes]:
    """Everything in a campaign that must repeat: records without timing, predictions as they are."""
    root = folder / "results" / campaign
    found = {
        name: to_json(record, timing=False).encode() for name, record in records(folder, campaign).items()
    }
    return found | {str(p.relative_to(root)): p.read_bytes() for p in root.glob("*/*/*/*.npz")}


def refusal(cli: Cli, *arguments: str, code: int = 2) -> str:
    """What a command that is refused says: one line that no terminal obeys."""
    found, _, err = cli(*arguments)
    assert (found, err.count("\n"), err.rstrip("\n").isprintable()) == (code, 1, True), err
    return err
