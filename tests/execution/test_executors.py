"""Executors: local workers, and a Ray cluster with lost nodes and Ctrl-C."""

from __future__ import annotations

import http.server
import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from filelock import FileLock, Timeout

from bench.cli.options import executor_options, make_spec, spec_options, workers_option
from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.errors import BenchError, CellFailedError, InputError
from bench.execution.executors import cluster as joining
from bench.execution.executors import ray as tasks
from bench.execution.executors.local import WorkerProcesses
from bench.execution.executors.ray import RayTasks
from bench.execution.runner import Executor, InProcess, choose_executor
from bench.execution.stage_cache import StageCache
from bench.records import environment as provenance
from bench.stages import Stage, StageSpec
from tests.faults.checks import Done, check_kept, check_whole, finished, records, stable
from tests.faults.interrupt import check_interrupted
from tests.faults.runs import INTERRUPTED
from tests.support.executors import FakeRay, log_start, needs
from tests.support.messages import missing_facts
from tests.support.stages import ensure


@pytest.mark.parametrize(
    ("executor", "order"),
    [(InProcess(), ["a1", "a2", "b1", "b2"]), (WorkerProcesses(2), ["a1", "b1", "a2", "b2"])],
)
def test_workers_take_what_others_don_t_make(tmp_path: Path, executor: Executor, order: list[str]) -> None:
    log = tmp_path / "log"
    tasks = [(name, name[0], str(log)) for name in ("a1", "a2", "b1", "b2")]
    assert sorted(executor.run(log_start, tasks, needs)) == ["a1", "a2", "b1", "b2"]
    started = log.read_text().split()
    # two that run together start in either order
    assert [set(started[:2]), set(started[2:])] == [set(order[:2]), set(order[2:])]


def test_where_all_wait_for_the_same_the_order_is_kept(tmp_path: Path) -> None:
    tasks = [(name, "x", str(tmp_path / "log")) for name in ("a", "b", "c")]
    assert set(WorkerProcesses(2).run(log_start, tasks, needs)) == {"a", "b", "c"}
    assert (tmp_path / "log").read_text().split()[2] == "c"


Cli = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
PLAIN = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")
ON_RAY = ("--executor", "ray", "--ray-address")


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_only_the_ray_executor_imports_ray(bench: Callable[..., Any], tmp_path: Path, executor: str) -> None:
    fake, seen = tmp_path / "fake", tmp_path / "seen"
    fake.mkdir()
    (fake / "ray.py").write_text(f"open({str(seen)!r}, 'w').close()\nraise SystemExit('imported')\n")
    path = os.pathsep.join([str(fake), os.environ["PYTHONPATH"]])
    bench(*PLAIN, "--executor", executor, "--workers", "2", PYTHONPATH=path, RAY_ADDRESS="")
    assert seen.exists() == (executor == "ray")
    assert (tmp_path / "results" / "local" / "mini" / "noise").exists() == (executor == "local")


