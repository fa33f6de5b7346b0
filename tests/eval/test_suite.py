"""Suites as objects: the measure of a name, and its facts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.config.spec import RunSpec
from bench.data.mteb_names import MtebName
from bench.data.source import DataSource
from bench.data.toy import make_toy_task
from bench.errors import BenchError, InputError
from bench.eval.contrast_suite import ContrastSuite
from bench.eval.mteb_suite import MtebSuite
from bench.eval.mteb_tasks import MtebTask
from bench.eval.pair_suite import PairSuite
from bench.eval.rank_suite import RankSuite
from bench.eval.suite_measures import measure_of
from bench.eval.transfer_suite import TransferSuite
from bench.execution.cell_run import measure_job
from tests.support.messages import missing_facts

KINDS = {
    PairSuite: ("sts7", "mini-dev"),
    TransferSuite: ("transfer7", "transfer8", "mini-transfer"),
    MtebSuite: ("unsee", "mteb:STS17", "local:mine", "stsb-multi", "mini-bitext"),
    ContrastSuite: ("contrast", "contrast:own.txt", "mini-contrast"),
    RankSuite: ("evalrank", "mini-evalrank"),
}


@pytest.mark.parametrize(("kind", "names"), KINDS.items())
def test_a_name_gives_a_suite(kind: type, names: tuple[str, ...]) -> None:
    assert [measure_of(name) for name in names] == [kind(name) for name in names]


def test_facts_of_the_key() -> None:
    suites = [measure_of(name) for name in ("sts7", "transfer7", "unsee")]
    assert [suite.version for suite in suites] == [1, 1, 1]
    assert [suite.settings("sgd") for suite in suites] == [{}, {"solver": "sgd"}, {}]


def test_notes() -> None:
    assert measure_of("sts7").notes == ()
    (average,) = measure_of("mteb:STS17").notes
    assert not missing_facts(average, "mteb", "mean over", "subsets and splits")
    (note,) = measure_of("mini").notes
    assert "made up" in note
    first, second = measure_of("jtcse-bitext").notes
    assert first == average
    assert not missing_facts(second, "JTCSE", "mteb 1.28.6")
    for name in ("contrast", "contrast:own.txt", "mini-contrast"):
        assert "Chance is 50" in measure_of(name).notes[-1]


def test_an_unknown_suite_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(InputError, match="sts8"):
        measure_of("sts8").load(DataSource())


def test_a_suites_sentences_and_items(data: Path) -> None:
    (toy,) = measure_of("toy").load(DataSource())
    assert toy.items == 180
    assert measure_of("toy").is_reference(toy)
    assert set(measure_of("toy").sentences([toy])) == set(sum(make_toy_task().all_pairs(), ()))
    suite = measure_of("transfer7")
    tasks = suite.load(DataSource(data, accept_changed=True))
    assert not any(map(suite.is_reference, tasks))
    mrpc = next(task for task in tasks if task.id == "MRPC")
    assert len(list(suite.sentences([mrpc]))) == 2 * mrpc.items > 0
    task = MtebTask(MtebName("STS17", "STS17"), "STS", "cosine_spearman", ("x", "1"), ("test",))
    assert (task.items, list(MtebSuite("unsee").sentences([task]))) == (0, [])
    assert MtebSuite("unsee").is_reference(task)


def test_no_suite_loads_torch_or_mteb_before_it_measures() -> None:
    code = """import sys
from bench.data.source import DataSource
from bench.eval.suite_measures import measure_of
suites = [measure_of(name) for name in ('toy', 'transfer7', 'unsee')]
suites[0].load(DataSource())
print(*sorted({'torch', 'mteb', 'scipy'} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_mteb_measures_in_one_precision() -> None:
    job: Any = SimpleNamespace(suite="mteb:STS17")
    builder: Any = None  # nothing is built or trained first
    spec = RunSpec((), (), "mini", precision="bf16")
    with pytest.raises(BenchError, match=r"mteb:STS17 .*fp32 only.*--precision"):
        measure_job(builder, [], job, spec, None)
