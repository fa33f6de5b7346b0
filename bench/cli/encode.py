"""``bench encode``: the vectors of a text of any length."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from bench.cli import completion
from bench.cli.export import checkpoint_option, plan_encoder, prepare_encoder, seed_option
from bench.cli.options import PATH, spec_options
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

_WHERE = "bench encode"


@click.command()
@click.argument("method", shell_complete=completion.method)
@strict_option(
    "--input", "source", required=True, metavar="FILE|-", help="Text, a sentence a line; - is stdin."
)
@strict_option("--out", type=PATH, required=True, help="FILE.npy to write.")
@seed_option
@checkpoint_option
@strict_option("--block", type=click.IntRange(1), default=4096, help="Sentences in memory at a time.")
@spec_options
def encode_command(
    method: str, source: str, out: Path, seed: int | None, checkpoint: str, block: int, **options: Any
) -> None:
    """Write the vectors of a text to a .npy file.

    They are float32, row i for line i; an empty line is an error. Give the options of the `bench run` that
    trained it, and its finished stages are reused. Memory use is independent of the text's length.
    """
    from bench.eval.vector_storage import VectorFile, check_vector_path
    from bench.nn.device import torch_threads
    from bench.nn.half_precision import cast_encoder

    check_vector_path(out)
    with ExitStack() as stack:
        text, name = _open_text(source, stack), "stdin" if source == "-" else source
        total = None if source == "-" else _count_lines(text, name)
        suite = options["suites"] or "toy"  # a plan needs one; nothing is evaluated
        plan = plan_encoder(method, seed, {**options, "suites": suite}, _WHERE)
        stack.enter_context(torch_threads(plan.spec.threads, needs_torch=True))
        encoder = cast_encoder(prepare_encoder(plan, checkpoint, _WHERE)[1], plan.spec.precision)
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
        raise InputError(f"the text can't be read: {error.strerror}", where=f"--input {source}") from error


def _count_lines(text: BinaryIO, name: str) -> int | None:
    """Check and count the lines of a seekable file, before anything is loaded."""
    from bench.data.text_lines import read_sentences

    if not text.seekable():
        return None
    total = sum(1 for _ in read_sentences(text, name))
    text.seek(0)
    return total
