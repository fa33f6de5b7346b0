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
from tests.support.cli import Cli, records, refusal
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts

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


def passed(cli: Cli, *arguments: str) -> str:
    """Counts of a check that passes."""
    code, out, err = cli("check", *arguments)
    assert code == 0, err
    return out.splitlines()[-1].removeprefix("PASSED, ").split(": ")[-1]


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}


@pytest.mark.slow
def test_a_dropped_loss_term_fails_the_gate_and_noise_does_not(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*RUN, "contrast,word_overlap", "--campaign", "reference")[0] == 0
    before = contents(tmp_path / "results")
    assert passed(cli) == "2 equal"
    assert contents(tmp_path / "results") == before  # the cells ran elsewhere

    assert cli(*RUN[:3], "--seeds", "5-7", "--methods", "contrast,word_overlap")[0] == 0
    assert not missing_facts(passed(cli, "--results", "results"), "1 equal")

    monkeypatch.setattr("bench.losses.info_nce", without_negatives)
    code, out, err = cli("check")
    assert code == 1
    said = out.splitlines()[-1]
    assert not missing_facts(said, "FAILED, 1 of", "contrast on toy", "fell by 5.", "numbers changed")
    assert err.count("contrast seed") == 3
    assert cli(*RUN, "contrast,word_overlap", "--campaign", "broken")[0] == 0
    code, out, _ = cli("check", "--results", "results", "--campaign", "broken")
    assert code == 1
    assert said.split(",")[:3] == out.splitlines()[-1].split(",")[:3]  # the same drop and interval
    assert passed(cli, "--tolerance", "20")
    assert passed(cli, "--methods", "word_overlap")


