"""Bundles hold sound campaigns alone, are the same every time, and may name their sender."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.data.toy_suite import make_toy_task
from bench.errors import DataError
from bench.exchange.campaign_bundle import list_distributions
from bench.records.integrity import find_seal_fault
from bench.records.record import parse_record, record_to_json
from bench.records.store import ResultStore
from bench.verify import archive
from bench.verify.sentence_checks import LEAST_WORDS, check_sentences
from bench.version import __version__
from tests.support.bundles import NOISE, edited, snapshot, unchanged
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts, numbers_in

BUNDLE = ("bundle", "local", "--out", "new.zip")
MINE = (*BUNDLE, "--plugin", "mine.py")
GOLDEN = "8c090ce89bc42e8b5c0a551fccbdfb58c309d4f02cbb2a1120f266bdfee50bb2"


def test_what_it_holds(work: Path, files: dict[str, bytes]) -> None:
    cells = ["noise/seed-1", "noise/seed-2", "word_overlap/no-seed", "mine/seed-1", "mine/seed-2"]
    assert set(files) == archive.ALWAYS | {
        *(f"records/mini/{cell}/toy.{ending}" for cell in cells for ending in ("json", "npz")),
        "plugins/mine.py",
        "profiles/mini.toml",
        "sweeps/mini-unsee_architectures.json",
    }
    assert files["plugins/mine.py"] == (work / "mine.py").read_bytes()
    assert b'name = "mini-bert"' in files["profiles/mini.toml"]
    assert json.loads(files["verify.json"])["findings"] == []
    assert len(json.loads(files["verify.json"])["records"]) == 5
    lock = files["environment.txt"].decode().splitlines()
    assert {line.split("==")[0] for line in lock} >= {"numpy", "torch", "click"}
    names = [line.split("==")[0].lower().replace("_", "-") for line in lock]
    assert names == sorted(set(names))
    for name, content in files.items():
        if not name.startswith("records/"):
            assert str(work.parent).encode() not in content, name


def test_the_report_is_that_of_the_records(work: Path, cli: Cli, files: dict[str, bytes]) -> None:
    (work / "results" / "local" / "overlap.csv").write_text("task\n")  # what the bundle doesn't hold
    shutil.rmtree(work / "results" / "local" / "stats", ignore_errors=True)
    assert cli(*MINE)[0] == 0
    assert archive.read_bundle(work / "new.zip").files == files
    (work / "results" / "local" / "overlap.csv").unlink()
    for name, form in archive.REPORTS.items():
        details = ("--details",) if form == "text" else ()
        assert cli("report", "--format", form, *details)[1].encode() == files[name]
    assert b"unsee_architectures" in files["report.txt"]


def test_equal_campaigns_give_equal_bytes(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = work / "a folder"
    shutil.copytree(work / "results", elsewhere / "x", copy_function=shutil.copy)
    monkeypatch.chdir(elsewhere)
    before = os.umask(0o077)
    try:
        arguments = ("--results", "x", "--plugin", str(work / "mine.py"))
        assert cli("bundle", "local", "--out", "b/c.zip", *arguments)[0] == 0
    finally:
        os.umask(before)
    assert (elsewhere / "b" / "c.zip").read_bytes() == (work / "local.zip").read_bytes()


def test_the_bytes_are_those_of_every_python() -> None:
    packed = archive.pack_files({"report.txt": b"a\n", "environment.txt": b""})
    assert hashlib.sha256(packed).hexdigest() == GOLDEN


def test_no_path_of_the_machine_is_in_it(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f'{{"unchecked": {{"scores: no file {work / "data" / "x.txt"}": 1}}}}\n'
    monkeypatch.setattr("bench.exchange.campaign_bundle.verification_json", lambda verified: said)
    assert cli(*MINE)[0] == 0
    found = archive.read_bundle(work / "new.zip").files["verify.json"]
    assert json.loads(found) == {"unchecked": {"scores: no file x.txt": 1}}


def test_no_code_of_a_plug_in_runs(work: Path, cli: Cli) -> None:
    from bench.registry import METHODS

    assert cli(*MINE)[0] == 0
    assert not (work / "loaded").exists()
    assert "mine" not in METHODS.names()


@pytest.mark.parametrize(
    ("plugins", "facts"),
    [
        ("", ("'mine.py'", "method mine", "missing")),
        ("mine.py other.py", ("'other.py'",)),
        ("mine.py more/mine.py", ("two files", "'mine.py'")),
        ("mine.py numpy", ("'numpy' is a", "package", "FILE.py")),
        ("gone.py", ("'gone.py'", "can't be read")),
        ("results/mine.py", ("'results/mine.py'", "results folder")),
    ],
)
def test_plug_ins_that_are_not_those_of_the_records(
    work: Path, cli: Cli, plugins: str, facts: tuple[str, ...]
) -> None:
    (work / "more").mkdir()
    for name in ("other.py", "more/mine.py", "results/mine.py"):
        (work / name).write_text("raise SystemExit('run')\n")
    err = refusal(cli, *BUNDLE, *(word for file in plugins.split() for word in ("--plugin", file)))
    assert missing_facts(err, "--plugin: ", *facts) == []
    assert not (work / "new.zip").exists()


def test_a_campaign_in_which_anything_is_wrong(work: Path, cli: Cli) -> None:
    plugin = (work / "mine.py").read_text()
    (work / "mine.py").write_text(plugin + "# better\n")
    code, out, err = cli(*MINE)
    assert (code, missing_facts(err, "bench bundle", "local")) == (1, [])
    assert out.count(": method: mine.py") == 2
    (work / "mine.py").write_text(plugin)
    path = work / "results" / "local" / "mini" / "noise" / "seed-1" / "toy.json"
    content = path.read_bytes()
    path.write_bytes(edited(content, lambda data: data["scores"][0].update(value=0.9)))
    code, out, err = cli(*MINE)
    assert (code, err.count("\n")) == (1, 1)
    assert "mini/noise/seed-1/toy.json: score: " in out
    path.write_bytes(content)
    (path.parent / "notes.txt").write_text("x")
    assert "mini/noise/seed-1/notes.txt: stray: " in cli(*MINE)[1]
    assert not (work / "new.zip").exists()


def test_no_such_campaign_and_no_such_place(work: Path, cli: Cli) -> None:
    (work / "results" / "empty").mkdir()
    for name, fact in (("gone", "one of"), ("../x", "'../x'"), ("empty", "no records")):
        assert fact in refusal(cli, "bundle", name, "--out", "new.zip")
    err = refusal(cli, *MINE[:3], "mine.py/x.zip", *MINE[4:])
    assert missing_facts(err, "--out: mine.py/x.zip", "can't be written") == []


def test_a_profile_from_a_file_is_not_in_a_record(work: Path, cli: Cli) -> None:
    own = Path("own.toml")
    assert cli("init", ".")[0] == 0
    shutil.copyfile("profile.toml", own)
    run = ("run", "--methods", "word_overlap", "--profile", str(own), "--suite", "toy", "--campaign", "own")
    assert cli(*run)[0] == 0
    (record,) = Path("results/own/own").rglob("toy.json")
    for words in (("bundle", "own", "--out", "new.zip"), ("verify", str(record), "--rerun")):
        assert missing_facts(refusal(cli, *words), "profile own", "a file", "bert-base") == []


def test_no_test_sentence_travels(work: Path, cli: Cli, files: dict[str, bytes]) -> None:
    sentences = {sentence for pair in make_toy_task().all_pairs() for sentence in pair}
    assert len(sentences) > 100
    for name, content in files.items():
        assert not any(sentence.encode() in content for sentence in sentences), name
    records = ResultStore(work / "results", "local").records()
    check_sentences(files, records, None, "here")
    longest = max(sentences, key=len)
    first, rest = longest.split(" ", 1)
    for text in (f"x = 1\n# {longest.upper()}\n", f"\n'''{first}\n\t{rest}'''", f'["{longest}"]'):
        with pytest.raises(DataError, match=r"here: 'plugins/x\.py' quotes a test sentence in line \d"):
            check_sentences({**files, "plugins/x.py": text.encode()}, records, None, "here")
    almost = " ".join(longest.split()[1:])
    check_sentences({**files, "plugins/x.py": almost.encode()}, records, None, "here")
    with pytest.raises(DataError, match=r"'plugins/x\.py' is no UTF-8 text"):
        check_sentences({"plugins/x.py": b"\xff"}, records, None, "here")


def test_a_plug_in_with_test_sentences_is_not_bundled(work: Path, cli: Cli) -> None:
    first = next(iter(make_toy_task().all_pairs()))[0]
    shutil.rmtree(work / "results")
    (work / "mine.py").write_text(f"{(work / 'mine.py').read_text()}\nKNOWN = [{first!r}]\n")
    run = ("run", "--methods", "mine", "--seeds", "1", "--suite", "toy", "--plugin", "mine.py")
    assert cli(*run)[0] == 0
    with unchanged(work):
        assert (
            missing_facts(refusal(cli, *MINE), "campaign local", "'plugins/mine.py' quotes", "line 19") == []
        )


def test_the_lock_names_each_installed_distribution_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [line.split("==")[0] for line in list_distributions().splitlines()]
    assert len(names) == len(set(names)) > 20
    assert all(len(line.split("==")) == 2 and "/" not in line for line in list_distributions().splitlines())
    before = list_distributions()
    folder = tmp_path / "setuptools" / "_vendor" / "carried-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    assert list_distributions() == before
    monkeypatch.syspath_prepend(str(shutil.copytree(folder.parent, tmp_path / "own")))
    assert "carried==1.0\n" in list_distributions()


def test_more_than_a_bundle_may_hold(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 5)
    assert "at most 5" in refusal(cli, *MINE)
    monkeypatch.setattr(archive, "MOST_FILES", 100)
    monkeypatch.setattr(archive, "LARGEST_FILE", 100)
    assert "at most 100" in refusal(cli, *MINE)


SIGNED = ("bundle", "local", "--plugin", "mine.py", "--out")
MERGE = ("merge", "signed.zip", "--into", "target")
NAME = "Zoë Q. Example, Example Lab <zoe@example.org>"
LINE = f"submitted by {NAME}: the sender's word"
HOSTILE = (
    *("", "   ", "Ada\nsubmitted by Bob", "Ada\n", "Ada\u2028Bob", "Ada\x1b[2J", "Ada \u202eboB"),
    *("Ada \u2066boB", "Ada\udcff", "a" * 101),
)
OTHERS: tuple[Any, ...] = (7, None, ["Ada"], "Ada ")


def signed(work: Path, by: Any, ascii_only: bool = False) -> dict[str, Any]:
    """Write the bundle with a hand-made manifest as ``signed.zip``; return that manifest."""
    found = archive.read_bundle(work / "local.zip")
    listed = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in found.files.items()
    }
    said = {"schema": 1, "bench": __version__, "campaign": "local", "files": listed, "by": by}
    text = json.dumps(said, indent=2, sort_keys=True, ensure_ascii=ascii_only) + "\n"
    (work / "signed.zip").write_bytes(archive.pack_files({**found.files, archive.MANIFEST: text.encode()}))
    return said


def test_the_records_keep_it(work: Path, cli: Cli) -> None:
    assert cli(*SIGNED, "signed.zip", "--by", f"  {NAME} ")[0] == 0
    found = archive.read_bundle(work / "signed.zip")
    assert found.by == NAME
    code, out, err = cli(*MERGE)
    assert (code, err) == (0, "")
    assert LINE in out.splitlines()
    assert numbers_in(out)[-1] == 5
    paths = sorted((work / "target").glob("*/*/*/*/*.json"))
    assert len(paths) == 5
    for path in paths:
        record = parse_record(path.read_text(), str(path))
        assert record.timing["merged"] == {"bundle": found.sha256, "campaign": "local", "by": NAME}
        assert find_seal_fault(record, path.read_text()) is None
        path.write_text(path.read_text().replace("Zoë", "Zoe"))
        assert find_seal_fault(record, path.read_text()) is not None
        path.write_text(path.read_text().replace("Zoe", "Zoë"))
    code, out, _ = cli("verify", "target", "--plugin", "mine.py")
    assert (code, "nothing wrong" in out) == (0, True)
    before = snapshot(work)
    code, out, _ = cli(*MERGE)
    assert (code, LINE in out, numbers_in(out)[-2:]) == (0, True, [0, 5])
    assert cli("merge", "local.zip", "--into", "target")[0] == 0
    assert snapshot(work) == before  # whoever sends the same again takes no name away


def test_unpack_prints_it_and_a_record_names_nobody(work: Path, cli: Cli, files: dict[str, bytes]) -> None:
    signed(work, NAME)
    code, out, _ = cli("bundle", "--extract", "signed.zip", "--into", "shared")
    assert (code, out.splitlines().count(LINE)) == (0, 1)
    code, out, _ = cli("bundle", "--extract", "local.zip", "--into", "other")
    assert (code, "submitted by" in out) == (0, False)
    texts, unsigned = snapshot(work / "shared"), snapshot(work / "other")
    assert texts == unsigned  # the name is the bundle's, not that of a record that nobody merged
    claimed = {"bundle": "0" * 64, "campaign": "local", "by": "somebody else"}
    content = edited(files[f"{NOISE}.json"], lambda data: data["timing"].update(merged=claimed))
    assert b"somebody else" in content
    (work / "signed.zip").write_bytes(archive.assemble_bundle("local", {**files, f"{NOISE}.json": content}))
    assert cli(*MERGE)[0] == 0
    merged = (work / "target" / "local" / f"{NOISE.removeprefix('records/')}.json").read_text()
    assert parse_record(merged, "it").timing["merged"].keys() == {"bundle", "campaign"}


def test_a_bundle_without_it_is_as_before(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*SIGNED, "again.zip")[0] == 0
    assert (work / "again.zip").read_bytes() == (work / "local.zip").read_bytes()
    assert archive.read_bundle(work / "local.zip").by == ""
    code, out, _ = cli("merge", "local.zip", "--into", "results", "--campaign", "theirs")
    assert (code, "submitted by" in out) == (0, False)
    assert all("by" not in record.timing["merged"] for record in records(work, "theirs").values())
    monkeypatch.setattr(archive, "__version__", "0.1.0")
    made = archive.assemble_bundle("local", {"report.txt": b"a\n", "environment.txt": b""})
    golden = "c71553d75eaebece1c960a58a05fd5742b471fb0348f6b49b9927c7fff725b9c"  # from before --by was there
    assert hashlib.sha256(made).hexdigest() == golden


def test_equal_names_give_equal_bytes(work: Path, cli: Cli) -> None:
    for name, by in (("a.zip", NAME), ("b.zip", f" {NAME}"), ("c.zip", "Ada")):
        assert cli(*SIGNED, name, "--by", by)[0] == 0
    one, other = (work / "a.zip").read_bytes(), (work / "c.zip").read_bytes()
    assert one == (work / "b.zip").read_bytes()
    signed(work, NAME)
    assert one == (work / "signed.zip").read_bytes()  # the key "by" is all that is new
    assert archive.read_bundle(work / "a.zip").files == archive.read_bundle(work / "c.zip").files
    assert one != other


@pytest.mark.parametrize("by", HOSTILE, ids=ascii)
def test_a_text_that_is_no_name_is_not_bundled(work: Path, cli: Cli, by: str) -> None:
    with unchanged(work):
        err = refusal(cli, *SIGNED, "signed.zip", "--by", by)
        assert missing_facts(err, "error: --by: ", "1 to 100", "printed") == []


@pytest.mark.parametrize("by", [*HOSTILE, *OTHERS], ids=ascii)
def test_a_text_that_is_no_name_is_not_read(work: Path, cli: Cli, by: Any) -> None:
    signed(work, by, ascii_only=by == "Ada\udcff")
    with unchanged(work):
        for command in (MERGE, ("bundle", "--extract", "signed.zip", "--into", "shared")):
            assert missing_facts(refusal(cli, *command), "signed.zip, manifest.json: ", "'by'") == []


def test_a_hundred_characters_are_a_name_written_in_one_way(work: Path, cli: Cli) -> None:
    assert cli(*SIGNED, "signed.zip", "--by", "é" * 100)[0] == 0
    assert archive.read_bundle(work / "signed.zip").by == "é" * 100
    code, _, err = cli(*SIGNED, "two.zip", "--by", "a", "--by", "b", as_is=True)
    assert (code, missing_facts(err, "--by", "2 times")) == (2, [])
    signed(work, "Zoë", ascii_only=True)
    assert "bench bundle writes" in refusal(cli, *MERGE)


def test_a_test_sentence_is_no_name(work: Path, cli: Cli) -> None:
    sentences = (text for pair in make_toy_task().all_pairs() for text in pair[:2])
    quoted = next(text for text in sentences if len(text.split()) >= LEAST_WORDS and len(text) <= 100)
    facts = "'--by' quotes", "line 1"
    assert missing_facts(refusal(cli, *SIGNED, "signed.zip", "--by", quoted), *facts) == []
    signed(work, quoted)
    with unchanged(work):
        assert missing_facts(refusal(cli, *MERGE), *facts) == []


@pytest.mark.parametrize("by", [text for text in (*HOSTILE, *OTHERS) if text != "Ada\udcff"], ids=ascii)
def test_a_record_with_another_text_is_not_read(work: Path, by: Any) -> None:
    data = json.loads(record_to_json(next(iter(records(work).values()))))
    data["timing"]["merged"] = {"bundle": "0" * 64, "campaign": "local", "by": "Ada"}
    assert parse_record(json.dumps(data), "it").timing["merged"]["by"] == "Ada"
    data["timing"]["merged"]["by"] = by
    with pytest.raises(DataError, match=r"'timing\.merged\.by'"):
        parse_record(json.dumps(data), "it")
