"""What a fetched text was when it came: pinned once, named by records, and never another one after that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods
from bench.config.spec import RunSpec
from bench.data import hub, pins
from bench.data.corpus import read_corpus
from bench.data.toy import make_toy_task
from bench.errors import DataError
from bench.plan.job import Job
from bench.plan.plan import make_plan
from bench.records.fingerprint import compute_record_key
from tests.support.cli import Cli, records, refusal
from tests.support.hostile import everything
from tests.support.hub import Hub

TEXT = "\n".join(dict.fromkeys(s for pair in make_toy_task().all_pairs() for s in pair)).encode() + b"\n"
OTHER = TEXT.replace(b"the", b"tha")
SHA, OTHER_SHA = hashlib.sha256(TEXT).hexdigest(), hashlib.sha256(OTHER).hexdigest()


@pytest.fixture
def corpus(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a small wiki1m, which the hub has, goes to."""
    monkeypatch.setattr(hub, "CORPUS_LINES", (TEXT.count(b"\n"),))
    server.files[hub.CORPUS] = TEXT
    return tmp_path / "data" / "corpus" / hub.CORPUS


def in_place(corpus: Path, text: bytes = TEXT) -> Path:
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_bytes(text)
    return corpus


def test_the_first_fetch_pins_what_came(corpus: Path, server: Hub, cli: Cli) -> None:
    code, out, err = cli("data", "fetch", "wiki1m", "--data", "data")
    assert code == 0, err
    address = (
        f"http://127.0.0.1:{server.server_port}/datasets/{hub.REPOSITORY}/resolve/{hub.REVISION}/{hub.CORPUS}"
    )
    pin = pins.read_pin(corpus)
    assert pin is not None
    assert pin == pins.Pin(hub.CORPUS, len(TEXT), SHA, pin.date, SHA, address)
    assert pin.date.endswith("+00:00")
    assert f"{len(TEXT):,} bytes, {address}, sha256 {SHA}" in out
    assert read_corpus(corpus).source == f"{address}, sha256 {SHA}"
    before = everything(corpus.parent)
    assert set(before) == {hub.CORPUS, "wiki1m_for_simcse.lock.json"}
    server.files.clear()
    assert cli("data", "fetch", "wiki1m", "--data", "data")[0] == 0  # looked at, not fetched
    assert everything(corpus.parent) == before
    code, out, err = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, " ok " in out, out.rstrip().endswith(address)) == (0, True, True), err


def test_a_text_that_was_in_place_is_measured_and_said_to_be_that(
    corpus: Path, server: Hub, cli: Cli
) -> None:
    in_place(corpus)
    unpinned = f"not from the pinned source, sha256 {SHA}"
    assert read_corpus(corpus).source == unpinned  # also before anybody measured it
    code, out, _ = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, out.rstrip().endswith("not from the pinned source")) == (0, True)
    assert unpinned in cli("data", "fetch", "wiki1m", "--data", "data")[1]
    assert server.served == []
    pin = pins.read_pin(corpus)
    assert pin is not None
    assert (pin.sha256, pin.bytes, pin.address, pin.etag) == (SHA, len(TEXT), None, None)
    assert read_corpus(corpus).source == unpinned
    corpus.unlink()
    hub.fetch_data("wiki1m", corpus.parents[1])  # it turns out to be what the source has
    assert read_corpus(corpus).source.startswith("http://127.0.0.1:")


def test_another_text_at_the_same_address_is_refused(corpus: Path, server: Hub, cli: Cli) -> None:
    hub.fetch_data("wiki1m", corpus.parents[1])
    corpus.unlink()
    server.files[hub.CORPUS] = OTHER
    server.served.clear()
    said = refusal(cli, "data", "fetch", "wiki1m", "--data", "data")
    assert f"sha256 {OTHER_SHA}; expected {SHA}; nothing was fetched; to accept it, delete " in said
    assert (server.served, corpus.exists()) == ([], False)
    pins.lock_file(corpus).unlink()
    assert cli("data", "fetch", "wiki1m", "--data", "data")[0] == 0
    assert corpus.read_bytes() == OTHER
    assert OTHER_SHA in read_corpus(corpus).source


