"""The page for contributors and maintainers, and the workflow that checks what contributors send."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.verify import archive
from tests.support.cli import Cli
from tests.support.docs_commands import ROOT, TEXTS, commands

PAGE = TEXTS["submit.md"]
WORKFLOW = (ROOT / ".github" / "workflows" / "submission.yml").read_text()


def plugin() -> str:
    """The method of the page on adding one."""
    found = re.search(
        r'^```python title="char_ngrams.py"\n(.*?)^```$', TEXTS["add-your-method.md"], re.M | re.S
    )
    assert found
    return found[1]


def test_the_page_word_for_word(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "char_ngrams.py").write_text(plugin())
    theirs = [command.words for command in commands(ROOT / "docs" / "submit.md") if command.in_block]
    assert [words[1] for words in theirs] == [
        *("run", "verify", "bundle"), *("bundle", "report", "verify", "verify"), *("merge", "report", "merge")
    ]  # fmt: skip
    for words in theirs[:3]:
        code, out, err = cli(*words[1:])
        assert code == 0, (words, out, err)
    mine = tmp_path / "results"
    tables = cli("report", "--campaign", "char-ngrams")[1]
    shutil.move(mine, tmp_path / "theirs")
    for words in theirs[3:]:
        code, out, err = cli(*words[1:])
        assert code == 0, (words, out, err)
        if words[1] == "report" and "html" not in words:
            assert out == tables
            shutil.rmtree(mine)
        elif "--rerun" in words and words[1] == "verify":
            assert out.startswith("equal:")


def test_the_page_names_what_a_bundle_holds(files: dict[str, bytes]) -> None:
    rows = re.findall(r"^\| (`.+?) \| ", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    folders = {f"{name.partition('/')[0]}/" if "/" in name else name for name in files}
    assert named == folders | {archive.MANIFEST, archive.PLAN}
    for limit in (f"{archive.MOST_FILES:,} files", f"{archive.LARGEST_FILE // 2**20} MiB each"):
        assert limit in " ".join(PAGE.split())
    assert f"{archive.MOST_BYTES // 2**20} MiB together" in " ".join(PAGE.split())


def test_the_workflow_is_read_only_and_runs_nothing_of_the_pull_request() -> None:
    assert re.search(r"^permissions:\n  contents: read\n\n", WORKFLOW, re.MULTILINE)
    assert "pull_request_target" not in WORKFLOW
    assert "secrets." not in WORKFLOW
    used = re.findall(r"uses: (\S+)", WORKFLOW)
    assert len(used) == 3
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", use) for use in used)
    assert WORKFLOW.count("persist-credentials: false") == WORKFLOW.count("actions/checkout") == 2
    script = WORKFLOW.split("run: |\n")[1]
    assert "${{" not in script  # a name or title of a pull request is never a part of a script
    lines = [line for line in re.findall(r"bench [a-z].*", WORKFLOW.split("jobs:")[1])]
    assert [line.split()[1] for line in lines] == ["data", "data", "merge"]
    assert "--run-plugin" not in WORKFLOW


STUB = """#!/bin/bash
printf '%s\\n' "$*" >> merged
[[ "$*" != *bad* ]]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the workflow's last step finds, with a ``bench`` that writes down how it was called."""
    for folder in ("submissions", "proposed/submissions", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("submissions", "proposed/submissions"):
        (tmp_path / folder / "old.zip").write_bytes(b"old")
    stub = tmp_path / "bin" / "bench"
    stub.write_text(STUB)
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def step(checkout: Path) -> int:
    """Run the step as GitHub does; return its exit code."""
    script = "\n".join(line[10:] for line in WORKFLOW.split("run: |\n")[1].splitlines())
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    values = {**os.environ, "PATH": path, "RERUN": "2"}
    done = subprocess.run(command, cwd=checkout, env=values, check=False, capture_output=True)
    return done.returncode


def test_the_workflow_merges_what_is_new(checkout: Path) -> None:
    proposed = checkout / "proposed" / "submissions"
    assert step(checkout) == 0
    assert not (checkout / "merged").exists()
    for name in ("new.zip", "a b $(touch owned).zip"):
        (proposed / name).write_bytes(b"new")
    assert step(checkout) == 0
    assert (checkout / "merged").read_text().splitlines() == [
        f"merge proposed/submissions/{name} --into results --data data --rerun 2"
        for name in ("a b $(touch owned).zip", "new.zip")
    ]
    assert not (checkout / "owned").exists()
    (proposed / "a bad one.zip").write_bytes(b"")
    assert step(checkout) == 1


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": lambda folder: (folder / "old.zip").write_bytes(b"new"),
    "removed": lambda folder: (folder / "old.zip").unlink(),
    "all removed": shutil.rmtree,
    "another file": lambda folder: (folder / "readme.md").touch(),
    "a folder": lambda folder: shutil.copytree(folder, folder / "more"),
    "a hidden file": lambda folder: (folder / ".x").touch(),
    "a link": lambda folder: (folder / "new.zip").symlink_to("old.zip"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_workflow_refuses_all_but_new_bundles(checkout: Path, change: str) -> None:
    CHANGES[change](checkout / "proposed" / "submissions")
    assert step(checkout) != 0
    assert not (checkout / "merged").exists()
