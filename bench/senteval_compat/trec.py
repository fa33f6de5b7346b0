"""SentEval's question types."""

from bench.senteval_compat.classification import ClassificationEval


class TRECEval(ClassificationEval):
    """TREC."""

    name = folder = "TREC"