@pytest.mark.parametrize("fetched", [True, False])
@pytest.mark.parametrize("text", [OTHER, TEXT[:-1], TEXT + b"x\n", b""])
def test_a_text_that_changed_since_is_refused_by_all_who_read_it(
    corpus: Path, server: Hub, cli: Cli, tiny_bert: Path, text: bytes, fetched: bool
) -> None:
    if not fetched:
        in_place(corpus)
    hub.fetch_data("wiki1m", corpus.parents[1])
    corpus.write_bytes(text)
    train = ("run", "--methods", "simcse", "--suite", "toy", "--dev", "toy", "--backbone", str(tiny_bert))
    for command in (
        ("data", "fetch", "wiki1m", "--data", "data"),
        (*train, "--corpus", str(corpus)),
        ("data", "rtt", "--pivots", "fr", "--corpus", str(corpus), "--out", "copies", "--models", "none"),
    ):
        said = refusal(cli, *command)
        found = hashlib.sha256(text).hexdigest()
        assert f"its sha256 is {found}; expected {SHA}; delete it and fetch it again; to accept" in said
    code, out, err = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, "BAD" in out, "1 of these are missing" in err) == (2, True, True)
    assert corpus.read_bytes() == text  # and nothing was put in its place


def test_a_kill_between_lock_file_and_text_is_made_good(corpus: Path, server: Hub) -> None:
    hub.fetch_data("wiki1m", corpus.parents[1])
    lock = pins.lock_file(corpus).read_bytes()
    corpus.rename(corpus.parents[1] / ".download" / hub.CORPUS)
    server.served.clear()
    hub.fetch_data("wiki1m", corpus.parents[1])
    assert (corpus.read_bytes(), pins.lock_file(corpus).read_bytes(), server.served) == (TEXT, lock, [])


def drop(facts: dict[str, object]) -> object:
    facts.pop("sha256")
    return facts


@pytest.mark.parametrize(
    "damage",
    [
        lambda facts: [],
        lambda facts: {**facts, "sha256": 5},
        lambda facts: {**facts, "address": "a\nb"},
        lambda facts: {**facts, "more": 1},
        drop,
    ],
)
def test_a_damaged_lock_file_is_said_to_be_that(
    corpus: Path, cli: Cli, damage: Callable[[dict[str, object]], object]
) -> None:
    hub.fetch_data("wiki1m", corpus.parents[1])
    lock = pins.lock_file(corpus)
    for content in (json.dumps(damage(json.loads(lock.read_text()))), "{", "[" * 100_000, "\xff"):
        lock.write_text(content, encoding="latin-1")
        said = refusal(cli, "data", "fetch", "wiki1m", "--data", "data")
        assert "wiki1m_for_simcse.lock.json: this lock file is damaged: " in said
        with pytest.raises(DataError, match="this lock file is damaged"):
            read_corpus(corpus)
    lock.unlink()
    assert read_corpus(corpus).source.startswith("not from the pinned source")


def test_a_mirrors_password_is_not_kept() -> None:
    remote = hub._Remote("https://me:secret@mirror.example:8443/a/b.txt", "0" * 64, 1)
    assert remote.address == "https://mirror.example:8443/a/b.txt"


def test_only_texts_with_a_pinned_source_are_said_to_lack_it(tmp_path: Path) -> None:
    for name in ("wiki.txt", "x" * 247 + ".txt"):
        (tmp_path / name).write_bytes(TEXT)
        assert read_corpus(tmp_path / name).source == ""
    (tmp_path / hub.CORPUS).write_bytes(b"")
    with pytest.raises(DataError, match="the training text is empty"):
        read_corpus(tmp_path / hub.CORPUS)


