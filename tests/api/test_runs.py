"""`bench.run`, `dry_run`, `train` and `tune`: the command's plan, records and words, without its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import bench
from bench.api import runs
from bench.api.command_options import EncoderOptions, RunOptions, TuneOptions, options_by_name
from bench.cli.run import run_command
from bench.cli.train import tune_command
from bench.errors import CellFailedError, InputError
from bench.exchange.export_command import export_command
from bench.registry import METHODS
from tests.support.cli import stable_bytes

SHORT: dict[str, Any] = {"simcse.steps": 2, "simcse.eval_every": 2, "simcse.batch_size": 8}
TRAINED: dict[str, Any] = {"set": SHORT, "corpus": "corpus.txt", "dev": "toy"}
QUICK: dict[str, Any] = {**TRAINED, "suite": "toy"}
"""A training of two steps on a small text."""


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("".join(f"a dog sees {number} cats\n" for number in range(64)))


def test_an_option_of_methods_is_given_by_set() -> None:
    options: Any = {"lora_rank": 8}
    with pytest.raises(InputError, match=r"option of methods; give it as set=\{\"METHOD.lora_rank\": 8\}"):
        bench.train("simcse", seed=1, **options)


def test_each_option_of_a_command_has_an_argument() -> None:
    explicit = {"methods", "seeds", "campaign"}
    given = set(get_type_hints(RunOptions)) | explicit
    assert set(options_by_name(run_command)) == given | set(runs.PRINTING)
    tuned = {"option", "values", "seed"}
    assert set(options_by_name(tune_command)) == set(get_type_hints(TuneOptions)) | tuned
    exported = set(options_by_name(export_command)) - {"out"}
    assert set(get_type_hints(EncoderOptions)) <= exported | {"campaign"}


def test_a_run_leaves_the_bytes_of_the_command(cli: Any, tmp_path: Path) -> None:
    words = ("--methods", "noise,word_overlap", "--seeds", "1-2", "--suite", "toy")
    assert cli("run", *words, "--set", "noise.scale=2")[0] == 0
    given: dict[str, Any] = {"suite": "toy", "set": {"noise.scale": 2}, "results": "own/results"}
    results = bench.run(["noise", "word_overlap"], seeds=[1, 2], **given)
    assert stable_bytes(tmp_path) == stable_bytes(tmp_path / "own")
    assert len(stable_bytes(tmp_path)) == 6
    assert results.missing == 0
    assert bench.dry_run("noise", seeds="1-3", **given).state.tolist() == ["done", "done", "to do"]


def test_help_lists_every_option() -> None:
    for function, options in (
        (bench.run, RunOptions),
        (bench.tune, TuneOptions),
        (bench.train, EncoderOptions),
    ):
        text = str(function.__doc__)
        assert [name for name in get_type_hints(options) if f"\n    {name}: " not in text] == []


@pytest.mark.slow
def test_a_run_prints_nothing_and_keeps_the_lines(capfd: pytest.CaptureFixture[str]) -> None:
    results = bench.run(["noise", "simcse"], seeds=1, **QUICK)
    assert capfd.readouterr() == ("", "")
    assert sum("avg" in line for line in results.messages) == 2
    bench.run("noise", seeds=2, suite="toy", progress=True)
    assert "noise seed 2" in capfd.readouterr().err


def test_failed_cells_leave_partial_results() -> None:
    results = bench.run("broken", seeds=range(1, 4), suite="toy")
    assert results.missing == 1
    assert results.failures.seed.tolist() == [2]
    assert "no luck" in results.failures.reason.item()
    assert sorted(set(results.to_dataframe().seed)) == [1, 3]
    with pytest.raises(CellFailedError, match="no luck"):
        results.require_complete()


def test_an_interrupt_leaves_partial_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.execution import cell_run, runner

    run_cell = cell_run.run_cell

    def interrupt_second(task: Any, **given: Any) -> Any:
        if task.jobs[0].cell.seed == 2:
            raise KeyboardInterrupt
        return run_cell(task, **given)

    monkeypatch.setattr(runner, "run_cell", interrupt_second)
    results = bench.run("noise", seeds="1-3", suite="toy")
    assert results.interrupted
    assert results.missing == 2
    assert "resume" in results.messages[-1]
    monkeypatch.undo()
    assert not bench.run("noise", seeds="1-3", suite="toy").missing


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, pytest.param(False, marks=pytest.mark.long)])
def test_ctrl_c_ends_workers_and_keeps_what_is_finished(tmp_path: Path, whole_group: bool) -> None:
    call = "bench.run('noise,slow=noise[wait=60]', seeds=1, suite='toy', workers=2)"
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"  # born in the background
    code = f"{deaf}\nimport bench\nresults = {call}\nprint(results.interrupted, results.missing)\n"
    (tmp_path / "script.py").write_text(code)
    script = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    record = tmp_path / "results/local/mini/noise/seed-1/toy.json"
    for _ in range(600):
        if record.exists():
            break
        time.sleep(0.1)
    time.sleep(1.0)  # the record is announced
    send = os.killpg if whole_group else os.kill  # a terminal, a notebook
    send(script.pid, signal.SIGINT)
    assert script.communicate(timeout=60)[0] == "True 1\n"


def test_another_specification_is_missing_with_its_reason() -> None:
    bench.run("noise", seeds=1, suite="toy", campaign="c", set={"noise.scale": 2.0}, threads=1)
    bench.run("row=noise", seeds=1, suite="toy", campaign="c")
    results = bench.run("row=noise[scale=3]", seeds=1, suite="toy", campaign="c")
    assert results.missing == 1
    assert any("another specification" in line for line in results.messages)
    assert bench.dry_run("row=noise[scale=3]", seeds=1, suite="toy", campaign="c").state.tolist() == [
        "conflict"
    ]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"sedes": 3}, "'seeds'"),
        ({"device": "gpu"}, "'gpu'"),
        ({"force": "yes"}, "True or False"),
        ({"seeds": "5-1"}, "1-5"),
        ({"dry_run": True}, "bench run"),
        ({"margin": 0.5}, "--plan"),
        ({"set": {"noise.scal": 1}}, "scale"),
        ({"seeds": True}, "seeds=True"),
    ],
)
def test_bad_input_is_one_error(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(bench.InputError) as refused:
        bench.run("noise", **arguments)
    assert word in str(refused.value)
    assert not Path("results").exists()


def test_an_entry_that_is_no_method_is_refused() -> None:
    with pytest.raises(bench.InputError, match="3 is no method"):
        bench.run([3])  # type: ignore[list-item]


def test_a_plugin_is_forgotten_after_the_call(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "bench/cli/starter/method.py.txt"
    (tmp_path / "own.py").write_text(source.read_text())
    before = METHODS.names()
    assert len(bench.dry_run("align_uniform", plugin="own.py", seeds=1)) == 1
    assert METHODS.names() == before
    with pytest.raises(bench.InputError):
        bench.dry_run("align_uniform")


@pytest.mark.slow
def test_the_users_process_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    environment = dict(os.environ)
    before = signal.getsignal(signal.SIGTERM), str(np.random.get_state())  # noqa: NPY002
    bench.run("simcse", seeds=1, **QUICK)
    assert os.environ.keys() - environment.keys() <= {"TOKENIZERS_PARALLELISM"}
    assert (signal.getsignal(signal.SIGTERM), str(np.random.get_state())) == before  # noqa: NPY002
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.slow
def test_calls_of_several_threads_work() -> None:
    source = Path(__file__).parents[2] / "bench/cli/starter/method.py.txt"
    Path("own.py").write_text(source.read_text())
    missing, states, names, environment = [], [], METHODS.names(), dict(os.environ)

    def run() -> None:
        missing.append(bench.run("noise", seeds="1-2", suite="toy", workers=2).missing)

    def plan() -> None:
        states.append(bench.dry_run("align_uniform", seeds=1, plugin="own.py").state.tolist())

    threads = [threading.Thread(target=target) for target in (run, plan, plan, run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (missing, states) == ([0, 0], [["to do"], ["to do"]])
    assert METHODS.names() == names
    assert os.environ.keys() - environment.keys() <= {"TOKENIZERS_PARALLELISM"}


@pytest.mark.slow
def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    call = "bench.run('noise', seeds='1-2', suite='toy', workers=2)"
    (tmp_path / "script.py").write_text(f"import bench\nprint({call}.missing)\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.slow
def test_train_gives_the_encoder_of_a_run() -> None:
    encoder = bench.train("simcse", seed=1, **TRAINED)
    assert encoder.encode(["a dog runs"]).dtype == np.float32
    results = bench.run("simcse", seeds=1, **QUICK)
    assert not any("trained" in line for line in results.messages)
    again = bench.train("simcse", seed=1, **TRAINED)
    assert np.array_equal(again.encode(["a dog runs"]), encoder.encode(["a dog runs"]))


@pytest.mark.parametrize(
    ("method", "seed", "word"), [("simcse", None, "--seed"), ("untrained", 1, "deterministic")]
)
def test_train_refuses_a_wrong_seed(method: str, seed: int | None, word: str) -> None:
    with pytest.raises(bench.InputError, match=word):
        bench.train(method, seed=seed)


@pytest.mark.slow
def test_tune_chooses_on_the_dev_set() -> None:
    rates = [1e-5, 1e-3]
    tuned = bench.tune("simcse", rates, **TRAINED)
    assert list(tuned.scores) == rates
    assert tuned.best == max(rates, key=tuned.scores.__getitem__)
    assert tuned.setting == {**{name: str(value) for name, value in SHORT.items()}, "simcse.lr": tuned.best}
    assert repr(tuned).splitlines()[0] == f"simcse, best lr: {tuned.best!r}"
    assert f"lr = {tuned.best!r}" in tuned.toml
    results = bench.run("simcse", seeds=1, **{**QUICK, "set": tuned.setting})
    assert results.records[0].options["lr"] == tuned.best


@pytest.mark.slow
def test_the_sessions_torch_settings_change_nothing() -> None:
    import torch

    plain = bench.run("simcse", seeds=1, results="a", workers=1, **QUICK)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        torch.set_default_dtype(torch.float64)
        try:
            within = bench.run("simcse", seeds=1, results="b", workers=1, **QUICK)
            assert torch.get_default_dtype() == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
    assert within.to_dataframe().score.tolist() == plain.to_dataframe().score.tolist()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"seeds": b"1"}, "seeds"),
        ({"campaign": b"x"}, "campaign"),
        ({"results": ["r"]}, "results"),
        ({"results": "\0"}, "results"),
        ({"set": 3}, "set"),
        ({"plugin": 3}, "plugin"),
        ({"seeds": [1, None]}, "seeds"),
    ],
)
def test_values_of_other_types_are_refused(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(bench.InputError, match=word):
        bench.dry_run("noise", suite="toy", **arguments)


def test_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, Any] = {"seeds": np.arange(1, 3), "threads": np.int64(1), "force": np.True_}
    assert len(bench.dry_run("noise", suite="toy", set={"noise.scale": np.float64(2)}, **given)) == 2


def test_an_instance_is_refused_with_what_to_give() -> None:
    with pytest.raises(bench.InputError, match="without"):
        bench.run(type("Own", (), {"card": None})())


@pytest.mark.slow
def test_an_encoder_is_saved_for_other_libraries() -> None:
    encoder = bench.train("simcse", seed=1, out="simcse-1", **TRAINED)
    again = bench.load("simcse-1")
    assert np.array_equal(again.encode(["a dog runs"]), encoder.encode(["a dog runs"]))
    with pytest.raises(bench.InputError, match="simcse-1"):
        bench.train("simcse", seed=1, out="simcse-1", **TRAINED)
    with pytest.raises(bench.InputError, match="cpu"):
        bench.load("simcse-1", "gpu")


def test_similarity_needs_no_mteb(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = bench.train("untrained")
    vectors = encoder.encode(["a dog runs", "a dog runs", "the sea is deep"])
    others = vectors[::-1].copy()
    of_mteb = encoder.similarity(vectors, vectors), encoder.similarity_pairwise(vectors, others)
    monkeypatch.setattr("bench.eval.public_encoder.find_spec", lambda name: None)
    again = bench.train("untrained")
    own = again.similarity(vectors, vectors), again.similarity_pairwise(vectors, others)
    for first, second in zip(of_mteb, own, strict=True):
        assert np.allclose(np.asarray(first), np.asarray(second), atol=1e-6)
    assert "_mteb_model" not in vars(again)