@pytest.mark.long
def test_simcse_without_its_negatives_fails_the_gate(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = "short=simcse[steps=6,eval_every=6,batch_size=16,lr=1e-3,pooling=avg]"
    assert cli(*RUN, short, "--seeds", "1-4", "--dev", "toy", "--campaign", "reference")[0] == 0
    assert passed(cli) == "1 equal"
    monkeypatch.setattr("bench.losses.info_nce", without_negatives)
    code, out, _ = cli("check")
    assert (code, missing_facts(out, "FAILED, 1 of", "short on toy")) == (1, [])


def test_failed_and_missing_cells_fail_the_gate(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    cli(*RUN, "noise")
    code, out, _ = cli("check", "--results", "results")
    assert (code, missing_facts(out, "FAILED, 1 of", "word_overlap on toy", "is missing")) == (1, [])
    assert passed(cli, "--results", "results", "--methods", "noise")
    (npz,) = (path.with_suffix(".npz") for path in paths(tmp_path, "noise", "local")[:1])
    npz.write_bytes(b"rotten")
    code, out, _ = cli("check", "--results", "results", "--methods", "noise")
    assert (code, missing_facts(out, "noise on toy", "failed: seed 1", "predictions")) == (1, [])

    def broken(context: BuildContext) -> LinearEncoder:
        raise RuntimeError(f"no luck with seed {context.seed}")

    monkeypatch.setattr(METHODS.get("noise"), "build", broken)
    code, out, err = cli("check", "--seeds", "2")
    assert (code, missing_facts(err, "noise seed 2", "no luck with")) == (1, [])
    assert not missing_facts(out, "FAILED, 1 of", "failed: seed 2", "no luck")


def test_other_specifications_and_data_are_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*REFERENCE)
    cli(*RUN, "noise,word_overlap")
    for path in paths(tmp_path, "noise", "local"):
        change(path, options={"scale": 9.0, "wait": 0.0})
    (path,) = paths(tmp_path, "word_overlap", "local")
    change(path, tasks={"TOY": {"sha256": "1" * 64, "reference": True}})
    code, out, err = cli("check", "--results", "results", "--json", "verdict.json")
    assert code == 3
    warning, noise, overlap, error = err.splitlines()
    assert not missing_facts(warning, "warning", "scores of toy", "word_overlap")
    assert not missing_facts(noise, "not comparable", "noise on toy", "now 9.0")
    assert not missing_facts(overlap, "not comparable", "word_overlap on toy", "data TOY")
    assert not missing_facts(error, "error: 2 cell(s)", "--update --why TEXT")
    assert out.splitlines()[-1].startswith("NOT COMPARABLE")
    assert json.loads((tmp_path / "verdict.json").read_text())["exit_code"] == 3

    for path in paths(tmp_path, "noise"):
        change(path, version=0)
    code, _, err = cli("check")
    assert (code, missing_facts(err, "noise on toy", "method version", "now 1")) == (3, [])
    assert "[1/" not in err  # nothing ran
    assert cli("check", "--update", "--yes", "--why", "meant")[0] == 0
    assert passed(cli) == "2 equal"


def test_other_versions_are_a_warning(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    shutil.copytree(tmp_path / "results" / "reference", tmp_path / "results" / "local")
    (path,) = paths(tmp_path, "word_overlap")
    now = parse_record(path.read_text(), str(path)).provenance["versions"]["torch"]
    forge(path, lambda record: record["provenance"]["versions"].update(torch="0.1"))
    arguments = ("check", "--results", "results", "--methods")
    code, _, err = cli(*arguments, "word_overlap")
    assert (code, missing_facts(err, "warning:", "torch then 0.1", f"now {now}")) == (0, [])
    assert "warning:" not in cli(*arguments, "noise")[2]


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
    assert passed(cli) == "3 equal"
    from bench.config import profiles

    load = profiles.load_profile

    def changed(name: str) -> profiles.Profile:
        profile = load(name)  # which is kept: other tests get the same
        return replace(profile, methods={**profile.methods, "noise": {"scale": 7.0}})

    monkeypatch.setattr(profiles, "load_profile", changed)
    code, _, err = cli("check")
    assert (code, missing_facts(err, "noise on toy", "now 7.0")) == (3, [])
    assert passed(cli, "--methods", "noise[scale=2.0],mine")


def test_the_files_that_a_ci_system_reads(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli(*REFERENCE)
    shutil.copytree(tmp_path / "results" / "reference", tmp_path / "results" / "local")
    drop = -shift(paths(tmp_path, "word_overlap", "local")[0], -0.01)
    assert 0.5 < drop < 10
    (tmp_path / "summary.md").write_text("what stood there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    files = ("--junit", "out/junit.xml", "--json", "out/verdict.json")
    code, out, _ = cli("check", "--results", "results", *files)
    assert code == 1
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("what stood there\n## bench check\n")
    assert not missing_facts(summary, "REGRESSION", "word\\_overlap", "recompute", f"{drop:+.2f}")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()  # noqa: S314
    (failure,) = root.iter("failure")
    assert not missing_facts(failure.text, "word_overlap on toy", f"{drop:.2f} points")
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
    for arguments, fact in (
        ((), "--why TEXT"),
        (("--why", " "), "--why TEXT"),
        (("--why", "meant"), "expected --yes"),
        (("--why", "meant", "--seeds", "1"), "--seeds is not"),
    ):
        assert not missing_facts(refusal(cli, "check", "--update", *arguments), "--update", fact)
    code, out, err = cli("check", "--update", "--yes", "--why", "meant")
    assert code == 0, err
    assert ["REGRESSION", "word_overlap"] in [line.split()[:2] for line in out.splitlines()]
    assert "updated 1 cell(s)" in out.splitlines()[-1]
    assert passed(cli) == "2 equal"
    now = dict(contents(reference))
    changes = now.pop("CHANGES.md").decode()
    assert not missing_facts(changes, "meant", "word\\_overlap on toy", "regression")
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
    update = ("--results", "results", "--update", "--why", "meant")
    code, _, err = cli("check", *update, "--yes")
    assert (code, missing_facts(err, "stays as it", "word_overlap")) == (1, [])
    assert contents(tmp_path / "results" / "reference") == before
    cli(*RUN[:3], "--seeds", "1", "--methods", "noise", "--campaign", "few")
    shift(paths(tmp_path, "noise", "few")[0], 0.1)
    few = refusal(cli, "check", *update, "--yes", "--campaign", "few", "--methods", "noise")
    assert not missing_facts(few, "noise on toy", "would lose seeds", "2, 3")
    assert contents(tmp_path / "results" / "reference") == before

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    cli(*RUN[:3], "--seeds", "8-9", "--methods", "noise", "--campaign", "next")
    for answer, seeds in (("n\n", ["1", "2", "3"]), ("y\n", ["8", "9"])):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        code, out, _ = cli("check", *update, "--campaign", "next", "--methods", "noise")
        assert code == 0
        assert [path.parent.name for path in paths(tmp_path, "noise")] == [f"seed-{s}" for s in seeds]
        assert ("nothing was changed" in out) == (answer == "n\n")
    assert len(records(tmp_path, "reference")) == 3


def test_the_first_encoder_makes_the_reference(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    encoder = ("check", "--encoder", str(tiny_bert), "--name", "mine")
    first = ("--suite", "toy", "--profile", "mini", "--update", "--yes", "--why", "the first")
    code, out, err = cli(*encoder, *first)
    assert (code, "updated 1 cell(s)" in out) == (0, True), err
    assert "mine on toy" in (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert passed(cli, *encoder[1:]) == "1 equal"


def test_a_seed_that_a_method_lacks_is_not_passed_over(cli: Cli) -> None:
    cli(*REFERENCE)
    cli(*RUN[:3], "--seeds", "4", "--methods", "n=noise", "--campaign", "reference")
    assert not missing_facts(refusal(cli, "check", "--seeds", "4"), "noise on toy", "none of these", "of 1")
    assert passed(cli, "--seeds", "4", "--methods", "n,word_overlap")


def test_a_row_is_found_by_every_spelling(cli: Cli) -> None:
    cli(*RUN, "noise[scale=2],contrast[steps=3]", "--campaign", "reference")
    for spelling in ("noise[scale=2]", "noise[wait=0.0, scale=2.0]", "contrast[steps=3],noise[scale=2e0]"):
        assert passed(cli, "--methods", spelling).endswith(f"{spelling.count('[')} equal")
    assert "'noise[scale=2.0]'?" in refusal(cli, "check", "--methods", "noise[scale=3]")


def test_another_specification_is_no_new_cell_and_stdout_stays_a_document(cli: Cli, tmp_path: Path) -> None:
    cli(*RUN, "n=noise,word_overlap", "--campaign", "reference")
    cli(*RUN, "n=noise[scale=2.0],word_overlap")
    assert shift(paths(tmp_path, "word_overlap", "local")[0], -0.3) < -1
    code, out, err = cli("check", "--results", "results")
    assert (code, missing_facts(out, "FAILED too", "word_overlap on toy")) == (3, [])
    assert "TEXT --methods n" in err
    update = ("--update", "--yes", "--why", "x", "--methods", "n", "--format", "json")
    code, out, err = cli("check", "--results", "results", *update)
    assert (code, json.loads(out)["exit_code"]) == (0, 3)
    assert "updated 1 cell(s)" in err
    changes = (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert not missing_facts(changes, "n on toy", "different (option", "now 2.0")


@pytest.mark.slow
@pytest.mark.long
def test_worker_processes_give_the_same_verdict(cli: Cli) -> None:
    cli(*REFERENCE)
    assert passed(cli, "--workers", "2") == "2 equal"


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
        assert passed(cli, "--reference", reference, "--results", "results") == "2 equal"
    assert not (tmp_path / "results" / "reference").exists()
    assert git(tmp_path, "status", "--porcelain", "--untracked-files=no").count("D ") == 8
    for reference, fact in (
        ("v2", "'v2' is neither"),
        ("--upload-pack=x", "'--upload-pack=x' is neither"),
        ("v1:results", "no record"),
        ("v1:nowhere", "no folder 'nowhere'"),
        ("v1:results/reference/mini/noise/seed-1/toy.json", "v1 has no"),
    ):
        assert fact in refusal(cli, "check", f"--reference={reference}", "--results", "results")
    update = ("--update", "--yes", "--why", "meant")
    assert "git revision" in refusal(cli, "check", "--reference", "v1", *update)


def test_a_link_in_a_revision_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli(*REFERENCE)
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "results" / "reference" / "mini" / "link")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "results/reference")
    git(tmp_path, "commit", "--quiet", "-m", "reference")
    said = refusal(cli, "check", "--reference", "HEAD", "--results", "results")
    assert not missing_facts(said, "--reference", "'mini/link'")


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
    with pytest.raises(DataError, match="not a plain file"):
        extract_reference(archive, tmp_path / "reference")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["reference", "reference.tar", "secret.json"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("", ("'results/reference' is neither",)),
        ("--reference results/fine --methods nois", ("unknown method 'nois'", "'noise'?")),
        ("--reference results/fine --results nowhere", ("no campaign 'local'",)),
        ("--reference results/fine --seeds 7", ("campaign fine", "seed 7", "of 1, 2, 3")),
        ("--reference results/fine --seeds 1,7", ("campaign fine", "seed 7", "of 1, 2, 3")),
        ("--reference results/fine --level 2", ("'--level'",)),
        ("--reference results/fine --campaign fine", ("--campaign is for",)),
        (
            "--reference results/fine --results results --update --why x --yes --keep-encoders",
            ("--keep-encoders is for", "not for --results"),
        ),
        ("--reference results/bad", ("broken seed 2", "no luck")),
    ],
)
def test_bad_input(cli: Cli, arguments: str, facts: tuple[str, ...]) -> None:
    cli(*RUN, "broken", "--campaign", "bad")
    cli(*RUN, "noise", "--campaign", "fine")
    assert not missing_facts(refusal(cli, "check", *arguments.split()), *facts)


def test_a_model_of_no_profile_has_to_be_run_by_hand(cli: Cli, tiny_bert: Path) -> None:
    cli(*RUN, "untrained", "--backbone", str(tiny_bert), "--campaign", "reference")
    assert "--encoder PATH" in refusal(cli, "check")
    cli(*RUN, "untrained", "--backbone", str(tiny_bert))
    assert passed(cli, "--results", "results")
    cli(*RUN, "word_overlap", "--campaign", "reference")
    code, out, err = cli("check")
    assert (code, out.splitlines()[-1]) == (0, "PASSED, 1 cell: 1 equal")
    assert not missing_facts(err, "warning: untrained", "left out")
