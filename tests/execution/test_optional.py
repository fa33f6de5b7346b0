"""A package that isn't installed costs what needs it, never the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.execution import record_probes
from bench.probes import PROBES
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts

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
    assert err.count("(pip install thop)\n") == err.count("probe cost") == 1
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
    ("options", "facts"),
    [
        (("--probes", "isotropy,cost"), ("--probes:", "probe cost", "thop is not installed")),
        (("--suite", "toy,mteb:STS12"), ("pip install 'cse-bench[mteb]'",)),
        (("--executor", "ray"), ("--executor ray:", "pip install 'cse-bench[ray]'")),
    ],
)
def test_what_is_named_is_refused_before_anything_runs(
    cli: Cli, tmp_path: Path, blocked: None, options: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    assert not missing_facts(refusal(cli, *RUN, *options), *facts)
    assert records(tmp_path) == {}


def test_bench_probe_does_so_too(cli: Cli, blocked: None) -> None:
    code, out, err = cli("probe", "word_overlap", "--dev", "toy")
    assert code != 0 or "isotropy" in out
    assert not missing_facts(err, "probe cost", "(pip install thop)")
