"""SentEval's binary tasks without splits."""

from bench.senteval_compat.classification import ClassificationEval


class CREval(ClassificationEval):
    """CR."""

    name = folder = "CR"


class MREval(ClassificationEval):
    """MR."""

    name = folder = "MR"


class SUBJEval(ClassificationEval):
    """SUBJ."""

    name = folder = "SUBJ"


class MPQAEval(ClassificationEval):
    """MPQA."""

    name = folder = "MPQA"
