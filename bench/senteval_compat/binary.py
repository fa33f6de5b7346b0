"""SentEval's binary tasks in one split."""

from bench.senteval_compat.classification import ClassificationEval

CREval = ClassificationEval.make_class("CR")
MREval = ClassificationEval.make_class("MR")
SUBJEval = ClassificationEval.make_class("SUBJ")
MPQAEval = ClassificationEval.make_class("MPQA")
