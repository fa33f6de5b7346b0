"""What a record says of itself beside its key: supervision, notes, seed and versions."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.data import lock_files
from bench.execution.repetition import build_rerun_spec, compare_notes, find_repeating_job
from bench.plan.plan import make_plan
from bench.records.record import parse_record
from bench.records.store import ResultStore
from bench.registry import METHODS, discover
from bench.site.command import _verify_campaign
from bench.verify.card_checks import check_metadata
from bench.verify.findings import Verification
from tests.support.cli import Cli, records
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.training import toy_sentences
from tests.support.verified import NOISE, ONE, WORDS, found_by_verify, where

Edit = Callable[[dict[str, Any]], object]
SHORT = ("steps=2", "eval_every=2", "batch_size=8")


def stripped(record: dict[str, Any]) -> None:
    """Take away all that says that a method learned from labels."""
    del record["training"]["supervised"]
    for stage in record["training"]["stages"].values():
        stage.get("text", {}).pop("pairs", None)
    record["notes"] = [note for note in record["notes"] if "supervised" not in note]


def run(cli: Cli, method: str, *words: str, given: tuple[str, ...] = ()) -> Path:
    """Train a method for two steps on profile mini, on toy; return its record."""
    sets = [word for text in words for option in SHORT for word in ("--set", f"{text}.{option}")]
    what = ("--methods", method, "--seeds", "1", "--suite", "toy", "--dev", "toy")
    code, _, err = cli("run", *what, *sets, *given)
    assert code == 0, err
    (name,) = records(Path.cwd())
    return Path("results", "local", name)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sup_simcse", "distill:sup_simcse"])
def test_who_learned_from_labels_cannot_hide_it(cli: Cli, method: str) -> None:
    path = run(cli, method, "sup_simcse", *(["distill"] if ":" in method else []))
    assert found_by_verify(cli) == {}
    before = path.read_text()
    forge(path, stripped)
    assert found_by_verify(cli) == {where(path): {"notes"}}
    assert missing_facts(cli("verify")[1], "learned from labels", "sup_simcse") == []
    path.write_text(before)
    forge(path, lambda record: record.update(notes=[n for n in record["notes"] if "labels" not in n][:1]))
    code, out, err = cli("verify", str(path), "--rerun")
    assert found_by_verify(cli) == {where(path): {"notes"}}
    assert (code, missing_facts(err, "lacks the note")) == (3, []), out


@pytest.mark.parametrize("method", ["sup_simcse", "mine=sup_simcse"])
def test_a_row_without_its_mark_has_no_score_in_any_report(cli: Cli, method: str) -> None:
    path = run(cli, method, "sup_simcse")
    row, fault = path.parts[3], "doesn't say that it learned from labels"
    assert cli("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")[0] == 0
    assert "Supervised, so not ranked" in cli("report", "--all-rows")[1]
    score = json.loads(path.read_text())["scores"][-1]["value"]
    forge(path, stripped)
    for form in ("text", "markdown", "csv", "json", "latex", "html"):
        code, out, err = cli("report", "--format", form, "--all-rows")
        assert (code, missing_facts(err, path, fault), "Traceback" in err) == (1, [], False), form
        assert row.partition("[")[0] in out.replace("\\_", "_"), form
        assert f"{100 * score:.2f}" not in out, form
        assert repr(score) not in out, form
    for reader in (
        ("compare", row, "noise"),
        ("compare", "--show-items", row, "noise"),
        ("stats",),
        ("verify", str(path), "--rerun"),
    ):
        code, _, err = cli(*reader)
        assert (code, missing_facts(err, path, fault)) == (2, []), reader
    assert cli("bundle", "local", "--out", "local.zip")[0] == 1


def without_pairing(record: dict[str, Any]) -> None:
    for stage in record["training"]["stages"].values():
        stage.get("text", {}).pop("paired", None)


@pytest.mark.parametrize(
    ("row", "edit", "fact"),
    [
        ("static", lambda record: record["training"].pop("members"), "names none"),
        ("edfse", without_pairing, "pairs of paraphrases"),
        ("edfse_d", without_pairing, "teacher/sub1, teacher/sub2"),
        ("simcse", lambda record: record["training"].update(supervised=True), "says that it learned"),
    ],
)
def test_reports_read_the_marks_of_a_card(cli: Cli, tmp_path: Path, row: str, edit: Edit, fact: str) -> None:
    source = Path(__file__).parents[2] / "results" / "mini-equal" / "mini-equal" / row
    campaign = shutil.copytree(source, tmp_path / "results" / "local" / "mini-equal" / row)
    assert cli("report")[0] == 0
    for path in campaign.glob("*/mini.json"):
        forge(path, edit)
    code, _, err = cli("report")
    assert (code, missing_facts(err, fact), "Traceback" in err) == (1, [], False)


def test_nobody_is_said_to_have_learned_from_labels(cli: Cli) -> None:
    path = run(cli, "simcse", "simcse")
    assert found_by_verify(cli) == {}
    before = path.read_text()
    said = lock_files.unpinned_note("was audited by the maintainers (p < 0.001), and any other text")
    forge(path, lambda record: record["notes"].append(said))
    assert found_by_verify(cli) == {where(path): {"notes"}}
    path.write_text(before)
    forge(path, lambda record: record["training"].update(supervised=True))
    assert found_by_verify(cli) == {where(path): {"notes"}}
    assert cli("verify", str(path), "--rerun")[0] == 2


@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record.update(notes=[]),
        lambda record: record["notes"].append("The best of all."),
        lambda record: record.update(notes=["Nothing to say."]),
    ],
)
@pytest.mark.parametrize("path", [ONE, WORDS], ids=["seeded", "without a seed"])
def test_notes_are_those_of_the_run(results: Cli, path: Path, edit: Edit) -> None:
    forge(path, edit)
    assert found_by_verify(results) == {where(path): {"notes"}}
    code, _, err = results("verify", str(path), "--rerun")
    assert (code, "note" in err) == (3, True)


def test_where_a_text_came_from_is_said_in_one_form(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    text = tmp_path / "corpus" / lock_files.WIKI1M
    text.parent.mkdir()
    text.write_text("".join(f"{sentence}\n" for sentence in toy_sentences()))
    path = run(cli, "simcse", "simcse", given=("--corpus", str(text), "--backbone", str(tiny_bert)))
    note = "The training text wiki1m_for_simcse.txt is not from the pinned source."
    record = parse_record(path.read_text(), str(path))
    spec = build_rerun_spec(record, None, str(tiny_bert), text, (), tmp_path)
    unpinned = make_plan(spec)
    lock_files.write_pin(text, lock_files.measure_text(text, address="https://example.org/wiki"))
    pinned = make_plan(spec)
    assert note in record.notes
    for plan in (unpinned, pinned):
        without = replace(record, notes=tuple(each for each in record.notes if each != note))
        for honest in (record, without):
            assert list(compare_notes(honest, plan, find_repeating_job(plan, honest))) == []
        for name in ("was audited by the maintainers, and any other text", lock_files.NLI):
            planted = lock_files.unpinned_note(name)
            forged = replace(record, notes=(*record.notes, planted))
            found = list(compare_notes(forged, plan, find_repeating_job(plan, forged)))
            assert [missing_facts(what, planted) for what in found] == [[]]


def test_notes_under_a_name_of_the_users_own(cli: Cli) -> None:
    path = run(cli, "mine=sup_simcse", "sup_simcse")
    assert json.loads(path.read_text())["notes"][-1].startswith("mine is supervised: ")
    assert found_by_verify(cli) == {}
    code, out, err = cli("verify", str(path), "--rerun")
    assert (code, out[:6]) == (0, "equal:"), err


def test_texts_and_models_under_other_names(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    pairs, sentences = tmp_path / "mine.tsv", toy_sentences()
    rows = zip(sentences[:24], sentences[24:48], strict=True)
    pairs.write_text("".join(f"{one}\t{other}\n" for one, other in rows))
    path = run(cli, "sup_simcse", "sup_simcse", given=("--pairs", str(pairs), "--backbone", str(tiny_bert)))
    assert "mine.tsv" in json.loads(path.read_text())["notes"][-1]
    pairs, model = pairs.rename(tmp_path / "other.tsv"), shutil.copytree(tiny_bert, tmp_path / "renamed")
    code, out, err = cli("verify", str(path), "--rerun", "--pairs", str(pairs), "--model", str(model))
    assert (code, out[:6]) == (0, "equal:"), err


def seeded(path: Path, seed: int) -> Path:
    """Copy a deterministic record to a seed, its predictions in another last digit."""
    copy = path.parents[1] / f"seed-{seed}" / path.name
    shutil.copytree(path.parent, copy.parent)
    forge(copy, partial(dict.update, seed=seed))
    return copy


def test_a_deterministic_method_has_no_seeds_and_a_seeded_one_has(results: Cli) -> None:
    alone = NOISE / "no-seed" / "toy.json"
    shutil.move(NOISE / "seed-1", alone.parent)
    forge(alone, partial(dict.update, seed=None))
    assert found_by_verify(results) == {where(alone): {"method"}}
    copies = [seeded(WORDS, seed) for seed in range(1, 6)]
    shutil.rmtree(WORDS.parent)
    found = found_by_verify(results)
    assert all("method" in found[where(copy)] for copy in copies)
    assert missing_facts(results("verify")[1], "word_overlap draws nothing", "seed 1") == []


def test_a_sum_of_deterministic_methods_has_no_seeds(cli: Cli) -> None:
    words = ("run", "--methods", "ensemble:untrained+untrained[pooling=avg]", "--seeds", "1-3")
    assert cli(*words, "--suite", "toy")[0] == 0
    (name,) = records(Path.cwd())
    path = Path("results", "local", name)
    assert (path.parent.name, found_by_verify(cli)) == ("no-seed", {})
    copy = seeded(path, 4)
    shutil.rmtree(path.parent)
    assert found_by_verify(cli) == {where(copy): {"method"}}
    assert "seed" in cli("verify", str(copy), "--rerun")[2]


def test_an_unknown_method_or_profile_is_said(results: Cli) -> None:
    moved = Path("results/local/mini/nonesuch/seed-1/toy.json")
    shutil.move(NOISE / "seed-1", moved.parent)
    moved.parents[1].mkdir(exist_ok=True)
    forge(moved, partial(dict.update, name="nonesuch", method="nonesuch"))
    elsewhere = Path("results/local/nowhere/noise/seed-2/toy.json")
    elsewhere.parents[1].mkdir(parents=True)
    shutil.move(NOISE / "seed-2", elsewhere.parent)
    forge(elsewhere, partial(dict.update, profile="nowhere"))
    code, out, _ = results("verify")
    assert code == 0
    assert missing_facts(out, "not checked: method", "nonesuch", "not checked: profile", "nowhere") == []
    newer = NOISE / "seed-3" / "toy.json"
    forge(newer, lambda record: record["evaluation"].update(version=2))
    assert found_by_verify(results) == {where(newer): {"method"}}
    assert missing_facts(results("verify")[1], "version 2", "has 1") == []


@pytest.mark.parametrize(("value", "expected"), [("much", "a number"), ("2.0", "of its type")])
def test_a_value_that_no_run_takes(results: Cli, value: str, expected: str) -> None:
    forge(ONE, lambda record: record["options"].update(scale=value))
    assert found_by_verify(results) == {where(ONE): {"method"}}
    facts = f"{where(ONE)}: method: ", "scale of noise", repr(value), expected, "delete the file"
    assert missing_facts(results("verify")[1], *facts) == []
    assert _verify_campaign(ResultStore(Path("results"), "local"), None).status == "faults"


def test_a_value_that_no_run_of_a_member_takes(results: Cli) -> None:
    discover()
    record = parse_record(ONE.read_text(), str(ONE))
    card = METHODS.get("untrained").card
    for version, value, found in (
        (card.version, "the best", 1),
        (card.version, "avg", 0),
        (0, "the best", 0),
    ):
        member = {"method": "untrained", "version": version, "options": {"pooling": value}}
        other = replace(record, training={"members": {"x": {**member, "members": {}}}})
        wrong = [what for _, what, _ in check_metadata(other, Verification()) if "pooling" in what]
        assert len(wrong) == found
        assert all("'the best'" in what for what in wrong)


@pytest.mark.parametrize("plugged", ["word_overlap", "helper"])
@pytest.mark.parametrize("facts", ["file", "package"])
def test_no_method_of_benchs_own_comes_from_a_plug_in(results: Cli, plugged: str, facts: str) -> None:
    Path("x.py").write_text("# nothing\n")
    sha256 = hashlib.sha256(b"# nothing\n").hexdigest()
    block = {"file": "x.py", "sha256": sha256} if facts == "file" else {"module": "x", "package": "x"}
    forge(WORDS, lambda record: record["provenance"].update(plugins={plugged: block}))
    assert found_by_verify(results, "--plugin", "x.py") == {where(WORDS): {"method"}}
    said = {"word_overlap": "is bench's own", "helper": "plug-in of helper"}
    code, out, err = results("verify", "--rerun", "9")
    assert (code, said[plugged] in out, f"{where(WORDS)}: computing" in err) == (1, True, False)


@pytest.mark.slow
def test_another_name_hides_no_labels(cli: Cli) -> None:
    path = run(cli, "sup_simcse", "sup_simcse")
    forge(path, stripped)
    renamed = path.parents[2] / "mine" / "seed-1" / path.name
    shutil.move(path.parents[1], path.parents[2] / "mine")
    forge(renamed, lambda record: record.update(method="mine", name="simcse"))
    code, out, err = cli("report")
    assert (code, missing_facts(err, "its stage sup_simcse learns from labels")) == (1, []), err
    assert not re.search(r"mine +1 +\d", out)
