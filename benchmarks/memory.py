"""Peak memory of encoding 10,000, 100,000 and 1,000,000 sentences, streamed into a .npy file.

Each size is a process of its own. The encoder is cheap (hashed words, ``--dim`` numbers), so that what is
measured is what the stream and the file hold. The peer keeps all sentences and all vectors, at the last size.

    python benchmarks/memory.py [--sizes 10000 100000 1000000] [--dim 384] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from claim import add_json, bounded, faster, show

SIZES = (10_000, 100_000, 1_000_000)
GOAL = 1.1
VOCABULARY = 1000


def text(count: int) -> Iterator[str]:
    """Sentences of 4 to 19 words, all different."""
    for number in range(count):
        yield " ".join(f"word{number * k % 997}" for k in range(1, 5 + number % 16)) + f" {number}"


def make_encoder(dim: int) -> Any:
    """Return an encoder: the mean of fixed vectors that words are hashed to."""
    import numpy as np

    table = np.random.default_rng(1).normal(size=(VOCABULARY, dim)).astype(np.float32)

    class Hashed:
        def __init__(self) -> None:
            self.dim = dim
            self.facts: dict[str, str | int] = {}

        def encode(
            self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Any = None
        ) -> Any:
            rows = np.empty((len(sentences), dim), dtype=np.float32)
            for row, sentence in zip(rows, sentences, strict=True):
                words = [zlib.crc32(word.encode()) % VOCABULARY for word in sentence.split()]
                table[words].mean(0, out=row)
            return rows

    return Hashed()


def peak_megabytes() -> float:
    """Most resident memory of this process so far."""
    try:  # the kernel's getrusage also counts what the parent held when it started this process
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def encode(count: int, dim: int, whole: bool) -> float:
    """Encode into a file; return the peak."""
    import numpy as np

    from bench.eval.embeddings import stream_embeddings
    from bench.eval.vector_storage import VectorFile

    encoder = make_encoder(dim)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "vectors.npy"
        if whole:
            np.save(path, encoder.encode(list(text(count))))
        else:
            with VectorFile(path, dim) as file:
                for vectors in stream_embeddings(encoder, text(count)):
                    file.append(vectors)
        assert np.load(path, mmap_mode="r").shape == (count, dim)
    return peak_megabytes()


def main() -> None:
    """Measure each size in a process of its own and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--one", type=int, help="measure this size here")
    parser.add_argument("--whole", action="store_true", help="with --one: the peer")
    add_json(parser)
    given = parser.parse_args()
    if given.one is not None:
        print(encode(given.one, given.dim, given.whole))
        return

    def measure(*options: str) -> float:
        command = [sys.executable, __file__, "--dim", str(given.dim), *options]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        return round(float(done.stdout), 1)

    peaks = {size: measure("--one", str(size)) for size in given.sizes}
    first, last = given.sizes[0], given.sizes[-1]
    whole = measure("--one", str(last), "--whole")
    facts = {"benchmark": "memory", "dim": given.dim, "peak_megabytes": peaks, "whole_megabytes": whole}
    print(json.dumps(facts))
    what = f"{last:,} streamed sentences, {given.dim} dimensions, peak memory:"
    show(
        given.json,
        bounded("memory", f"{what} {first:,}", ours=peaks[last], peer=peaks[first], unit="MB", goal=GOAL),
        faster("memory whole", f"{what} all at once", ours=peaks[last], peer=whole, unit="MB"),
    )


if __name__ == "__main__":
    main()
