"""What helps at the prompt: examples, completion, lists, ``bench init``."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench.cli.main import EXAMPLES
from bench.cli.main import cli as group
from bench.cli.method_skeleton import read_starter_files
from bench.config import profiles
from tests.conftest import HERE
from tests.support.cli import Cli, refusal
from tests.support.docs_commands import check_names, parsed
from tests.support.messages import missing_facts

FILES = ["README.md", "method.py", "profile.toml", "run.toml"]


def every(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command and subcommand with its name."""
    yield name, command
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from every(below, f"{name} {below.name}".strip())


@pytest.mark.parametrize("name", [name for name, _ in every(group)])
def test_every_help_ends_with_examples_of_its_own(cli: Cli, name: str) -> None:
    code, out, _ = cli(*name.split(), "--help")
    _, _, below = out.rpartition("Example:" if len(EXAMPLES[name]) == 1 else "Examples:")
    assert (code, [line.strip() for line in below.splitlines()[1:]]) == (0, list(EXAMPLES[name]))
    for example in EXAMPLES[name]:
        words = shlex.split(example)
        words = words[: words.index(">")] if ">" in words else words
        found, parameters = parsed(words)
        assert found == name or (isinstance(dict(every(group))[name], click.Group) and found.startswith(name))
        assert parameters
        check_names(found, parameters)
    # only a command that can run a plug-in says so
    says = "whose code this runs" in " ".join(out.split())
    assert says or name not in ("run", "check", "conformance", "show")
    assert name != "verify" or (says, "--rerun" in out) == (False, True)


def test_the_list_of_commands_shows_whole_sentences(cli: Cli) -> None:
    for words in (["--help"], ["data", "--help"]):
        assert "..." not in cli(*words)[1].replace("ARGS]...", "")
    listed = {line.split()[0] for line in cli("--help")[1].splitlines() if line.startswith("  ")}
    assert set(group.commands) <= listed
    assert EXAMPLES.keys() == dict(every(group)).keys()


def test_campaigns_are_listed_with_what_they_hold(cli: Cli, tmp_path: Path) -> None:
    assert "--results results" in refusal(cli, "list", "campaigns")
    cli("run", "--methods", "noise,broken", "--seeds", "1-2", "--suite", "toy", "--campaign", "one")
    shutil.copytree(tmp_path / "results" / "one", tmp_path / "results" / "two")
    (record,) = (tmp_path / "results" / "two").glob("mini/noise/seed-1/toy.json")
    day = json.loads(record.read_text())["timing"]["started"][:10]
    record.write_text("{")
    (tmp_path / "results" / "empty").mkdir()
    code, out, _ = cli("list", "campaigns")
    assert code == 0
    one, two = out.splitlines()
    assert missing_facts(one, "one ", "mini", "2 methods", "4 records", "1 failed", day) == []
    assert missing_facts(two, "two ", "2 methods", "3 records", "1 failed", "1 damaged", day) == []


def test_a_plugins_methods_are_listed_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(read_starter_files()["method.py"])
    for _ in range(2):  # the second time it is loaded already
        heading, line = cli("list", "methods", "--plugin", "mine.py")[1].splitlines()
        assert heading.startswith("# contrastive: ")
        assert line.startswith("align_uniform ")
    said = refusal(cli, "list", "suites", "--plugin", "mine.py")
    assert missing_facts(said, "--plugin", "suites", "bench list methods") == []


def test_init_writes_a_folder_and_replaces_nothing(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("init", "my")
    assert (code, out.splitlines()) == (0, [f"my/{name}" for name in FILES])
    (tmp_path / "my" / "method.py").write_text("mine")
    (tmp_path / "my" / "run.toml").unlink()
    said = refusal(cli, "init", "my")
    assert "README.md, method.py, profile.toml" in said
    assert (tmp_path / "my" / "method.py").read_text() == "mine"
    assert not (tmp_path / "my" / "run.toml").exists()


def test_what_init_writes_is_whole(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("init")
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    # that page's commands check the method and train it
    page = (HERE.parent / "docs" / "add-your-method.md").read_text(encoding="utf-8")
    assert f'title="align_uniform.py"\n{read_starter_files()["method.py"]}```' in page
    assert profiles.load_profile("profile.toml").budget is not None
    code, out, _ = cli("run", "--config", "run.toml", "--dry-run")
    assert (code, missing_facts(out, "6 of 6 cells", "6 training stages")) == (0, [])
    lines = read_starter_files()["README.md"].split("```")[1].splitlines()[1:]
    assert 5 <= len(lines) <= 10
    for line in lines:
        words = shlex.split(line)
        assert parsed(words[: words.index(">")] if ">" in words else words)[0] in EXAMPLES
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli("show", "align_uniform", "--plugin", "method.py", "--profile", "profile.toml")
    assert (code, missing_facts(out, "50 steps of 64", "3,200 sentences", "every 12")) == (0, [])
