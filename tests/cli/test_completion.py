"""Shell completion by click's protocol: names of methods, profiles, suites and campaigns, and silence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from bench.cli.main import cli as group
from bench.cli.main import main
from bench.config import profiles
from bench.data.suites import SUITES
from bench.records.record import safe_name
from bench.registry import METHODS, discover
from tests.support.docs_commands import ROOT

Complete = Callable[..., list[str]]
SCRIPTS = Path(sys.executable).parent


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Return what completes the last of some words, in an empty folder: values only, "<file>" for files."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("_BENCH_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", ("\n" if shell == "bash" else " ").join(["bench", *words]))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        with pytest.raises(SystemExit):
            main([])
        out, err = capsys.readouterr()
        assert err == ""
        if shell == "zsh":  # three lines an item
            return out.splitlines()[1::3]
        lines = [line.partition(",") for line in out.splitlines() if line]
        return [value if kind == "plain" else f"<{kind}>" for kind, _, value in lines]

    return run


def place(results: Path, campaign: str, method: str, suite: str = "toy", profile: str = "mini") -> Path:
    """Write a file where a record of a method would be, with its names."""
    names = [safe_name(profile), safe_name(method), "seed-1", f"{safe_name(suite)}.json"]
    file = Path(results, campaign, *names)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"method": method, "suite": suite, "profile": profile}))
    return file


def every_parameter() -> Iterator[tuple[str, click.Parameter]]:
    commands: list[tuple[str, click.Command]] = [("", group)]
    for name, command in commands:
        yield from ((name, parameter) for parameter in command.params)
        below = command.commands if isinstance(command, click.Group) else {}
        commands += [(f"{name} {sub}".strip(), inner) for sub, inner in below.items()]


METHODS_OF = ("run --methods", "pack --methods", "export", "tune", "probe", "gradient", "show")
SUITES_OF = ("run --dev", "probe --on", "data overlap --suite")
COMPLETED: list[tuple[str, list[str]]] = [
    ("re", ["report", "reproduce"]),
    ("run --con", ["--config"]),
    ("run --help", ["--help", "--help-all"]),
    ("unp", []),
    ("list c", ["campaigns"]),
    ("list f", ["families"]),
    ("list methods --family non", ["non-contrastive"]),
    ("run --methods jtcse,tncse_si", ["jtcse,tncse_single"]),
    ("run --methods simcse[lr=1e-5,steps=3],tncse_si", ["simcse[lr=1e-5,steps=3],tncse_single"]),
    ("run --methods hf:there,vasc", ["hf:there,vascl"]),
    ("run --methods vascl,vasc", []),  # given already
    ("run --methods simcse[lr=1,vasc", []),  # still within the brackets
    ("run --methods nothing_of_this_name", []),
    *((f"{command} vasc", ["vascl"]) for command in (*METHODS_OF, "probe simcse", "conformance")),
    ("run --suite sts7,stsb-d", ["sts7,stsb-dev"]),
    *((f"{command} stsb-d", ["stsb-dev"]) for command in SUITES_OF),
    ("sweep unsee_ml", ["unsee_mlp"]),
]


@pytest.mark.parametrize(("words", "completed"), COMPLETED)
def test_a_word_is_completed(complete: Complete, words: str, completed: list[str]) -> None:
    assert complete(*words.split()) == completed


def test_methods_are_all_that_bench_list_shows(complete: Complete) -> None:
    discover()
    names = METHODS.names()
    assert {"simcse", "tncse", "jtcse"} <= set(names)
    assert len(names) > 60
    assert complete("run", "--methods", "") == sorted([*names, "all"])
    assert complete("show", "") == names
    assert complete("show", "jtc") == [name for name in names if name.startswith("jtc")] != []
    assert set(complete("run", "--methods", "vascl,")) == {f"vascl,{n}" for n in [*names, "all"]} - {
        "vascl,vascl"
    }
    missing = set(SUITES.names()) - set(complete("run", "--suite", ""))
    assert missing == {"MTEB(eng, v2)"}  # a shell would read it as code


def test_profiles_are_the_shipped_ones_and_files_that_are_profiles(
    complete: Complete, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    text = (ROOT / "bench" / "config" / "profiles" / "mini.toml").read_text(encoding="utf-8")
    files = {"own.toml": text, "mine/other.toml": text, "pyproject.toml": "[project]\n", "broken.toml": "["}
    for file, content in files.items():
        (tmp_path / file).write_text(content, encoding="utf-8")
    (tmp_path / "folder.toml").mkdir()
    assert complete("run", "--profile", "") == sorted([*profiles.profile_names(), "own.toml"])
    assert complete("show", "simcse", "--profile", "minilm-m") == ["minilm-mlm"]
    assert complete("pretrain", "--profile", "ow") == ["own.toml"]
    assert complete("tune", "simcse", "--profile", "mine/") == ["mine/other.toml"]
    assert complete("run", "--profile", "elsewhere/") == ["<file>"]


def test_campaigns_are_folders_with_records(complete: Complete, tmp_path: Path) -> None:
    for campaign in ("first", "second"):
        place(tmp_path / "results", campaign, "simcse")
    place(tmp_path / "elsewhere", "third", "simcse")
    (tmp_path / "results" / "empty").mkdir()
    (tmp_path / "results" / "file").touch()
    place(tmp_path / "results" / ".stages", "key", "simcse")
    place(tmp_path / "results", "no campaign", "simcse")
    for words, typed, completed in (
        ("compare --campaign", "", ["first", "second"]),
        ("stats --campaign", "s", ["second"]),
        ("report --campaign", "second,", ["second,first"]),
        ("bundle", "", ["first", "second"]),
        ("watch --campaign", "f", ["first"]),
        ("run --results elsewhere --campaign", "", ["third"]),
        ("merge bundle.zip --into elsewhere --campaign", "", ["third"]),
        ("data overlap text --campaign", "f", ["first"]),
    ):
        assert complete(*words.split(), typed) == completed, words


def test_the_methods_of_a_campaign(complete: Complete, tmp_path: Path) -> None:
    odd = "hf:there"
    for method in ("simcse", "simcse[steps=3]", odd, "two words", "$(touch pwned)", "tncse\n"):
        place(tmp_path / "results", "local", method)
    place(tmp_path / "results", "other", "jtcse", "mini-sts", "minilm@0123456789ab")
    assert safe_name(odd) != odd
    names = [odd, "simcse", "simcse[steps=3]"]
    assert complete("compare", "") == names
    assert complete("compare", "simcse", "h") == [odd]
    assert complete("compare", "simcse", "--against", "simcse,simcse[") == ["simcse,simcse[steps=3]"]
    assert complete("compare", "--show-items", "simcse", "") == names
    assert complete("report", "--methods", f"{odd},s") == [f"{odd},simcse", f"{odd},simcse[steps=3]"]
    assert complete("report", "--baseline", "h") == [odd]
    other = ("report", "--campaign", "local,other")
    assert complete(*other, "--methods", "") == sorted([*names, "jtcse"])
    assert complete(*other, "--profile", "") == ["mini", "minilm@0123456789ab"]
    assert complete(*other, "--suite", "") == ["mini-sts", "toy"]
    assert complete("compare", "results/lo") == ["<file>"]
    assert complete("check", "--reference", "results/other", "--methods", "") == ["jtcse"]


@pytest.mark.campaigns
def test_the_committed_campaigns(complete: Complete) -> None:
    results = str(ROOT / "results")
    found = complete("compare", "--results", results, "--campaign", "")
    assert {"mini", "minilm-lm", "reference"} <= set(found)
    assert complete("compare", "--results", results, "--campaign", "mini", "jtcse", "tncse_") == ["tncse_d"]


def test_damaged_results_give_no_names_and_no_error(complete: Complete, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name, content in {
        "text": b"{",
        "list": b"[]",
        "bytes": b"\xff\xfe\x00",
        "deep": b"[" * 200_000,
        "number": b'{"method": 3}',
        "another": b'{"method": "simcse"}',
        "long": b" " * 5_000_001 + b'{"method": "long"}',
    }.items():
        place(results, "local", name).write_bytes(content)
    (results / "local" / "mini" / "folder" / "seed-1" / "toy.json").mkdir(parents=True)
    pipe = place(results, "local", "pipe")
    pipe.unlink()
    os.mkfifo(pipe)  # reading it would wait for a writer for ever
    place(results, "local", "whole")
    place(results, "local", "partly").write_bytes(b"{")
    second = place(results, "local", "partly", "mini")
    second.with_name(".hidden.json").write_text("{}")
    second.parent.parent.joinpath("not-a-seed-folder").touch()
    assert complete("report", "--methods", "") == ["partly", "whole"]
    assert complete("report", "--campaign", "../..", "--methods", "") == []
    shutil.rmtree(results)
    assert complete("report", "--methods", "") == []
    results.write_text("a file")
    assert complete("report", "--methods", "") == []
    assert complete("report", "--campaign", "") == []


@pytest.mark.parametrize(
    "words",
    [
        "nothing ",
        "run --nothing ",
        "run --config nowhere.toml --methods vasc",
        "run --suite a --suite b --methods vasc",
        "run --seeds x --workers x --methods vasc",
        "--debug run --suite a --suite b --methods vasc",
        "run --methods 'vasc",
    ],
)
def test_a_wrong_command_line_prints_no_error(complete: Complete, words: str) -> None:
    assert complete(*words.split(" ")) in ([], ["vascl"], sorted(group.commands))


SHELLS = {"bash": "set -f", "fish": 'string split -m 1 ","'}


"""What repairs the scripts that click makes."""


@pytest.mark.parametrize(
    ("shell", "words", "completed"),
    [
        ("bash", "bench run --methods jtcse,tncse_si", "jtcse,tncse_single"),
        ("bash", "bench compare untr", "untrained[pooling=avg]"),
        ("fish", "bench run --methods jtcse,tncse_si", "jtcse,tncse_single"),
    ],
)
def test_a_shell_completes(shell: str, words: str, completed: str, tmp_path: Path) -> None:
    place(tmp_path / "results", "local", "untrained[pooling=avg]")
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    def output_of(*command: str, **more: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    source = output_of("bench", _BENCH_COMPLETE=f"{shell}_source")
    assert SHELLS[shell] in source
    script = f"complete -C '{words}'"
    if shell == "bash":
        script = (
            f"shopt -s failglob\nCOMP_WORDS=({words}); COMP_CWORD={words.count(' ')}\n"
            "_bench_completion bench\nprintf '%s\\n' \"${COMPREPLY[@]}\""
        )
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    assert output_of(shell, "-c", f"{source}\n{script}") == f"{completed}\n"


def test_an_error_in_a_completion_is_no_output(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    assert complete("run", "--plugin", "evil.py", "--methods", "vasc") == ["vascl"]
    assert not (tmp_path / "executed").exists()  # a plug-in is not run

    def fail() -> None:
        print("printed")
        print("warned", file=sys.stderr)
        raise RuntimeError("a broken plug-in")

    monkeypatch.setattr("bench.registry.discover", fail)
    assert complete("run", "--methods", "") == []


def test_a_key_press_loads_no_torch() -> None:
    code = (
        "import sys\nfrom bench.cli.main import main\n"
        "try:\n    main([])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'transformers', 'scipy', 'pandas', 'mteb'} & set(sys.modules)))"
    )
    words = {"COMP_WORDS": "bench run --methods vasc", "COMP_CWORD": "3", "_BENCH_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **words}, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("plain,vascl\n[]\n", "")


def test_every_option_of_these_names_is_completed() -> None:
    wanted = {"--methods", "--profile", "--suite", "--campaign", "--dev"}
    given = [(name, option) for name, option in every_parameter() if wanted & set(option.opts)]
    assert len(given) > 40
    lacking = {name for name, option in given if option._custom_shell_complete is None}
    assert lacking == set()


@pytest.mark.parametrize(
    ("pieces", "completed"),
    [
        (("run", "--profile", "=", "minilm-m"), ["minilm-mlm"]),
        (("run", "--profile", "="), None),
        (("run", "--methods", "=", "jtcse,tncse_si"), ["jtcse,tncse_single"]),
        (("run", "--methods", "hf", ":", "there,vasc"), ["there,vascl"]),
        (("run", "--methods", "=", "hf", ":", "there,vasc"), ["there,vascl"]),
        (("run", "--methods=hf:there,vasc",), ["--methods=hf:there,vascl"]),  # other COMP_WORDBREAKS
        (("compare", "untrained[pooling", "=", "a"), ["avg]"]),
        (("compare", "untrained[pooling", "="), ["avg]"]),
        (("compare", "--campaign", "=", "local", "untr"), ["untrained[pooling=avg]"]),
        (("compare", "--profile", "mini", "@", "0"), ["0123456789ab"]),
        (("run", "--set", "simcse.lr", "=", "5e-5", "--methods", "vasc"), ["vascl"]),
    ],
)  # fmt: skip
def test_bash_gets_what_follows_its_word_breaks(
    complete: Complete, tmp_path: Path, pieces: tuple[str, ...], completed: list[str] | None
) -> None:
    place(tmp_path / "results", "local", "untrained[pooling=avg]", profile="mini@0123456789ab")
    assert complete(*pieces) == (profiles.profile_names() if completed is None else completed)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_get_whole_words(complete: Complete, shell: str) -> None:
    assert complete("run", "--methods", "jtcse,tncse_si", shell=shell) == ["jtcse,tncse_single"]
    assert complete("run", "--methods=jtcse,tncse_si", shell=shell) == ["--methods=jtcse,tncse_single"]
    (option,) = complete("run", "--meth", shell=shell)
    assert option.partition("\t")[0] == "--methods"
