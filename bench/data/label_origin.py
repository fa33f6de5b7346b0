"""Language models that wrote the labels of a file of pairs: a file of one line beside it, and notes."""

from __future__ import annotations

from pathlib import Path

from bench.data.tasks import MARK
from bench.errors import DataError

ENDING = ".label-model"
"""Ending of the file that names the model, after the whole name of the pairs: ``train.csv.label-model``."""
_LONGEST = 100  # characters of a name


def label_model_file(pairs: Path) -> Path:
    """Return the file that names the language model of the pairs.

    >>> label_model_file(Path("data/train.csv")).name
    'train.csv.label-model'
    """
    return pairs.with_name(pairs.name + ENDING)


def read_label_model(pairs: Path) -> str:
    """Return the name of the language model that wrote the labels, "" without its file; raises DataError."""
    path = label_model_file(pairs)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        what = f"the name of the language model can't be read: {getattr(error, 'strerror', 'not UTF-8')}"
        raise DataError(what, where=str(path)) from error
    name = text.removeprefix(MARK).strip()
    if not name or not name.isprintable() or len(name) > _LONGEST:
        expected = f"one line of at most {_LONGEST} characters, such as gpt-3.5-turbo"
        what = "this doesn't name a language model" if name else "this file is empty"
        hint = f"delete it if people wrote the labels of {pairs.name}"
        raise DataError(what, where=str(path), expected=expected, hint=hint)
    return name


def note_labels(pairs: str, model: str) -> str:
    """Return the footnote of rows that learned from the pairs of that name.

    >>> note_labels("train.csv", "gpt-3.5-turbo")
    'Labels by a language model (gpt-3.5-turbo): pairs train.csv.'
    """
    return f"Labels by a language model ({model}): pairs {pairs}."


def describe_labels(model: str) -> str:
    """Return the note on labels by a language model, "" for others.

    >>> describe_labels("gpt-3.5-turbo")
    'labels by a language model (gpt-3.5-turbo)'
    """
    return f"labels by a language model ({model})" if model else ""
