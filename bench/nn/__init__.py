"""Neural building blocks."""

from bench.lazy import attach

__getattr__, __dir__ = attach(__name__)
