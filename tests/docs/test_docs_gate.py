"""The page on the gate in a build, followed as somebody with an empty repository would."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bench.config.plugins import load_plugin, read_plugin
from bench.conformance.check_run import FAILED, check_method
from tests.support.actions import read
from tests.support.cli import Cli
from tests.support.docs_commands import ROOT, TEXTS, Command, commands
from tests.support.folders import sentence_transformers_folder

PAGE = TEXTS["gate-in-a-build.md"]
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.M | re.S))
LINES = [command for command in commands(ROOT / "docs" / "gate-in-a-build.md") if command.in_block]
SLIP = ("sentence.lower().split()", "sentence.lower()")


@pytest.fixture
def repository(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository with an encoder folder and the page's files."""
    sentence_transformers_folder(tiny_bert, tmp_path / "model", mean=True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    for name, value in (("user.name", "me"), ("user.email", "me@example.org")):
        git(tmp_path, "config", name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout


def words_of(command: Command) -> list[str]:
    """The page's command on the embedded world, with nobody at a terminal."""
    text = command.text.partition(" > ")[0]
    text = text.replace("--suite sts7", "--suite toy").replace(" --data data", "")
    return [*shlex.split(text)[1:], *(["--yes"] if "--update" in text else [])]


def test_the_page_brings_every_file_that_its_commands_name() -> None:
    assert set(FILES) == {"my_method.py", ".gitignore", ".github/workflows/gate.yml"}
    uses = [step["with"] for step in read(FILES[".github/workflows/gate.yml"])["jobs"]["gate"]["steps"][1:]]
    assert uses[0]["plugin"] in FILES
    assert uses[1]["encoder"] == "model"
    added = re.findall(r"^git add (.*)$", PAGE, re.M)[0].split()
    assert set(added) == {".gitignore", "constraints.txt", "my_method.py", "model", "results/reference"}


def test_the_method_passes_the_conformance_checks(repository: Path) -> None:
    assert load_plugin(read_plugin("my_method.py", Path("results"))) == ("my_method",)
    found = check_method("my_method", repository / "scratch")
    assert [finding for finding in found if finding.verdict == FAILED] == []


@pytest.mark.slow
def test_what_bench_leaves_is_ignored_but_for_the_reference(repository: Path, cli: Cli) -> None:
    (run,) = (words_of(command) for command in LINES if command.words[1] == "run")
    code, _, err = cli(*run)
    assert code == 0, err
    (repository / "bench-check").mkdir()
    (repository / "bench-check" / "junit.xml").touch()
    git(repository, "add", ".")
    found = git(repository, "ls-files").splitlines()
    records = {name for name in found if name.startswith("results/")}
    assert len(records) == 4
    assert records == {
        f"results/reference/mini/{method}/no-seed/mini.{kind}"
        for method in ("untrained", "my_method")
        for kind in ("json", "npz")
    }
    assert {name for name in found if name not in records and not name.startswith("model/")} == set(FILES)


@pytest.mark.long
def test_the_page_word_for_word(repository: Path, cli: Cli) -> None:
    lines = [command for command in LINES if command.words[1] != "data" and "--history" not in command.words]
    assert [command.words[1] for command in lines] == ["run", *["check"] * 5]
    run, method, first, again, update, change = map(words_of, lines)
    verdicts = repository / "verdicts" / "1"
    for words in (run, method, first, [*again, "--json", str(verdicts / "verdict.json")]):
        code, out, err = cli(*words)
        assert code == 0, (words, out, err)
    assert "the first encoder" in (repository / "results" / "reference" / "CHANGES.md").read_text()
    assert cli("check", "--history", "verdicts")[0] == 0

    (repository / "my_method.py").write_text(FILES["my_method.py"].replace(*SLIP))
    assert SLIP[0] in FILES["my_method.py"]
    code, out, _ = cli(*method)
    (printed,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
    assert (code, printed.strip() in out) == (1, True), out
    copy = repository / "other"
    shutil.copytree(repository / "model", copy)
    for file in copy.rglob("*.safetensors"):
        weights = load_file(file)
        save_file({name: weight * 1.1 for name, weight in weights.items()}, file, metadata={"format": "pt"})
    code, out, err = cli(*[str(copy) if word == "model" else word for word in again])
    assert code in (0, 1), (out, err)  # other weights are comparable
    for words in (update, [str(copy) if word == "model" else word for word in change]):
        code, out, err = cli(*words)
        assert code == 0, (words, out, err)
    code, out, err = cli(*method)
    assert code == 0, (out, err)
    reasons = (repository / "results" / "reference" / "CHANGES.md").read_text()
    assert "hashes bigrams too" in reasons
    assert "weights of June" in reasons