def planned(corpus: Path, backbone: Path) -> Job:
    spec = RunSpec(parse_methods("simcse"), (1,), "mini", suites=("toy",), dev="toy")
    (job,) = make_plan(replace(spec, backbone=str(backbone), corpus=corpus)).jobs
    return job


def test_records_name_the_source_and_keep_their_key(
    corpus: Path, tmp_path: Path, tiny_bert: Path, cli: Cli
) -> None:
    note = "The training text wiki1m_for_simcse.txt is not from the pinned source."
    plain = tmp_path / "plain.txt"
    plain.write_bytes(TEXT)
    elsewhere = in_place(tmp_path / "elsewhere" / hub.CORPUS)
    hub.fetch_data("wiki1m", corpus.parents[1])
    of_none, of_pinned, unpinned = (planned(path, tiny_bert) for path in (plain, corpus, elsewhere))
    assert of_none.key == of_pinned.key == unpinned.key
    assert of_none.cell.stages[0].key == of_pinned.cell.stages[0].key
    assert "source" not in of_none.record.training["corpus"]
    source = of_pinned.record.training["corpus"]["source"]
    assert (source.endswith(f"/{hub.CORPUS}, sha256 {SHA}"), note in of_pinned.record.notes) == (True, False)
    assert unpinned.record.training["corpus"]["source"] == f"not from the pinned source, sha256 {SHA}"
    assert note in unpinned.record.notes


def test_tables_say_that_a_text_is_not_from_the_pinned_source(
    tmp_path: Path, tiny_bert: Path, cli: Cli
) -> None:
    text = in_place(tmp_path / "elsewhere" / hub.CORPUS)
    given = ("--backbone", str(tiny_bert), "--corpus", str(text), "--suite", "toy", "--dev", "toy")
    code, _, err = cli("run", "--methods", "whitening[fit=train],noise", "--seeds", "1", *given)
    assert code == 0, err
    for form in ("text", "html"):
        out = cli("report", "--format", form)[1]
        assert "The training text wiki1m_for_simcse.txt is not from the pinned source." in out
    kept = {record.name: record for record in records(tmp_path).values()}
    fitted = kept["whitening"]
    assert fitted.training["corpus"]["source"] == f"not from the pinned source, sha256 {SHA}"
    assert kept["noise"].training == {}
    facts = {name: value for name, value in fitted.training["corpus"].items() if name != "source"}
    assert compute_record_key(replace(fitted, training={**fitted.training, "corpus": facts})) == fitted.key


def test_verify_covers_every_text_that_is_there(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    said = cli("data", "verify", "wiki1m", "--data", "data")
    assert (said[0], "BAD" in said[1], "this text is missing" in said[1]) == (2, True, True)
    in_place(corpus)
    (corpus.parent / "wiki.txt").write_bytes(b"one\ntwo\n")
    copy = corpus.parent / "wiki1m_for_simcse.en-fr-en.txt"
    copy.write_bytes(b"one\n")
    made = {"made_by": "bench data rtt", "corpus": {"sha256": SHA}, "copy": {"sha256": "0" * 64}}
    copy.with_suffix(".json").write_text(json.dumps(made))
    (corpus.parent / "sick_unlabelled.txt").write_bytes(b"one\n\xff\n")
    code, out, err = cli("data", "verify", "--data", "data")
    rows = {line.split()[0].removeprefix("corpus/"): line for line in out.splitlines()}
    assert set(rows) == {path.name for path in corpus.parent.glob("*.txt")}
    assert "BAD" in rows[copy.name]
    assert "the copy was changed since it was made; expected sha256 000000000000" in rows[copy.name]
    assert "sick_unlabelled.txt:2: these bytes are not utf-8" in rows["sick_unlabelled.txt"]
    assert rows["wiki.txt"].split()[1:4] == ["ok", "2", "lines"]
    assert (code, "no SentEval data here" in err) == (2, True)
