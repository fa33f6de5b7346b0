"""A co-author's folder: everything but a run of the plug-in works without its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.exchange.campaign_bundle import list_requirements, read_cards
from bench.records.store import ResultStore
from bench.verify import archive
from tests.support.bundles import NOISE, edited, rewritten, snapshot, unchanged
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts
from tests.verify.conftest import PLUGIN

Files = dict[str, bytes]
UNPACK = ("bundle", "--extract", "local.zip", "--into", "shared")
CARD = """
from bench import method_card as card
from bench.method_card import MethodCard, Option
class One:
    card = card.MethodCard("one", "test", "first" " line", 1, equations=["a", "b"], needs_backbone=False,
                           options=(Option("k", -2, "help", minimum=-3), Option("way", "x", "w", ("x", "y"))))
"""


def test_reports_need_no_code_and_the_bundle_can_be_made_again(work: Path, cli: Cli, files: Files) -> None:
    code, out, err = cli(*UNPACK)
    assert code == 0, err
    assert missing_facts(out, "shared/plugins/mine.py, not run", "mine (test, version") == []
    assert ("code can make" in out, "to repeat" in out) == (False, False)
    shared = {name for name, content in snapshot(work / "shared").items() if content is not None}
    kept = {name for name in files if name not in archive.ALWAYS} | {archive.ENVIRONMENT}
    assert shared == {
        f"results/local/{name.removeprefix('records/')}" if name.startswith(("records/", "sweeps/")) else name
        for name in kept
    }
    where = ("--results", "shared/results", "--campaign", "local")
    for name, form in archive.REPORTS.items():
        details = ("--details",) if form == "text" else ()
        assert cli("report", *where, "--format", form, *details)[1].encode() == files[name]
    assert cli("compare", "mine", "noise", *where)[0] == 0
    plugin = ("--plugin", "shared/plugins/mine.py")
    code, out, _ = cli("verify", "shared/results/local", *plugin)
    assert (code, "nothing wrong" in out, "not at hand" in out) == (0, True, False)
    assert cli("bundle", "local", "--out", "again.zip", "--results", "shared/results", *plugin)[0] == 0
    assert (work / "again.zip").read_bytes() == (work / "local.zip").read_bytes()
    assert not (work / "loaded").exists()  # the plug-in was never run


def test_the_plug_in_that_came_along_repeats_its_cells(work: Path, cli: Cli) -> None:
    cli(*UNPACK)
    record = "shared/results/local/mini/mine/seed-1/toy.json"
    code, _, err = cli("verify", record, "--rerun")
    assert (code, missing_facts(err, "'mine'", "'mine.py'")) == (2, [])
    assert not (work / "loaded").exists()
    code, out, _ = cli("verify", record, "--rerun", "--plugin", "shared/plugins/mine.py")
    assert (code, out[:6]) == (0, "equal:")
    assert (work / "loaded").exists()


def test_a_full_folder_and_no_bundle_are_refused(work: Path, cli: Cli, files: Files) -> None:
    (work / "empty").mkdir()
    assert cli("bundle", "--extract", "local.zip", "--into", "empty")[0] == 0
    with unchanged(work):
        for bundle, into, facts in (
            ("local.zip", "empty", ("empty: ", "already exists")),
            ("local.zip", "mine.py", ("mine.py: ", "already exists")),
            ("mine.py", "new", ("mine.py: ", "not a bundle")),
        ):
            assert missing_facts(refusal(cli, "bundle", "--extract", bundle, "--into", into), *facts) == []
    other = rewritten(work, files, campaign="../outside")
    assert "'../outside'" in refusal(cli, "bundle", "--extract", str(other), "--into", "new")
    assert not (work / "new").exists()


def test_what_is_in_no_bundle_is_named(work: Path) -> None:
    records = ResultStore(work / "results", "local").records()
    assert list_requirements(records) == ()
    model, text = {"name": "m", "sha256": "ab" * 32}, {"name": "c.txt", "sha256": "cd" * 32}
    own = replace(
        records[0], profile="minilm@1", backbone=model, suite="sts7", training={"corpus": text}, world=None
    )
    named = {what.partition(" (")[0]: where for what, where in list_requirements([own, own])}
    assert list(named.values()) == ["--model", "--corpus", "--data"]
    assert [missing_facts(*each) for each in zip(named, ("model m", "c.txt", "sts7"), strict=True)] == 3 * [
        []
    ]
    assert "profile minilm" in list_requirements([replace(own, profile="minilm")])[0][1]
    world = replace(own, training={"corpus": {**text, "name": "mini-3.txt"}}, world={"seed": 3})
    assert [where for _, where in list_requirements([world])] == ["--model", "--data"]


def test_cards_are_read_from_source() -> None:
    (card,), whole = read_cards(CARD.encode())
    assert whole
    assert (card.name, card.summary, card.equations) == ("one", "first line", ("a", "b"))
    assert [(option.default, option.minimum) for option in card.options] == [(-2, -3), ("x", None)]
    assert [made.name for made in read_cards(PLUGIN.encode())[0]] == ["mine"]


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"card = MethodCard(",
        b"\0",
        b"card = MethodCard(" + b"(" * 5000 + b")" * 5000 + b")",
        b"x = " + b"-" * 100_000 + b"1",
        b"card = MethodCard(name=NAME, kind='a', summary='b', version=1)",
        b"card = MethodCard(**facts)",
        b"card = MethodCard(name=1, kind='a', summary='b', version=1)",
        b"card = MethodCard(name='a', kind='a', summary=__import__('os').getcwd(), version=1)",
        b"card = MethodCard('a', 'a', 'a', 1, options=(1, 2))",
    ],
)
def test_a_card_that_only_code_can_make_is_said_to_be_one(source: bytes) -> None:
    assert read_cards(source) == ((), False)


def without_tail(files: dict[str, bytes]) -> None:
    files[f"{NOISE}.json"] = files[f"{NOISE}.json"][:-40]


def newer(files: dict[str, bytes]) -> None:
    files[f"{NOISE}.json"] = files[f"{NOISE}.json"].replace(b'"schema": 3', b'"schema": 4')


def copied(files: dict[str, bytes]) -> None:
    three = NOISE.replace("seed-1", "seed-3")
    files[f"{three}.json"] = edited(files[f"{NOISE}.json"], lambda data: data.update(seed=3))
    files[f"{three}.npz"] = files[f"{NOISE}.npz"]


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (without_tail, ("mini/noise/seed-1/toy.json: ", "run record")),
        (newer, ("mini/noise/seed-1/toy.json: ", "schema 4", "schema 3")),
        (copied, ("mini/noise/seed-3/toy.json: ", "mini/noise/seed-1/toy.json", "equal")),
        (lambda f: f.update({"sweeps/mini-caels.json": b"{}"}), ("sweeps/mini-caels.json: ", "'sweep'")),
        (lambda f: f.update({f"{NOISE}x.npz": f[f"{NOISE}.npz"]}), (f"names '{NOISE}x.npz'",)),
        (lambda f: f.pop(f"{NOISE}.npz"), (f"'{NOISE}.npz', which",)),
        (lambda f: f.update({"plugins/numpy.py": b""}), ("names 'plugins/numpy.py'",)),
        (lambda f: f.pop("plugins/mine.py"), ("'plugins/mine.py', which",)),
        (lambda f: f.pop("profiles/mini.toml"), ("'profiles/mini.toml', which",)),
    ],
)
def test_what_its_records_do_not_call_for_is_refused(
    work: Path, cli: Cli, files: Files, change: Callable[[Files], object], facts: tuple[str, ...]
) -> None:
    change(files)
    other = rewritten(work, files)
    with unchanged(work):
        err = refusal(cli, "bundle", "--extract", str(other), "--into", "new")
        advice = "upgrade cse-bench" if change is newer else "its sender"
        assert missing_facts(err, f"error: {other}: ", *facts, advice) == []
        assert ("delete" in err, "tmp/results" in err) == (False, False)
