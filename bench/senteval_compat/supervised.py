"""STS tasks as the original SentEval has them, where SimCSE's fork changed them."""

from __future__ import annotations

from scipy.stats import pearsonr

from bench.data.tasks import PairSubset
from bench.senteval_compat import sick, sts


class STS12Eval(sts.STS12Eval):
    """STS12 without the correlation over all pairs."""

    averages = ("mean", "wmean")


class STS13Eval(sts.STS13Eval):
    """STS13 without the correlation over all pairs."""

    averages = ("mean", "wmean")


class STS14Eval(sts.STS14Eval):
    """STS14 without the correlation over all pairs."""

    averages = ("mean", "wmean")


class STS15Eval(sts.STS15Eval):
    """STS15 without the correlation over all pairs."""

    averages = ("mean", "wmean")


class STS16Eval(sts.STS16Eval):
    """STS16 without the correlation over all pairs."""

    averages = ("mean", "wmean")


class SICKRelatednessEval(sick.SICKEval):
    """SICK-R by a regression that Pearson's correlation on the development split decides on."""

    name = "SICKRelatedness"
    validation = ("devpearson", pearsonr)


class STSBenchmarkEval(SICKRelatednessEval):
    """STS Benchmark by the same regression."""

    name, folder = "STSBenchmark", "STS/STSBenchmark"

    def read(self) -> dict[str, PairSubset]:
        """Read the splits."""
        return sick.stsb_splits(self.path)
