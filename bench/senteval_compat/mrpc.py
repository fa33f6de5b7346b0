"""SentEval's paraphrase task."""

from bench.senteval_compat.classification import ClassificationEval


class MRPCEval(ClassificationEval):
    """MRPC."""

    name = folder = "MRPC"