def test_a_port_where_nothing_answers_is_one_line(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code, out, err = cli(*PLAIN, *ON_RAY, f"127.0.0.1:{port}")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    facts = (f"127.0.0.1:{port}:", "Connection refused", "`ray status`")
    assert not missing_facts(err, "--ray-address:", *facts)


def test_what_isnt_rays_port_is_told_apart(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_CONNECT", 0.2)
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        code, _, err = cli(*PLAIN, *ON_RAY, address)
        assert (code, missing_facts(err, address, "not a Ray cluster")) == (2, [])
    finally:
        server.shutdown()
        server.server_close()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = cli(*PLAIN, *ON_RAY, address)
        assert (code, missing_facts(err, f"{address}: timed out;")) == (2, [])


@pytest.mark.parametrize(
    ("cpus", "gpus", "room"), [(1, 0, 12), (3, 0, 3), (5, 0, 1), (9, 0, 0), (1, 1, 4), (3, 2, 1), (1, 5, 0)]
)
def test_room_is_counted_on_the_nodes_that_are_alive(tmp_path: Path, cpus: int, gpus: int, room: int) -> None:
    resources = ((True, {"CPU": 8}), (True, {"CPU": 4, "GPU": 4}), (False, {"CPU": 64, "GPU": 8}))
    nodes = [{"Alive": alive, "Resources": amounts} for alive, amounts in resources]
    ray = SimpleNamespace(nodes=lambda: nodes)
    assert RayTasks(tmp_path, cpus=cpus, gpus=gpus)._count_slots(ray) == room


def test_without_any_node_the_run_waits_a_minute_and_ends(tmp_path: Path) -> None:
    ray, looks = FakeRay(CPU=4, GPU=8), list[float]()

    def wait(running: list[int], timeout: float) -> tuple[list[int], list[int]]:
        looks.append(timeout)
        ray.node["Alive"] = len(looks) < 3
        return [], running

    ray.wait = wait  # type: ignore[method-assign]
    with pytest.raises(CellFailedError, match=r"2 CPU\(s\) and 1 GPU\(s\)"):
        list(ray.submit(RayTasks(tmp_path, workers=3, cpus=2, gpus=1), 4))
    assert ray.asked == {"num_cpus": 2, "num_gpus": 1, "max_retries": tasks.RETRIES}
    assert sum(looks[3:]) == 60
    assert ray.cancelled == [0, 1]


def test_tasks_take_the_threads_and_gpus_of_the_specification(tmp_path: Path) -> None:
    spec = RunSpec(parse_methods("noise"), (1,), "mini", executor="ray", threads=4, workers=3)
    spec = replace(spec, results=tmp_path)
    assert choose_executor(spec) == RayTasks(tmp_path, workers=3, cpus=4)
    together = replace(spec, ranks=2, device="cuda", ray_address="h:1", workers=0)
    assert choose_executor(together) == RayTasks(tmp_path, "h:1", cpus=8, gpus=2)


@pytest.mark.parametrize(
    ("arguments", "workers"), [((), 0), (("--workers", "3"), 3), (("--device", "cuda"), 0)]
)
def test_workers_that_nobody_named_are_the_clusters(arguments: tuple[str, ...], workers: int) -> None:
    specs = []

    @click.command()
    @spec_options
    @workers_option
    @executor_options
    def command(**options: Any) -> None:
        specs.append(make_spec({**options, "methods": "noise", "seeds": "1"}))

    given = ["--executor", "ray", "--ray-address", "h:1", *arguments]
    result = CliRunner().invoke(command, given, env={"BENCH_WORKERS": None})
    assert result.exit_code == 0, result.output
    assert [(spec.executor, spec.ray_address, spec.workers) for spec in specs] == [("ray", "h:1", workers)]


def test_a_node_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.chdir(tmp_path)
    ours = tasks._library_versions()

    def start(lock: Path, folder: Path = tmp_path, **versions: str) -> tasks._WorkerStart:
        return tasks._WorkerStart(lock, folder, {"OMP_NUM_THREADS": "3"}, {**ours, **versions}, (), [])

    with pytest.raises(BenchError, match=r"gone: node .* folder; .*--results"):
        tasks._prepare_worker(start(tmp_path / ".ray", tmp_path / "gone"))
    assert os.environ["OMP_NUM_THREADS"] == "3"
    with pytest.raises(BenchError, match=r"node .* doesn't share"):
        tasks._prepare_worker(start(tmp_path / "elsewhere" / ".ray"))
    with joining.hold_folder(tmp_path) as lock:
        tasks._prepare_worker(start(lock))
        with pytest.raises(BenchError, match=r"node .* torch .*; expected torch 1\.0;"):
            tasks._prepare_worker(start(lock, torch="1.0"))
    with pytest.raises(BenchError, match=r"node .* doesn't share .*flock"):
        tasks._prepare_worker(start(lock))


def test_a_folder_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, kind: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(InputError, match="Function not implemented"), joining.hold_folder(tmp_path):
        pass


def test_a_stage_finished_elsewhere_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(StageSpec("one", "kind", 1, (), lambda context: {}), 1, "b" * 64)
    assert ensure(StageCache(tmp_path), stage, lambda out: {}) is not None
    find, stale = StageCache.find, [None, None]
    monkeypatch.setattr(StageCache, "find", lambda self, stage: stale.pop() if stale else find(self, stage))

    def train(out: Path) -> dict[str, Any]:
        raise AssertionError

    assert ensure(StageCache(tmp_path), stage, train) == tmp_path / stage.key
    assert not list(tmp_path.glob(".*.tmp"))


class Cluster:
    def __init__(self) -> None:
        # Ray takes 127.0.0.1 for another name of this machine's address, which tests may not reach
        size: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.2", "include_dashboard": False}
        size["object_store_memory"] = 80 * 2**20
        self.nodes = importlib.import_module("ray.cluster_utils").Cluster(True, head_node_args=size)
        self.second = self.nodes.add_node(**size)

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "bench", *arguments, *ON_RAY, self.nodes.address, "--workers", "2"]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )


def started() -> Cluster:
    """A cluster; Ray gives a node 30 s to start, which a busy machine may need more than once for."""
    for _ in range(2):
        with suppress(Exception):
            return Cluster()
    return Cluster()


@pytest.fixture(scope="module")
def cluster(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; the last test takes a node away."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DIR", os.devnull)  # a commit meanwhile would be another provenance
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("NOISE_LOG", str(tmp_path_factory.mktemp("noise") / "log"))
        provenance._git_state.cache_clear()
        made = started()
        yield made
        made.nodes.shutdown()
    provenance._git_state.cache_clear()


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=240)
    return Done(process.returncode, out, err)


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def double(number: int) -> int:
    if number == 3:
        raise InputError("three", where="double")
    if number == 4:
        with Path("tries").open("a") as stream:
            stream.write("x")
        os._exit(9)
    return 2 * number


