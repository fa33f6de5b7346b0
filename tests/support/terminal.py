"""A terminal that keeps what is written to it."""

from __future__ import annotations

import io
import re


class Terminal(io.StringIO):
    """Standard output of a process that somebody watches."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What was written, without styles."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()).splitlines()
