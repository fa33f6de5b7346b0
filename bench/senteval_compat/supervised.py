"""STS tasks as the original SentEval has them, where SimCSE's fork changed them."""

from __future__ import annotations

from scipy.stats import pearsonr

from bench.senteval_compat import sick, sts

_AVERAGES = {"averages": ("mean", "wmean")}  # without the correlation over all pairs
STS12Eval, STS13Eval, STS14Eval, STS15Eval, STS16Eval = (
    sts.STSEval.make_class(f"STS{year}", f"STS/STS{year}-en-test", **_AVERAGES) for year in range(12, 17)
)


class SICKRelatednessEval(sick.SICKEval):
    """SICK-R by a regression, selected by Pearson's correlation on the development split."""

    name = "SICKRelatedness"
    validation = ("devpearson", pearsonr)


STSBenchmarkEval = SICKRelatednessEval.make_class(
    "STSBenchmark", "STS/STSBenchmark", read=lambda task: sick.stsb_splits(task.path)
)
