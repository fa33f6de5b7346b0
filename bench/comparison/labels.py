"""How an answer prints the two sides of a comparison."""

from __future__ import annotations

import re

from bench.config.method_ids import split_outside_brackets
from bench.render.method_names import printed_name
from bench.render.row_names import RowParts, name_rows

_LABEL = re.compile(r"(?P<head>[^\[#(]+)(?:\[(?P<options>.*)\])?(?P<place>#\d+| \(.*\))?", re.DOTALL)

_MODEL = re.compile(r"[\w.-]+/[\w.-]+")
"""A model of a hub, of an imported table."""


def print_labels(first: str, second: str) -> tuple[str, str]:
    """Return the published names of two sides, with the options that the other side doesn't share.

    >>> print_labels("simcse[steps=20]", "tncse#1"), print_labels("simcse[steps=9]", "tncse[lr=1,steps=9]")
    (('SimCSE, steps=20', 'TNCSE#1'), ('SimCSE', 'TNCSE, lr=1'))
    """
    rows, places = {}, {}
    for label in (first, second):
        match = _LABEL.fullmatch(label)
        head, options, place = match.groups("") if match else (label, "", "")
        parts = tuple(split_outside_brackets(options, inside=True)) if options else ()
        name = head.rpartition("/")[2] if _MODEL.fullmatch(head) else printed_name(head)
        rows[label] = RowParts("side", name, parts)  # both sides share options as one method
        places[label] = place
    # one row of two campaigns has one name, and its places tell the sides apart
    named = name_rows({label.removesuffix(places[label]): parts for label, parts in rows.items()}).names
    printed = {label: named[label.removesuffix(places[label])] + places[label] for label in rows}
    if len(set(printed.values())) < len(printed):
        return first, second
    return printed[first], printed[second]
