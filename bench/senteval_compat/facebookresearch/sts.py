"""The original's STS tasks."""

from bench.senteval_compat.sts import STSEval
from bench.senteval_compat.supervised import (
    STS12Eval,
    STS13Eval,
    STS14Eval,
    STS15Eval,
    STS16Eval,
    STSBenchmarkEval,
)

__all__ = ["STS12Eval", "STS13Eval", "STS14Eval", "STS15Eval", "STS16Eval", "STSBenchmarkEval", "STSEval"]
