"""What one process makes of every objective: the measure for several processes, and for economies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.rank_work import Found, Gradients, alone
from tests.support.ranks import CASES, largest


@pytest.fixture(scope="session")
def objectives(tiny_bert: Path, tiny_mlm: Path, tmp_path_factory: pytest.TempPathFactory) -> Gradients:
    """Loss and gradients of every kind of objective: float64, three batches of five, one of them short."""
    subs = tmp_path_factory.mktemp("sub")
    shutil.copytree(tiny_bert, subs / "selected")
    return Gradients(CASES, tiny_bert, tiny_mlm, subs)


@pytest.fixture(scope="session")
def found_alone(objectives: Gradients) -> dict[str, list[Found]]:
    """Those that a process of its own finds."""
    found: dict[str, list[Found]] = alone(objectives)
    return found


def check_equal(found: dict[str, list[Found]], expected: dict[str, list[Found]]) -> None:
    """Check that losses and gradients are the same up to rounding, and that there are some."""
    assert found.keys() == expected.keys() == CASES.keys()
    for name, steps in expected.items():
        assert len(steps) == len(found[name]) == 3
        assert max(largest(gradients) for _, gradients in steps) > 1e-3, name
        for step, ((loss, gradients), (ours, own)) in enumerate(zip(steps, found[name], strict=True)):
            assert ours == pytest.approx(loss, rel=1e-10, abs=1e-10), (name, step)
            assert own.keys() == gradients.keys(), (name, step)
            apart = {parameter: own[parameter] - gradient for parameter, gradient in gradients.items()}
            assert largest(apart) < 1e-10 * max(1.0, largest(gradients)), (name, step)
