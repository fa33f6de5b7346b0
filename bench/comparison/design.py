"""Which test over seeds: chosen from what the records say of stages and batches, before any score is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.comparison.confounders import describe_pairing
from bench.comparison.selection import Group
from bench.stats.seed_design import PAIRED_TESTS, RequestedTest, Seeds, SeedTest, choose_design, common_seeds


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
    asked: RequestedTest
    pairs: str | None
    left_out: tuple[Seeds, Seeds] = ((), ())
    too_few: int = 0

    @property
    def paired(self) -> bool:
        """True if run i of both sides is a pair."""
        return self.test in PAIRED_TESTS


def choose_comparison_design(
    a: Group, b: Group, asked: RequestedTest, where: str
) -> tuple[Group, Group, Design]:
    """Choose the test over seeds, and the runs that it uses.

    ``describe_pairing`` reads the records of the seeds in common: it returns what makes their runs pairs.
    ``bench.stats.seed_design.choose_design`` has the rule. No score is read for that.

    Args:
        a: One side.
        b: The other.
        asked: "auto", or a test.
        where: For errors.

    Returns:
        Both sides with the runs that are used, and the design.

    Raises:
        InputError: a test that these seeds don't allow, as ``choose_design``.
    """
    common = common_seeds(a.seeds, b.seeds)
    shared = describe_pairing(_select_seeds(a, common[0]), _select_seeds(b, common[1])) if common[0] else None
    found = choose_design(
        a.seeds, b.seeds, pairs=shared is not None, asked=asked, names=(a.label, b.label), where=where
    )
    # a sentence names what the runs share only where each run has a partner, also if --test ignores it
    pairs = shared if found.seeds[0] == found.seeds[1] else None
    one, other = _select_seeds(a, found.seeds[0]), _select_seeds(b, found.seeds[1])
    return one, other, Design(found.test, asked, pairs, found.left_out, found.too_few)


def _select_seeds(group: Group, seeds: Seeds) -> Group:
    """Return the group with the runs of these seeds only; a deterministic one as it is."""
    if group.seeds == seeds:
        return group
    return replace(group, runs=tuple(run for run in group.runs if run.record.seed in seeds))
