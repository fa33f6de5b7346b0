"""Files of other commands beside the records: sealed by the campaign's manifest, or marked."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.errors import DataError
from bench.records.campaign_manifest import FILE, read_campaign_manifest, seal_campaign_files
from tests.reports.conftest import OVERLAP, PROBED
from tests.support.cli import Cli
from tests.support.messages import missing_facts
from tests.support.verified import CAMPAIGN, found_by_verify, where

ROOT = CAMPAIGN.parent
MARK = "As recorded, under no seal of the campaign"
NAMES = ("overlap.csv", "probes.json", "gradient/gradient-hardest.csv")


@pytest.fixture
def beside(results: Cli) -> Cli:
    """A campaign with a file of each kind that a shell may have written."""
    (ROOT / "gradient").mkdir()
    (ROOT / "overlap.csv").write_text(OVERLAP)
    (ROOT / "probes.json").write_text(json.dumps(PROBED))
    (ROOT / "gradient" / "gradient-hardest.csv").write_text(
        "mu_neg,tau,share,share_released\n0.2,0.05,0.4,0.5\n0.4,0.05,0.5,0.6\n"
    )
    return results


def seal(cli: Cli) -> None:
    code, out, _ = cli("verify", "--seal")
    assert (code, missing_facts(out, *(f"local/{name}: sealed" for name in NAMES))) == (0, []), out


def reseal(edit: Any) -> None:
    """Edit the manifest, and give it the hash of its new facts."""
    data = json.loads((ROOT / FILE).read_text())
    del data["sha256"]
    edit(data)
    body = json.dumps(data, sort_keys=True, ensure_ascii=False)
    data["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    (ROOT / FILE).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def test_what_no_manifest_names_is_marked(beside: Cli) -> None:
    code, out, _ = beside("report", "--table", "overlap")
    assert (code, MARK in out) == (0, True)
    page = beside("report", "--format", "html")[1]
    assert missing_facts(page, f"{MARK}: {', '.join(sorted(NAMES))}.") == []
    code, out, _ = beside("verify")
    assert (code, missing_facts(out, *(f"{name}, under no seal" for name in NAMES))) == (0, []), out


def test_what_is_sealed_is_not_marked(beside: Cli) -> None:
    seal(beside)
    first = (ROOT / FILE).read_bytes()
    assert MARK not in beside("report", "--table", "overlap")[1]
    assert MARK not in beside("report", "--format", "html")[1]
    code, out, _ = beside("verify", "--seal")
    assert (code, missing_facts(out, *(f"{name}, sealed" for name in NAMES))) == (0, []), out
    assert ": sealed\n" not in out
    assert (ROOT / FILE).read_bytes() == first


@pytest.mark.parametrize("name", NAMES)
def test_an_edited_file_is_refused(beside: Cli, name: str, tmp_path: Path) -> None:
    seal(beside)
    text = (ROOT / name).read_text()
    (ROOT / name).write_text(text.replace("0.5", "0.6").replace("10", "20"))
    assert found_by_verify(beside) == {f"local/{name}": {"manifest"}}
    code, _, err = beside("report", "--format", "html")
    assert (code, missing_facts(err, ROOT / name, "changed since it was sealed", "--seal")) == (2, [])
    code, _, err = beside("site", "--out", "site")
    assert (code, missing_facts(err, "changed since it was sealed")) == (1, [])
    (ROOT / name).write_bytes(text.replace("\n", "\r\n").encode())  # as git may check it out on Windows
    assert found_by_verify(beside) == {}
    (ROOT / name).unlink()
    assert found_by_verify(beside) == {f"local/{name}": {"manifest"}}


def test_a_file_written_again_is_sealed_again(beside: Cli) -> None:
    seal(beside)
    (ROOT / "overlap.csv").write_text(OVERLAP.replace("10", "20"))
    code, _, err = beside("report", "--table", "overlap")
    assert (code, missing_facts(err, "bench verify results/CAMPAIGN --seal")) == (2, [])
    code, out, _ = beside("verify", str(ROOT), "--seal")
    assert (code, "overlap.csv: sealed" in out, "probes.json: sealed" in out) == (0, True, False), out
    assert beside("report", "--table", "overlap")[0] == 0
    (ROOT / "overlap.csv").unlink()
    assert found_by_verify(beside) == {"local/overlap.csv": {"manifest"}}
    assert found_by_verify(beside, "--seal") == {}  # forgotten
    assert "overlap.csv" not in (read_campaign_manifest(ROOT) or {})


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("{}", "'schema' is missing"),
        ("[]", "no manifest"),
        ("\xff", "no manifest"),
        ("[" * 100_000, "no manifest"),
        ('{"schema": 9, "files": {}, "sha256": ""}', "newer"),
        ('{"schema": 1, "files": {}, "sha256": ""}', "changed since it was written"),
        ('{"schema": 1, "files": {"../../x": ""}, "sha256": ""}', "no file below the campaign"),
        ('{"schema": 1, "files": {"/etc/passwd": ""}, "sha256": ""}', "no file below the campaign"),
        ('{"schema": 1, "files": {"a\\\\b": ""}, "sha256": ""}', "no file below the campaign"),
    ],
)
def test_a_damaged_manifest(beside: Cli, text: str, fact: str) -> None:
    (ROOT / FILE).write_text(text, encoding="latin-1")
    assert found_by_verify(beside) == {f"local/{FILE}": {"manifest"}}
    assert found_by_verify(beside, "--seal") == {f"local/{FILE}": {"manifest"}}
    code, _, err = beside("report", "--table", "overlap")
    assert (code, missing_facts(err, ROOT / FILE, fact), "Traceback" in err) == (2, [], False)


def test_an_edited_manifest(beside: Cli) -> None:
    seal(beside)
    content = (ROOT / FILE).read_text()
    sha256 = read_campaign_manifest(ROOT)
    assert sha256 is not None
    (ROOT / FILE).write_text(content.replace(sha256["overlap.csv"], "0" * 64))
    with pytest.raises(DataError, match="changed since it was written"):
        read_campaign_manifest(ROOT)
    (ROOT / FILE).write_text(content)
    reseal(lambda data: data["files"].pop("overlap.csv"))  # which anybody can
    assert found_by_verify(beside) == {}
    assert MARK in beside("report", "--table", "overlap")[1]


def test_a_link_or_a_pipe_is_no_manifest(beside: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    (ROOT / FILE).symlink_to(other)
    assert found_by_verify(beside, "--seal") == {f"local/{FILE}": {"manifest"}}
    assert other.read_text() == "{}"
    (ROOT / FILE).unlink()
    os.mkfifo(ROOT / FILE)
    assert found_by_verify(beside) == {f"local/{FILE}": {"manifest"}}
    (ROOT / FILE).unlink()
    (ROOT / "probes.json").rename(tmp_path / "probes.json")
    (ROOT / "probes.json").symlink_to(tmp_path / "probes.json")
    code, out, _ = beside("verify", "--seal")
    assert (code, "local/probes.json: sealed" in out, "local/overlap.csv: sealed" in out) == (0, False, True)


def test_no_file_of_a_campaign_is_a_stray(beside: Cli) -> None:
    seal(beside)
    beside("stats")
    (ROOT / "plan.json").write_text("{}")
    found = found_by_verify(beside)
    assert "stray" not in {check for checks in found.values() for check in checks}
    assert where(ROOT / FILE) not in found


def test_a_bundle_takes_no_manifest(beside: Cli) -> None:
    seal(beside)
    assert beside("bundle", "local", "--out", "local.zip")[0] == 0
    code, _, err = beside("merge", "local.zip", "--into", "merged")
    assert code == 0, err
    assert not (Path("merged") / "local" / FILE).exists()


def test_sampled_angles_are_sealed_as_they_are_written(results: Cli) -> None:
    from bench.gradient.run import SAMPLED

    code, _, err = results("gradient", "--out", "results/local/gradient")
    assert code == 0, err
    sealed = read_campaign_manifest(ROOT)
    assert sealed is not None
    assert f"gradient/{SAMPLED}" in sealed
    assert found_by_verify(results) == {}
    assert MARK not in results("report", "--format", "html")[1]
    assert seal_campaign_files(ROOT, [f"gradient/{SAMPLED}"]) == [f"gradient/{SAMPLED}"]


def test_seals_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    names = [f"probes-{number}.json" for number in range(24)]
    for name in names:
        (tmp_path / name).write_text(name)
    with ThreadPoolExecutor(8) as pool:  # each has a descriptor of its own, like a process
        list(pool.map(lambda name: seal_campaign_files(tmp_path, [name]), names))
    assert sorted(read_campaign_manifest(tmp_path) or ()) == sorted(names)


def test_a_damaged_file_with_a_hash_of_its_own_is_found(beside: Cli) -> None:
    (ROOT / "along.json").write_text("[[[[")
    assert found_by_verify(beside) == {"local/along.json": {"manifest"}}
    assert "along.json, with a finding" in beside("verify")[1]
