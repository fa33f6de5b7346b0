"""A packed folder runs where nothing else is; what other systems lack is needed nowhere."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.data.senteval import iter_files
from bench.nn.model_folder import hash_model
from bench.records.environment import ROUNDED
from bench.records.record import RunRecord, parse_record
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts
from tests.support.training import PLUGIN

SIMCSE = ("--set", "simcse.steps=2", "--set", "simcse.eval_every=2")
MINI = ("pack", "--methods", "untrained,simcse", "--seeds", "1", "--suite", "toy", *SIMCSE, "--out", "packed")
BACKBONE = Path(__file__).parents[2] / "bench" / "data" / "mini" / "backbone"


def run_packed(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing but this interpreter: empty folder, empty home, no network."""
    for name in ("home", "empty"):
        (folder.parent / name).mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "PYTHON": sys.executable}
    environment |= {"OMP_NUM_THREADS": "1", "BENCH_WORKERS": "1"}
    command, cwd = ["sh", str(folder / "run.sh"), *more], folder.parent / "empty"
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def rounded(folder: Path) -> Path:
    shutil.copytree(BACKBONE, folder)
    file = next(folder.glob("*.safetensors"))
    wide = {name: tensor.float() * (1 + 1e-4) for name, tensor in load_file(file).items()}
    save_file(wide, file, metadata={"format": "pt"})
    return folder


def test_what_is_packed(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli(*MINI)
    assert (code, err) == (0, "")
    size = sum(file.stat().st_size for file in Path("packed").rglob("*") if file.is_file())
    assert f"packed: {size / 1e6:,.1f} MB" in out
    folder = tmp_path / "packed"
    assert not [path for path in folder.rglob("*") if path.is_symlink() or path.name == "__pycache__"]
    for name in ("baselines/simcse.py", "methods/tncse.py", "reports/report.py", "data/mini/backbone"):
        assert (folder / "bench" / name).exists(), name
    assert not list((folder / "data").iterdir())  # toy is part of the code
    assert not (folder / "models").exists()  # and so is the backbone
    facts = json.loads((folder / "bench" / "packed.json").read_text())
    assert set(facts) == {"commit", "dirty", "backbones"}
    readme = (folder / "README").read_text()
    assert not missing_facts(readme, "bench run --methods untrained,simcse", "--seeds 1", *SIMCSE[1::2])
    assert "it already exists" in refusal(cli, *MINI)
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]


