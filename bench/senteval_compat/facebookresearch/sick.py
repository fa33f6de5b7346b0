"""The original's SICK tasks."""

from bench.senteval_compat.sick import SICKEntailmentEval
from bench.senteval_compat.supervised import SICKRelatednessEval

__all__ = ["SICKEntailmentEval", "SICKRelatednessEval"]
