"""SentEval's question types."""

from bench.senteval_compat.classification import ClassificationEval

TRECEval = ClassificationEval.make_class("TREC")
