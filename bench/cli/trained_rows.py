"""Which row of a campaign the commands mean that take a method and train it where needed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from bench.cli.options import print_stderr
from bench.errors import BenchError, printable


def choose_trained_row(text: str, options: Mapping[str, Any]) -> str:
    """Return a method with the options of the campaign's only row of it, by default as it is written.

    A text with options, a method with ``--set``, and one that has a row at the profile's options stay. Says
    on stderr what else it takes, and which rows there are if there are several.
    """
    from bench.comparison.row_lookup import search_rows
    from bench.config.profiles import DEFAULT
    from bench.config.run_spec import METHOD_NAME
    from bench.records.campaign_lookup import check_campaign_options
    from bench.records.store import ResultStore

    check_campaign_options(options["results"], options["campaign"])
    is_set = any(override.partition(".")[0].strip() == text for override in options["overrides"])
    if not METHOD_NAME.fullmatch(text) or is_set:
        return text
    store = ResultStore(options["results"], options["campaign"])
    try:
        records, _ = store.scan(with_copies=True)
    except BenchError:  # no campaign yet
        return text
    profile = options["profile"] or DEFAULT
    names = {}
    for record in records:
        head, _, rest = record.method.partition("[")
        if record.profile == profile and head == record.name and (rest or record.method == head):
            names[record.method] = record.name
    rows = search_rows(text, sorted(names), [record for record in records if record.method in names])
    if len(rows) > 1:
        listed = ", ".join(map(shlex.quote, rows))
        print_stderr(printable(f"{text} has the profile's options; campaign {store.campaign} has {listed}"))
    if len(rows) != 1:
        return text
    if rows[0] != names[rows[0]]:
        print_stderr(printable(f"{text} is {rows[0]}, the only row of it in campaign {store.campaign}"))
    return rows[0]
