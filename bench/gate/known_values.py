"""Values that were derived without the program: its metrics, statistics and training step have to give them.

No row of a reference reaches every rule: none has a NaN or a tie of regularisations, and the paired t test
only judges scores that changed. To add a value, add an entry to :data:`KNOWN_VALUES`: its name, where it is
from, the value as a closed form or as another library's number, and a function that computes it as the
commands do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import BenchError
from bench.gate.verdict import CellVerdict, Gate, Question, Status

if TYPE_CHECKING:
    from bench.data.tasks import PairTask
    from bench.encoder import FloatArray

REFUSED = "a refusal"
"""Expected where the program has to raise BenchError."""


@dataclass(frozen=True)
class KnownValue:
    """A result that the program has to give on every machine.

    Args:
        name: What it is, as the verdict names it.
        source: Where the expected value is from.
        expected: Numbers, or ``REFUSED``.
        compute: Computes them; imports the program at the call, as the gate starts without it.
        tolerance: Largest difference of a number.
        needs_torch: True if it trains or fits; left out where nothing else loads torch.
    """

    name: str
    source: str
    expected: Sequence[float] | str
    compute: Callable[[], Sequence[float]]
    tolerance: float = 1e-9
    needs_torch: bool = False


class _FixedEncoder:
    """Has a given vector for every sentence."""

    def __init__(self, vectors: Mapping[str, tuple[float, float]]) -> None:
        self.vectors, self.dim = vectors, 2
        self.facts: dict[str, str | int] = {}

    def encode(self, sentences: Sequence[str], *_: Any, **__: Any) -> FloatArray:
        return np.array([self.vectors[sentence] for sentence in sentences], dtype=np.float32)


class _FixedScorer:
    """Gives 1, then NaN."""

    def __init__(self) -> None:
        self.facts: dict[str, str | int] = {}

    def score_pairs(self, *_: Any) -> FloatArray:
        return np.array([1, np.nan], dtype=np.float32)


def _pair_task(*subsets: Sequence[float]) -> PairTask:
    """A task with the gold scores of its subsets."""
    from bench.data.tasks import PairSubset, PairTask

    parts = []
    for number, gold in enumerate(subsets):
        first, second = (tuple(f"{side}{number}.{i}" for i in range(len(gold))) for side in "ab")
        parts.append(PairSubset(str(number), first, second, tuple(gold)))
    return PairTask("known", tuple(parts))


def _score_ties() -> list[float]:
    from bench.eval.sts import score_task

    predictions = np.array([1, 2, 2, 3, 5, 6], dtype=np.float32)
    return [score.value for score in score_task(_pair_task((1, 2, 3, 4), (6, 5)), predictions)]


def _score_nan() -> list[float]:
    from bench.eval.sts import score_task

    scores = score_task(_pair_task((1, 2, 3)), np.array([1, np.nan, 3], dtype=np.float32))
    return [score.value for score in scores]


def _encode(*second: tuple[float, float]) -> list[float]:
    """Similarities of (3, 4) to other vectors."""
    from bench.eval.sts import predict_similarities

    task = _pair_task([1.0] * len(second))
    vectors = dict.fromkeys(task.subsets[0].first, (3.0, 4.0))
    vectors |= zip(task.subsets[0].second, second, strict=True)
    similarities: list[float] = predict_similarities(_FixedEncoder(vectors), [task])["known"].tolist()
    return similarities


def _compare_pairs() -> list[float]:
    """Similarities of a scorer that gives 1 and NaN."""
    from bench.eval.sts import predict_similarities

    similarities: list[float] = predict_similarities(_FixedScorer(), [_pair_task((1, 2))])["known"].tolist()
    return similarities


def _test_pairs() -> list[float]:
    from bench.stats.seed_pairs import paired_t

    test = paired_t([11.0, 12.0, 13.0], [10.0] * 3)
    return [test.low, test.high, test.p]


def _test_many_pairs() -> list[float]:
    from bench.stats.difference_test import pair_test

    test = pair_test([11.0, 12.0, 13.0], [10.0] * 3, paired=True)
    return [*(test.interval or ()), math.nan if test.p is None else test.p]


def _test_sides() -> list[float]:
    from bench.stats.seeds import seed_difference

    test = seed_difference([3.0, 5.0, 7.0], [1.0, 1.0, 1.0])
    return [test.low, test.high, test.p]


def _correct_two_rows() -> list[float]:
    from bench.stats.single_step import correct_family

    family = correct_family([3, 3])
    return [family.adjust(0.05), family.level(0.05)]


def _correct_by_holm() -> list[float]:
    from bench.stats.correction import holm

    family = holm({"a": 0.01, "b": 0.04, "c": 0.03}, "known")
    return [family.comparisons[name].adjusted for name in "abc"]


def _bootstrap_items() -> list[float]:
    from bench.stats.item_statistics import draw_suite, paired_bootstrap

    gold = list(range(12))
    methods = {
        "a": {"known": [1, 0, 2, 3, 4, 5, 8, 7, 6, 9, 10, 11]},
        "b": {"known": [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0]},
    }
    sample = draw_suite(methods, {"known": gold}, np.random.default_rng(78), draws=200)
    test = paired_bootstrap(sample, "a", "b")["known"]
    return [test.difference, test.low, test.high]


def _fit_ties() -> list[float]:
    from bench.data.tasks import LabelledSplit, LabelledTask
    from bench.eval.embeddings import embed_sentences
    from bench.eval.transfer import Protocol, run_transfer_task

    vectors = {"n 1": (-1.0, 1.0), "n 2": (-2.0, 1.0), "y 1": (1.0, 1.0), "y 2": (2.0, 1.0)}
    labels = tuple(sentence[0] for sentence in vectors)
    splits = tuple(LabelledSplit(name, tuple(vectors), (), labels) for name in ("train", "dev", "test"))
    embeddings = embed_sentences(_FixedEncoder(vectors), vectors)
    result = run_transfer_task(LabelledTask("known", splits), embeddings, Protocol())
    return [*result.regs, result.accuracy]


def _take_clipped_step() -> list[float]:
    """Weights after a step from (0, 0) with the gradient (3, 4), clipped at 1."""
    import torch

    from bench.training.loop import TrainSettings, train

    class Slope(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

        def forward(self, rows: Sequence[Sequence[float]]) -> torch.Tensor:
            return self.weights @ torch.tensor(rows[0], dtype=torch.float64)

    slope = Slope()
    settings = TrainSettings(1.0, batch_size=1, steps=1, eval_every=1, schedule="constant", adam_eps=1.0)
    result = train(slope, slope, [[3.0, 4.0]], settings, seed=1, corpus="known", dev_score=lambda: 0.0)
    return [*(norm or math.nan for norm in result.norms), *slope.weights.tolist()]


_TIED = math.sqrt(0.9)
"""Pearson's correlation of the ranks 1, 2.5, 2.5, 4 with 1, 2, 3, 4."""
_T2 = 0.95 / math.sqrt(2 * 0.975 * 0.025)
"""The 97.5% quantile of Student's t with 2 degrees of freedom: (2q - 1) / sqrt(2q (1 - q))."""
_P2 = 1 - math.sqrt(12 / 14)
"""Two-sided p of t = sqrt(12) with 2 degrees of freedom: 1 - t / sqrt(2 + t^2)."""
_EPS = 1 / math.sqrt(1 - 0.999)
"""The first step's eps where transformers' is 1, by which Adam's update depends on the gradient's size."""

