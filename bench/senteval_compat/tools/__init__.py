"""SentEval's classifiers and its regression, with its own fitting procedure."""

from bench.senteval_compat.tools import classifier, relatedness, validation

__all__ = ["classifier", "relatedness", "validation"]
