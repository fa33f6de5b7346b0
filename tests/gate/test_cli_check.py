"""``bench check`` on real cells: regressions and noise, references, files, update, strict, kept encoders."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines.word_overlap import WordOverlapScorer
from bench.data.toy_suite import make_toy_task
from bench.encoder import FloatArray
from bench.errors import DataError
from bench.gate.reference import extract_reference
from bench.method_card import BuildContext
from bench.records.record import parse_record
from bench.registry import METHODS
from tests.support.cli import Cli, records, refusal
from tests.support.forge import forge, forge_predictions
from tests.support.messages import missing_facts, numbers_in

Patch = pytest.MonkeyPatch
RUN = ("run", "--suite", "toy", "--seeds", "1-3", "--methods")
UPDATE = ("check", "--update", "--yes", "--why")
LOCAL = ("--results", "results")
overlap = WordOverlapScorer.score_pairs
METHOD = """
from bench.method_card import MethodCard
from bench.registry import add_method
import numpy as np


@add_method
class Mine:
    card = MethodCard(name="mine", kind="test", summary="s", version=1, needs_backbone=False)
    dim, facts, seed = 4, {}, 0

    def build(self, context):
        self.seed = context.seed
        return self

    def encode(self, sentences, batch_tokens=None, progress=None):
        random = np.random.default_rng(self.seed)
        rows = [[len(s), len(s.split()), SIGN * s.count("e"), 1 + random.random()] for s in sentences]
        return np.array(rows, dtype="float32")
"""


@pytest.fixture(autouse=True)
def _setting(monkeypatch: Patch) -> Iterator[None]:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def reference(cli: Cli, tmp_path: Path) -> Path:
    """A reference of three seeds of noise and of word_overlap."""
    cli(*RUN, "noise,word_overlap", "--campaign", "reference")
    return tmp_path / "results" / "reference"


def paths(tmp_path: Path, method: str, campaign: str = "reference") -> list[Path]:
    return sorted((tmp_path / "results" / campaign / "mini" / method).rglob("toy.json"))


def change(path: Path, **changes: Any) -> None:
    forge(path, lambda record: record.update(changes))


def shift(path: Path, weight: float) -> float:
    """Move predictions to the gold scores, or away from them; return by how many points it rose."""
    gold = np.concatenate([subset.gold for subset in make_toy_task().subsets]).astype(np.float32)
    was = parse_record(path.read_text(), str(path)).score("avg")
    now = forge_predictions(path, lambda predictions: predictions + np.float32(weight) * gold).score("avg")
    return 100 * ((now or 0.0) - (was or 0.0))


def passed(cli: Cli, *arguments: str) -> str:
    """Counts of a check that passes."""
    code, out, err = cli("check", *arguments)
    assert code == 0, err
    return out.splitlines()[0].removeprefix("PASSED, ").split(": ")[-1]


def failed(cli: Cli, *arguments: str) -> str:
    """The sentence of a check that fails one cell."""
    code, out, err = cli("check", *arguments)
    sentence = out.splitlines()[0]
    assert (code, sentence.startswith("FAILED, 1 of")) == (1, True), err
    return sentence


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}


def verdicts(tmp_path: Path) -> dict[str, dict[str, Any]]:
    data = json.loads((tmp_path / "verdict.json").read_text())
    return {cell["method"]: cell for cell in data["cells"]}


def without_negatives(anchors: Tensor, positives: Tensor, tau: float) -> Tensor:
    """SimCSE's loss with a term dropped: nothing pushes sentences apart."""
    return -functional.cosine_similarity(anchors, positives).mean() / tau


@pytest.mark.long
def test_a_dropped_loss_term_fails_the_gate_and_noise_does_not(
    cli: Cli, tmp_path: Path, monkeypatch: Patch
) -> None:
    short = "short=simcse[steps=6,eval_every=6,batch_size=16,lr=1e-3,pooling=avg]"
    train = (*RUN, f"{short},word_overlap", "--dev", "toy")
    assert cli(*train, "--seeds", "1-4", "--campaign", "reference")[0] == 0
    before = contents(tmp_path / "results")
    assert passed(cli) == "2 equal"
    assert contents(tmp_path / "results") == before  # the cells ran elsewhere
    assert cli(*train, "--seeds", "5-8")[0] == 0
    assert "1 equal" in passed(cli, *LOCAL)
    monkeypatch.setattr("bench.losses.info_nce", without_negatives)
    code, out, err = cli("check")
    assert (code, err.count("short seed")) == (1, 4)
    said = out.splitlines()[0]
    assert not missing_facts(said, "FAILED, 1 of", "short on toy", "over 4 seeds", "numbers changed")
    assert numbers_in(said)[2] > 5  # points
    assert passed(cli, "--methods", "word_overlap")