KNOWN_VALUES = (
    KnownValue(
        "Spearman of a task and its subsets, with ties",
        "ranks 1, 2.5, 2.5, 4, 5, 6 by hand: all, subsets, their mean, that by sizes 4 and 2",
        (16 / math.sqrt(17 * 17.5), _TIED, -1, (_TIED - 1) / 2, (4 * _TIED - 2) / 6),
        _score_ties,
    ),
    KnownValue("Spearman of a NaN", "a NaN has no rank", REFUSED, _score_nan),
    KnownValue(
        "cosines of opposite, orthogonal, slanting and zero vectors",
        "(3, 4) with (-3, -4), (4, -3), (1, 0), (0, 0) by hand",
        (-1, 0, 0.6, 0),
        lambda: _encode((-3, -4), (4, -3), (1, 0), (0, 0)),
        tolerance=1e-6,
    ),
    KnownValue(
        "similarity of a NaN vector", "a NaN has no angle", REFUSED, lambda: _encode((3, 4), (math.nan, 0))
    ),
    KnownValue("similarities of a scorer with a NaN", "a NaN is no similarity", REFUSED, _compare_pairs),
    KnownValue(
        "paired t interval and p",
        "differences 1, 2, 3; closed form of t with 2 degrees of freedom",
        (2 - _T2 / math.sqrt(3), 2 + _T2 / math.sqrt(3), _P2),
        _test_pairs,
    ),
    KnownValue(
        "paired t interval and p of one pair of methods among many",
        "differences 1, 2, 3; closed form of t with 2 degrees of freedom",
        (2 - _T2 / math.sqrt(3), 2 + _T2 / math.sqrt(3), _P2),
        _test_many_pairs,
    ),
    KnownValue(
        "Welch's interval and p",
        "3, 5, 7 against a constant 1: closed form of t with 2 degrees of freedom",
        (4 - 2 * _T2 / math.sqrt(3), 4 + 2 * _T2 / math.sqrt(3), _P2),
        _test_sides,
    ),
    KnownValue(
        "simultaneous p and level of two independent rows",
        "Sidak: 1 - 0.95^2 and sqrt(0.95), to the noise of 20,000 draws",
        (1 - 0.95**2, math.sqrt(0.95)),
        _correct_two_rows,
        tolerance=0.007,
    ),
    KnownValue("Holm's p", "0.01, 0.04, 0.03 by hand", (0.03, 0.06, 0.06), _correct_by_holm),
    KnownValue(
        "items' bootstrap of 200 draws with a seed",
        "scipy.stats.spearmanr on the same drawn items, numpy.quantile",
        (0.965034965034965, 0.16797473486692924, 1.8404468767092297),
        _bootstrap_items,
    ),
    KnownValue(
        "regularisation where all are equally good",
        "separable classes: SentEval takes the first, 1e-5, and all items are right",
        (1e-5, 1),
        _fit_ties,
        needs_torch=True,
    ),
    KnownValue(
        "norm of a gradient, and weights after its clipped step",
        "gradient (3, 4), clipped to (0.6, 0.8); Adam's first step is -g / (|g| + eps)",
        (5, -0.6 / (0.6 + _EPS), -0.8 / (0.8 + _EPS)),
        _take_clipped_step,
        tolerance=1e-7,
        needs_torch=True,
    ),
)


