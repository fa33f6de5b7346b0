"""``bench check``: a seeded regression fails, noise doesn't; references, files, update."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench import losses
from bench.card import BuildContext, MethodCard, Option
from bench.data.toy import make_toy_task
from bench.errors import DataError
from bench.gate.reference import extract_reference
from bench.records.record import parse_record
from bench.registry import METHODS
from tests.support.cli import Cli, records
from tests.support.forge import forge, forge_predictions

SIZE = 48
RUN = ("run", "--suite", "toy", "--seeds", "1-3", "--methods")
REFERENCE = (*RUN, "noise,word_overlap", "--campaign", "reference")


@cache
def word_vector(word: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A fixed random vector with a few loud directions, which contrast has to turn down."""
    digest = list(hashlib.sha256(word.encode()).digest())
    return np.random.default_rng(digest).normal(size=SIZE) * np.where(np.arange(SIZE) < 4, 6, 1)


def features(sentences: Sequence[str]) -> Tensor:
    rows = [sum(map(word_vector, text.lower().strip(".").split())) for text in sentences]
    return torch.tensor(np.stack(rows), dtype=torch.float32)


class LinearEncoder:
    def __init__(self, weight: Tensor) -> None:
        self.weight, self.dim, self.facts = weight, SIZE, dict[str, Any]()

    def encode(self, sentences: Sequence[str], batch_tokens: object = None, progress: object = None) -> Any:
        return (features(sentences) @ self.weight).numpy()


class Contrast:
    """A linear map of bags of words, trained with SimCSE's loss on dropout views, in milliseconds."""

    card = MethodCard(
        name="contrast",
        kind="test",
        summary="linear",
        version=1,
        needs_backbone=False,
        options=(Option("steps", 30, "steps", minimum=1),),
    )

    def build(self, context: BuildContext) -> LinearEncoder:
        random = torch.Generator().manual_seed(int(context.seed or 0))
        text = features(sorted({sentence for pair in make_toy_task().all_pairs() for sentence in pair}))
        weight = torch.eye(SIZE) + 0.02 * torch.randn(SIZE, SIZE, generator=random)
        weight.requires_grad_()
        optimiser = torch.optim.Adam([weight], lr=0.02)
        for _ in range(int(context.options["steps"])):
            batch = text[torch.randperm(len(text), generator=random)[:32]]
            views = [batch * (torch.rand(32, SIZE, generator=random) > 0.3) for _ in range(2)]
            optimiser.zero_grad()
            torch.autograd.backward(losses.info_nce(views[0] @ weight, views[1] @ weight, 0.05))
            optimiser.step()
        return LinearEncoder(weight.detach())


def without_negatives(anchors: Tensor, positives: Tensor, tau: float) -> Tensor:
    """SimCSE's loss with a term dropped: nothing pushes sentences apart."""
    return -functional.cosine_similarity(anchors, positives).mean() / tau


@pytest.fixture(autouse=True)
def _setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(METHODS._items, "contrast", (Contrast(), __name__))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def paths(tmp_path: Path, method: str, campaign: str = "reference") -> list[Path]:
    return sorted((tmp_path / "results" / campaign / "mini" / method).rglob("toy.json"))


def change(path: Path, **changes: Any) -> None:
    forge(path, lambda record: record.update(changes))


def shift(path: Path, weight: float) -> float:
    """Move predictions to the gold scores, or away from them; return by how many points it rose."""
    gold = np.concatenate([subset.gold for subset in make_toy_task().subsets]).astype(np.float32)
    was = parse_record(path.read_text(), str(path)).score("avg")
    now = forge_predictions(path, lambda predictions: predictions + np.float32(weight) * gold).score("avg")
    assert was is not None
    assert now is not None
    return float(100 * (now - was))


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}


