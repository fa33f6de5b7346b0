"""The test over seeds of two sides, paired or unpaired, and the seeds that it uses: chosen without scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.errors import InputError
from bench.stats.seeds import MAX_SEEDS

RequestedTest = Literal["auto", "paired", "sign-flip", "welch", "permutation"]
SeedTest = Literal["paired", "sign-flip", "welch", "student", "permutation"]
Seeds = tuple[int, ...]

PAIRED_TESTS = ("paired", "sign-flip")
LEAST_COMMON = 3
"""Seeds in common that make pairs if both sides have others too, if they are half of the smaller side."""


@dataclass(frozen=True)
class SeedDesign:
    """The test over seeds and the seeds of both sides.

    Args:
        test: The test; "student" if a side has no seeds.
        seeds: Used seeds of both sides, equal in a paired test.
        too_few: Seeds in common that are pairs, but too few for a paired test; otherwise 0.
    """

    test: SeedTest
    seeds: tuple[Seeds, Seeds]
    left_out: tuple[Seeds, Seeds] = ((), ())
    too_few: int = 0

    @property
    def paired(self) -> bool:
        """True if run i of both sides is a pair."""
        return self.test in PAIRED_TESTS


def common_seeds(a: Sequence[int], b: Sequence[int]) -> tuple[Seeds, Seeds]:
    """Return the seeds of each side that the other side has too, each in its own order.

    >>> common_seeds([1, 2, 3], [2, 3, 4])
    ((2, 3), (2, 3))
    """
    both = set(a) & set(b)
    return tuple(filter(both.__contains__, a)), tuple(filter(both.__contains__, b))


def choose_design(
    a: Sequence[int],
    b: Sequence[int],
    *,
    pairs: bool,
    asked: RequestedTest = "auto",
    pair_subset: bool = False,
    names: tuple[str, str] = ("a", "b"),
    where: str | None = None,
) -> SeedDesign:
    """Choose the test over seeds and the seeds that it uses.

    "auto" is the paired t test if the runs of a seed are pairs and enough seeds are in common. Equal seeds on
    both sides are enough. Other sides need three seeds in common, and half of the seeds of the smaller side;
    the test leaves out the rest. Without pairs, "auto" is Welch's test of all runs. It is Student's test
    against a side without seeds, which counts as a fixed score. Impossible tests raise ``InputError``.

    Args:
        a: Seeds of one side in rising order; empty for a deterministic method.
        pair_subset: True if fewer than three seeds in common are enough too, where they are all seeds of a
            side. ``bench check`` pairs one new run with its reference in this way.

    >>> choose_design([1, 2, 3, 4, 5], [1, 2, 3], pairs=True)
    SeedDesign(test='paired', seeds=((1, 2, 3), (1, 2, 3)), left_out=((4, 5), ()), too_few=0)
    """
    all_seeds = tuple(a), tuple(b)
    if not all(all_seeds):
        if asked not in ("auto", "welch"):
            what = f"the {asked} test needs seeds on both sides"
            raise InputError(what, where=where, hint="leave out --test")
        return SeedDesign("student", all_seeds)
    if asked == "permutation" and len(a) + len(b) > MAX_SEEDS:
        what, expected = f"a permutation test of {len(a) + len(b)} seeds", f"at most {MAX_SEEDS} seeds"
        raise InputError(what, where=where, expected=expected, hint="use --test welch")
    if asked in ("welch", "permutation"):
        return SeedDesign(asked, all_seeds)
    common, smaller_side = common_seeds(a, b), min(len(a), len(b))
    count = len(common[0])
    is_enough = 2 * count >= smaller_side and count >= LEAST_COMMON
    is_enough = is_enough or (pair_subset and count == smaller_side)
    used = common if pairs and is_enough else all_seeds
    if asked == "auto" and (not pairs or used[0] != used[1]):
        return SeedDesign("welch", all_seeds, too_few=count if pairs else 0)
    if used[0] != used[1]:
        what = f"{names[0]} and {names[1]} have different seeds"
        raise InputError(what, where=where, expected="pairs of runs", hint="use --test welch")
    if asked == "sign-flip" and len(used[0]) > MAX_SEEDS:
        what, expected = f"a sign-flip test of {len(used[0])} pairs", f"at most {MAX_SEEDS} pairs"
        raise InputError(what, where=where, expected=expected, hint="use --test paired")
    first, second = (tuple(sorted({*seeds} - {*used[0]})) for seeds in all_seeds)
    return SeedDesign("sign-flip" if asked == "sign-flip" else "paired", used, (first, second))
