"""Suites as objects: which one a name gives, and what it says of itself before anything is measured."""

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
from tests.support.transfer_data import write_transfer

KINDS = {
    "sts7": PairSuite,
    "mini-dev": PairSuite,
    "transfer7": TransferSuite,
    "transfer8": TransferSuite,
    "unsee": MtebSuite,
    "mteb:STS17": MtebSuite,
    "local:mine": MtebSuite,
    "stsb-multi": MtebSuite,
    "mini-bitext": MtebSuite,
    "mini-transfer": TransferSuite,
    "contrast": ContrastSuite,
    "contrast:own.txt": ContrastSuite,
    "mini-contrast": ContrastSuite,
    "evalrank": RankSuite,
    "mini-evalrank": RankSuite,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_name_gives_a_suite(name: str, kind: type) -> None:
    assert measure_of(name) == kind(name)


def test_what_enters_the_key() -> None:
    found = {name: measure_of(name) for name in ("sts7", "transfer7", "unsee")}
    assert {name: suite.version for name, suite in found.items()} == dict.fromkeys(found, 1)
    assert [suite.settings("sgd") for suite in found.values()] == [{}, {"solver": "sgd"}, {}]


def test_notes() -> None:
    average = "Measured by mteb: a task's value is the mean over its subsets and splits."
    assert measure_of("sts7").notes == ()
    assert measure_of("mteb:STS17").notes == (average,)
    assert len(measure_of("mini").notes) == 1
    assert "made up" in measure_of("mini").notes[0]
    first, second = measure_of("jtcse-bitext").notes
    assert first == average
    assert "JTCSE's figures were made with mteb 1.28.6, these" in second


def test_an_unknown_suite_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(InputError, match="sts8"):
        measure_of("sts8").load(DataSource())


def test_a_suites_sentences_and_items(tmp_path: Path) -> None:
    (toy,) = measure_of("toy").load(DataSource())
    first, second = zip(*make_toy_task().all_pairs(), strict=True)
    assert toy.items == 180
    assert measure_of("toy").is_reference(toy)
    assert set(measure_of("toy").sentences([toy])) == {*first, *second}
    write_transfer(tmp_path / "downstream")
    suite = measure_of("transfer7")
    tasks = suite.load(DataSource(tmp_path, accept_changed=True))
    assert not any(map(suite.is_reference, tasks))
    mrpc = next(task for task in tasks if task.id == "MRPC")
    assert len(list(suite.sentences([mrpc]))) == 2 * mrpc.items > 0
    task = MtebTask(MtebName("STS17", "STS17"), "STS", "cosine_spearman", ("x", "1"), ("test",))
    assert (task.items, list(MtebSuite("unsee").sentences([task]))) == (0, [])
    assert MtebSuite("unsee").is_reference(task)


def test_no_suite_loads_torch_or_mteb_before_it_measures() -> None:
    code = (
        "import sys\nfrom bench.data.source import DataSource\nfrom bench.eval.suite_measures import measure_of\n"
        "suites = [measure_of(name) for name in ('toy', 'transfer7', 'unsee')]\n"
        "suites[0].load(DataSource())\n"
        "print(*sorted({'torch', 'mteb', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_what_mteb_measures_has_one_precision() -> None:
    job: Any = SimpleNamespace(suite="mteb:STS17")
    builder: Any = None  # nothing is built or trained first
    spec = RunSpec((), (), "mini", precision="bf16")
    with pytest.raises(BenchError, match="mteb:STS17 is measured in fp32 only; without --precision"):
        measure_job(builder, [], job, spec, None)