@pytest.mark.slow
def test_a_dropped_loss_term_fails_the_gate_and_noise_does_not(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*RUN, "contrast,word_overlap", "--campaign", "reference")[0] == 0
    before = contents(tmp_path / "results")
    code, out, err = cli("check")
    assert code == 0, err
    assert out.splitlines()[-1] == "PASSED, 2 cells: 2 equal"
    assert contents(tmp_path / "results") == before  # the cells ran elsewhere

    assert cli(*RUN[:3], "--seeds", "5-7", "--methods", "contrast,word_overlap")[0] == 0
    code, out, _ = cli("check", "--results", "results")
    assert code == 0
    assert out.splitlines()[-1].startswith("PASSED, 2 cells: 1 ")
    assert "1 equal" in out

    monkeypatch.setattr("bench.losses.info_nce", without_negatives)
    code, out, err = cli("check")
    assert code == 1
    said = out.splitlines()[-1]
    assert said.startswith("FAILED, 1 of 2 cells: contrast on toy (profile mini) fell by 5.")
    assert "numbers changed on equal versions and CPU" in said
    assert err.count("contrast seed") == 3
    assert cli(*RUN, "contrast,word_overlap", "--campaign", "broken")[0] == 0
    code, out, _ = cli("check", "--results", "results", "--campaign", "broken")
    assert code == 1
    assert said.split(",")[:3] == out.splitlines()[-1].split(",")[:3]  # the same drop and interval
    assert cli("check", "--tolerance", "20")[0] == 0
    assert cli("check", "--methods", "word_overlap")[0] == 0