@pytest.mark.long
def test_records_of_a_packed_run_are_those_of_another(cli: Cli, tmp_path: Path) -> None:
    assert cli(*MINI)[0] == 0
    file = tmp_path / "packed" / "bench" / "packed.json"
    facts = {**json.loads(file.read_text()), "commit": "f" * 40, "dirty": False}
    file.write_text(json.dumps(facts))  # else nothing shows which code ran
    done = run_packed(tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    assert cli("run", *MINI[1:-2])[0] == 0
    packed_records, here = records(tmp_path / "empty"), records(tmp_path)
    assert packed_records.keys() == here.keys()
    for name, record in packed_records.items():
        assert record.provenance["git"] == {"commit": "f" * 40, "dirty": False}
        assert unmarked(record) == unmarked(here[name])
        assert record.scores == here[name].scores
    assert not any((tmp_path / "home").iterdir())


def unmarked(record: RunRecord) -> dict[str, Any]:
    facts = {key: value for key, value in record.provenance.items() if key != "git"}
    return {"key": record.key, "profile": record.profile, "notes": record.notes, "provenance": facts}


@pytest.mark.long
@pytest.mark.slow
def test_rounded_weights_are_said_in_folder_and_record(cli: Cli, tmp_path: Path) -> None:
    backbone = rounded(tmp_path / "mine")
    pack = ("pack", "--methods", "untrained", "--suite", "toy", "--backbone", str(backbone))
    before = hash_model(backbone)
    assert cli(*pack, "--out", "packed")[0] == 0
    folder = tmp_path / "packed" / "models" / "mine"
    after = hash_model(folder)
    assert after != before
    assert json.loads((folder / ROUNDED).read_text()) == {"weights": "float16", "sha256": before}
    tensors = load_file(next(folder.glob("*.safetensors")))
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    source = (
        f"sha256 {after}, its weights rounded to float16 from sha256 {before}: records name the new sha256"
    )
    assert source in (tmp_path / "packed" / "README").read_text()
    shutil.move(tmp_path / "packed", tmp_path / "elsewhere")  # the folder may move
    done = run_packed(tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "empty").rglob("toy.json")
    record = parse_record(path.read_text(), str(path))
    assert record.backbone == {"name": "mine", "sha256": after}
    assert record.profile == f"mini@{after[:8]}"
    note = f"Weights of mine are rounded to float16, from {before[:12]}."
    assert note in record.notes
    assert note in done.stdout
    run = ("run", "--methods", "untrained", "--suite", "toy", "--backbone")
    assert cli(*run, str(tmp_path / "elsewhere" / "models" / "mine"))[0] == 0  # the same weights, not packed
    (same,) = records(tmp_path).values()
    assert same.scores == record.scores
    assert cli(*pack, "--out", "same", "--weights", "same")[0] == 0
    assert hash_model(tmp_path / "same" / "models" / "mine") == before
    again = (*pack[:-1], str(tmp_path / "elsewhere" / "models" / "mine"))
    assert cli(*again, "--out", "twice")[0] == 0
    assert json.loads((tmp_path / "twice" / "models" / "mine" / ROUNDED).read_text())["sha256"] == before


def test_weights_too_large_for_float16_leave_nothing(cli: Cli, tmp_path: Path) -> None:
    backbone = rounded(tmp_path / "mine")
    file = next(backbone.glob("*.safetensors"))
    larger = {name: tensor * 1e6 for name, tensor in load_file(file).items()}
    save_file(larger, file, metadata={"format": "pt"})
    where = ("--suite", "toy", "--backbone", str(backbone), "--out", "packed")
    pack = ("pack", "--methods", "untrained", *where)
    assert not missing_facts(refusal(cli, *pack, code=1), "float16", "--weights same")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.data
def test_the_data_of_suites_dev_set_and_text(cli: Cli, tmp_path: Path) -> None:
    pack = ("pack", "--methods", "simcse", "--profile", "minilm", "--weights", "same", "--out", "packed")
    code, _, err = cli(*pack)
    assert code == 0, err
    data = tmp_path / "packed" / "data"
    tasks = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR", "STSB-dev")
    wanted = {f"senteval/downstream/{name}" for name in iter_files(tasks)} | {"corpus/wiki.txt"}
    assert {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()} == wanted
    facts = json.loads((tmp_path / "packed" / "bench" / "packed.json").read_text())
    assert facts["backbones"] == {"minilm": "models/all-MiniLM-L6-v2"}  # so the profile keeps its name
    done = run_packed(tmp_path / "packed", "--dry-run")
    assert (done.returncode, "reads backbone: all-MiniLM-L6-v2" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("--methods", f"hf:{BACKBONE}"), "brings a model, which can't be packed"),
        (("--methods", "untrained", "--profile", "own.toml"), "a profile of your own can't be packed"),
        (("--methods", "noise"), "--methods: 'noise' is from a package, which can't be packed"),
    ],
)
def test_unpackable_is_refused(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], fact: str) -> None:
    assert fact in refusal(cli, "pack", *arguments, "--suite", "toy", "--out", "packed")
    assert not list(tmp_path.iterdir())


def test_a_limit_that_is_passed(cli: Cli) -> None:
    assert "error: packed: " in refusal(cli, *MINI, "--limit", "1", code=1)


