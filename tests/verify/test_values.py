"""Values that no run gives: impossible times, and names that pose as others."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.records.look_alikes import find_look_alike, write_in_latin
from bench.records.record import parse_record
from bench.records.timing import find_impossible_start, find_timing_faults, start_date
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.verified import CAMPAIGN, NOISE, ONE, found_by_verify, where

Edit = Callable[[dict[str, Any]], object]
EXPORTED = "sim\N{CYRILLIC SMALL LETTER ES}se"
READERS = (
    ("compare", "noise", "word_overlap"),
    ("stats",),
    ("compare", "--show-items", "noise", "word_overlap"),
    ("probe",),
)


def set_times(record: dict[str, Any], **times: Any) -> None:
    record["timing"].update(times)


def set_probe_times(record: dict[str, Any], **times: Any) -> None:
    record["timing"]["probes"] = times


def refused_by_readers(cli: Cli, path: Path, *facts: str) -> None:
    """Every command refuses the record, and a report has its row without a score."""
    code, out, err = cli("report", "--format", "csv")
    assert (code, missing_facts(err, path, *facts), "Traceback" in err) == (1, [], False), (out, err)
    for reader in READERS:
        code, _, err = cli(*reader)
        assert (code, missing_facts(err, path, *facts)) == (2, []), reader


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (partial(set_times, cpu_seconds=-333333323.0), "timing.cpu_seconds"),
        (partial(set_times, wall_seconds=-1), "timing.wall_seconds"),
        (partial(set_times, training_cpu_seconds={"joint": -0.5}), "timing.training_cpu_seconds.joint"),
        (partial(set_times, started="yesterday"), "timing.started"),
        (partial(set_times, started="2026-11-01"), "timing.started"),
        (partial(set_times, started=7), "timing.started"),
        (partial(set_times, cores=-2), "timing.cores"),
        (partial(set_probe_times, wall_seconds=-1.0), "timing.probes.wall_seconds"),
        (partial(set_probe_times, sentences_per_second=-9), "timing.probes.sentences_per_second"),
        (partial(set_probe_times, peak_memory_mb=-9), "timing.probes.peak_memory_mb"),
    ],
)
def test_no_time_is_negative_or_no_time(results: Cli, edit: Edit, field: str) -> None:
    text = ONE.read_text()
    forge(ONE, edit, "kept")
    assert found_by_verify(results) == {where(ONE): {"shape"}}
    refused_by_readers(results, ONE, field)
    ONE.write_text(text)
    assert results("report")[0] == 0


@pytest.mark.parametrize(
    ("edit", "facts"),
    [
        (partial(set_times, cpu_seconds=333333323.0), ("333,333,323.0 CPU seconds", "cores")),
        (partial(set_times, cpu_seconds=100.0, wall_seconds=2.0, cores=2), ("100.0 CPU seconds", "2 cores")),
        (partial(set_times, cpu_seconds=1e14, cores=None), ("CPU seconds", "cores")),
        (partial(set_times, cpu_seconds=1e15, cores=0), ("CPU seconds", "cores")),
        (partial(set_times, training_cpu_seconds={"joint": 4e6}), ("stage joint", "4,000,000")),
    ],
)
def test_no_machine_gives_more_seconds_than_it_has(results: Cli, edit: Edit, facts: tuple[str, ...]) -> None:
    forge(ONE, edit)
    assert found_by_verify(results) == {where(ONE): {"timing"}}
    assert missing_facts(results("verify")[1], *facts) == []
    refused_by_readers(results, ONE, *facts)


@pytest.mark.parametrize(
    "times",
    [
        {"started": "2099-01-01T00:00:00+00:00"},
        {"wall_seconds": 333333323.0},
    ],
)
def test_no_run_is_still_to_come(results: Cli, times: dict[str, Any]) -> None:
    forge(ONE, partial(set_times, **times))
    assert found_by_verify(results) == {where(ONE): {"timing"}}
    assert missing_facts(results("verify")[1], "still to come", "clock") == []
    code, out, _ = results("list", "campaigns")
    assert (code, "2099" in out) == (0, False)
    code, _, err = results("bundle", "local", "--out", "local.zip")
    assert (code, Path("local.zip").exists()) == (1, False), err


def test_another_clock_may_be_a_day_ahead(results: Cli) -> None:
    record = parse_record(ONE.read_text(), str(ONE))
    begin = datetime.fromisoformat(record.timing["started"])
    assert find_impossible_start(record) == ""
    assert find_impossible_start(record, begin - timedelta(hours=23)) == ""
    assert "still to come" in find_impossible_start(record, begin - timedelta(hours=25))
    assert start_date(record) == record.timing["started"]
    record.timing["started"] = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    assert start_date(record) == ""
    del record.timing["started"]
    assert (find_impossible_start(record), start_date(record), list(find_timing_faults(record))) == (
        "",
        "",
        [],
    )


@pytest.mark.parametrize(
    "name",
    [
        EXPORTED,
        "\N{CYRILLIC SMALL LETTER ER}\N{CYRILLIC SMALL LETTER ES}\N{CYRILLIC SMALL LETTER PALOCHKA}",  # pcl
        "\N{GREEK CAPITAL LETTER MU}PT",
        "t\N{ARMENIAN SMALL LETTER VO}cse",
        "\N{FULLWIDTH LATIN SMALL LETTER P}cl",
        "\N{MATHEMATICAL SANS-SERIF SMALL P}\N{MATHEMATICAL SANS-SERIF SMALL C}",
        "bert\N{CYRILLIC SMALL LETTER YA}",
        "s\N{LATIN SMALL LETTER DOTLESS I}mcse",
        "S\N{LATIN SMALL LETTER DOTLESS I}mCSE[lr=1e-05]",
        "simcs\N{LATIN SMALL LETTER E WITH ACUTE}",
        "\N{LATIN LETTER SMALL CAPITAL R}ankcse",
        "tncse-\N{CYRILLIC SMALL LETTER U}c",
        "simcse\N{MATHEMATICAL BOLD DIGIT TWO}",
        "simcse\N{FULLWIDTH LEFT SQUARE BRACKET}1",
        "simcse\N{COMBINING DOT BELOW}",
        "sim\N{LISU LETTER SA}se",
        "simc\N{HEBREW LETTER SAMEKH}e",
        "simcs\N{CHEROKEE SMALL LETTER E}",
        "simcse\N{VARIATION SELECTOR-16}",
        "\u65e5\u672c\N{VARIATION SELECTOR-16}",
        "simcse\N{HANGUL FILLER}",
        "simcse\N{BRAILLE PATTERN BLANK}",
        "sim\N{COMBINING GRAPHEME JOINER}cse",
        "simcse\N{KHMER VOWEL INHERENT AQ}",
    ],
    ids=ascii,
)
def test_a_name_that_poses_as_another(name: str) -> None:
    assert missing_facts(find_look_alike(name), name, write_in_latin(name), "has the character U+") == []


@pytest.mark.parametrize("name", ["simcse ", " simcse", "my  simcse"])
def test_blanks_that_nobody_sees(name: str) -> None:
    assert "blank" in find_look_alike(name)


@pytest.mark.parametrize(
    "name",
    [
        "simcse[lr=1e-05]",
        "my simcse",
        "M\N{LATIN SMALL LETTER U WITH DIAERESIS}nchen-1a2b3c4d",
        "\u043c\u043e\u0434\u0435\u043b\u044c-bert-1a2b3c4d",
        "\u0441\u043e\u0440",  # three Cyrillic look-alikes that spell no method
        "\u65e5\u672c\u8a9eBERT\u30e2\u30c7\u30eb",
        "\u0939\u093f\u0928\u094d\u0926\u0940",  # vowel signs are marks
        "\N{GREEK SMALL LETTER MU}bert",
        "simcse-\N{GREEK SMALL LETTER ALPHA}",
        "\N{GREEK SMALL LETTER LAMDA}=0.1",
        "k\N{LATIN SMALL LETTER DOTLESS I}sa",
        "E=mc\N{SUPERSCRIPT TWO}",
        "7-8_9",
    ],
    ids=ascii,
)
def test_a_name_of_any_language(name: str) -> None:
    assert find_look_alike(name) == ""


@pytest.mark.parametrize("field", ["method", "name", "profile", "suite"])
def test_no_command_reads_a_look_alike(results: Cli, field: str) -> None:
    from bench.records.record import safe_name

    names = {"method": "noise", "name": "noise", "profile": "mini", "suite": "toy"}
    posing = (
        names[field].replace("o", "\N{CYRILLIC SMALL LETTER O}").replace("m", "\N{GREEK CAPITAL LETTER MU}")
    )
    folder = {**names, field: posing}
    root = CAMPAIGN.parent / safe_name(folder["profile"]) / safe_name(folder["method"])
    path = root / "seed-7" / f"{safe_name(folder['suite'])}.json"
    path.parent.mkdir(parents=True)
    shutil.copy(ONE, path)
    shutil.copy(ONE.with_suffix(".npz"), path.with_suffix(".npz"))
    digest = hashlib.sha256(ONE.with_suffix(".npz").read_bytes()).hexdigest()
    facts = {"file": f"{path.stem}.npz", "sha256": digest}
    forge(path, lambda record: record.update({field: posing, "seed": 7, "predictions": facts}))
    assert "method" in found_by_verify(results)[where(path)]
    refused_by_readers(results, path, posing, "looks like", names[field] if field != "profile" else "Mini")


def test_no_run_makes_a_look_alike(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    folder = shutil.copytree(tiny_bert, tmp_path / EXPORTED)
    arguments = ("run", "--suite", "toy", "--methods")
    code, _, err = cli(*arguments, f"hf:{folder}")
    assert (code, missing_facts(err, EXPORTED, "looks like", "CYRILLIC", "--methods")) == (2, [])
    assert not list(Path("results").rglob("*.json"))
    assert cli(*arguments, f"mine=hf:{folder}")[0] == 0
    assert found_by_verify(cli) == {}
    assert NOISE.parts[1] == "local"


def test_no_run_precedes_bench(results: Cli) -> None:
    forge(ONE, partial(set_times, started="0001-01-01T00:00:00+00:00"))
    assert found_by_verify(results) == {where(ONE): {"timing"}}
    assert "before there was a bench" in results("verify")[1]
