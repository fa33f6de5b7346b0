"""A package that isn't installed costs what needs it, never the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.execution import record_probes
from bench.probes import PROBES
from tests.support.cli import Cli, records, refusal

RUN = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", "toy")


@pytest.fixture(autouse=True)
def small_dev_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe the toy pairs, not the mini world's dev set."""
    monkeypatch.setattr(record_probes, "find_probe_suite", lambda _spec: "toy")
    monkeypatch.setattr("bench.execution.cell_run.find_probe_suite", lambda _spec: "toy")


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("thop", "mteb", "ray"):
        monkeypatch.setitem(sys.modules, name, None)


def test_all_probes_but_the_one_that_lacks_its_package(cli: Cli, tmp_path: Path, blocked: None) -> None:
    code, _, err = cli(*RUN, "--probes", "all")
    assert code == 0, err
    assert err.count("probe cost is left out: thop is not installed (pip install thop)\n") == 1
    for record in records(tmp_path).values():
        assert set(PROBES) - {"cost"} <= record.probes.keys()
        assert "cost" not in record.probes


def test_it_comes_later(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "thop", None)
        assert cli(*RUN, "--probes", "all")[0] == 0
    assert cli(*RUN, "--probes", "all")[0] == 0
    assert all("cost" in record.probes for record in records(tmp_path).values())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--probes", "isotropy,cost"), "--probes: probe cost can't be measured; thop is not installed (pip"),
        (("--suite", "toy,mteb:STS12"), "expected the extra mteb; pip install 'cse-bench[mteb]'"),
        (("--executor", "ray"), "--executor ray: ray is not installed; pip install 'cse-bench[ray]'"),
    ],
)
def test_what_is_named_is_refused_before_anything_runs(
    cli: Cli, tmp_path: Path, blocked: None, more: tuple[str, ...], said: str
) -> None:
    assert said in refusal(cli, *RUN, *more)
    assert records(tmp_path) == {}


def test_bench_probe_does_so_too(cli: Cli, blocked: None) -> None:
    code, out, err = cli("probe", "word_overlap", "--dev", "toy")
    assert code != 0 or "isotropy" in out
    assert "probe cost is left out: thop is not installed (pip install thop)\n" in err
