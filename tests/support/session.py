"""Cells of a session with two method classes."""

from __future__ import annotations

CELLS = (
    """
import hashlib
import numpy as np
from bench.lazy import torch
from bench.method_card import MethodCard, Option
""",
    """
NAMES, SCALES = {"y", "x"}, {"b": (1.0, -0.0), "a": None}
OPTIONS = (Option("scale", SCALES["b"][0], "no effect", minimum=0),)
TYPE = torch.float32
""",
    """
class Mine:
    "A method."
    card = MethodCard(
        name="mine", kind="method", summary="hashed sentences", version=1, options=OPTIONS,
        needs_backbone=False,
    )

    def build(self, context):
        # a comment
        return make(context.seed)
""",
    """
class Second(Mine):
    card = MethodCard(name="second", kind="method", summary="s", version=1, needs_backbone=False)
""",
    """
def make(seed):
    return Hashed(seed + zero(NAMES))


zero = lambda names: len(names) - 2
""",
    """
class Base:
    dim = 8

    def encode(self, sentences, batch_tokens=None, progress=None):
        rows = [self.row(sentence) for sentence in sentences]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dim)


class Hashed(Base):
    def __init__(self, seed):
        self.seed, self.facts = seed, {"dim": 8}

    def row(self, sentence):
        digest = hashlib.sha256(f"{self.seed} {sentence}".encode()).digest()
        return np.random.default_rng(list(digest)).normal(size=self.dim)
""",
)
TEXT = "\n\n".join(CELLS)
