"""The page on adding a method, followed word for word."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench.config.plugins import load_plugin, read_plugin
from bench.conformance.check_registry import CHECKS
from bench.conformance.check_run import FAILED, check_method
from tests.conftest import HERE
from tests.support.cli import Cli

PAGE = (HERE.parent / "docs" / "add-your-method.md").read_text(encoding="utf-8")
OF = {"all": "all", "train": "those that train", "seeded": "seeded ones", "vectors": "encoders"}
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str, str]] = FENCE.findall(PAGE)
"""Language, title and text: a file to write (it has a title), commands, or lines of what they print."""


def page_file(name: str) -> str:
    (text,) = (text for _, title, text in BLOCKS if title == name)
    return text


def test_every_block_is_a_file_commands_or_what_they_print() -> None:
    assert PAGE.count("```") == 2 * len(BLOCKS)
    kinds = {("python", True), ("toml", True), ("sh", False), ("text", False)}
    assert {(language, bool(title)) for language, title, _ in BLOCKS} == kinds
    titles = ["char_ngrams.py", "align_uniform.py", "pyproject.toml", "test_char_ngrams.py"]
    assert [title for _, title, _ in BLOCKS if title] == titles
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [("check", "expected", "of"), *((c.name, c.promise, OF[c.of]) for c in CHECKS)]


def test_the_table_is_that_of_the_checks() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [("check", "expected", "of"), *((c.name, c.promise, OF[c.of]) for c in CHECKS)]


def test_a_failed_check_says_what_the_page_says(tmp_path: Path) -> None:
    wrong = page_file("char_ngrams.py").replace("return np.log1p(counts)", "return counts - counts[:1]")
    (tmp_path / "char_ngrams.py").write_text(wrong)
    load_plugin(read_plugin(str(tmp_path / "char_ngrams.py"), tmp_path / "results"))
    found = check_method("char_ngrams", tmp_path / "scratch")
    failed = {finding.check: finding.reason for finding in found if finding.verdict == FAILED}
    (line,) = (text for *_, text in BLOCKS if text.startswith("alone: "))
    number = re.compile(r"by \S+ of")
    assert number.sub("", f"alone: {failed['alone']}\n") == number.sub("", line)


@pytest.mark.long
@pytest.mark.minutes
def test_the_page_word_for_word(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    said, before, installed = "", "", False
    for language, title, text in BLOCKS:
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "sh":
            said = ""
            for command in text.splitlines():
                installed |= command.startswith("pip ")
                in_shell = installed or command[:6] != "bench "
                said += shell(command, tmp_path) if in_shell else here(command, cli)
        elif before == "sh":
            whole = " ".join(said.split())
            assert [line for line in text.splitlines() if " ".join(line.split()) not in whole] == []
        before = language
    assert Path("report.html").stat().st_size > 10_000
    records = {path.parent.relative_to(work / "results").as_posix() for path in work.rglob("mini.json")}
    trained = {"installed/mini/char_ngrams/no-seed", "local/mini/align_uniform[steps=10]/seed-1"}
    assert (len(records), trained - records) == (5, set())


def here(command: str, cli: Cli) -> str:
    """Run a command in this process, which has torch already; only its output may go to a file."""
    words, _, file = command.partition(" > ")
    code, out, err = cli(*shlex.split(words)[1:])
    assert code == 0, f"{command}\n{out}\n{err}"
    if file:
        Path(file).write_text(out, encoding="utf-8")
    return "" if file else out


def shell(command: str, folder: Path) -> str:
    """Run a command in a shell, where `pip install .` has no network and another target than these tests'."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(HERE / "support" / "block_network"), str(folder / "installed")]),
        "PIP_TARGET": str(folder / "installed"),
        **{"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"},
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    words = ["bash", "-c", command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
