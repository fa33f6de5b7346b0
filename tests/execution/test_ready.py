"""Refusals before anything runs: missing vectors, data and packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.eval import mteb_tasks
from bench.execution import record_probes
from bench.probes import PROBES
from bench.records.record import safe_name
from bench.registry import discover
from tests.support.cli import Cli, records, refusal
from tests.support.local_suite import write_local_suite
from tests.support.messages import missing_facts


@pytest.mark.parametrize("dry", [True, False])
def test_mteb_needs_vectors(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    suite = f"local:{write_local_suite(tmp_path)}"
    place = ("--results", str(tmp_path / "r"))
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", suite, *place)
    code, out, err = cli(*run, *(["--dry-run"] if dry else []))
    assert (code, out) == (2, "")
    assert not missing_facts(err, f"--suite {suite}:", "word_overlap", "no vectors", "out of --methods")
    assert not (tmp_path / "r").exists()
    code, _, err = cli("run", "--methods", "word_overlap", "--suite", "toy", *place, "--dry-run")
    assert code == 0, err


def test_every_scorer_says_so() -> None:
    scorers = [name for name, method in discover() if method.card.scores_pairs]
    assert scorers == ["word_overlap"]


def test_missing_data_are_refused_first(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mteb", exc_type=ImportError)
    from huggingface_hub import constants

    def never(*_: Any) -> None:
        raise AssertionError("mteb takes seconds to import")

    monkeypatch.setattr(mteb_tasks, "import_mteb", never)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "sets"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = ("--results", str(tmp_path / "r"))
    run = ("run", "--methods", "noise", "--seeds", "1-3", "--suite", "toy,mteb:BIOSSES", *place)
    for dry in ([], ["--dry-run"]):
        code, out, err = cli(*run, *dry)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert not missing_facts(
            err, "--suite mteb:BIOSSES:", "1 data set", "mteb/biosses-sts", "HF_HUB_OFFLINE=0"
        )
    assert not (tmp_path / "r").exists()
    assert cli(*run[:2], "nobody", *run[3:])[2].startswith("error: --methods: ")
    record = tmp_path / "r" / "local" / "mini" / "noise" / "seed-1" / f"{safe_name('mteb:BIOSSES')}.json"
    record.parent.mkdir(parents=True)
    record.write_text("a finished cell, for all that is known without mteb")
    for asked in (run, (*run[:2], "noise,word_overlap", *run[3:], "--campaign", "new")):
        with pytest.raises(AssertionError, match="takes seconds"):
            cli("--debug", *asked)


def test_scorers_are_left_out_of_all(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    run = ("run", "--methods", "all", "--seeds", "1", "--suite", f"local:{write_local_suite(tmp_path)}")
    code, out, err = cli(*run, "--results", str(tmp_path / "r"), "--dry-run")
    assert code == 0, err
    assert "untrained" in out
    assert "word_overlap" not in out


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
