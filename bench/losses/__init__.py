"""Losses as pure functions: tensors in, a scalar out; a class only where there is state."""

from bench.lazy import attach

__getattr__, __dir__ = attach(__name__)
