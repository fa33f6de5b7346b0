"""Values known without the program: each fails when its function breaks, and every format shows it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy.special import stdtrit
from scipy.stats import t as student
from torch import nn

from bench.baselines.word_overlap import WordOverlapScorer
from bench.errors import BenchError
from bench.eval import embeddings, sts, transfer
from bench.gate.known_values import (
    KNOWN_VALUES,
    REFUSED,
    KnownValue,
    add_known_values,
    find_wrong_values,
)
from bench.gate.verdict import CellVerdict, Gate, Question, Status
from bench.gate.verdict_tables import describe_gate, format_gate_text
from bench.stats import correction, difference_test, item_statistics, seed_pairs, seeds, single_step
from tests.support.cli import Cli
from tests.support.messages import missing_facts

Patch = pytest.MonkeyPatch
PAIRED = "paired t interval and p"
clip = nn.utils.clip_grad_norm_


def take(number: float = 0.4) -> KnownValue:
    return KnownValue("four tenths", "by hand", (0.4,), lambda: [number])


def first_of_equals(accuracies: np.ndarray) -> int:
    """The largest regularisation of the best."""
    return len(accuracies) - 1 - int(np.argmax(accuracies[::-1]))


def scale_quantile(quantile: Callable[..., Any], *arguments: Any) -> Any:
    return quantile(*arguments) / 3


def keep_nan(monkeypatch: Patch) -> None:
    """NaN passes every check."""
    monkeypatch.setattr(np, "isfinite", lambda values: np.ones_like(values, dtype=bool))


def lose_sign(monkeypatch: Patch) -> None:
    einsum = SimpleNamespace(**vars(np) | {"einsum": lambda _, one, other: np.abs((one * other).sum(1))})
    monkeypatch.setattr(embeddings, "np", einsum)


def narrow(monkeypatch: Patch) -> None:
    """A third of every interval of Student's t."""
    monkeypatch.setattr(student, "ppf", partial(scale_quantile, student.ppf))
    for module in (difference_test, seed_pairs, seeds):
        monkeypatch.setattr(module, "stdtrit", partial(scale_quantile, stdtrit))


def clip_at_twice(monkeypatch: Patch) -> None:
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, most: clip(parameters, 2 * most))


def do_not_clip(monkeypatch: Patch) -> None:
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, most: clip(parameters, math.inf))


def rank_by_order(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sts, "rankdata", lambda values: 1.0 + np.argsort(np.argsort(values)))


def choose_largest(monkeypatch: Patch) -> None:
    monkeypatch.setattr(transfer, "_choose_reg", first_of_equals)


def skip_holm(monkeypatch: Patch) -> None:
    monkeypatch.setattr(correction, "adjust_p_values", lambda values, _: list(values))


def skip_family(monkeypatch: Patch) -> None:
    monkeypatch.setattr(single_step.FamilyCorrection, "adjust", lambda _, p: p)


def drop_a_tail(monkeypatch: Patch) -> None:
    monkeypatch.setattr(item_statistics, "percentile_interval", lambda values, *_: (min(values), max(values)))


BREAKS: dict[Callable[[Patch], None], set[str]] = {
    rank_by_order: {"Spearman of a task and its subsets, with ties"},
    keep_nan: {"Spearman of a NaN", "similarity of a NaN vector", "similarities of a scorer with a NaN"},
    lose_sign: {"cosines of opposite, orthogonal, slanting and zero vectors"},
    narrow: {PAIRED, "paired t interval and p of one pair of methods among many", "Welch's interval and p"},
    skip_family: {"simultaneous p and level of two independent rows"},
    skip_holm: {"Holm's p"},
    drop_a_tail: {"items' bootstrap of 200 draws with a seed"},
    choose_largest: {"regularisation where all are equally good"},
    clip_at_twice: {"norm of a gradient, and weights after its clipped step"},
    do_not_clip: {"norm of a gradient, and weights after its clipped step"},
}


def test_the_program_gives_every_value_and_leaves_random_state_alone() -> None:
    state = torch.get_rng_state()
    assert list(find_wrong_values(KNOWN_VALUES)) == []
    assert torch.equal(state, torch.get_rng_state())


def test_every_value_has_a_break() -> None:
    assert set().union(*BREAKS.values()) == {value.name for value in KNOWN_VALUES}