def test_failed_and_missing_cells_fail_the_gate(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    cli(*RUN, "noise")
    assert not missing_facts(failed(cli, *LOCAL), "word_overlap on toy", "is missing")
    assert passed(cli, *LOCAL, "--methods", "noise")
    paths(tmp_path, "noise", "local")[0].with_suffix(".npz").write_bytes(b"rotten")
    said = failed(cli, *LOCAL, "--methods", "noise")
    assert not missing_facts(said, "noise on toy", "failed: seed 1", "predictions")

    def broken(context: BuildContext) -> None:
        raise RuntimeError(f"no luck with seed {context.seed}")

    monkeypatch.setattr(METHODS.get("noise"), "build", broken)
    code, out, err = cli("check", "--seeds", "2")
    assert (code, missing_facts(err, "noise seed 2", "no luck with")) == (1, [])
    assert not missing_facts(out, "FAILED, 1 of", "failed: seed 2", "no luck")


def test_other_specifications_and_data_are_refused(cli: Cli, tmp_path: Path, reference: Path) -> None:
    cli(*RUN, "noise,word_overlap")
    for path in paths(tmp_path, "noise", "local"):
        change(path, options={"scale": 9.0, "wait": 0.0})
    change(
        paths(tmp_path, "word_overlap", "local")[0], tasks={"TOY": {"sha256": "1" * 64, "reference": True}}
    )
    code, out, err = cli("check", *LOCAL, "--json", "verdict.json")
    assert code == 3
    warning, noise, overlap, error = err.splitlines()
    assert not missing_facts(warning, "warning", "scores of toy", "word_overlap")
    assert not missing_facts(noise, "not comparable", "noise on toy", "scale then 1.0", "now 9.0")
    assert not missing_facts(overlap, "not comparable", "word_overlap on toy", "data TOY")
    assert not missing_facts(error, "error: 2 cell(s)", "--update --why TEXT")
    assert out.splitlines()[0].startswith("NOT COMPARABLE")
    assert json.loads((tmp_path / "verdict.json").read_text())["exit_code"] == 3

    for path in paths(tmp_path, "noise"):
        change(path, version=0)
    code, _, err = cli("check")
    assert (code, missing_facts(err, "noise on toy", "version then 0", "now 1")) == (3, [])
    assert "[1/" not in err  # nothing ran
    assert cli(*UPDATE, "meant")[0] == 0
    assert passed(cli) == "2 equal"


def test_other_versions_are_a_warning(cli: Cli, tmp_path: Path, reference: Path) -> None:
    shutil.copytree(reference, tmp_path / "results" / "local")
    (path,) = paths(tmp_path, "word_overlap")
    now = parse_record(path.read_text(), str(path)).provenance["versions"]["torch"]
    forge(path, lambda record: record["provenance"]["versions"].update(torch="0.1"))
    code, _, err = cli("check", *LOCAL, "--methods", "word_overlap")
    assert (code, missing_facts(err, "warning:", "torch then 0.1", f"now {now}")) == (0, [])
    assert "warning:" not in cli("check", *LOCAL, "--methods", "noise")[2]


@pytest.mark.parametrize("campaign", ["reference", "local"])
def test_scores_that_predictions_contradict_are_no_reference_and_no_result(
    campaign: str, cli: Cli, tmp_path: Path, reference: Path
) -> None:
    shutil.copytree(reference, tmp_path / "results" / "local")
    (path,) = paths(tmp_path, "word_overlap", campaign)
    scores = json.loads(path.read_text())["scores"]
    change(path, scores=[{**score, "value": score["value"] - 0.02} for score in scores])
    code, out, err = cli("check", *LOCAL)
    said = out if campaign == "reference" else err
    assert (code, bool(out)) == ((1, True) if campaign == "reference" else (2, False))
    assert re.search(r"TOY all spearman is [\d.]+ \(\d+\), its predictions give ", said)
    assert ("CHANGED" in out) == (campaign == "reference")


def test_a_changed_profile_is_noticed_and_own_options_are_kept(cli: Cli, monkeypatch: Patch) -> None:
    cli(*RUN, "noise,noise[scale=2],mine=noise[scale=3]", "--campaign", "reference")
    assert passed(cli) == "3 equal"
    from bench.config import profiles

    load = profiles.load_profile

    def changed(name: str) -> profiles.Profile:
        profile = load(name)  # which is kept: other tests get the same
        return replace(profile, methods={**profile.methods, "noise": {"scale": 7.0}})

    monkeypatch.setattr(profiles, "load_profile", changed)
    code, _, err = cli("check")
    assert (code, numbers_in(err.splitlines()[0].replace(",", ""))) == (3, [1, 7])
    assert passed(cli, "--methods", "noise[scale=2.0],mine") == "2 equal"


def test_the_files_that_a_ci_system_reads(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    shutil.copytree(reference, tmp_path / "results" / "local")
    drop = -shift(paths(tmp_path, "word_overlap", "local")[0], -0.01)
    assert 0.5 < drop < 10
    (tmp_path / "summary.md").write_text("what stood there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    sentence = failed(cli, *LOCAL, "--junit", "out/junit.xml", "--json", "out/verdict.json")
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("what stood there\n## bench check\n")
    assert not missing_facts(summary, "REGRESSION", "word\\_overlap", "recompute", f"{drop:+.2f}")
    (failure,) = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot().iter("failure")  # noqa: S314
    assert not missing_facts(failure.text, "word_overlap on toy", f"{drop:.2f} points")
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["sentence"] == sentence
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["junit.xml", "verdict.json"]
    assert "error: --junit: " in refusal(cli, "check", *LOCAL, "--junit", "summary.md/junit.xml")


def test_update_shows_the_difference_and_replaces_what_changed(
    cli: Cli, tmp_path: Path, reference: Path
) -> None:
    whole = contents(reference)
    assert cli(*UPDATE, "meant")[1].splitlines()[-1] == "nothing to update"
    assert contents(reference) == whole
    assert shift(paths(tmp_path, "word_overlap")[0], 0.1) > 1
    for arguments, fact in (
        ((), "--why TEXT"),
        (("--why", " "), "--why TEXT"),
        (("--why", "meant"), "expected --yes"),
        (("--why", "meant", "--seeds", "1"), "--seeds is not"),
    ):
        assert not missing_facts(refusal(cli, "check", "--update", *arguments), "--update", fact)
    code, out, err = cli(*UPDATE, "meant")
    assert (code, numbers_in(out.splitlines()[-1])) == (0, [1]), err
    assert ["REGRESSION", "word_overlap"] in [line.split()[:2] for line in out.splitlines()]
    assert passed(cli) == "2 equal"
    now = dict(contents(reference))
    changes = now.pop("CHANGES.md").decode()
    assert not missing_facts(changes, "meant", "word\\_overlap on toy", "regression")
    changed = {name for name in whole if now[name] != whole[name]}
    assert changed <= {"mini/word_overlap/no-seed/toy.json"}  # equal if made in the same second, as quickly
    scores = (json.loads(text["mini/word_overlap/no-seed/toy.json"])["scores"] for text in (now, whole))
    assert next(scores) == next(scores)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_update_takes_other_seeds_but_no_broken_cell_and_no_fewer_seeds(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    before = contents(reference)
    cli(*RUN, "noise")
    update = (*LOCAL, "--update", "--why", "meant")
    code, _, err = cli("check", *update, "--yes")
    assert (code, missing_facts(err, "stays as it", "word_overlap")) == (1, [])
    cli(*RUN, "noise", "--seeds", "1", "--campaign", "few")
    shift(paths(tmp_path, "noise", "few")[0], 0.1)
    few = refusal(cli, "check", *update, "--yes", "--campaign", "few", "--methods", "noise")
    assert not missing_facts(few, "noise on toy", "would lose seeds", "2, 3")
    assert contents(reference) == before

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    cli(*RUN, "noise", "--seeds", "8-9", "--campaign", "next")
    for answer, seeds in (("n\n", ["1", "2", "3"]), ("y\n", ["8", "9"])):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        code, out, _ = cli("check", *update, "--campaign", "next", "--methods", "noise")
        assert (code, "nothing was changed" in out) == (0, answer == "n\n")
        assert [path.parent.name for path in paths(tmp_path, "noise")] == [f"seed-{s}" for s in seeds]
    assert len(records(tmp_path, "reference")) == 3


def test_the_first_encoder_makes_the_reference(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    encoder = ("--encoder", str(tiny_bert), "--name", "mine")
    code, out, err = cli(*UPDATE, "the first", *encoder, "--suite", "toy", "--profile", "mini")
    assert (code, "updated 1 cell(s)" in out) == (0, True), err
    assert "mine on toy" in (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert passed(cli, *encoder) == "1 equal"


def test_a_seed_that_a_method_lacks_is_not_passed_over(cli: Cli, reference: Path) -> None:
    cli(*RUN, "n=noise", "--seeds", "4", "--campaign", "reference")
    assert not missing_facts(refusal(cli, "check", "--seeds", "4"), "noise on toy", "none of these", "of 1")
    assert passed(cli, "--seeds", "4", "--methods", "n,word_overlap") == "2 equal"


def test_a_row_is_found_by_every_spelling(cli: Cli) -> None:
    cli(*RUN, "noise[scale=2],noise[wait=0.01]", "--campaign", "reference")
    for spelling in ("noise[scale=2]", "noise[wait=0.0, scale=2.0]", "noise[wait=1e-2],noise[scale=2e0]"):
        assert passed(cli, "--methods", spelling) == f"{spelling.count('[')} equal"
    assert "'noise[scale=2.0]'?" in refusal(cli, "check", "--methods", "noise[scale=3]")


def test_another_specification_is_no_new_cell_and_stdout_stays_a_document(cli: Cli, tmp_path: Path) -> None:
    cli(*RUN, "n=noise,word_overlap", "--campaign", "reference")
    cli(*RUN, "n=noise[scale=2.0],word_overlap")
    assert shift(paths(tmp_path, "word_overlap", "local")[0], -0.3) < -1
    code, out, err = cli("check", *LOCAL)
    assert (code, missing_facts(out, "FAILED too", "word_overlap on toy")) == (3, [])
    assert "TEXT --methods n" in err
    code, out, err = cli(*UPDATE, "x", *LOCAL, "--methods", "n", "--format", "json")
    assert (code, json.loads(out)["exit_code"], numbers_in(err)[-1]) == (0, 3, 1)
    changes = (tmp_path / "results" / "reference" / "CHANGES.md").read_text()
    assert not missing_facts(changes, "n on toy", "different (option", "now 2.0")


@pytest.mark.slow
@pytest.mark.long
def test_worker_processes_give_the_same_verdict(cli: Cli, reference: Path) -> None:
    assert passed(cli, "--workers", "2") == "2 equal"


def commit(folder: Path, *files: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for arguments in (("init", "--quiet"), ("add", *files), (*identity, "commit", "--quiet", "-m", "files")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)  # noqa: S607


def test_a_git_revision_is_a_reference(cli: Cli, tmp_path: Path, reference: Path) -> None:
    assert "'HEAD' is neither" in refusal(cli, "check", "--reference", "HEAD")
    commit(tmp_path, "results/reference/mini")
    subprocess.run(["git", "tag", "v1"], cwd=tmp_path, check=True)  # noqa: S607
    shutil.rmtree(tmp_path / "results")
    cli(*RUN, "noise,word_overlap")
    for revision in ("HEAD", "v1:results/reference", "v1:results/reference/"):
        assert passed(cli, "--reference", revision, *LOCAL) == "2 equal"
    assert not reference.exists()
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    assert subprocess.check_output(status, cwd=tmp_path, text=True).count("D ") == 8
    for revision, fact in (
        ("v2", "'v2' is neither"),
        ("--upload-pack=x", "'--upload-pack=x' is neither"),
        ("v1:results", "one level below"),
        ("v1:nowhere", "no folder 'nowhere'"),
        ("v1:results/reference/mini/noise/seed-1/toy.json", "v1 has no"),
    ):
        assert fact in refusal(cli, "check", f"--reference={revision}", *LOCAL)
    for words in (("v1",), ("v1:x", "--encoder", "x", "--name", "y")):
        assert "git revision" in refusal(cli, *UPDATE, "meant", "--reference", *words)


def test_a_link_in_a_revision_is_refused(cli: Cli, tmp_path: Path, reference: Path) -> None:
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", reference / "mini" / "link")
    commit(tmp_path, "results/reference")
    said = refusal(cli, "check", "--reference", "HEAD", *LOCAL)
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
    with tarfile.open(tmp_path / "reference.tar", "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        member.size = 2 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(DataError, match="not a plain file"):
        extract_reference(tmp_path / "reference.tar", tmp_path / "reference")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["reference", "reference.tar", "secret.json"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("--reference nowhere", ("'nowhere' is neither",)),
        ("--methods nois", ("unknown method 'nois'", "'noise'?")),
        ("--results nowhere", ("no campaign 'local'",)),
        ("--seeds 7", ("campaign reference", "seed 7", "of 1, 2, 3")),
        ("--seeds 1,7", ("campaign reference", "seed 7", "of 1, 2, 3")),
        ("--level 2", ("'--level'",)),
        ("--campaign reference", ("--campaign is for",)),
        (
            "--results results --update --why x --yes --keep-encoders",
            ("--keep-encoders is for", "not for --results"),
        ),
        ("--reference results/bad", ("broken seed 2", "no luck")),
    ],
)
def test_bad_input(cli: Cli, arguments: str, facts: tuple[str, ...]) -> None:
    cli(*RUN, "broken", "--campaign", "bad")
    cli(*RUN, "noise", "--campaign", "reference")
    assert not missing_facts(refusal(cli, "check", *arguments.split()), *facts)


def test_a_model_of_no_profile_has_to_be_run_by_hand(cli: Cli, tiny_bert: Path) -> None:
    untrained = (*RUN, "untrained", "--backbone", str(tiny_bert))
    cli(*untrained, "--campaign", "reference")
    assert "--encoder PATH" in refusal(cli, "check")
    cli(*untrained)
    assert passed(cli, *LOCAL) == "1 equal"
    cli(*RUN, "word_overlap", "--campaign", "reference")
    code, out, err = cli("check")
    assert (code, out.splitlines()[0]) == (0, "PASSED, 1 cell: 1 equal")
    assert not missing_facts(err, "warning: untrained", "left out")


def test_a_changed_metric_is_caught_before_anything_runs(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    assert "4 records" in cli("check", "--methods", "noise,word_overlap", "--details")[1]

    def pearson(one: FloatArray, other: FloatArray) -> float:
        return float(np.corrcoef(one, other)[0, 1])

    monkeypatch.setattr("bench.eval.sts.spearman", pearson)
    code, _, err = cli("check", "--json", "verdict.json")
    assert (code, "[1/" in err) == (1, False)  # nothing ran
    assert not missing_facts(err, "recompute and retrain", "not asked")
    for cell in verdicts(tmp_path).values():
        assert (cell["question"], cell["status"], cell["stage"]) == ("rescore", "changed", "scores")
        assert not missing_facts(cell["reasons"][0], "own predictions", "TOY all")
    assert cli(*UPDATE, "Pearson from now on")[0] == 1  # its known value says that it isn't Spearman
    monkeypatch.setattr("bench.gate.known_values.add_known_values", lambda gate: gate)
    assert cli(*UPDATE, "Pearson from now on")[0] == 0
    assert cli("check", "--strict")[0] == 0


def test_seeds_are_not_trained_again_where_a_deterministic_cell_fails(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(WordOverlapScorer, "score_pairs", lambda self, a, b: -overlap(self, a, b))
    code, _, err = cli("check", "--json", "verdict.json")
    assert (code, "noise seed" in err) == (1, False)
    assert list(verdicts(tmp_path)) == ["word_overlap"]
    assert not missing_facts(err, "warning: retrain", "not asked")


def test_strict_fails_for_any_changed_byte_and_says_which_stage(
    cli: Cli, tmp_path: Path, reference: Path, monkeypatch: Patch
) -> None:
    assert cli("check", "--strict")[0] == 0

    def plant(change: Callable[[FloatArray], FloatArray]) -> None:
        monkeypatch.setattr(WordOverlapScorer, "score_pairs", lambda *words: change(overlap(*words)))

    plant(lambda scores: scores * np.float32(1 + 1e-6))
    for strict, status in (((), "ok"), (("--strict",), "changed")):
        code, out, _ = cli("check", *strict, "--json", "verdict.json")
        cell = verdicts(tmp_path)["word_overlap"]
        assert (code, cell["status"], cell["stage"]) == (len(strict), status, "similarities")
    assert not missing_facts(out, "numbers changed", "first in similarities")
    assert cli(*UPDATE, "scaled")[0] == 0
    assert cli("check", "--strict")[0] == 0
    for path in paths(tmp_path, "word_overlap"):
        forge(path, lambda record: record["timing"].update(processor="another"))
    plant(lambda scores: scores)
    assert cli("check", "--strict")[0] == 0  # a millionth is what another CPU may move
    plant(lambda scores: scores + np.float32(0.001))
    code, out, _ = cli("check", "--strict", "--details")
    assert (code, "than another CPU" in out) == (1, True)


def test_a_method_from_a_file_is_gated(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD.replace("SIGN", "1"))
    plugin = ("--plugin", str(file))
    assert cli(*RUN, "mine", "--campaign", "reference", *plugin)[0] == 0
    for comment in ("", "# a comment\n"):
        file.write_text(comment + METHOD.replace("SIGN", "1"))
        assert passed(cli, "--strict", *plugin) == "1 equal"
    file.write_text(METHOD.replace("SIGN", "50"))
    assert numbers_in(failed(cli, "--strict", *plugin))[2] > 1
    assert passed(cli, "--tolerance", "99", *plugin)
    assert cli(*UPDATE, "counts more", *plugin)[0] == 0
    assert cli("check", "--strict", *plugin)[0] == 0


def test_seeds_that_are_ignored_fail(cli: Cli, reference: Path, monkeypatch: Patch) -> None:
    noise = METHODS.get("noise")
    build = noise.build
    monkeypatch.setattr(noise, "build", lambda context: build(replace(context, seed=1)))
    said = failed(cli, "--methods", "noise")
    assert not missing_facts(said, "failed: seed 2", "seed 1 and", "seed is ignored", "seed 3:")


@pytest.mark.long
def test_a_kept_encoder_is_computed_again(cli: Cli, tmp_path: Path, monkeypatch: Patch) -> None:
    short = "short=simcse[steps=2,eval_every=2,batch_size=16,lr=1e-3]"
    assert cli(*RUN, short, "--seeds", "1-2", "--dev", "toy", "--campaign", "reference")[0] == 0
    code, out, err = cli(*UPDATE, "keep it", "--keep-encoders")
    assert code == 0, err
    assert not missing_facts(out, "short seed 1", "short.kept")
    mini = tmp_path / "results" / "reference" / "mini"
    trained, kept = (
        records(tmp_path, "reference")[f"mini/{name}/toy.json"].score("avg") or 0
        for name in ("short/seed-1", "short.kept/no-seed")
    )
    assert trained == pytest.approx(kept, abs=0.01)  # of weights with two bytes
    for methods in ((), ("--methods", "short")):
        assert "nothing to update" in cli(*UPDATE, "again", "--keep-encoders", *methods)[1]

    check = ("--strict", "--methods", "short.kept")
    assert passed(cli, *check) == "1 equal"
    shutil.copytree(mini / "short", tmp_path / "results" / "local" / "mini" / "short")
    assert passed(cli, *LOCAL) == "1 equal"  # records of a run hold no kept encoder
    from bench.nn import backbone
    from bench.nn.hidden_states import pool_states

    monkeypatch.setattr(
        backbone, "pool_states", lambda states, mask, how, *a, **k: pool_states(states, mask, "avg", *a, **k)
    )
    assert "short.kept on toy" in failed(cli, *check)
    monkeypatch.setattr(backbone, "pool_states", pool_states)

    config = mini / "short.kept" / "no-seed" / "encoder" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_act": "relu"}))
    code, _, err = cli("check", *check)
    assert (code, missing_facts(err, "short.kept on toy", "weights then encoder")) == (3, [])
