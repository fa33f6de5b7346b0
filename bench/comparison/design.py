"""Which test over seeds: chosen from what the records say of stages and batches, before any score is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bench.comparison.confounders import pairing
from bench.comparison.select import Group
from bench.errors import InputError
from bench.stats.pair_test import LEAST_COMMON
from bench.stats.seeds import MAX_SEEDS

Asked = Literal["auto", "paired", "sign-flip", "welch", "permutation"]
SeedTest = Literal["paired", "sign-flip", "welch", "student", "permutation"]
PAIRED = ("paired", "sign-flip")


@dataclass(frozen=True)
class Design:
    """The test over seeds and what speaks for it.

    Args:
        test: The test; "student" where a side has no seeds.
        asked: What was asked for.
        pairs: What makes the runs of a seed a pair; None where the records name nothing.
        left_out: Seeds of the first and of the second that have no partner, and are not used.
        too_few: Seeds in common that would be the pairs if they were more; 0 where none would.
    """

    test: SeedTest
    asked: Asked
    pairs: str | None
    left_out: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    too_few: int = 0

    @property
    def paired(self) -> bool:
        """True if run i of both sides is a pair."""
        return self.test in PAIRED


def design_of(a: Group, b: Group, asked: Asked, where: str) -> tuple[Group, Group, Design]:
    """Choose the test over seeds, and the runs that it uses.

    "auto": the paired t test where ``pairing`` finds pairs; else Welch's test, Student's against a method
    without seeds. Where only some seeds are on both sides, these are the pairs if they are three or more, and
    at least half of the seeds of the side with fewer; the others are left out. No score is read for that.

    Args:
        a: One side.
        b: The other; one of both has seeds.
        asked: "auto", or a test.
        where: For errors.

    Returns:
        Both sides with the runs that are used, and the design.

    Raises:
        InputError: a paired test of sides with different seeds or of a method without seeds, or a permutation
            test against one, or of more than 40 seeds.
    """
    if a.deterministic or b.deterministic:
        if asked not in ("auto", "welch"):
            raise InputError(
                f"no {asked} test against a method without seeds", where=where, hint="leave out --test"
            )
        return a, b, Design("student", asked, None)
    if asked == "permutation" and len(a.seeds) + len(b.seeds) > MAX_SEEDS:
        raise InputError(
            f"no permutation test of more than {MAX_SEEDS} seeds", where=where, hint="use --test welch"
        )
    if asked in ("welch", "permutation"):
        return a, b, Design("welch" if asked == "welch" else "permutation", asked, pairing(a, b))
    one, other = in_common(a, b)
    said = pairing(one, other)
    if asked == "auto" and said is None:
        return a, b, Design("welch", asked, None, too_few=_too_few(a, b))
    if said is None:
        one, other = a, b
    if one.seeds != other.seeds:
        raise InputError(
            f"{a.label} and {b.label} have different seeds, so their runs are no pairs",
            where=where,
            hint="use --test welch",
        )
    if asked == "sign-flip" and len(one.seeds) > MAX_SEEDS:
        raise InputError(
            f"no sign-flip test of more than {MAX_SEEDS} pairs", where=where, hint="use --test paired"
        )
    left_out = tuple(tuple(seed for seed in group.seeds if seed not in one.seeds) for group in (a, b))
    test: SeedTest = "sign-flip" if asked == "sign-flip" else "paired"
    return one, other, Design(test, asked, said, (left_out[0], left_out[1]))


def in_common(a: Group, b: Group) -> tuple[Group, Group]:
    """Both sides with the seeds that both have; as they are where these are too few to be worth it.

    Too few: under three, or under half of the seeds of the side with fewer.
    """
    one, other = _shared(a, b)
    if len(one.seeds) < max(LEAST_COMMON, min(len(a.seeds), len(b.seeds)) / 2):
        return a, b
    return one, other


def _shared(a: Group, b: Group) -> tuple[Group, Group]:
    """Both sides with the seeds that both have, however few."""
    common = set(a.seeds) & set(b.seeds)
    one, other = (
        replace(group, runs=tuple(run for run in group.runs if run.record.seed in common)) for group in (a, b)
    )
    return one, other


def _too_few(a: Group, b: Group) -> int:
    """How many seeds both have, where their runs are pairs; 0 where nothing makes them pairs."""
    one, other = _shared(a, b)
    return len(one.seeds) if pairing(one, other) else 0
