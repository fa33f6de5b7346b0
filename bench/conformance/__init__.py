"""The checks that every method passes, also for your own methods."""

from bench.lazy import attach

__getattr__, __dir__ = attach(__name__)
