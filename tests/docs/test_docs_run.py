"""The commands of README and docs run, on profile mini and cut short."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path

import pytest

from bench.cli.main import main
from bench.data.mteb_names import load_mteb_lists
from bench.records.environment import build_timing
from tests.support import docs_commands as docs
from tests.support.mteb_results import FIRST as REVISION
from tests.support.mteb_results import result, write_result
from tests.support.shortened import shortened

LARGE = ("mini-equal", "minilm-lm", "minilm-lm-h100")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a training text and the committed records, of large campaigns two seeds; where we are."""
    for campaign in docs.COMMITTED:
        left_out = ("seed-[3-9]", "seed-10") if campaign in LARGE else ()
        copied = tmp_path / "results" / campaign
        shutil.copytree(docs.ROOT / "results" / campaign, copied, ignore=shutil.ignore_patterns(*left_out))
    (tmp_path / "train.txt").write_text("A line of text.\nAnother one.\n")
    write_results_of_others(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_results_of_others(folder: Path) -> None:
    """What the pages on results made elsewhere read: files of mteb, and tables."""
    models = (
        "Qwen/Qwen3-Embedding-8B",
        "google/gemini-embedding-001",
        "sentence-transformers/all-MiniLM-L6-v2",
    )
    for place, model in enumerate(models):
        for number, task in enumerate(load_mteb_lists()["MTEB(eng, v2)"].tasks):
            (subset,) = task.subsets or ("default",)
            content = result(task.name, 0.7 - 0.1 * place + 0.001 * number, subset=subset)
            write_result(folder / "mteb-results", model, REVISION, content)
    (folder / "simcse.csv").write_text("method,STS12,STS13\nBERT,39.70,59.38\nSimCSE,68.40,82.41\n")
    (folder / "mine.csv").write_text("method,seed,STS12,STS13\nmine,1,0.71,0.80\nmine,2,0.72,0.79\n")
    lines = ["method,task,item,gold,prediction"]
    for name, more in (("a", 1), ("b", 2)):
        lines += [f"{name},STSB,{item},{item % 5},0.{item}{more}" for item in range(9)]
    (folder / "items.csv").write_text("\n".join(lines) + "\n")


PAPERS = ("campaign.md", "reproduce.md", "results.md")  # long trainings: run in the long suite
FIRST = (
    "README.md",
    "quickstart.md",
    "choosing.md",
    "concepts.md",
    "python.md",
    "in-a-notebook.md",
    "checkpoints.md",  # its export is what python.md loads
)


def lines_of(*, papers: bool, first: bool | None = None) -> list[tuple[str, ...]]:
    pages = [page for page in docs.PAGES if page.name not in docs.OWN_TEST]
    pages = [page for page in pages if (page.name in PAPERS) == papers]
    pages = [page for page in pages if first is None or (page.name in FIRST) == first]
    found = [command for page in pages for command in docs.commands(page) if not docs.why_not_run(command)]
    shown = [line for text in docs.TEXTS.values() for line, _ in docs.SHOWN.findall(text)]
    lines = [tuple(docs.small(c.words)) for c in found if c.words not in list(map(shlex.split, shown))]
    return list(dict.fromkeys(lines))


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
    [(False, True), *(pytest.param(*of, marks=pytest.mark.long) for of in ((False, None), (True, None)))],
)
@pytest.mark.usefixtures("clone")
def test_the_commands_of_readme_and_docs_run(papers: bool, first: bool | None) -> None:
    lines = lines_of(papers=papers, first=first)
    reading = [words for words in lines if docs.reads_committed(list(words))]
    failed = [words for words in reading if exit_code(words)]  # before others write there
    with shortened():
        failed += [words for words in lines if words not in reading and exit_code(words)]
        for page in ("python.md", "in-a-notebook.md") if first else ():
            names: dict[str, object] = {}
            for language, code in docs.blocks(docs.TEXTS[page]):
                if language == "python" and "params" not in code:  # those need something of the reader's
                    exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page
    assert failed == []
    assert len(lines) > (10 if first else 20)


def exit_code(words: tuple[str, ...]) -> int:
    """Run a command in this process; its output is shown when a test fails, with the time it took."""
    print("$", shlex.join(words))
    begin, code = time.monotonic(), 0
    try:
        main(list(words[1:]))
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    print(f"# exit code {code}, {time.monotonic() - begin:.1f} s")
    if (
        code == 1 and words[1] == "verify" and words[2].endswith(".json")
    ):  # a record of another kind of CPU may differ in its last digits
        processor = json.loads(Path(words[2]).read_text())["timing"]["processor"]
        return int(processor == build_timing(started=0, wall=0, cpu=0)["processor"])
    return code
