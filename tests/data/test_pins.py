from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.data import downloads, lock_files
from bench.data.corpus import read_corpus
from bench.data.toy_suite import make_toy_task
from bench.errors import DataError
from bench.plan.plan import make_plan
from bench.records.fingerprint import compute_record_key
from tests.support.cli import Cli, records, refusal
from tests.support.hostile import everything
from tests.support.hub import Hub
from tests.support.messages import check_error, missing_facts

TEXT = "\n".join(dict.fromkeys(s for pair in make_toy_task().all_pairs() for s in pair)).encode() + b"\n"
OTHER = TEXT.replace(b"the", b"tha")
SHA, OTHER_SHA = hashlib.sha256(TEXT).hexdigest(), hashlib.sha256(OTHER).hexdigest()


@pytest.fixture
def corpus(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Target of a small wiki1m of the hub."""
    monkeypatch.setattr(downloads, "CORPUS_LINES", (TEXT.count(b"\n"),))
    server.files[downloads.CORPUS] = TEXT
    return tmp_path / "data" / "corpus" / downloads.CORPUS


def in_place(corpus: Path, text: bytes = TEXT) -> Path:
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_bytes(text)
    return corpus


def test_the_first_fetch_pins_what_came(corpus: Path, server: Hub, cli: Cli) -> None:
    code, out, err = cli("data", "fetch", "wiki1m", "--data", "data")
    assert code == 0, err
    host = f"http://127.0.0.1:{server.server_port}"
    address = f"{host}/datasets/{downloads.REPOSITORY}/resolve/{downloads.REVISION}/{downloads.CORPUS}"
    pin = lock_files.read_pin(corpus)
    assert pin is not None
    assert pin == lock_files.Pin(downloads.CORPUS, len(TEXT), SHA, pin.date, SHA, address)
    assert pin.date.endswith("+00:00")
    assert f"{len(TEXT):,} bytes, {address}, sha256 {SHA}" in out
    assert read_corpus(corpus).source == f"{address}, sha256 {SHA}"
    before = everything(corpus.parent)
    assert set(before) == {downloads.CORPUS, "wiki1m_for_simcse.lock.json"}
    server.files.clear()
    assert cli("data", "fetch", "wiki1m", "--data", "data")[0] == 0  # checked, not fetched
    assert everything(corpus.parent) == before
    code, out, err = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, " ok " in out, out.rstrip().endswith(address)) == (0, True, True), err


def test_a_text_that_was_in_place_is_measured_and_marked(corpus: Path, server: Hub, cli: Cli) -> None:
    in_place(corpus)
    unpinned = f"{lock_files.UNPINNED}, sha256 {SHA}"
    assert read_corpus(corpus).source == unpinned  # also without a lock file
    code, out, _ = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, out.rstrip().endswith(lock_files.UNPINNED)) == (0, True)
    assert unpinned in cli("data", "fetch", "wiki1m", "--data", "data")[1]
    assert server.served == []
    pin = lock_files.read_pin(corpus)
    assert pin is not None
    assert (pin.sha256, pin.bytes, pin.address, pin.etag) == (SHA, len(TEXT), None, None)
    assert read_corpus(corpus).source == unpinned
    corpus.unlink()
    downloads.fetch_data("wiki1m", corpus.parents[1])  # the source has the same
    assert read_corpus(corpus).source.startswith("http://127.0.0.1:")


def test_another_text_at_the_same_address_is_refused(corpus: Path, server: Hub, cli: Cli) -> None:
    downloads.fetch_data("wiki1m", corpus.parents[1])
    corpus.unlink()
    server.files[downloads.CORPUS] = OTHER
    server.served.clear()
    err = refusal(cli, "data", "fetch", "wiki1m", "--data", "data")
    facts = (f"sha256 {OTHER_SHA}", f"expected {SHA}", "delete", lock_files.lock_file(corpus).name)
    assert not missing_facts(err, *facts)
    assert (server.served, corpus.exists()) == ([], False)
    lock_files.lock_file(corpus).unlink()
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
    downloads.fetch_data("wiki1m", corpus.parents[1])
    corpus.write_bytes(text)
    train = ("run", "--methods", "simcse", "--suite", "toy", "--dev", "toy", "--backbone", str(tiny_bert))
    for command in (
        ("data", "fetch", "wiki1m", "--data", "data"),
        (*train, "--corpus", str(corpus)),
        ("data", "rtt", "--pivots", "fr", "--corpus", str(corpus), "--out", "copies", "--models", "none"),
    ):
        err = refusal(cli, *command)
        assert not missing_facts(err, hashlib.sha256(text).hexdigest(), f"expected {SHA}", "fetch it again")
    code, out, err = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, "BAD" in out, "1 of these" in err) == (2, True, True)
    assert corpus.read_bytes() == text  # still there


def test_a_kill_between_lock_file_and_text_is_made_good(corpus: Path, server: Hub) -> None:
    downloads.fetch_data("wiki1m", corpus.parents[1])
    lock = lock_files.lock_file(corpus).read_bytes()
    corpus.rename(corpus.parents[1] / ".download" / downloads.CORPUS)
    server.served.clear()
    downloads.fetch_data("wiki1m", corpus.parents[1])
    assert (corpus.read_bytes(), lock_files.lock_file(corpus).read_bytes(), server.served) == (TEXT, lock, [])


def test_a_damaged_lock_file_is_refused(corpus: Path, cli: Cli) -> None:
    downloads.fetch_data("wiki1m", corpus.parents[1])
    lock = lock_files.lock_file(corpus)
    good = json.loads(lock.read_text())
    damaged: list[object] = [[], good | {"sha256": 5}, good | {"address": "a\nb"}, good | {"more": 1}]
    damaged += [{name: value for name, value in good.items() if name != "sha256"}]
    for content in (*map(json.dumps, damaged), "{", "[" * 100_000, "\xff"):
        lock.write_text(content, encoding="latin-1")
        err = refusal(cli, "data", "fetch", "wiki1m", "--data", "data")
        assert not missing_facts(err, "wiki1m_for_simcse.lock.json", "is damaged")
        check_error(lambda: read_corpus(corpus), "is damaged", kind=DataError)
    lock.unlink()
    assert read_corpus(corpus).source.startswith(lock_files.UNPINNED)


def test_a_mirrors_password_is_not_kept() -> None:
    remote = downloads._Remote("https://me:secret@mirror.example:8443/a/b.txt", "0" * 64, 1)
    assert remote.address == "https://mirror.example:8443/a/b.txt"


def test_only_texts_with_a_pinned_source_are_said_to_lack_it(tmp_path: Path) -> None:
    for name in ("wiki.txt", "x" * 247 + ".txt"):
        (tmp_path / name).write_bytes(TEXT)
        assert read_corpus(tmp_path / name).source == ""
    (tmp_path / downloads.CORPUS).write_bytes(b"")
    check_error(lambda: read_corpus(tmp_path / downloads.CORPUS), "is empty", kind=DataError)


def test_the_source_stays_out_of_keys(corpus: Path, tmp_path: Path, tiny_bert: Path) -> None:
    spec = RunSpec(parse_methods("simcse"), (1,), "mini", ("toy",), str(tiny_bert), dev="toy")
    note = lock_files.unpinned_note(downloads.CORPUS)
    plain = tmp_path / "plain.txt"
    plain.write_bytes(TEXT)
    elsewhere = in_place(tmp_path / "elsewhere" / downloads.CORPUS)
    downloads.fetch_data("wiki1m", corpus.parents[1])
    plans = [make_plan(replace(spec, corpus=path)) for path in (plain, corpus, elsewhere)]
    of_none, of_pinned, unpinned = (job for plan in plans for job in plan.jobs)
    assert of_none.key == of_pinned.key == unpinned.key
    assert of_none.cell.stages[0].key == of_pinned.cell.stages[0].key
    assert "source" not in of_none.record.training["corpus"]
    source = of_pinned.record.training["corpus"]["source"]
    assert (source.endswith(f"/{downloads.CORPUS}, sha256 {SHA}"), note in of_pinned.record.notes) == (
        True,
        False,
    )
    assert unpinned.record.training["corpus"]["source"] == f"{lock_files.UNPINNED}, sha256 {SHA}"
    assert note in unpinned.record.notes


def test_tables_mark_an_unpinned_text(tmp_path: Path, tiny_bert: Path, cli: Cli) -> None:
    text = in_place(tmp_path / "elsewhere" / downloads.CORPUS)
    given = ("--backbone", str(tiny_bert), "--corpus", str(text), "--suite", "toy", "--dev", "toy")
    code, _, err = cli("run", "--methods", "whitening[fit=train],noise", "--seeds", "1", *given)
    assert code == 0, err
    for form in ("text", "html"):
        assert lock_files.unpinned_note(downloads.CORPUS) in cli("report", "--format", form)[1]
    by_name = {record.name: record for record in records(tmp_path).values()}
    fitted = by_name["whitening"]
    assert fitted.training["corpus"]["source"] == f"{lock_files.UNPINNED}, sha256 {SHA}"
    assert by_name["noise"].training == {}
    facts = {name: value for name, value in fitted.training["corpus"].items() if name != "source"}
    assert compute_record_key(replace(fitted, training={**fitted.training, "corpus": facts})) == fitted.key


def test_verify_covers_every_text_that_is_there(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    code, out, _ = cli("data", "verify", "wiki1m", "--data", "data")
    assert (code, missing_facts(out, "BAD", "missing")) == (2, [])
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
    assert not missing_facts(rows[copy.name], "BAD", "changed", "sha256 000000000000")
    assert not missing_facts(rows["sick_unlabelled.txt"], "sick_unlabelled.txt:2", "not utf-8")
    assert rows["wiki.txt"].split()[1:4] == ["ok", "2", "lines"]
    assert (code, "no SentEval data" in err) == (2, True)