def test_texts_and_plugins_go_along(cli: Cli, tmp_path: Path) -> None:
    text = "".join(f"sentence {n} is here\n" for n in range(200))
    (tmp_path / "my text.txt").write_text(text)
    (tmp_path / "mine.py").write_text(PLUGIN)
    methods = ("--methods", "simcse,mine", "--seeds", "1", "--suite", "toy")
    given = ("--corpus", "my text.txt", "--plugin", "mine.py", *SIMCSE)
    code, _, err = cli("pack", *methods, *given, "--out", "packed")
    assert code == 0, err
    assert (tmp_path / "packed" / "texts" / "my text.txt").read_text() == text
    shutil.move(tmp_path / "packed", tmp_path / "with space")
    done = run_packed(tmp_path / "with space", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not missing_facts(done.stdout, "training text: my text.txt", "mine ")


def given(folder: Path, option: str) -> list[Path]:
    """The files that the packed command names after an option."""
    (line,) = (line for line in (folder / "README").read_text().splitlines() if "# bench run" in line)
    words = shlex.split(line.partition("# bench ")[2])
    named = [word.partition("=")[2] or word for at, word in enumerate(words) if words[at - 1] == option]
    return [Path(name.replace("$here", str(folder))) for name in named]


def write(path: Path, content: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return str(path)


def test_files_of_one_name_stay_apart(cli: Cli, tmp_path: Path) -> None:
    texts = {n: "".join(f"{n} sentence {i} is here\n" for i in range(200)) for n in "abc"}
    corpus, *copies = (write(tmp_path / n / "text.txt", text) for n, text in texts.items())
    for name in ("b", "c"):  # facts that lie next to a copy stay with it
        write(tmp_path / name / "text.json", json.dumps({"of": name}))
    codes = {name: PLUGIN.replace("Mine", name.title()).replace("mine", name) for name in ("one", "two")}
    plugins = [write(tmp_path / name / "plugin.py", code) for name, code in codes.items()]
    methods = ("--methods", "tncse,one,two", "--seeds", "1", "--suite", "toy")
    named = ("--corpus", corpus, "--copy", f"a={copies[0]}", "--copy", f"b={copies[1]}")
    brought = ("--plugin", plugins[0], "--plugin", plugins[1])
    code, _, err = cli("pack", *methods, *named, *brought, "--out", "packed")
    assert code == 0, err
    packed = tmp_path / "packed"
    written = [path.read_text() for path in (*given(packed, "--corpus"), *given(packed, "--copy"))]
    assert written == list(texts.values())
    assert [json.loads(path.with_suffix(".json").read_text()) for path in given(packed, "--copy")] == [
        {"of": "b"}, {"of": "c"},
    ]  # fmt: skip
    assert [path.read_text() for path in given(packed, "--plugin")] == list(codes.values())
    assert {path.name for path in given(packed, "--plugin")} == {"plugin.py"}  # records name it
    done = run_packed(packed, "--dry-run")
    assert done.returncode == 0, done.stderr


def test_one_file_that_is_named_twice_is_packed_once(cli: Cli, tmp_path: Path) -> None:
    text = write(tmp_path / "a" / "text.txt", "".join(f"sentence {n} is here\n" for n in range(200)))
    plugin = write(tmp_path / "mine.py", PLUGIN)
    methods = ("--methods", "tncse,mine", "--seeds", "1", "--suite", "toy")
    named = ("--corpus", text, "--copy", "a=a/../a/text.txt", "--copy", f"b={text}")
    brought = ("--plugin", plugin, "--plugin", "./mine.py")
    code, _, err = cli("pack", *methods, *named, *brought, "--out", "packed")
    assert code == 0, err
    assert [path.name for path in (tmp_path / "packed" / "texts").iterdir()] == ["text.txt"]
    assert len(list((tmp_path / "packed").rglob("mine.py"))) == 1


def test_a_package_none_of_whose_methods_run_is_left_out(cli: Cli, tmp_path: Path) -> None:
    pack = ("pack", "--methods", "untrained", "--suite", "toy", "--plugin", "bench_test_methods")
    code, _, err = cli(*pack, "--out", "packed")
    assert code == 0, err
    assert not given(tmp_path / "packed", "--plugin")
    assert not (tmp_path / "packed" / "plugins").exists()


ABSENT = ("fcntl", "resource", "pwd", "grp")
NAMES = {
    "os": ("uname", "O_NOFOLLOW", "O_DIRECTORY", "pread", "sched_getaffinity", "mkfifo"),
    "signal": ("pthread_sigmask", "SIGKILL", "SIGUSR1", "SIGHUP"),
}
START = f"""
import importlib.abc, os, signal, sys

# Other packages look at sys.platform, which stays: they are imported first
import torch.distributed, sentence_transformers, scipy.stats, pandas, vl_convert, filelock
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
