"""The rows of a suite that are tested together, chosen by their names and their numbers of seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

DEFAULT_BASELINE = "simcse"
LEAST_ROWS = 3
"""Rows at the profile's options with two seeds that are a family; with fewer, all rows are."""


def is_variant(method: str) -> bool:
    """Return True for a row with options in brackets, which differ from the profile's.

    >>> is_variant("simcse"), is_variant("simcse[steps=280]")
    (False, True)
    """
    return method.endswith("]") and "[" in method


def find_default_baseline(rows: Collection[str]) -> str | None:
    """Return simcse, or the only row of it with options, if it is among the rows.

    >>> find_default_baseline(["tncse", "simcse[steps=20]"]), find_default_baseline(["tncse"])
    ('simcse[steps=20]', None)
    """
    if DEFAULT_BASELINE in rows:
        return DEFAULT_BASELINE
    variants = [row for row in rows if row.partition("[")[0] == DEFAULT_BASELINE]
    return variants[0] if len(variants) == 1 else None


def choose_plain_rows(has_seeds: Mapping[str, bool]) -> tuple[str, ...] | None:
    """Choose the rows at the profile's options; None if fewer than three of these have seeds.

    ``has_seeds`` says of every row whether it has two seeds or more, and can be tested.

    >>> choose_plain_rows({"simcse": True, "tncse": True, "tncse[lr=1e-5]": True, "untrained": False})
    >>> choose_plain_rows({"simcse": True, "tncse": True, "tncse[lr=1e-5]": True, "jtcse": True})
    ('simcse', 'tncse', 'jtcse')
    """
    plain = tuple(method for method in has_seeds if not is_variant(method))
    return plain if sum(has_seeds[method] for method in plain) >= LEAST_ROWS else None
