from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from bench.config.plugins import file_hash, load_plugin, plugin_facts, read_plugin
from bench.errors import InputError
from bench.registry import METHODS, discover
from tests.support.cli import Cli, records, refusal
from tests.support.conformance import RIGHT
from tests.support.forge import forge
from tests.support.messages import check_error, missing_facts

MUTE = "class Mute(Exception):\n    def __str__(self): raise self\nraise Mute"
TAKEN = RIGHT.replace('name="mine"', 'name="simcse"')
RECORD = "results/local/mini/mine/seed-1/toy.json"
RUN = ("run", "--methods", "mine", "--seeds", "1-2", "--suite", "toy", "--plugin", "mine.py")


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def load(text: str, folder: Path = Path("results")) -> tuple[str, ...]:
    return load_plugin(read_plugin(text, folder))


def test_a_file_is_loaded_once_and_again_when_it_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "my method.py"
    file.write_text(f"def f(x: int): ...\nassert f.__annotations__ == {{'x': int}}\n{RIGHT}")
    assert load(str(file)) == ("mine",)
    method, module = METHODS.get("mine"), METHODS.origin("mine")
    assert module == f"bench_plugin_my_method_{sha256(file)[:8]}"
    assert sys.modules[module].__file__ == str(file.resolve())
    assert load(str(file)) == ("mine",)
    assert METHODS.get("mine") is method
    assert (file_hash("mine"), file_hash("simcse")) == (sha256(file), "")
    assert plugin_facts("mine") == {"file": "my method.py", "sha256": sha256(file)}
    assert plugin_facts("simcse") is None
    file.write_text(RIGHT.replace('name="mine"', 'name="other"'))
    assert load(str(file)) == ("other",)
    assert "mine" not in METHODS.names()
    assert module not in sys.modules


def test_a_package_has_an_import_name_or_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"broken", "collapsed", "dying", "noise", "pair"}
    assert set(load("tests")) == set(load("bench_test_methods")) == names
    facts = plugin_facts("noise")
    assert facts is not None
    assert (facts["package"], facts["version"]) == ("bench-test-methods", "1.0")
    (tmp_path / "some_methods").mkdir()
    (tmp_path / "some_methods" / "__init__.py").write_text("from some_methods import inner")
    inner = tmp_path / "some_methods" / "inner.py"
    inner.write_text(RIGHT)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load("some_methods") == ("mine",)
    assert plugin_facts("mine") == {"module": "some_methods.inner", "sha256": sha256(inner)}
    assert file_hash("mine") == ""


@pytest.mark.parametrize(
    ("name", "source", "where", "facts"),
    [
        ("a.py", "def f(:", "a.py:1", ["not Python"]),
        ("a.py", "x = 1\n\n1 / 0", "a.py:3", ["ZeroDivisionError: division by zero"]),
        ("a.py", "import sys\nsys.exit(3)", "a.py:2", ["SystemExit: 3"]),
        ("a.py", MUTE, "a.py:3", ["Mute"]),
        ("a.py", "import no", "a.py:1", ["ModuleNotFoundError", "'no'"]),
        ("a.py", "x = '\udcff'", "a.py:1", ["not Python", "unicode error"]),
        ("a.py", "", "a.py", ["no method", "@add_method"]),
        ("a.py", TAKEN, "a.py", ["'simcse'", "twice", "bench.baselines.simcse", "in a.py"]),
        ("a.txt", RIGHT, "--plugin", ["FOLDER/a.txt", "not a Python file", "expected FILE.py"]),
        ("a/b.py", RIGHT, "--plugin", ["FOLDER/a", "is a folder", "expected FILE.py", "import name"]),
        ("results/a.py", RIGHT, "--plugin", ["FOLDER/results/a.py", "results folder"]),
    ],
)
def test_what_is_no_plugin_leaves_nothing(
    name: str, source: str, where: str, facts: list[str], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(source.encode("utf-8", "surrogateescape"))
    before, modules = discover().names(), set(sys.modules)
    path = str(tmp_path / "a" if name == "a/b.py" else file)
    error = check_error(lambda: load(path, tmp_path / "results"), where=where, kind=InputError)
    assert not missing_facts(str(error).replace(str(tmp_path), "FOLDER"), *facts)
    assert METHODS.names() == before
    assert not {module for module in set(sys.modules) - modules if module.startswith("bench_plugin")}


def test_a_record_says_where_its_method_came_from_and_repeats_with_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    assert cli(*RUN)[0] == 0
    record = json.loads((tmp_path / RECORD).read_text())
    assert record["provenance"]["plugins"] == {"mine": {"file": "mine.py", "sha256": sha256(file)}}
    assert str(tmp_path) not in (tmp_path / RECORD).read_text()
    code, out, _ = cli("verify", RECORD, "--rerun", "--plugin", "mine.py")
    assert (code, out.startswith("equal")) == (0, True)
    assert "done already" in cli(*RUN)[2]
    assert "hashed sentences" in cli("show", "mine", "--plugin", "mine.py")[1]
    METHODS.forget(METHODS.origin("mine"))
    assert not missing_facts(
        refusal(cli, "verify", RECORD, "--rerun"), "'mine.py'", sha256(file)[:12], "--plugin FILE"
    )


def test_an_edited_file_is_another_specification(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    assert cli(*RUN)[0] == 0
    was = sha256(file)[:12]
    file.write_text(f"{RIGHT}\n# edited\n")
    cause = f"(plug-in file mine then {was}, now {sha256(file)[:12]})"  # and no other
    code, _, err = cli(*RUN)
    assert (code, err.count(f"not run, {RECORD}: "), err.count(cause)) == (1, 2, 2), err
    assert cause in refusal(cli, "verify", RECORD, "--rerun", "--plugin", "mine.py", code=3)
    assert cli(*RUN, "--force")[0] == 0
    assert cli("verify", RECORD, "--rerun", "--plugin", "mine.py")[0] == 0


def test_a_package_enters_provenance_and_no_key(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "noise", "--seeds", "1", "--suite", "toy")[0] == 0
    (name,) = records(tmp_path)
    path = tmp_path / "results/local" / name
    record = json.loads(path.read_text())
    assert record["provenance"]["plugins"]["noise"]["package"] == "bench-test-methods"
    gone = {"gone": {"package": "gone-methods", "version": "2", "module": "gone"}}
    forge(path, lambda record: record["provenance"].update(plugins=gone))
    err = refusal(cli, "verify", str(path), "--rerun")
    assert not missing_facts(err, "'gone'", "'gone-methods'", "version '2'", "--plugin FILE|PACKAGE")
    forge(path, lambda record: record["provenance"].update(plugins=["no mapping"]))
    assert cli("verify", str(path), "--rerun")[0] == 0


@pytest.mark.slow
def test_worker_processes_have_the_plugin_and_what_stood_in_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    waiting = "Path(__file__).write_text('1 / 0')\n"  # it changes as soon as the first process has read it
    file.write_text(f"from pathlib import Path\n{waiting}{RIGHT}")
    was = sha256(file)
    code, _, err = cli(*RUN, "--workers", "2")
    assert code == 0, err
    found = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("toy.json")]
    assert [record["provenance"]["plugins"]["mine"]["sha256"] for record in found] == [was, was]
