"""New names of campaigns, profiles and rows that become folders: refused by the plan, old ones go on."""

from __future__ import annotations

import shlex
import shutil
from importlib import resources
from pathlib import Path

import pytest

from bench.config import profiles
from tests.support.cli import Cli, records, refusal
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.training import PLUGIN

DEV = ("--suite", "mini-dev")
RESERVED, CASE = "Windows reserves", "differs only by"
WORDS = ("run", "--methods", "word_overlap", *DEV)


def renamed(tmp_path: Path, name: str, campaign: str = "local") -> None:
    """Call the row word_overlap otherwise, as an older bench let it be called."""
    place = tmp_path / "results" / campaign / "mini"
    (place / "word_overlap").rename(place / "between")
    (place / "between").rename(place / name)
    forge(place / name / "no-seed" / "mini-dev.json", lambda record: record.update(method=name))


@pytest.mark.parametrize("extra", [(), ("--dry-run",), ("--estimate",)])
@pytest.mark.parametrize(
    ("methods", "facts"),
    [
        ("CON=word_overlap", ("--methods CON=word_overlap:", RESERVED, "'CON'")),
        ("nul=word_overlap", (RESERVED, "'nul'")),
        ("aux.txt=word_overlap", (RESERVED, "'aux.txt'")),
        ("overlap.=word_overlap", ("Windows drops", "'overlap.'")),
        ("A=word_overlap,a=noise", (CASE, "'A'", "'a'")),
        ("word_overlap,Word_overlap=noise", ("alias 'Word_overlap'", "registered method")),
        ("word_overlap,noise,Noise=noise", (CASE, "'noise'", "'Noise'")),
    ],
)
def test_rows(cli: Cli, tmp_path: Path, methods: str, facts: tuple[str, ...], extra: tuple[str, ...]) -> None:
    assert not missing_facts(refusal(cli, "run", "--methods", methods, *DEV, *extra), *facts)
    assert not (tmp_path / "results").exists()


def test_what_to_type_works(cli: Cli, tmp_path: Path) -> None:
    for alias in ("CON", "aux.txt", "overlap.", "LPT1"):
        said = refusal(cli, "run", "--methods", f"{alias}=word_overlap", *DEV)
        (typed,) = shlex.split(said.rstrip().rpartition(": ")[2])
        assert cli("run", "--methods", typed, *DEV)[0] == 0
    assert len(records(tmp_path)) == 4


def test_a_row_beside_one_that_is_there(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "Mine=word_overlap", *DEV)[0] == 0
    for extra in ((), ("--dry-run",)):
        error = refusal(cli, "run", "--methods", "mine=word_overlap", *DEV, *extra)
        assert not missing_facts(error, CASE, "'mine'", "'Mine'", "macOS")
    assert "1 of 1 cells" in cli("run", "--methods", "Mine=word_overlap", *DEV)[2]
    assert cli("run", "--methods", "mine=word_overlap", *DEV, "--campaign", "other")[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        WORDS,
        (*WORDS, "--dry-run"),
        ("sweep", "pooling", *DEV, "--dry-run"),
        ("sweep", "norm_ratio", *DEV),
        ("reproduce", "tncse:table5", "--profile", "mini", "--dry-run"),
        ("pack", "--methods", "word_overlap", *DEV, "--out", "packed"),
    ],
)
@pytest.mark.parametrize("campaign", ["CON", "Old", "mini."])
def test_new_campaigns(cli: Cli, tmp_path: Path, line: tuple[str, ...], campaign: str) -> None:
    (tmp_path / "results" / "old").mkdir(parents=True)
    said = refusal(cli, *line, "--campaign", campaign)
    assert said.startswith("error: --campaign: ")
    assert "type --campaign " in said
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["old"]


def test_old_names_are_read_and_go_on(cli: Cli, tmp_path: Path) -> None:
    for row in ("CON", "overlap.", "Mine", "mine"):
        assert cli(*WORDS)[0] == 0
        renamed(tmp_path, row)
    assert cli(*WORDS)[0] == 0
    (tmp_path / "results" / "local").rename(tmp_path / "results" / "aux.txt")
    at = ("--campaign", "aux.txt")
    again = "CON=word_overlap,overlap.=word_overlap,Mine=word_overlap,mine=word_overlap"
    code, _, err = cli("run", "--methods", again, *DEV, *at)
    assert (code, "4 of 4 cells" in err) == (0, True), err
    for line in (
        ("report", *at),
        ("report", "--methods", "CON,overlap.,mine", *at),
        ("compare", "CON", "mine", *at),
        ("stats", *at),
        ("verify", "results"),
        ("list", "campaigns"),
        ("site", "--out", "site"),
        ("bundle", "aux.txt", "--out", "bundle.zip"),
        ("merge", "results/aux.txt", "--into", "merged", "--campaign", "fine"),
    ):
        code, _, err = cli(*line)
        assert code == 0, (line, err)
    rows = {path.name for path in (tmp_path / "merged" / "fine" / "mini").iterdir()}
    assert rows == {"CON", "overlap.", "Mine", "mine", "word_overlap"}
    path = "results/aux.txt/mini/CON/no-seed/mini-dev.json"
    assert cli("verify", path, "--rerun")[0] == 0  # in a scratch folder, where every name is new


def test_a_merged_campaign(cli: Cli, tmp_path: Path) -> None:
    assert cli(*WORDS)[0] == 0
    (tmp_path / "into" / "mine").mkdir(parents=True)
    for name, part in (("CON", RESERVED), ("Mine", CASE)):
        assert part in refusal(cli, "merge", "results/local", "--into", "into", "--campaign", name)
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["mine"]
    (tmp_path / "into" / "CON").mkdir()
    assert cli("merge", "results/local", "--into", "into", "--campaign", "CON")[0] == 0


def test_a_method_of_a_plugin_and_a_profile(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.replace("mine", "aux"))
    (tmp_path / "PRN.toml").write_text(resources.files(profiles).joinpath("mini.toml").read_text())
    error = refusal(cli, *WORDS, "--profile", "PRN.toml")
    assert not missing_facts(error, "--profile PRN.toml:", RESERVED, "'PRN'")
    given = ("--plugin", "mine.py", "--seeds", "1", *DEV)
    error = refusal(cli, "run", "--methods", "aux", *given)
    assert not missing_facts(error, "--methods aux:", RESERVED, "'aux'")
    assert error.rstrip().endswith("aux-1=aux")
    assert cli("run", "--methods", "aux-1=aux", *given)[0] == 0
    code, out, _ = cli("conformance", "mine.py")
    assert (code, missing_facts(out, RESERVED, "'aux'")) == (1, []), out


def test_an_encoder_of_the_gate(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("check", "--reference", "results/ref", "--encoder", str(tiny_bert), *DEV)
    update = ("--update", "--why", "first", "--yes")
    for name, part in (("CON", "--name CON: Windows reserves"), ("mine.", "--name mine.: Windows drops")):
        assert part in refusal(cli, *base, "--name", name, *update)
    error = refusal(cli, *base, "--name", "mine", *update, "--reference", "results/CON")
    assert not missing_facts(error, "--reference:", RESERVED, "'CON'")
    assert cli(*base, "--name", "mine", *update)[0] == 0
    assert not missing_facts(refusal(cli, *base, "--name", "Mine", *update), CASE, "'Mine'", "'mine'")
    place = tmp_path / "results" / "ref" / "mini"
    shutil.move(place / "mine", place / "CON")
    forge(place / "CON" / "no-seed" / "mini-dev.json", lambda record: record.update(method="CON"))
    assert cli(*base, "--name", "CON")[0] == 0
