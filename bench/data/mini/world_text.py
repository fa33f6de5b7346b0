"""Texts of a world: the training text, its paraphrased copies, labelled triplets, and graded pairs.

``shipped/`` holds those of the SHIPPED worlds (:mod:`bench.data.mini.generate_shipped` makes them).
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from bench.data.corpus import Corpus, make_corpus
from bench.data.data_source import ALL_COPIES, COPIES, DEFAULT_SEED, World
from bench.data.labelled_pairs import make_pairs
from bench.data.tasks import PairSubset, PairTask

SHIPPED = (DEFAULT_SEED,)
_TASKS = {"dev": "MINI-dev", "test": "MINI"}


@cache
def training_text(world: World) -> Corpus:
    """Return the training text: distinct sentences of train events."""
    return make_corpus(f"mini-{world.seed}.txt", _world_sentences(world, 0), world.facts)


@cache
def training_copy(world: World, copy: str) -> Corpus:
    """Return one of ALL_COPIES, line by line: other words, another order, the same event."""
    sentences = _world_sentences(world, 1 + ALL_COPIES.index(copy))
    return make_corpus(f"mini-{world.seed}-{copy}.txt", sentences, world.facts)


@cache
def training_pairs(world: World) -> Corpus:
    """Return labelled triplets of train events (see :func:`bench.data.mini.generator.draw_triplets`)."""
    from bench.data.mini.generator import draw_triplets

    return make_pairs(f"mini-{world.seed}-pairs.tsv", draw_triplets(world.seed), world.facts)


def pretraining_text(world: World) -> Corpus:
    """Return the backbone's pretraining text: the training text, and documents of two wordings."""
    # as in real texts, a masked word then has its synonym in sight
    columns = [training_text(world).sentences, *(training_copy(world, copy).sentences for copy in COPIES)]
    documents: list[str] = []
    for column, following in zip(columns, [*columns[1:], columns[0]], strict=True):
        documents += map(" ".join, zip(column, following, strict=True))
    return make_corpus(f"mini-{world.seed}-pretraining.txt", [*documents, *columns[0]], world.facts)


@cache
def graded_pairs(world: World, split: str) -> PairTask:
    """Return the graded pairs of ``dev`` or ``test``, see :func:`bench.data.mini.generator.draw_pairs`."""
    name = _TASKS[split]
    if world.seed in SHIPPED:
        cells = [line.split("\t") for line in _read_shipped(f"{split}.tsv")]
        rows = [(first, second, float(grade)) for grade, first, second in cells]
    else:
        from bench.data.mini.generator import draw_pairs

        rows = draw_pairs(world.seed, split)
    first, second, gold = zip(*rows, strict=True)
    return PairTask(name, (PairSubset(split, first, second, gold),))


def _world_sentences(world: World, column: int) -> list[str]:
    """Return the training text (0) or the copy of this number (from 1, in the order of ALL_COPIES)."""
    if world.seed in SHIPPED:
        return _read_shipped(f"{('train', *ALL_COPIES)[column]}.txt")
    from bench.data.mini.generator import draw_copy_rows, draw_training_rows

    rows = draw_training_rows(world.seed) if column <= len(COPIES) else draw_copy_rows(world.seed)
    return [texts[column] for texts in rows]


def _read_shipped(name: str) -> list[str]:
    """Return the lines of a file that comes with the package."""
    import lzma  # some builds of Python lack it; only the embedded world needs it

    raw = resources.files(__package__).joinpath("shipped", f"{name}.xz").read_bytes()
    return lzma.decompress(raw).decode("utf-8").splitlines()
