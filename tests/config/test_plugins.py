from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

from bench.config.plugin_code import hash_method_code
from bench.config.plugins import file_hash, load_plugin, plugin_facts, read_plugin
from bench.errors import InputError
from bench.records.fingerprint import compute_family_key
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
    assert re.fullmatch("bench_plugin_my_method_[0-9a-f]{8}", module)
    assert sys.modules[module].__file__ == str(file.resolve())
    assert load(str(file)) == ("mine",)
    assert METHODS.get("mine") is method
    assert (file_hash("mine"), file_hash("simcse")) == (sha256(file), "")
    facts = {"file": "my method.py", "sha256": sha256(file)}
    assert plugin_facts("mine", whole_file=True) == facts
    code = hash_method_code(file.read_bytes(), "Mine")
    assert plugin_facts("mine") == facts  # it names __annotations__, so that the whole file counts
    assert code == ""
    assert plugin_facts("simcse") is None
    file.write_text(RIGHT.replace('name="mine"', 'name="other"'))
    assert load(str(file)) == ("other",)
    assert "mine" not in METHODS.names()
    assert METHODS.origin("other") == module  # which classes show: comments must not change it


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
    identity = {"class": "Mine", "code": hash_method_code(RIGHT.encode(), "Mine")}
    facts = {"file": "mine.py", "sha256": sha256(file), **identity}
    assert record["provenance"]["plugins"] == {"mine": facts}
    assert len(identity["code"]) == 64
    assert str(tmp_path) not in (tmp_path / RECORD).read_text()
    code, out, _ = cli("verify", RECORD, "--rerun", "--plugin", "mine.py")
    assert (code, out.startswith("equal")) == (0, True)
    assert "done already" in cli(*RUN)[2]
    assert "hashed sentences" in cli("show", "mine", "--plugin", "mine.py")[1]
    METHODS.forget(METHODS.origin("mine"))
    assert not missing_facts(
        refusal(cli, "verify", RECORD, "--rerun"), "'mine.py'", sha256(file)[:12], "--plugin FILE"
    )


def edit(file: Path, text: str) -> str:
    """Write a plug-in's file, and return the beginning of what identifies its method."""
    file.write_text(text)
    return (hash_method_code(text.encode(), "Mine") or sha256(file))[:12]


def test_edited_code_is_another_specification(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    was = edit(file, RIGHT)
    assert cli(*RUN)[0] == 0
    now = edit(file, RIGHT.replace("dim = 8", "dim = 9"))
    cause = f"mine seeds 1,2 on toy were finished under another specification (plug-in file mine then {was}, "
    cause += f"now {now}); name another --campaign, or replace all seeds with --seeds 1,2 --force"
    code, _, err = cli(*RUN)
    assert (code, err.count(f"mine seeds 1,2 on toy: not run, {RECORD}: {cause}")) == (1, 1), err
    message = refusal(cli, "verify", RECORD, "--rerun", "--plugin", "mine.py", code=3)
    assert f"then {was}, now {now}" in message
    assert cli(*RUN, "--force")[0] == 0
    assert cli("verify", RECORD, "--rerun", "--plugin", "mine.py")[0] == 0


def test_a_comment_counts_where_code_is_hidden_and_the_refusal_says_why(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    hidden = RIGHT.replace("return Hashed(", "return eval('Hashed')(")
    was = edit(file, hidden)
    assert cli(*RUN)[0] == 0
    now = edit(file, f"{hidden}\n# edited\n")
    line = next(i for i, text in enumerate(hidden.splitlines(), 1) if "eval" in text)
    why = (f"then {was}, now {now}", f"all of mine.py counts, because of eval, line {line}", "--force")
    assert not missing_facts(cli(*RUN)[2], *why)


def test_comments_and_a_second_method_leave_the_specification(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    was = edit(file, RIGHT)
    assert cli(*RUN)[0] == 0
    second = RIGHT[RIGHT.index("@add_method") :].replace("Mine", "Second").replace('"mine"', '"second"')
    assert edit(file, f"# edited\n{RIGHT}\n{second}") == was
    assert "done already" in cli(*RUN)[2]
    assert cli("verify", RECORD, "--rerun", "--plugin", "mine.py")[0] == 0
    assert cli(*RUN[:4], "3", *RUN[5:])[0] == 0
    assert len(set(map(compute_family_key, records(tmp_path).values()))) == 1
    assert cli("verify", "results", "--plugin", "mine.py", "--rerun", "1")[0] == 0
    assert cli("bundle", "local", "--plugin", "mine.py", "--out", "x.bench.zip")[0] == 0
    file.write_text(RIGHT.replace("dim = 8", "dim = 9"))
    code, out, _ = cli("verify", "results", "--plugin", "mine.py")
    assert (code, out.count(f"mine.py at hand is not the file that mine came from (code of Mine {was})")) == (
        1,
        3,
    )


def test_records_of_a_whole_file_stay_valid(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    with monkeypatch.context() as older:
        older.setattr("bench.config.plugins.hash_method_code", lambda source, kind: "")
        assert cli(*RUN)[0] == 0
    record = json.loads((tmp_path / RECORD).read_text())
    assert record["provenance"]["plugins"] == {"mine": {"file": "mine.py", "sha256": sha256(file)}}
    assert "done already" in cli(*RUN)[2]
    assert cli("verify", RECORD, "--rerun", "--plugin", "mine.py")[0] == 0
    assert cli("verify", "results", "--plugin", "mine.py", "--rerun", "1")[0] == 0
    assert cli(*RUN[:4], "1-3", *RUN[5:])[0] == 0  # a third seed in the earlier form
    assert len(set(map(compute_family_key, records(tmp_path).values()))) == 1
    file.write_text(f"{RIGHT}\n# edited\n")
    code, _, err = cli(*RUN, "--force")  # the whole file still counts for seed 3
    assert (code, "mine seed 3 on toy was finished" in err, "--seeds 1,2,3 --force" in err) == (
        1,
        True,
        False,
    )
    assert "replace all seeds with --seeds 1-3 --force" in err
    assert cli(*RUN[:4], "1-3", *RUN[5:], "--force")[0] == 0
    found = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("toy.json")]
    assert all("code" in record["provenance"]["plugins"]["mine"] for record in found)
    assert cli(*RUN, "--force")[0] == 0  # some of the seeds, of the specification of all


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
