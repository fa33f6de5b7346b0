"""Options for training that rows of a plan don't use: notes, in place of an error, where nothing is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bench.config.run_spec import RunSpec
from bench.data.text_columns import OPTION
from bench.stages import PAIRS, copy_name

_MOST = 12  # rows that a note names


def describe_unused_options(spec: RunSpec, texts: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield a note for each option for training that some row, or every row, doesn't use.

    An option that no row uses although one trains is an error instead: that row would train on another text
    than the given one. See :func:`bench.data.training_data.read_training_data`.

    Args:
        spec: The run.
        texts: Names of the training texts of each row.
    """
    train = {row for row, names in texts.items() if names}
    paired = {row for row, names in texts.items() if PAIRS in names}
    unlabelled = {row for row, names in texts.items() if set(names) - {PAIRS}}
    uses: list[tuple[str, object, set[str]]] = [
        ("--corpus", spec.corpus, unlabelled),
        (OPTION, spec.text_column, unlabelled),
        ("--pairs", spec.pairs, paired),
        ("--dev", spec.dev, train),
    ]
    for copy, path in spec.copies:
        users = {row for row, names in texts.items() if copy in map(copy_name, names)}
        uses.append(("--copy", f"{copy}={path}", users))
    for option, value, users in uses:
        if value is not None and (note := _describe_use([*texts], users)):
            yield f"{option} {value}: {note}"


def _describe_use(rows: list[str], users: Collection[str]) -> str:
    """Return who uses an option, "" for all rows, by the shorter of two lists."""
    others = [row for row in rows if row not in users]
    if not others:
        return ""
    if not users:
        return "not used, no method here trains"
    if len(users) < len(others):
        return f"used only by {_name_rows([row for row in rows if row in users])}"
    return f"not used by {_name_rows(others)}"


def _name_rows(rows: list[str]) -> str:
    more = len(rows) - _MOST
    return ", ".join(rows[:_MOST]) + (f" and {more} more" if more > 0 else "")
