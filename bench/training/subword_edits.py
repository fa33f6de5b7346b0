"""Views of a sentence made by editing its subwords: shuffled, reversed, some deleted, some repeated (PCL)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

EDITS = ("sf", "rv", "de", "rp", "dp")
"""Released names: shuffled, reversed, some deleted, some repeated, and the row itself."""


def shuffle_subwords(row: Sequence[int], draw: torch.Generator) -> list[int]:
    """The row with its subwords in a random order; the two specials keep their places."""
    inner = row[1:-1]
    order = torch.randperm(len(inner), generator=draw).tolist()
    return [row[0], *(inner[place] for place in order), row[-1]]


def reverse_subwords(row: Sequence[int]) -> list[int]:
    """The row with its subwords from the last to the first."""
    return [row[0], *row[-2:0:-1], row[-1]]


def delete_subwords(row: Sequence[int], share: float, draw: torch.Generator) -> list[int]:
    """The row without round(share * n) of its n subwords.

    Each is drawn by its place among those left, and the first subword equal to it falls away.
    """
    inner = list(row[1:-1])
    for _ in range(min(round(share * len(inner)), len(inner))):
        inner.remove(inner[_draw_index(len(inner), draw)])
    return [row[0], *inner, row[-1]]


def insert_subwords(row: Sequence[int], share: float, longest: int, draw: torch.Generator) -> list[int]:
    """The row with round(share * n) of its n subwords put in once more, each at a random place.

    Each is drawn from all subwords so far. The row grows to at most ``longest`` ids, specials included.
    """
    inner = list(row[1:-1])
    for _ in range(min(round(share * len(inner)), max(0, longest - len(row)))):
        token = inner[_draw_index(len(inner), draw)]
        inner.insert(_draw_index(len(inner) + 1, draw), token)
    return [row[0], *inner, row[-1]]


def edit_views(
    row: Sequence[int],
    share: float,
    longest: int,
    draw: torch.Generator,
    edits: Sequence[str] = ("sf", "rv", "de", "rp"),
) -> list[list[int]]:
    """Return the row shuffled, backwards, shortened and lengthened; all are the row for one subword.

    Args:
        row: Token ids, specials first and last.
        share: Share of the subwords that are deleted or repeated, 0 to 1.
        longest: Ids a lengthened row may have.
        draw: A generator of the run's own.
        edits: Which of :data:`EDITS`, one view each.

    Raises:
        KeyError: another name.
    """
    ways = {
        "sf": lambda: shuffle_subwords(row, draw),
        "rv": lambda: reverse_subwords(row),
        "de": lambda: delete_subwords(row, share, draw),
        "rp": lambda: insert_subwords(row, share, longest, draw),
        "dp": lambda: list(row),
    }
    return [ways[edit]() for edit in edits]


def _draw_index(count: int, draw: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=draw))
