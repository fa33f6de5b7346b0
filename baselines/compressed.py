"""``compressed:METHOD``: a method's vectors in fewer dimensions or bits, as an index stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.encoder import Encoder, FloatArray, Progress
from bench.errors import InputError
from bench.method_card import BuildContext, MethodCard, Option, OptionValue
from bench.registry import add_method

_LARGEST = 127.0
_CHOICES = ("float32", "int8", "binary")


def round_to_int8(vectors: FloatArray) -> FloatArray:
    """Return rows scaled to a largest component of 127 and rounded, float32 (n, k).

    A row needs no other row, so a sentence's vector stays the same in any index. A zero row stays zero.

    >>> round_to_int8(np.array([[1.0, -0.5, 0.001]], dtype=np.float32)).tolist()
    [[127.0, -64.0, 0.0]]
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = vectors * (_LARGEST / np.where(largest > 0, largest, 1.0))
    rounded: FloatArray = np.rint(scaled).astype(np.float32)
    return rounded


def take_signs(vectors: FloatArray) -> FloatArray:
    """Return 1 for positive components and -1 for others, float32 (n, k).

    The cosine of two rows is then 1 - 2 h / k, h their Hamming distance in bits.

    >>> take_signs(np.array([[0.3, 0.0, -2.0]], dtype=np.float32)).tolist()
    [[1.0, -1.0, -1.0]]
    """
    signs: FloatArray = np.where(vectors > 0, 1, -1).astype(np.float32)
    return signs


_FORMS: dict[str, Callable[[FloatArray], FloatArray]] = {"int8": round_to_int8, "binary": take_signs}


class CompressedEncoder:
    """An encoder whose vectors keep their first ``dims`` components (0: all), as ``kind``."""

    def __init__(self, base: Encoder, dims: int, kind: str) -> None:
        if dims > base.dim:
            raise _dims_error(dims, base.dim, "")
        self.base, self.kind = base, kind
        self.dim = dims or base.dim
        self.facts: dict[str, str | int] = {**base.facts, "dim": self.dim}

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Return vectors whose cosines are those of the stored ones; see :class:`bench.encoder.Encoder`."""
        vectors = self.base.encode(sentences, batch_tokens, progress)[:, : self.dim]
        form = _FORMS.get(self.kind)
        return np.ascontiguousarray(vectors if form is None else form(vectors))


def _dims_error(dims: int, width: int, method: str) -> InputError:
    expected = f"1 to {width}, the dimensions of {'its' if method else 'the'} vectors"
    what = f"dims {dims}" + (f" of {method}" if method else "")
    return InputError(what, where="--dims, or compressed.dims", expected=expected)


@add_method
class Compressed:
    """A method's vectors, shortened or rounded."""

    card = MethodCard(
        name="compressed",
        family="any-encoder",
        instead="no training of its own; another method's vectors with fewer dimensions or bits",
        cites=(
            "kusupati-etal-2022-matryoshka",
            "shakir-etal-2024-binary",
        ),
        tags=("compressed vectors",),
        kind="baseline",
        summary="compressed:X, the vectors of any method X in fewer dimensions, or as int8 or bits",
        version=1,
        paper="Kusupati et al. 2022, Matryoshka Representation Learning (first dimensions); Shakir, Aarsen, "
        "Lee 2024, Binary and Scalar Embedding Quantization (int8, binary)",
        equations=(
            "dims k: v = (x_1, ..., x_k)",
            "int8: round(127 v / max |v|); binary: 1 where v > 0, else -1, so cosine = 1 - 2 Hamming / k",
        ),
        options=(
            Option("of", "", "the method"),
            Option("dims", 0, "first dimensions that are kept; 0 for all", minimum=0),
            Option("dtype", "float32", "storage type of each component", _CHOICES),
        ),
        deviations=(
            "int8 scales each vector by its own largest component; sentence-transformers and mteb take "
            "ranges per dimension from calibration sentences, by default the evaluated ones",
            "binary compares by Hamming distance, as an index does; mteb takes the cosine of 0 and 1",
        ),
        short_option="of",
        takes_methods=True,
    )

    def members(self, options: Mapping[str, OptionValue]) -> Mapping[str, str]:
        """Name the method."""
        if not options["of"]:
            expected = "compressed:METHOD"
            raise InputError("the method is missing", where="--methods compressed", expected=expected)
        if not options["dims"] and options["dtype"] == "float32":
            expected = "dims=64 or dtype=int8, for example"
            raise InputError(
                "neither dims nor dtype is given", where="--methods compressed", expected=expected
            )
        return {"of": str(options["of"])}

    def check_widths(self, widths: Mapping[str, int | None], options: Mapping[str, OptionValue]) -> None:
        """Refuse more dimensions than the method's backbone has."""
        width = widths.get("of")
        if width is not None and int(options["dims"]) > width:
            raise _dims_error(int(options["dims"]), width, str(options["of"]))

    def describe_widths(
        self, widths: Mapping[str, int | None], options: Mapping[str, OptionValue]
    ) -> str | None:
        """Return a note for a row that keeps every dimension, and every bit of it."""
        dims = int(options["dims"])
        if dims != widths.get("of") or options["dtype"] != "float32":
            return None
        return f"{dims} dimensions are all of them: its vectors are those of {options['of']}"

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of shorter vectors."""
        options = context.options
        return CompressedEncoder(context.members["of"], int(options["dims"]), str(options["dtype"]))