@pytest.mark.long
def test_simcse_without_its_negatives_fails_the_gate(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = "short=simcse[steps=6,eval_every=6,batch_size=16,lr=1e-3,pooling=avg]"
    assert cli(*RUN, short, "--seeds", "1-4", "--dev", "toy", "--campaign", "reference")[0] == 0
    code, out, err = cli("check")
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal"), err
    monkeypatch.setattr("bench.losses.info_nce", without_negatives)
    code, out, _ = cli("check")
    assert (code, "FAILED, 1 of 1 cell: short on toy (profile mini) fell by" in out) == (1, True)


def test_failed_and_missing_cells_fail_the_gate(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    cli(*RUN, "noise")
    code, out, _ = cli("check", "--results", "results")
    assert code == 1
    assert "FAILED, 1 of 2 cells: word_overlap on toy (profile mini) is missing: there is no record" in out
    assert cli("check", "--results", "results", "--methods", "noise")[0] == 0
    (npz,) = (path.with_suffix(".npz") for path in paths(tmp_path, "noise", "local")[:1])
    npz.write_bytes(b"rotten")
    code, out, _ = cli("check", "--results", "results", "--methods", "noise")
    assert (code, "noise on toy (profile mini) failed: seed 1: its predictions are" in out) == (1, True)

    def broken(context: BuildContext) -> LinearEncoder:
        raise RuntimeError(f"no luck with seed {context.seed}")

    monkeypatch.setattr(METHODS.get("noise"), "build", broken)
    code, out, err = cli("check", "--seeds", "2")
    assert code == 1
    assert "noise seed 2 on toy: FAILED, RuntimeError: no luck with seed 2" in err
    assert "FAILED, 1 of 2 cells: noise on toy (profile mini) failed: seed 2: RuntimeError: no luck" in out


def test_other_specifications_and_data_are_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    cli(*RUN, "noise,word_overlap")
    for path in paths(tmp_path, "noise", "local"):
        change(path, options={"scale": 9.0, "wait": 0.0})
    change(
        paths(tmp_path, "word_overlap", "local")[0], tasks={"TOY": {"sha256": "1" * 64, "reference": True}}
    )
    code, out, err = cli("check", "--results", "results", "--json", "verdict.json")
    assert code == 3
    warning, *lines = err.splitlines()
    assert warning == (
        "warning: scores of toy were not computed again: TOY differs from the version that word_overlap "
        "was measured on"
    )
    assert lines[0] == "not comparable: noise on toy (profile mini): option scale then 1.0, now 9.0"
    assert lines[1].startswith("not comparable: word_overlap on toy (profile mini): data TOY then ")
    assert lines[2].startswith("error: 2 cell(s) have another specification or other data than the reference")
    assert out.splitlines()[-1].startswith("NOT COMPARABLE: noise on toy")
    assert json.loads((tmp_path / "verdict.json").read_text())["exit_code"] == 3

    for path in paths(tmp_path, "noise"):
        change(path, version=0)
    code, _, err = cli("check")
    assert code == 3
    assert "not comparable: noise on toy (profile mini): method version then 0, now 1" in err
    assert "[1/" not in err  # nothing ran
    assert cli("check", "--update", "--yes", "--why", "meant")[0] == 0
    assert cli("check")[1].splitlines()[-1] == "PASSED, 2 cells: 2 equal"


@pytest.mark.parametrize("campaign", ["reference", "local"])
def test_scores_that_predictions_contradict_are_no_reference_and_no_result(
    campaign: str, cli: Cli, tmp_path: Path
) -> None:
    cli(*REFERENCE)
    shutil.copytree(tmp_path / "results" / "reference", tmp_path / "results" / "local")
    (path,) = paths(tmp_path, "word_overlap", campaign)
    scores = json.loads(path.read_text())["scores"]
    change(path, scores=[{**score, "value": score["value"] - 0.02} for score in scores])
    code, out, err = cli("check", "--results", "results")
    said = out if campaign == "reference" else err
    assert (code, bool(out)) == ((1, True) if campaign == "reference" else (2, False))
    assert re.search(r"TOY all spearman is [\d.]+ \(\d+\), its predictions give ", said)
    assert ("CHANGED" in out) == (campaign == "reference")


def test_a_changed_profile_is_noticed_and_own_options_are_kept(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*RUN, "noise,noise[scale=2],mine=noise[scale=3]", "--campaign", "reference")
    assert cli("check")[1].splitlines()[-1] == "PASSED, 3 cells: 3 equal"
    from bench.config import profiles

    load = profiles.load_profile

    def changed(name: str) -> profiles.Profile:
        profile = load(name)  # which is kept: other tests get the same
        return replace(profile, methods={**profile.methods, "noise": {"scale": 7.0}})

    monkeypatch.setattr(profiles, "load_profile", changed)
    code, _, err = cli("check")
    assert code == 3
    assert err.splitlines()[0] == (
        "not comparable: noise on toy (profile mini): option scale then 1.0, now 7.0"
    )
    assert cli("check", "--methods", "noise[scale=2.0],mine")[0] == 0


@pytest.mark.slow
@pytest.mark.long
def test_worker_processes_give_the_same_verdict(cli: Cli) -> None:
    cli(*REFERENCE)
    code, out, err = cli("check", "--workers", "2")
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 2 cells: 2 equal"), err


def test_versions_and_hardware_are_warned_of(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    for path in (*paths(tmp_path, "noise"), *paths(tmp_path, "word_overlap")):
        data = json.loads(path.read_text())
        versions = {**data["provenance"]["versions"], "torch": "1.0"}
        change(path, provenance={**data["provenance"], "versions": versions})
    code, out, err = cli("check")
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 2 cells: 2 equal")
    assert f"warning: torch then 1.0, now {version('torch')}\n" in err


def test_the_files_that_a_ci_system_reads(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli(*REFERENCE)
    shutil.copytree(tmp_path / "results" / "reference", tmp_path / "results" / "local")
    drop = -shift(paths(tmp_path, "word_overlap", "local")[0], -0.01)
    assert 0.5 < drop < 10
    (tmp_path / "summary.md").write_text("what stood there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, _ = cli(
        "check", "--results", "results", "--junit", "out/junit.xml", "--json", "out/verdict.json"
    )  # fmt: skip
    assert code == 1
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("what stood there\n## bench check\n")
    assert "| REGRESSION | word\\_overlap | toy | recompute |" in summary
    assert f"{drop:+.2f}" in summary
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()  # noqa: S314
    (failure,) = root.iter("failure")
    assert f"word_overlap on toy (profile mini) fell by {drop:.2f} points" in str(failure.text)
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["sentence"] == out.splitlines()[-1]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["junit.xml", "verdict.json"]
    code, _, err = cli("check", "--results", "results", "--junit", "summary.md/junit.xml")
    assert (code, "error: --junit: " in err) == (2, True)


def test_update_shows_the_difference_and_replaces_what_changed(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    reference = tmp_path / "results" / "reference"
    whole = contents(reference)
    assert cli("check", "--update", "--yes", "--why", "meant")[1].splitlines()[-1] == "nothing to update"
    assert contents(reference) == whole
    assert shift(paths(tmp_path, "word_overlap")[0], 0.1) > 1
    for arguments, expected in (
        ((), "the reference keeps the reason for every change; expected --why TEXT"),
        (("--why", " "), "the reference keeps the reason for every change; expected --why TEXT"),
        (("--why", "meant"), "there is no terminal to ask on; expected --yes"),
        (
            ("--why", "meant", "--seeds", "1"),
            "bench check: --seeds is not for --update: a cell's seeds are replaced together",
        ),
    ):
        code, out, err = cli("check", "--update", *arguments)
        assert (code, expected in err) == (2, True), err
    code, out, err = cli("check", "--update", "--yes", "--why", "meant")
    assert code == 0, err
    assert ["REGRESSION", "word_overlap"] in [line.split()[:2] for line in out.splitlines()]
    assert out.splitlines()[-1] == "updated 1 cell(s) of the reference"
    assert cli("check")[1].splitlines()[-1] == "PASSED, 2 cells: 2 equal"
    now = dict(contents(reference))
    changes = now.pop("CHANGES.md").decode()
    assert "\n\nmeant\n\n- word\\_overlap on toy (profile mini): " in changes
    assert changes.endswith(", regression\n")
    changed = {name for name in whole if now[name] != whole[name]}
    assert changed <= {"mini/word_overlap/no-seed/toy.json"}  # equal if made in the same second, as quickly
    scores = (json.loads(text["mini/word_overlap/no-seed/toy.json"])["scores"] for text in (now, whole))
    assert next(scores) == next(scores)


def test_update_takes_other_seeds_and_specifications_but_no_broken_cell(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    before = contents(tmp_path / "results" / "reference")
    cli(*RUN, "noise")
    code, _, err = cli("check", "--results", "results", "--update", "--yes", "--why", "meant")
    assert (code, "the reference stays as it was: word_overlap failed or is missing" in err) == (1, True)
    assert contents(tmp_path / "results" / "reference") == before

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    cli(*RUN[:3], "--seeds", "8-9", "--methods", "noise", "--campaign", "next")
    for answer, seeds in (("n\n", ["1", "2", "3"]), ("y\n", ["8", "9"])):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        code, out, _ = cli(
            "check",
            "--results",
            "results",
            "--campaign",
            "next",
            "--update",
            "--why",
            "meant",
            "--methods",
            "noise",
        )
        assert code == 0
        assert [path.parent.name for path in paths(tmp_path, "noise")] == [f"seed-{s}" for s in seeds]
        assert ("nothing was changed" in out) == (answer == "n\n")
    assert len(records(tmp_path, "reference")) == 3


def test_the_first_encoder_makes_the_reference(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    encoder = ("check", "--encoder", str(tiny_bert), "--name", "mine")
    first = ("--suite", "toy", "--profile", "mini", "--update", "--yes", "--why", "the first")
    code, out, err = cli(*encoder, *first)
    assert (code, out.splitlines()[-1]) == (0, "updated 1 cell(s) of the reference"), err
    assert "- mine on toy" in (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert cli(*encoder)[1].splitlines()[-1] == "PASSED, 1 cell: 1 equal"


def test_a_seed_that_a_method_lacks_is_not_passed_over(cli: Cli) -> None:
    cli(*REFERENCE)
    cli(*RUN[:3], "--seeds", "4", "--methods", "n=noise", "--campaign", "reference")
    code, out, err = cli("check", "--seeds", "4")
    assert (code, out) == (2, "")
    assert "noise on toy (profile mini) has none of these seeds; expected of 1, 2, 3, 4" in err
    assert cli("check", "--seeds", "4", "--methods", "n,word_overlap")[0] == 0


def test_a_row_is_found_by_every_spelling(cli: Cli) -> None:
    cli(*RUN, "noise[scale=2],contrast[steps=3]", "--campaign", "reference")
    for spelling in ("noise[scale=2]", "noise[wait=0.0, scale=2.0]", "contrast[steps=3],noise[scale=2e0]"):
        code, out, _ = cli("check", "--methods", spelling)
        assert (code, f"{spelling.count('[')} equal" in out) == (0, True), out
    code, out, err = cli("check", "--methods", "noise[scale=3]")
    assert (code, out) == (2, "")
    assert "unknown method 'noise[scale=3]' (did you mean 'noise[scale=2.0]'?)" in err


def test_an_update_never_leaves_fewer_seeds(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    cli(*RUN[:3], "--seeds", "1", "--methods", "noise")
    shift(paths(tmp_path, "noise", "local")[0], 0.1)
    before = contents(tmp_path / "results" / "reference")
    update = ("check", "--methods", "noise", "--results", "results", "--update", "--yes", "--why", "x")
    code, _, err = cli(*update)
    assert (code, "noise on toy (profile mini) would lose seeds 2, 3 of the reference" in err) == (2, True)
    assert contents(tmp_path / "results" / "reference") == before


def test_another_specification_is_no_new_cell_and_stdout_stays_a_document(cli: Cli, tmp_path: Path) -> None:
    cli(*RUN, "n=noise,word_overlap", "--campaign", "reference")
    cli(*RUN, "n=noise[scale=2.0],word_overlap")
    assert shift(paths(tmp_path, "word_overlap", "local")[0], -0.3) < -1
    code, out, err = cli("check", "--results", "results")
    assert (code, "; FAILED too: word_overlap on toy (profile mini) fell by" in out) == (3, True)
    assert "the same command with --update --why TEXT --methods n takes them" in err
    update = ("--update", "--yes", "--why", "x", "--methods", "n", "--format", "json")
    code, out, err = cli("check", "--results", "results", *update)
    assert (code, json.loads(out)["exit_code"]) == (0, 3)
    assert "updated 1 cell(s) of the reference" in err
    changes = (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert re.search(
        r"- n on toy \(profile mini\): \S+ to \S+, different \(option scale then 1.0, now 2.0", changes
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments],  # noqa: S607
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_a_git_revision_is_a_reference(cli: Cli, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert cli("check", "--reference", "HEAD")[0] == 2
    cli(*REFERENCE)
    git(tmp_path, "add", "results/reference/mini")
    git(tmp_path, "commit", "--quiet", "-m", "reference")
    git(tmp_path, "tag", "v1")
    shutil.rmtree(tmp_path / "results")
    cli(*RUN, "noise,word_overlap")
    for reference in ("HEAD", "v1:results/reference", "v1:results/reference/"):
        code, out, err = cli("check", "--reference", reference, "--results", "results")
        assert (code, out.splitlines()[-1]) == (0, "PASSED, 2 cells: 2 equal"), err
    assert not (tmp_path / "results" / "reference").exists()
    assert git(tmp_path, "status", "--porcelain", "--untracked-files=no").count("D ") == 8
    for reference, message in (
        ("v2", "'v2' is neither a campaign folder nor a git revision"),
        ("--upload-pack=x", "'--upload-pack=x' is neither a campaign folder nor a git revision"),
        ("v1:results", "no record is left to compare"),
        ("v1:nowhere", "revision v1 has no folder 'nowhere'"),
        ("v1:results/reference/mini/noise/seed-1/toy.json", "revision v1 has no folder"),
    ):
        code, _, err = cli("check", f"--reference={reference}", "--results", "results")
        assert (code, message in err) == (2, True), err
    code, _, err = cli("check", "--reference", "v1", "--update", "--yes", "--why", "meant")
    assert (code, "a git revision can't be updated" in err) == (2, True)


def test_a_link_in_a_revision_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "results" / "reference" / "mini" / "link")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "results/reference")
    git(tmp_path, "commit", "--quiet", "-m", "reference")
    code, _, err = cli("check", "--reference", "HEAD", "--results", "results")
    assert (code, "error: --reference: 'mini/link' is not a plain file below its folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("../out.json", tarfile.REGTYPE, ""),
        ("a/../../out.json", tarfile.REGTYPE, ""),
        ("/tmp/out.json", tarfile.REGTYPE, ""),  # noqa: S108
        ("a\\..\\out.json", tarfile.REGTYPE, ""),
        ("a.json", tarfile.SYMTYPE, "../secret.json"),
        ("a.json", tarfile.LNKTYPE, "secret.json"),
        ("pipe.json", tarfile.FIFOTYPE, ""),
        ("../out", tarfile.DIRTYPE, ""),
    ],
)
def test_an_archive_writes_nothing_outside_its_folder(
    tmp_path: Path, name: str, kind: bytes, target: str
) -> None:
    (tmp_path / "secret.json").write_text("secret")
    archive = tmp_path / "reference.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        member.size = 2 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(DataError, match="is not a plain file below its folder"):
        extract_reference(archive, tmp_path / "reference")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["reference", "reference.tar", "secret.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "'results/reference' is neither a campaign folder nor a git revision"),
        (("results/fine", "--methods", "nois"), "unknown method 'nois' (did you mean 'noise'?)"),
        (("results/fine", "--results", "nowhere"), "no campaign 'local'"),
        (("results/fine", "--seeds", "7"), "campaign fine: no record has seed 7; expected of 1, 2, 3"),
        (("results/fine", "--seeds", "1,7"), "campaign fine: no record has seed 7; expected of 1, 2, 3"),
        (("results/fine", "--campaign", "fine"), "--campaign is for --results"),
        (
            ("results/fine", "--results", "results", "--update", "--why", "x", "--yes", "--keep-encoders"),
            "--keep-encoders is for cells that are trained again, not for --results",
        ),
        (("results/fine", "--level", "2"), "Invalid value for '--level'"),
        (("results/bad",), "broken seed 2 on toy is not a result: RuntimeError: no luck"),
    ],
)  # fmt: skip
def test_bad_input(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    cli(*RUN, "broken", "--campaign", "bad")
    cli(*RUN, "noise", "--campaign", "fine")
    code, out, err = cli("check", *(("--reference", *arguments) if arguments else ()))
    assert (code, out) == (2, "")
    assert message in err


def test_a_model_of_no_profile_has_to_be_run_by_hand(cli: Cli, tiny_bert: Path) -> None:
    cli(*RUN, "untrained", "--backbone", str(tiny_bert), "--campaign", "reference")
    code, _, err = cli("check")
    assert (code, "every record was made with a model that its profile doesn't name" in err) == (2, True)
    cli(*RUN, "untrained", "--backbone", str(tiny_bert))
    assert cli("check", "--results", "results")[0] == 0
    cli(*RUN, "word_overlap", "--campaign", "reference")
    code, out, err = cli("check")
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal")
    assert "warning: untrained was left out: it was made with a model that its profile doesn't name" in err


def test_the_workflow_of_ci_makes_what_there_is() -> None:
    root = Path(__file__).parents[2]
    text = (root / ".github" / "workflows" / "ci.yml").read_text()
    targets = re.findall(r"run: make (\S+)", text)
    assert "test" in targets
    assert all(f"\n{target}:" in (root / "Makefile").read_text() for target in targets)
