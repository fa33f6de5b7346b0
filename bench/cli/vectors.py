"""``bench export --vectors``: the vectors of a text of any length."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from bench.cli.encoder_plan import plan_encoder, prepare_encoder
from bench.cli.terminal import progress_bar
from bench.errors import InputError

_WHERE = "bench export --vectors"


def write_vectors(
    method: str,
    source: str,
    out: Path,
    *,
    seed: int | None,
    checkpoint: str,
    block: int,
    options: Mapping[str, Any],
) -> None:
    """Write the vectors of a text, a sentence a line, to a .npy file.

    Args:
        method: The method, as in ``bench run``.
        source: File of the text, or "-" for stdin.
        out: The file to write.
        seed: Seed of the encoder, None for a deterministic method.
        checkpoint: "selected" or "last".
        block: Sentences in memory at a time.
        options: Those of ``bench run`` that trained it.
    """
    from bench.eval.vector_storage import VectorFile, check_vector_path
    from bench.nn.device import torch_threads

    check_vector_path(out)
    with ExitStack() as stack:
        text, name = _open_text(source, stack), "stdin" if source == "-" else source
        total = None if source == "-" else _count_lines(text, name)
        suite = options["suites"] or "toy"  # a plan needs one; nothing is evaluated
        plan = plan_encoder(method, seed, {**options, "suites": suite}, _WHERE)
        stack.enter_context(torch_threads(plan.spec.threads, needs_torch=True))
        _, encoder = prepare_encoder(plan, checkpoint, _WHERE, precision=plan.spec.precision)
        with VectorFile(out, encoder.dim) as file, progress_bar("encode", total) as advance:
            from bench.data.text_lines import read_sentences
            from bench.eval.embeddings import stream_embeddings

            sentences = read_sentences(text, name)
            for vectors in stream_embeddings(encoder, sentences, block=block, progress=advance):
                file.append(vectors)
    click.echo(f"{out}: {plan.jobs[0].cell.describe()}, {file.rows:,} sentences, {encoder.dim} dimensions")


def _open_text(source: str, stack: ExitStack) -> BinaryIO:
    if source == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(source).open("rb"))
    except OSError as error:
        raise InputError(f"the text can't be read: {error.strerror}", where=f"--vectors {source}") from error


def _count_lines(text: BinaryIO, name: str) -> int | None:
    """Check and count the lines of a seekable file, before anything is loaded."""
    from bench.data.text_lines import read_sentences

    if not text.seekable():
        return None
    total = sum(1 for _ in read_sentences(text, name))
    text.seek(0)
    return total
