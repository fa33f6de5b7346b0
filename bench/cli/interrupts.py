"""What an interrupted command says that it keeps."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = "interrupted; finished cells are kept, repeat the command to resume"
PRETRAINING = "interrupted; repeat the command to resume from its last checkpoint, if it made one"
OF_CELLS = ("run", "sweep", "reproduce")
"""Commands that keep finished cells."""


def describe_interrupt(arguments: Sequence[str]) -> str:
    """Return the line of an interrupted command.

    >>> describe_interrupt(["report", "--format", "html"])
    'interrupted'
    """
    command = next((text for text in arguments if not text.startswith("-")), "")
    if command in OF_CELLS:
        return INTERRUPTED
    return PRETRAINING if command == "pretrain" else "interrupted"
