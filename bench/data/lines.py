"""A text a sentence a line, read as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench.data.tasks import MARK, normalise
from bench.errors import DataError


def numbered(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yield the number of every line, from 1, and its sentence, white space as in the evaluation data.

    Args:
        lines: The lines of a UTF-8 text, such as a file that is open for reading bytes.
        where: Its name, for errors.

    Raises:
        DataError: a line that is not UTF-8, or has a NUL.
    """
    for number, line in enumerate(lines, start=1):
        try:
            sentence = normalise(line.decode("utf-8").removeprefix(MARK if number == 1 else ""))
        except UnicodeDecodeError as error:
            raise DataError("these bytes are not utf-8", where=f"{where}:{number}") from error
        if "\0" in sentence:
            raise DataError(
                "this line has the control character U+0000", where=f"{where}:{number}", expected="text"
            )
        yield number, sentence


def sentences(lines: Iterable[bytes], where: str) -> Iterator[str]:
    """Yield every line's sentence; see :func:`numbered`.

    Raises:
        DataError: a line without a sentence, as row i of what is made of them belongs to line i, or one that
            is not UTF-8; no line at all.
    """
    number = 0
    for number, sentence in numbered(lines, where):
        if not sentence:
            raise DataError("this line is empty", where=f"{where}:{number}", expected="a sentence a line")
        yield sentence
    if not number:
        raise DataError("the text is empty", where=where, expected="a sentence a line")
