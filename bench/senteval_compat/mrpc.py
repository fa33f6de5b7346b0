"""SentEval's paraphrase task."""

from bench.senteval_compat.classification import ClassificationEval

MRPCEval = ClassificationEval.make_class("MRPC")