@pytest.mark.parametrize("plant", BREAKS, ids=lambda plant: plant.__name__)
def test_a_value_fails_when_its_function_breaks(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        wrong = list(find_wrong_values(KNOWN_VALUES))
    assert {cell.stage for cell in wrong} == BREAKS[plant]
    assert {(cell.status, cell.question) for cell in wrong} == {(Status.FAILED, Question.KNOWN)}


def test_nan_to_zero_is_seen(monkeypatch: Patch) -> None:
    def zero(values: Any) -> Any:
        return np.isfinite(np.nan_to_num(values, copy=False))

    monkeypatch.setattr(embeddings, "np", SimpleNamespace(**vars(np) | {"isfinite": zero}))
    wrong = {cell.stage: cell.reasons[0] for cell in find_wrong_values(KNOWN_VALUES)}
    assert wrong.keys() == {"similarity of a NaN vector", "similarities of a scorer with a NaN"}
    assert "expected a refusal (a NaN has no angle), computed 1, 0" in wrong["similarity of a NaN vector"]


@pytest.mark.parametrize(
    ("expected", "compute", "computed"),
    [
        ((0.4,), lambda: [0.4 + 2e-9], "0.4"),
        ((0.4,), lambda: [math.nan], "nan"),
        ((0.4,), lambda: [0.4, 0.4], "0.4, 0.4"),
        ((0.4,), lambda: [], ""),
        ((0.4,), lambda: [1 / 0], "ZeroDivisionError: division by zero"),
        (REFUSED, lambda: [0.0], "0"),
    ],
)
def test_whatever_differs_is_a_line(expected: Any, compute: Callable[[], Any], computed: str) -> None:
    (wrong,) = find_wrong_values([KnownValue("four tenths", "by hand", expected, compute)])
    assert wrong.reasons[0].endswith(f"computed {computed}")


def test_a_refusal_is_expected_or_wrong() -> None:
    def refuse() -> list[float]:
        raise BenchError("no")

    assert list(find_wrong_values([KnownValue("no", "by hand", REFUSED, refuse)])) == []
    assert len(list(find_wrong_values([KnownValue("no", "by hand", (1,), refuse)]))) == 1


def test_values_of_torch_wait_until_it_is_loaded(monkeypatch: Patch) -> None:
    known = [take(), KnownValue("trained", "by hand", (1,), lambda: [2], needs_torch=True)]
    cell = CellVerdict(("mini", "words", "toy"), Status.EQUAL, (1,), (1,))
    gate = Gate((cell,), 0.005, 0.95)
    assert add_known_values(gate, known).known_values == 2
    monkeypatch.delitem(sys.modules, "torch")
    assert (add_known_values(gate, known).known_values, add_known_values(gate, known).exit_code) == (1, 0)
    trained = add_known_values(Gate((cell,), 0.005, 0.95, repeated=True), known)  # by another process
    assert (trained.known_values, trained.exit_code) == (2, 1)


def test_the_others_do_not_load_torch() -> None:
    code = (
        "import sys; from bench.gate.known_values import *; from bench.gate.verdict import Gate; "
        "gate = add_known_values(Gate((), 0.005, 0.95)); "
        "print(gate.known_values, gate.exit_code, 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(sum(not value.needs_torch for value in KNOWN_VALUES)), "0", "False"]


def test_the_sentence_counts_cells_and_values() -> None:
    cell = CellVerdict(("mini", "words", "toy"), Status.EQUAL, (1,), (1,))
    fine, wrong = (add_known_values(Gate((cell,), 0.005, 0.95), [take(), take(n)]) for n in (0.4, 0.5))
    assert describe_gate(fine) == "PASSED, 1 cell: 1 equal"
    assert "2 results that were derived without the program, none of them wrong" in format_gate_text(
        fine, details=True
    )
    assert describe_gate(wrong) == (
        "FAILED, 0 of 1 cell and 1 of 2 known values: known value: four tenths failed: "
        "expected 0.4 (by hand), computed 0.5"
    )


def test_every_format_shows_a_wrong_value_and_none_becomes_the_reference(
    cli: Cli, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    cli("run", "--suite", "toy", "--methods", "word_overlap", "--campaign", "reference")
    assert cli("check")[0] == 0
    narrow(monkeypatch)
    texts = {}
    for form in ("text", "markdown", "html", "json"):
        code, texts[form], err = cli("check", "--format", form, "--junit", "junit.xml")
        assert code == 1, err
        assert not missing_facts(texts[form], PAIRED, "expected -0.484", "computed 1.1", "FAILED"), form
    verdict = json.loads(texts["json"])
    assert (verdict["exit_code"], verdict["known_values"]) == (1, len(KNOWN_VALUES))
    assert {cell["stage"] for cell in verdict["wrong_values"]} == BREAKS[narrow]
    assert [cell["status"] for cell in verdict["cells"]] == ["equal"]
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]  # noqa: S314
    assert (suite.get("tests"), suite.get("errors"), len(list(suite.iter("error")))) == ("4", "3", 3)
    assert cli("check", "--history", ".")[0] == 2  # no verdicts yet
    (tmp_path / "verdicts").mkdir()
    (tmp_path / "verdicts" / "one.json").write_text(texts["json"])
    assert cli("check", "--history", "verdicts")[0] == 0
    monkeypatch.setattr(
        WordOverlapScorer, "score_pairs", lambda *_: np.arange(1e3, dtype="float32")[: len(_[1])]
    )
    code, _, err = cli("check", "--update", "--yes", "--why", "meant")
    assert (code, "nothing was updated: the program gets known values wrong" in err) == (1, True)
    assert not (tmp_path / "results" / "reference" / "CHANGES.md").exists()
