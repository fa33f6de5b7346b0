"""``bench encode``: the vectors of a text of any length."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from bench.cli import completion
from bench.cli.config import option_once
from bench.cli.export import check_seed, checkpoint_option, finished_encoder, one_method, seed_option
from bench.cli.options import PATH, check_device, spec_options
from bench.cli.terminal import progress_bar
from bench.errors import InputError

_WHERE = "bench encode"


@click.command()
@click.argument("method", shell_complete=completion.method)
@option_once(
    "--input", "source", required=True, metavar="FILE|-", help="Text, a sentence a line; - is stdin."
)
@option_once("--out", type=PATH, required=True, help="FILE.npy to write.")
@seed_option
@checkpoint_option
@option_once("--block", type=click.IntRange(1), default=4096, help="Sentences in memory at once.")
@spec_options
def encode(
    method: str, source: str, out: Path, seed: int | None, checkpoint: str, block: int, **options: Any
) -> None:
    """Write METHOD's vectors of a text: float32, row i for line i. Memory doesn't grow with the text.

    Give the options of the `bench run` that trained it: its finished stages are then used as they are. An
    empty line is an error.
    """
    from bench.eval.vector_file import VectorFile, check_new
    from bench.nn.device import torch_threads
    from bench.nn.precision import at_precision
    from bench.plan.plan import make_plan

    check_new(out)
    with ExitStack() as stack:
        text, name = _open(source, stack), "stdin" if source == "-" else source
        total = None if source == "-" else _checked(text, name)
        suite = options["suites"] or "toy"  # a plan has one, but nothing is evaluated here
        plan = make_plan(one_method(method, seed, {**options, "suites": suite}, _WHERE))
        check_seed(plan, method, seed, _WHERE)
        check_device(plan.spec.device)
        stack.enter_context(torch_threads(plan.spec.threads, needs_torch=True))
        encoder = at_precision(finished_encoder(plan, checkpoint, _WHERE)[1], plan.spec.precision)
        with VectorFile(out, encoder.dim) as file, progress_bar("encode", total) as advance:
            from bench.data.lines import sentences
            from bench.eval.embed import stream

            for vectors in stream(encoder, sentences(text, name), block=block, progress=advance):
                file.append(vectors)
    click.echo(f"{out}: {plan.jobs[0].cell.describe()}, {file.rows:,} sentences, {encoder.dim} dimensions")


def _open(source: str, stack: ExitStack) -> BinaryIO:
    """The text, open for reading bytes; raises InputError."""
    if source == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(source).open("rb"))
    except OSError as error:
        raise InputError(f"the text can't be read: {error.strerror}", where=f"--input {source}") from error


def _checked(text: BinaryIO, name: str) -> int | None:
    """Read a file once before anything is loaded: the number of its lines; None for what can't be reread.

    Raises:
        DataError: see :func:`bench.data.lines.sentences`.
    """
    from bench.data.lines import sentences

    if not text.seekable():
        return None
    total = sum(1 for _ in sentences(text, name))
    text.seek(0)
    return total
