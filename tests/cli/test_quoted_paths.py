"""A folder whose name has a comma, a bracket, an equals sign: every command takes it in double quotes."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from bench.config.method_ids import quote_path
from tests.support.cli import Cli, records, refusal
from tests.support.folders import copy, sentence_transformers_folder
from tests.support.messages import numbers_in

NAME = "my,folder[v=2]"
TYPED = f'hf:"{NAME}":avg'
TOY = ("--suite", "toy")
ITEMS = ("--suite", "mini-dev")  # has pairs without common sentences, for tests over items
SUMS = ("ensemble:untrained+hf:", "x=ensemble:word_overlap+untrained+hf:")
UPDATE = ("--update", "--why", "first", "--yes")


@pytest.fixture
def folder(tmp_path: Path, tiny_bert: Path) -> Path:
    return copy(tiny_bert, tmp_path / NAME)


def row(tmp_path: Path) -> str:
    return next(r.method for r in records(tmp_path).values() if r.method.startswith("my_folder"))


def succeed(cli: Cli, *line: str) -> str:
    code, out, err = cli(*line)
    assert code == 0, (line, out, err)
    return out


def test_run_report_compare_and_the_same_command_again(cli: Cli, tmp_path: Path, folder: Path) -> None:
    methods = f'word_overlap,{TYPED},A=hf:"{NAME}",hf:"./{NAME}"[pooling=avg_first_last]'
    succeed(cli, "run", "--methods", methods, *ITEMS)
    assert len(records(tmp_path)) == 4
    method = row(tmp_path)
    assert (method[:15], method[-13:]) == ("my_folder_v=2_-", "[pooling=avg]")
    assert {r.backbone["name"] for r in records(tmp_path).values() if r.backbone} == {NAME}
    assert numbers_in(cli("run", "--methods", methods, *ITEMS)[2])[:2] == [4, 4]
    (path,) = (p for p, r in records(tmp_path).items() if r.method == method)
    for line, expected in (
        (("report", "--methods", f'word_overlap,{method},A=hf:"{NAME}"'), method),
        (("report", "--methods", f"A,{method.replace('[pooling=avg]', ':avg')}"), method),
        (("compare", method, "word_overlap"), method),
        (("compare", "A", "--against", f"word_overlap,{method}"), method),
        (("verify",), "nothing wrong"),
        (("verify", f"results/local/{path}", "--rerun", "--model", NAME), "equal"),
    ):
        assert expected in succeed(cli, *line), line


def test_sums_and_what_is_distilled(cli: Cli, tmp_path: Path, folder: Path, tiny_bert: Path) -> None:
    copy(tiny_bert, tmp_path / "x+y")
    methods = f'E=ensemble:0.5*{TYPED}+hf:"x+y",ensemble:hf:"x+y":avg+{TYPED},static:{TYPED}'
    methods += f',static[of=hf:"{NAME}"]'
    succeed(cli, "run", "--methods", methods, *TOY, "--set", "static.dimensions=4")
    found = {record.method: record for record in records(tmp_path).values()}
    assert len(found) == 4
    (summed,) = (method for method in found if method.startswith("ensemble:"))
    assert (summed[:13], summed.count("+")) == ("ensemble:x_y-", 1)
    assert not any('"' in method or NAME in method for method in found)
    assert not any('"' in str(record.options.get("of")) for record in found.values())
    assert summed in succeed(cli, "report", "--methods", f"E,{summed}")
    succeed(cli, "verify")


def test_the_other_commands(cli: Cli, tmp_path: Path, folder: Path, tiny_bert: Path, tiny_mlm: Path) -> None:
    shutil.copytree(tiny_mlm, folder, dirs_exist_ok=True)  # a generator needs a masked-LM head
    (tmp_path / "in.txt").write_text("a man is playing\n")
    (tmp_path / "run.toml").write_text(f"methods = ['word_overlap', '{TYPED}']\nsuite = 'toy'\n")
    sentence_transformers_folder(tiny_bert, tmp_path / "st,1", mean=True)
    for line in (
        ("show", TYPED, "--profile", "mini"),
        ("run", "--config", "run.toml"),
        ("run", "--methods", 'st:"st,1",B=hf:"st,1":avg', *TOY, "--dry-run"),
        ("export", TYPED, "--out", "out,1"),
        ("run", "--methods", 'A=st:"out,1",exported:"out,1"', *TOY),
        ("export", TYPED, "--vectors", "in.txt", "--out", "v.npy"),
        ("probe", TYPED, 'B=st:"st,1"', "--probes", "uniformity", *TOY),
        ("check", "--reference", "ref", "--encoder", TYPED, "--name", "m", *TOY, *UPDATE),
        ("check", "--reference", "ref", "--encoder", NAME, "--name", "m", *TOY, *UPDATE),
        ("run", "--methods", "untrained", "--backbone", NAME, *TOY),
        ("run", "--methods", "diffcse", "--set", f"diffcse.generator={NAME}", *TOY, "--dry-run"),
        ("run", "--methods", "diffcse", "--set", f'diffcse.generator="{NAME}"', *TOY, "--dry-run"),
        ("run", "--methods", r"diffcse[generator=my\,folder\[v=2\]]", *TOY, "--dry-run"),
    ):
        succeed(cli, *line)
    assert np.load(tmp_path / "v.npy").shape == (1, 16)
    assert len(records(tmp_path)) == 5  # 2 of run.toml, A, exported and untrained


@pytest.mark.parametrize(
    "line",
    [
        f"run --suite toy --methods word_overlap,hf:{NAME}:avg",
        f"run --suite toy --dry-run --methods hf:{NAME}:avg",
        f"show --profile mini hf:{NAME}:avg",
        f"export --out out hf:{NAME}:avg",
        f"export --vectors in.txt --out v.npy hf:{NAME}:avg",
        f"probe hf:{NAME}:avg",
        f"conformance hf:{NAME}:avg",
        f"tune --values 1 hf:{NAME}:avg",
        f"gradient --out g hf:{NAME}:avg",
        f"pack --suite toy --out p --methods hf:{NAME}:avg",
        f"check --reference ref --name m --update --why first --yes --encoder hf:{NAME}:avg",
        "run --config run.toml",
    ],
)
def test_without_quotes_each_command_says_what_to_type(
    cli: Cli, tmp_path: Path, folder: Path, line: str
) -> None:
    (tmp_path / "in.txt").write_text("a man is playing\n")
    (tmp_path / "run.toml").write_text(f"methods = ['hf:{NAME}:avg']\nsuite = 'toy'\n")
    said = refusal(cli, *line.split())
    typed = shlex.quote(TYPED if "word_overlap" not in line else f"word_overlap,{TYPED}")
    assert said.rstrip().endswith(f"type {typed}"), said
    assert shlex.split(typed) == [shlex.split(typed)[0]]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("hf:./my,foldr:avg", 'hf:"./my,foldr":avg'),
        ("word_overlap,hf:./my,foldr,simcse", 'hf:"./my,foldr"'),
        ("hf:./my[foldr]", 'hf:"./my[foldr]"'),
        ("hf:./my[v=3]", 'hf:"./my[v=3]"'),
        ("hf:./a]b:avg", 'hf:"./a]b":avg'),
        (r'hf:"my\,folder[v=2]"', f'hf:"{NAME}"'),
        *((f"{sum_}{NAME}", f'{sum_}"{NAME}"') for sum_ in SUMS),  # the other members are kept
    ],
)
def test_a_path_that_may_lack_quotes(cli: Cli, folder: Path, text: str, typed: str) -> None:
    said = refusal(cli, "run", "--methods", text, *TOY, "--dry-run")
    assert f"type {shlex.quote(typed)}" in said


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hf:~nobody-of-this-name/x", "neither a folder"),
        (f"hf:{'a' * 300}", "neither a folder"),
        (f"vectors:{'a' * 300}", "not a file"),
        (r"hf:C:\models\x", r"'C:\models\x' is neither"),
        ('hf:"no,where"', "'no,where' is neither"),
        (r"distill[of=a\,b]", "'a,b' names 2"),
        (r"static[of=a\,b]", "'a,b' names 2"),
        ("untrained,simcsee", "'simcse'?"),
        ("diffcse[generator=a,b]", r"as \,"),
    ],
)
def test_what_stays_wrong_is_said_in_one_line(cli: Cli, text: str, part: str) -> None:
    said = refusal(cli, "run", "--methods", text, *TOY, "--dry-run")
    assert part in said
    assert "one path" not in said


def test_the_command_that_goes_on_is_quoted_for_a_shell(cli: Cli, folder: Path) -> None:
    line = ("run", "--methods", f"word_overlap,{TYPED}", *TOY, "--deadline", "0.0001")
    code, _, err = cli(*line)
    assert code == 130, err
    printed = err.rstrip().rpartition(": ")[2]
    assert shlex.split(printed) == ["bench", *line]


@pytest.mark.parametrize("name", ["a b", "c:d", "é", "-lead", "a=b", 'q"r', "b\\c", "it's"])
def test_other_names_need_no_quotes_and_may_have_them(
    cli: Cli, tmp_path: Path, tiny_bert: Path, name: str
) -> None:
    shutil.copytree(tiny_bert, tmp_path / name)
    (tmp_path / name / "modules.json").write_text("[]")
    succeed(cli, "run", "--methods", f"A=hf:{name}:avg,B=st:{name}", *TOY, "--dry-run")
    succeed(cli, "run", "--methods", f"hf:{quote_path(name)}:avg,hf:./{name}", *TOY)
    found = records(tmp_path).values()
    assert len(found) == 2
    assert all(record.method in succeed(cli, "report", f"--methods={record.method}") for record in found)


PLUGIN = """
from bench_test_methods import Noise
from bench.method_card import MethodCard
from bench.registry import add_method


@add_method
class FromFolder:
    card = MethodCard(
        name="folder", kind="external", summary="random", version=1, equations=("h = z",), deterministic=True,
        needs_backbone=False, takes_path=True
    )

    def build(self, context):
        return Noise(1)
"""


def test_a_path_of_a_plugin(cli: Cli, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    given = ("--plugin", "mine.py", *TOY, "--seeds", "1")
    typed = f'noise,folder:"{NAME}"'
    said = refusal(cli, "run", "--methods", f"noise,folder:{NAME}", *given)
    assert said.rstrip().endswith(f"type {shlex.quote(typed)}")
    succeed(cli, "run", "--methods", f'{typed},ensemble:folder:"{NAME}"+noise', *given)
    assert row(tmp_path).startswith("my_folder_v=2_-")
    assert len(records(tmp_path)) == 3
