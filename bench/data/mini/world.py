"""Which made-up world it is, and what it has; its text is in :mod:`bench.data.mini.text`.

GENERATOR names the lexicon, the grammar and the sampling, SPLIT the division of the events into train, dev
and test: whoever changes them raises the number.
"""

from __future__ import annotations

from dataclasses import dataclass

GENERATOR = 1
SPLIT = 1
DEFAULT_SEED = 1
COPIES = ("a", "b")
"""Names of the paraphrased copies of the training text: what round-trip translations are elsewhere."""
FURTHER_COPIES = ("c", "d", "e", "f")
"""More of them, which the backbone's pretraining has not seen; each has a stream of its own."""
ALL_COPIES = (*COPIES, *FURTHER_COPIES)


@dataclass(frozen=True)
class World:
    """One world; everything in it follows from its seed."""

    seed: int = DEFAULT_SEED

    @property
    def facts(self) -> dict[str, int]:
        """What every record names."""
        return {"generator": GENERATOR, "split": SPLIT, "seed": self.seed}
