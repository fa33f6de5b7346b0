"""Who sends a bundle, by the sender's own word: one printable line, which the merged records keep."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bench.data.toy import make_toy_task
from bench.errors import DataError
from bench.records.integrity import find_seal_fault
from bench.records.record import parse_record, record_to_json
from bench.verify import archive
from bench.verify.sentence_checks import LEAST_WORDS
from bench.version import __version__
from tests.support.bundles import NOISE, edited, snapshot
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts, numbers_in

BUNDLE = ("bundle", "local", "--plugin", "mine.py", "--out")
MERGE = ("merge", "signed.zip", "--into", "target")
NAME = "Zoë Q. Example, Example Lab <zoe@example.org>"
LINE = f"submitted by {NAME}: the sender's word"
HOSTILE = {
    "nothing": "",
    "blanks": "   ",
    "a newline": "Ada\nsubmitted by Bob",
    "a newline at its end": "Ada\n",
    "a line separator": "Ada\u2028Bob",
    "an escape": "Ada\x1b[2J",
    "a turned line": "Ada \u202eboB",
    "an isolate": "Ada \u2066boB",
    "no character": "Ada\udcff",
    "101 characters": "a" * 101,
}
OTHERS: dict[str, Any] = {"a number": 7, "null": None, "a list": ["Ada"], "a blank at its end": "Ada "}


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
    assert cli(*BUNDLE, "signed.zip", "--by", f"  {NAME} ")[0] == 0
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


def test_unpack_prints_it(work: Path, cli: Cli) -> None:
    signed(work, NAME)
    code, out, _ = cli("unpack", "signed.zip", "--into", "shared")
    assert (code, out.splitlines().count(LINE)) == (0, 1)
    code, out, _ = cli("unpack", "local.zip", "--into", "other")
    assert (code, "submitted by" in out) == (0, False)
    texts, unsigned = snapshot(work / "shared"), snapshot(work / "other")
    assert texts == unsigned  # the name is the bundle's, not that of a record that nobody merged


def test_a_bundle_without_it_is_as_before(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*BUNDLE, "again.zip")[0] == 0
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
        assert cli(*BUNDLE, name, "--by", by)[0] == 0
    one, other = (work / "a.zip").read_bytes(), (work / "c.zip").read_bytes()
    assert one == (work / "b.zip").read_bytes()
    signed(work, NAME)
    assert one == (work / "signed.zip").read_bytes()  # the key "by" is all that is new
    assert archive.read_bundle(work / "a.zip").files == archive.read_bundle(work / "c.zip").files
    assert one != other


@pytest.mark.parametrize("case", HOSTILE)
def test_a_text_that_is_no_name_is_not_bundled(work: Path, cli: Cli, case: str) -> None:
    before = snapshot(work)
    err = refusal(cli, *BUNDLE, "signed.zip", "--by", HOSTILE[case])
    assert missing_facts(err, "error: --by: ", "1 to 100", "printed") == []
    assert snapshot(work) == before


@pytest.mark.parametrize("case", [*HOSTILE, *OTHERS])
def test_a_text_that_is_no_name_is_not_read(work: Path, cli: Cli, case: str) -> None:
    signed(work, (HOSTILE | OTHERS)[case], ascii_only=case == "no character")
    before = snapshot(work)
    for command in (MERGE, ("unpack", "signed.zip", "--into", "shared")):
        assert missing_facts(refusal(cli, *command), "signed.zip, manifest.json: ", "'by'") == []
    assert snapshot(work) == before


def test_a_hundred_characters_are_a_name(work: Path, cli: Cli) -> None:
    assert cli(*BUNDLE, "signed.zip", "--by", "é" * 100)[0] == 0
    assert archive.read_bundle(work / "signed.zip").by == "é" * 100
    code, _, err = cli(*BUNDLE, "two.zip", "--by", "a", "--by", "b", as_is=True)
    assert (code, missing_facts(err, "--by", "2 times")) == (2, [])


def test_a_name_is_written_in_one_way(work: Path, cli: Cli) -> None:
    signed(work, "Zoë", ascii_only=True)
    assert "bench bundle writes" in refusal(cli, *MERGE)


def test_a_test_sentence_is_no_name(work: Path, cli: Cli) -> None:
    sentences = (text for pair in make_toy_task().all_pairs() for text in pair[:2])
    quoted = next(text for text in sentences if len(text.split()) >= LEAST_WORDS and len(text) <= 100)
    facts = "'--by' quotes", "line 1"
    assert missing_facts(refusal(cli, *BUNDLE, "signed.zip", "--by", quoted), *facts) == []
    signed(work, quoted)
    before = snapshot(work)
    assert missing_facts(refusal(cli, *MERGE), *facts) == []
    assert snapshot(work) == before


def test_a_record_in_a_bundle_names_nobody(work: Path, cli: Cli, files: dict[str, bytes]) -> None:
    """What its sender wrote into a record's block is replaced by what the bundle says, or doesn't."""
    claimed = {"bundle": "0" * 64, "campaign": "local", "by": "somebody else"}
    content = edited(files[f"{NOISE}.json"], lambda data: data["timing"].update(merged=claimed))
    assert b"somebody else" in content
    (work / "signed.zip").write_bytes(archive.assemble_bundle("local", {**files, f"{NOISE}.json": content}))
    assert cli(*MERGE)[0] == 0
    merged = (work / "target" / "local" / f"{NOISE.removeprefix('records/')}.json").read_text()
    assert parse_record(merged, "it").timing["merged"].keys() == {"bundle", "campaign"}


@pytest.mark.parametrize("by", [text for text in (HOSTILE | OTHERS).values() if text != "Ada\udcff"])
def test_a_record_with_another_text_is_not_read(work: Path, by: Any) -> None:
    data = json.loads(record_to_json(next(iter(records(work).values()))))
    data["timing"]["merged"] = {"bundle": "0" * 64, "campaign": "local", "by": "Ada"}
    assert parse_record(json.dumps(data), "it").timing["merged"]["by"] == "Ada"
    data["timing"]["merged"]["by"] = by
    with pytest.raises(DataError, match=r"'timing\.merged\.by'"):
        parse_record(json.dumps(data), "it")