@pytest.mark.long
@pytest.mark.slow
def test_tasks_go_side_by_side(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("a1", "a2", "b1", "b2")
    with joining.join_cluster(cluster.nodes.address) as ray:
        for workers, order in ((1, ["a1", "a2", "b1", "b2"]), (0, ["a1", "b1", "a2", "b2"])):
            log = tmp_path / f"log-{workers}"
            executor = RayTasks(tmp_path / "results", cluster.nodes.address, workers)
            asked = [(name, name[0], str(log)) for name in names]
            assert sorted(executor.run(log_start, asked, needs)) == [*names]
            started = log.read_text().split()
            assert [set(started[:2]), set(started[2:])] == [set(order[:2]), set(order[2:])]
        assert sorted(executor.run(double, [1, 2])) == [2, 4]
        with pytest.raises(InputError, match=r"^double: three$"):
            list(executor.run(double, [3]))
        with pytest.raises(CellFailedError, match="died 4 times"):
            list(executor.run(double, [4]))
        assert (tmp_path / "tries").read_text() == "xxxx"
        with pytest.raises(InputError, match=r"1 CPU\(s\) and 1 GPU\(s\)"):
            list(RayTasks(tmp_path, cluster.nodes.address, gpus=1).run(double, [1]))
        assert ray.is_initialized()  # who joined leaves
    assert not ray.is_initialized()


@pytest.mark.long
@pytest.mark.slow
def test_plug_ins_and_failures_as_in_the_local_one(cluster: Cluster, cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from bench_test_methods import Noise\n"
        "from bench.method_card import MethodCard\n"
        "from bench.registry import add_method\n"
        "@add_method\n"
        "class Mine:\n"
        "    card = MethodCard(name='mine', kind='test', summary='a', version=1, needs_backbone=False)\n"
        "    def build(self, context):\n"
        "        print('noise from a method')\n"
        "        return Noise(context.seed + 10)\n"
    )
    work = ("run", "--methods", "mine,broken", "--seeds", "1-2", "--suite", "toy", "--plugin", str(mine))
    code, out, err = cli(*work)
    done = ended(cluster.start(tmp_path / "ray", *work))
    assert code == done.code == 1
    assert "noise from a method" in out  # here; on a cluster it stands in Ray's logs
    assert done.out == out.replace("noise from a method\n", "")
    timeless = [re.sub(r"(?m)^\[.*?\] |\d+\.\d s", "", text) for text in (done.error, err)]
    assert sorted(timeless[0].splitlines()) == sorted(timeless[1].splitlines())
    check_whole(tmp_path / "ray", stable(tmp_path))


@pytest.mark.long
def test_ctrl_c_cancels_what_runs_on_the_nodes(cluster: Cluster, tmp_path: Path) -> None:
    work = ("run", "--methods", "noise[wait=60]", "--seeds", "1-4", "--suite", "toy")
    log = Path(os.environ["NOISE_LOG"])
    log.write_text("")
    run = cluster.start(tmp_path / "ray", *work)
    until(lambda: len(log.read_text().splitlines()) == 2, "two cells never ran")
    os.killpg(run.pid, signal.SIGINT)
    done = ended(run)
    check_interrupted(done)
    assert done.error == f"\n{INTERRUPTED}\n"
    paths = (path for path in (tmp_path / "ray").rglob("*.lock") if path.stem != "running")
    locks = [FileLock(path, blocking=False) for path in paths]
    assert len(locks) == 2

    def free() -> bool:
        try:
            return all(lock.acquire() for lock in locks)
        except Timeout:
            return False

    until(free, "a cell goes on after Ctrl-C")
    assert len(log.read_text().splitlines()) == 2


TRAINED = (
    "run", "--methods", "simcse,tncse", "--seeds", "1-2", "--suite", "toy", "--dev", "toy",
    "--set", "tncse.rtt=none",
    *(
        part
        for stage, steps in (("simcse", 60), ("tncse", 10), ("tncse.sub1", 40), ("tncse.sub2", 40))
        for option, value in (("steps", steps), ("eval_every", 10), ("batch_size", 8), ("lr", "1e-3"))
        for part in ("--set", f"{stage}.{option}={value}")
    ),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_lost_node_costs_time_only(
    cluster: Cluster, cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path
) -> None:
    work = (*TRAINED, "--backbone", str(tiny_bert), "--corpus", str(corpus))
    code, out, err = cli(*work)
    assert code == 0, err
    folder = tmp_path / "ray"
    run = cluster.start(folder, *work)
    stages = folder / "results" / ".stages"
    left = set[Path]()

    def both_train() -> bool:
        left.clear()
        left.update(stages.glob(".*.tmp"))
        return bool(records(folder)) and len(left) == 2

    until(both_train, "never in the middle")
    assert run.poll() is None
    cluster.nodes.remove_node(cluster.second, allow_graceful=False)
    before = finished(folder)
    assert 0 < len(records(folder)) < 4
    done = ended(run)
    tables = {re.sub(r"(?m) +\d+$", "", text) for text in (done.out, out)}  # without their seconds
    assert (done.code, len(tables)) == (0, 1), done.error
    assert len(done.error.splitlines()) == 4 + 1  # and where the records are
    check_kept(before, finished(folder))
    check_whole(folder, stable(tmp_path))
    assert cli(*work, "--results", str(folder / "results"))[2].startswith("4 of 4 cells")
