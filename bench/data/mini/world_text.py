"""A world's text: the training text, its paraphrased copies, labelled triplets, and graded pairs.

That of the SHIPPED worlds comes with the package, compressed, in ``shipped/`` (made by
:mod:`bench.data.mini.ship`); that of any other is generated when it is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from bench.data.corpus import Corpus, make_corpus
from bench.data.labelled_pairs import make_pairs
from bench.data.source import ALL_COPIES, COPIES, DEFAULT_SEED, World
from bench.data.tasks import PairSubset, PairTask

SHIPPED = (DEFAULT_SEED,)
_TASKS = {"dev": "MINI-dev", "test": "MINI"}


@cache
def training_text(world: World) -> Corpus:
    """The training text: distinct sentences of train events."""
    return make_corpus(f"mini-{world.seed}.txt", _world_sentences(world, 0), world.facts)


@cache
def training_copy(world: World, copy: str) -> Corpus:
    """A paraphrased copy of the training text, line by line: other words, another order, the same event.

    Args:
        world: The world.
        copy: One of ALL_COPIES.
    """
    sentences = _world_sentences(world, 1 + ALL_COPIES.index(copy))
    return make_corpus(f"mini-{world.seed}-{copy}.txt", sentences, world.facts)


@cache
def training_pairs(world: World) -> Corpus:
    """Labelled triplets of train events (see :func:`bench.data.mini.generator.draw_triplets`).

    They are few enough to be generated for the embedded world too.
    """
    from bench.data.mini.generator import draw_triplets

    return make_pairs(f"mini-{world.seed}-pairs.tsv", draw_triplets(world.seed), world.facts)


def pretraining_text(world: World) -> Corpus:
    """What the backbone is pretrained on: the training text, and documents that say a thing twice.

    A document is a sentence of the training text or of a copy followed by its other wording, as texts
    repeat themselves in other words: there a masked word has its synonym in sight.
    """
    columns = [training_text(world).sentences, *(training_copy(world, copy).sentences for copy in COPIES)]
    documents = [
        f"{text} {other}"
        for column, following in zip(columns, [*columns[1:], columns[0]], strict=True)
        for text, other in zip(column, following, strict=True)
    ]
    return make_corpus(f"mini-{world.seed}-pretraining.txt", [*documents, *columns[0]], world.facts)


@cache
def graded_pairs(world: World, split: str) -> PairTask:
    """The graded pairs of ``dev`` or ``test`` (grades: :func:`bench.data.mini.generator.draw_pairs`)."""
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
    """The training text (0) or the copy of this number (from 1, in the order of ALL_COPIES)."""
    if world.seed in SHIPPED:
        return _read_shipped(f"{('train', *ALL_COPIES)[column]}.txt")
    from bench.data.mini.generator import draw_copy_rows, draw_training_rows

    rows = draw_training_rows(world.seed) if column <= len(COPIES) else draw_copy_rows(world.seed)
    return [texts[column] for texts in rows]


def _read_shipped(name: str) -> list[str]:
    """The lines of a file that comes with the package."""
    import lzma  # not every build of Python has it; only the embedded world needs it

    raw = resources.files(__package__).joinpath("shipped", f"{name}.xz").read_bytes()
    return lzma.decompress(raw).decode("utf-8").splitlines()
