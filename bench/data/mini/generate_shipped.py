"""Regenerate ``shipped/``: ``python -m bench.data.mini.generate_shipped``.

A change of lexicon, grammar or sampling needs it, raises GENERATOR, and needs a newly pretrained backbone.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from bench.data.data_source import ALL_COPIES, DEFAULT_SEED
from bench.data.mini.generator import PAIRS, draw_copy_rows, draw_pairs

FOLDER = Path(__file__).parent / "shipped"


def generate_files() -> Iterator[tuple[str, str]]:
    """Yield name and text of every file."""
    columns = zip(*draw_copy_rows(DEFAULT_SEED), strict=True)
    for name, column in zip(("train", *ALL_COPIES), columns, strict=True):
        yield f"{name}.txt", "".join(f"{sentence}\n" for sentence in column)
    for split in PAIRS:
        rows = draw_pairs(DEFAULT_SEED, split)
        yield f"{split}.tsv", "".join(f"{grade:g}\t{first}\t{second}\n" for first, second, grade in rows)


def main() -> None:
    """Write every file, compressed."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in generate_files():
        (FOLDER / f"{name}.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
