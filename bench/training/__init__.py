"""Training: one loop for all methods."""

from bench.lazy import attach

__getattr__, __dir__ = attach(__name__)
