"""What other systems lack: Windows has no fcntl, resource or pwd, and fewer names in os and signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import records

ABSENT = ("fcntl", "resource", "pwd", "grp")
NAMES = {
    "os": ("uname", "O_NOFOLLOW", "O_DIRECTORY", "pread", "sched_getaffinity", "mkfifo"),
    "signal": ("pthread_sigmask", "SIGKILL", "SIGUSR1", "SIGHUP"),
}
START = f"""
import importlib.abc, os, signal, sys

# Other packages look at sys.platform, which stays: they are imported first
import torch.distributed, sentence_transformers, scipy.stats, pandas, matplotlib.pyplot, filelock
from transformers import BertModel, RobertaModel

for name in {ABSENT}:
    sys.modules.pop(name, None)


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {ABSENT}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)


sys.meta_path.insert(0, Absent())
for module, names in {NAMES}.items():
    for name in names:
        delattr(sys.modules[module], name)
os.kill = None  # on Windows it ends a process, whatever the signal
"""


WORK = """
import shlex
from importlib import import_module
from tests.support.house import module_files

modules = [name for name in module_files() if "__main__" not in name]
for name in modules:
    import_module(f"bench.{name.removesuffix('__init__')}".rstrip("."))
print(len(modules), "modules")
from bench.cli.main import main

os.chdir(sys.argv[1])
for line in sys.argv[2:]:
    try:
        main(shlex.split(line))
    except SystemExit as stopped:
        assert not stopped.code, line
"""


@pytest.mark.long
@pytest.mark.slow
def test_every_module_is_imported_and_a_cell_runs_without_them(tmp_path: Path) -> None:
    lines = ("run --methods simcse --seeds 1 --suite toy --set simcse.steps=2 --probes cost", "report")
    command, root = [sys.executable, "-c", START + WORK, str(tmp_path), *lines], Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.partition(" modules")[0]) > 400
    assert "simcse[steps=2]" in done.stdout
    (record,) = records(tmp_path).values()
    assert (record.status, record.seed) == ("ok", 1)
    assert "cost" in record.probes
    local = tmp_path / "results" / "local"
    assert not [*local.rglob("*.tmp"), *local.glob(".running/*")]
