"""The commands of README and docs run, on profile mini and cut short."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path

import pytest

from bench.cli.main import main
from bench.records.environment import build_timing
from tests.support.docs_commands import (
    COMMITTED,
    OWN_TEST,
    PAGES,
    ROOT,
    SHOWN,
    TEXTS,
    blocks,
    commands,
    reads_committed,
    small,
    why_not_run,
)
from tests.support.shortened import shortened

LARGE = ("mini-equal", "minilm-lm", "minilm-lm-h100")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a training text and the committed records, of large campaigns two seeds; where we are."""
    for campaign in COMMITTED:
        left_out = ("seed-[3-9]", "seed-10") if campaign in LARGE else ()
        copied = tmp_path / "results" / campaign
        shutil.copytree(ROOT / "results" / campaign, copied, ignore=shutil.ignore_patterns(*left_out))
    (tmp_path / "train.txt").write_text("A line of text.\nAnother one.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PAPERS = ("campaign.md", "reproduce.md", "results.md")
"""Pages of long trainings: their commands run in the long suite, and are planned in CI."""
FIRST = ("README.md", "quickstart.md", "choosing.md", "concepts.md", "data.md", "checkpoints.md", "python.md")
"""Pages that a user reads first: their commands run in CI, those of the other pages in the long suite."""


def lines_of(*, papers: bool, first: bool | None = None) -> list[tuple[str, ...]]:
    """The commands of the pages of long trainings, or of others, cut short."""
    pages = [page for page in PAGES if page.name not in OWN_TEST and (page.name in PAPERS) == papers]
    pages = [page for page in pages if first is None or (page.name in FIRST) == first]
    found = [command for page in pages for command in commands(page) if why_not_run(command) is None]
    quoted = {tuple(shlex.split(line)) for text in TEXTS.values() for line, _ in SHOWN.findall(text)}
    return list(dict.fromkeys(tuple(small(c.words)) for c in found if tuple(c.words) not in quoted))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("clone")
def test_what_reproduces_the_papers_is_planned() -> None:
    lines = [words for words in lines_of(papers=True) if words[1] == "run"]
    with shortened():
        assert [words for words in lines if exit_code((*words, "--dry-run"))] == []
    assert len(lines) > 5


@pytest.mark.campaigns
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize(
    ("papers", "first"),
    [
        (False, True),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, None, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("clone")
def test_the_commands_of_readme_and_docs_run(papers: bool, first: bool | None) -> None:
    lines = lines_of(papers=papers, first=first)
    failed = [  # before others write there
        words for words in lines if reads_committed(list(words)) and exit_code(words) > made_elsewhere(words)
    ]
    with shortened():
        failed += [words for words in lines if not reads_committed(list(words)) and exit_code(words)]
        for code in examples(TEXTS["python.md"]) if first else []:
            exec(compile(code, "python.md", "exec"), {})  # noqa: S102 - our own page
    assert failed == []
    assert len(lines) > (10 if first else 20)


def examples(text: str) -> list[str]:
    """Python blocks that need nothing of the reader's."""
    return [content for language, content in blocks(text) if language == "python" and "params" not in content]


def made_elsewhere(words: tuple[str, ...]) -> bool:
    """True for repeating a record of another kind of CPU, whose last digits may differ: exit code 1."""
    if words[1] != "rerun":
        return False
    path = Path(words[2])
    here = build_timing(started=0, wall=0, cpu=0)["processor"]
    return bool(json.loads(path.read_text())["timing"]["processor"] != here)


def exit_code(words: tuple[str, ...]) -> int:
    """Run a command in this process; its output is shown when a test fails, with the time it took."""
    print("$", shlex.join(words))
    begin, code = time.monotonic(), 0
    try:
        main(list(words[1:]))
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    print(f"# exit code {code}, {time.monotonic() - begin:.1f} s")
    return code
