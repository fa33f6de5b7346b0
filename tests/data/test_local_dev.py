"""A dev set of your own: scored pairs from a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.data.suites import load_suite, read_local_task
from tests.support.cli import Cli, records, refusal
from tests.support.messages import check_error, missing_facts, numbers_in

PAIRS = [("a dog runs", "a dog is running", 5), ("a cat sleeps", "the sun is hot", 0), ("x y", "x z", 3)]
SIMCSE = ("--methods", "simcse", "--seeds", "1", "--suite", "toy", "--set", "simcse.steps=2")
TOML = '[[task]]\nname = "{name}"\ntype = "sts"\nfile = "pairs.tsv"\nlanguage = "zho-Hans"\n'


def write(folder: Path, name: str = "pairs.tsv") -> Path:
    rows = ["sentence1\tsentence2\tscore", *("\t".join(map(str, pair)) for pair in PAIRS)]
    (folder / name).write_text("\n".join(rows) + "\n")
    return folder / name


def test_a_file_and_a_toml_file_have_one_fingerprint(tmp_path: Path) -> None:
    direct = read_local_task(write(tmp_path))
    for name in ("mine", "STSB-dev"):
        (tmp_path / f"{name}.toml").write_text(TOML.format(name=name))
    mine, stsb = (read_local_task(tmp_path / f"{name}.toml") for name in ("mine", "STSB-dev"))
    assert [task.id for task in (direct, mine, stsb)] == ["local:pairs", "local:mine", "local:STSB-dev"]
    assert direct.sha256 == mine.sha256 == stsb.sha256
    assert list(direct.all_pairs()) == [(first, second) for first, second, _ in PAIRS]
    assert direct.subsets[0].gold == (5.0, 0.0, 3.0)
    assert load_suite(f"local:{tmp_path / 'mine.toml'}")[1] == [mine]


def test_checkpoints_are_chosen_on_it_under_any_name(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path), write(tmp_path, "other.tsv")
    code, _, err = cli("run", *SIMCSE, "--dev", "local:pairs.tsv", as_is=True)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    sha256 = read_local_task(Path("pairs.tsv")).sha256
    assert record.training["dev"] == {"task": "local:pairs", "sha256": sha256}
    code, out, _ = cli("run", *SIMCSE, "--dev", "local:other.tsv", "--dry-run", as_is=True)
    assert (code, "0 of 1 cells" in out) == (0, True)
    code, out, _ = cli("run", *SIMCSE, "--dev", "toy", "--dry-run", "--campaign", "other", as_is=True)
    assert "1 of 1 cells" in out
    code, out, err = cli("verify", "results")
    assert (code, "nothing wrong" in out) == (0, True), out + err


def test_tables_name_it_and_say_if_a_suite_has_the_same_pairs(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "own.toml").write_text(TOML.format(name="own"))
    short = ("--set", "simcse.steps=2", "--set", "simcse.eval_every=1")
    run = ("run", "--methods", "simcse,untrained", "--seeds", "1", *short, "--dev", "local:pairs.tsv")
    code, out, err = cli(*run, "--suite", "local:own.toml", "--details", as_is=True)
    assert code == 0, err
    assert not missing_facts(out, "local:pairs (sha256", "flatters", "own (simcse")
    assert "flatters" not in cli(*run, "--suite", "toy", as_is=True)[1]


def test_the_dry_run_counts_its_pairs_and_what_the_text_has_of_them(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    lines = ["a dog runs", "a dog is running", *(f"line {n}" for n in range(80))]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    run = ("run", *SIMCSE, "--dry-run", "--dev")
    _, out, _ = cli(*run, "local:pairs.tsv", "--corpus", "text.txt", as_is=True)
    assert "3 pairs, 2 of their 6 sentences" in out
    assert not missing_facts(refusal(cli, *run, "pairs.tsv"), "'pairs.tsv'", "local:pairs.tsv")


def test_a_named_pipe_is_refused(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    check_error(lambda: read_local_task(tmp_path / "pipe.tsv"), "not a regular file")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("\tscore\na\ta\t1\nb\tb\t2\n", "of equal sentences"),
        ("\tscore\na\tb\t1\nb\ta\t2\n", "are the same"),
        ("\na\tb\n", "named score"),
        ("\tscore\na\tb\t1\n", ": 1 pair;"),
        ("\tscore\na\tb\t1\nc\td\t1\n", "all scores are equal"),
        ("\tscore\na\tb\tgood\nc\td\t1\n", "score is 'good'"),
    ],
)
def test_a_file_without_scored_pairs_is_refused(cli: Cli, tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"sentence1\tsentence2{content}")
    assert what in refusal(cli, "run", *SIMCSE, "--dev", "local:pairs.tsv")
    assert not (tmp_path / "results").exists()


def test_a_toml_file_with_another_task_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("sentence1\tsentence2\na\tb\nc\td\n")
    (tmp_path / "b.toml").write_text('[[task]]\nname = "b"\ntype = "bitext"\nfile = "b.tsv"\n')
    check_error(lambda: read_local_task(tmp_path / "b.toml"), "one task of type sts")


def test_a_dev_set_that_differs_from_its_reference_is_named_everywhere(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "senteval" / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    rows = (f"g\tf\ty\t{number}\t{score}\t{a}\t{b}" for number, (a, b, score) in enumerate(PAIRS))
    (folder / "sts-dev.csv").write_text("\n".join(rows) + "\n")
    line = ("run", *SIMCSE, "--dev", "stsb-dev", "--data", "data")
    assert "3 items" in refusal(cli, *line)
    code, out, err = cli(*line, "--accept-data", "--dry-run", as_is=True)
    assert (code, missing_facts(out, "STSB-dev", "reference version")) == (0, []), err
    assert cli(*line, "--accept-data", as_is=True)[0] == 0
    (record,) = records(tmp_path).values()
    assert record.training["dev"]["reference"] is False
    (note,) = (note for note in record.notes if "STSB-dev" in note)
    for form in ("text", "markdown", "html"):
        details = ("--details",) if form == "text" else ()
        assert note.split(" (")[0] in cli("report", "--format", form, *details)[1]
    notes = json.loads(cli("report", "--format", "json")[1])
    assert note.split(" (")[0] in json.dumps(notes)


def test_a_text_has_a_printable_name_and_counted_duplicates(cli: Cli, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.txt")
    for file in ("text.txt", path):
        Path(file).write_text("\n".join(f"sentence number {n % 150} is here" for n in range(200)))
    _, out, _ = cli("run", *SIMCSE, "--corpus", "text.txt", "--dry-run", as_is=True)
    (line,) = (line for line in out.splitlines() if "training text" in line)
    assert numbers_in(line.partition("training text")[2])[-2:] == [200, 50]
    assert "can't be printed" in refusal(cli, "run", *SIMCSE, "--corpus", path, "--dry-run")
    assert not (tmp_path / "results").exists()