def add_known_values(gate: Gate, known: Iterable[KnownValue] = KNOWN_VALUES) -> Gate:
    """Compute the known values, and add to a verdict their number and those that the program gets wrong.

    Those that need torch are left out where no cell was trained again and nothing else has loaded it.
    """
    is_trained = gate.repeated and any(cell.question is Question.RETRAIN for cell in gate.cells)
    has_torch = is_trained or "torch" in sys.modules
    asked = [value for value in known if has_torch or not value.needs_torch]
    return replace(gate, known_values=len(asked), wrong_values=tuple(find_wrong_values(asked)))


def find_wrong_values(known: Iterable[KnownValue]) -> Iterator[CellVerdict]:
    """Yield a failed verdict for each value that differs from the expected one."""
    for value in known:
        try:
            computed: Sequence[float] | str = value.compute()
        except BenchError:
            computed = REFUSED
        except Exception as error:
            computed = f"{type(error).__name__}: {error}"
        if not _agree(value.expected, computed, value.tolerance):
            reason = f"expected {_show(value.expected)} ({value.source}), computed {_show(computed)}"
            key = ("", f"known value: {value.name}", "")
            yield CellVerdict(
                key, Status.FAILED, (), (), reasons=(reason,), question=Question.KNOWN, stage=value.name
            )


def _agree(expected: Sequence[float] | str, computed: Sequence[float] | str, tolerance: float) -> bool:
    if isinstance(expected, str) or isinstance(computed, str):
        return expected == computed
    if len(expected) != len(computed):
        return False
    return all(abs(a - b) <= tolerance for a, b in zip(expected, computed, strict=True))  # a NaN never agrees


def _show(values: Sequence[float] | str) -> str:
    if isinstance(values, str):
        return values
    return ", ".join(f"{number:.7g}" for number in values)
