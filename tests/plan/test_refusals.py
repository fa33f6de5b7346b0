"""Requests that the plan refuses in one line, before any record is written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.config.method_ids import parse_methods, parse_override, parse_shard
from bench.config.run_spec import RunSpec
from bench.data.corpus import read_corpus
from bench.errors import InputError
from bench.eval import mteb_tasks
from bench.execution import record_probes
from bench.nn.model_folder import resolve_folder
from bench.plan.plan import make_plan
from bench.probes import PROBES
from bench.records.record import safe_name
from bench.registry import discover
from bench.training.masked_lm_training import MlmSettings
from bench.training.pretraining import train_mlm_head
from tests.support.cli import Cli, records, refusal
from tests.support.local_suite import write_local_suite
from tests.support.messages import missing_facts
from tests.support.training import toy_sentences

NOISE = "run --methods noise --suite toy"
ON_RAY = f"{NOISE} --executor ray"
SHARDS = ("", "3", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/4/2", "1.0/4", "1/999999")


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (f"{NOISE} --detect 1", ("--detect:", "--dry-run")),
        (f"{NOISE} --spread 1 --dry-run", ("--spread:", "--detect POINTS")),
        (f"{NOISE} --detect 0 --dry-run", ("0.0", "range")),
        (f"{NOISE} --detect nan --dry-run", ("'nan'", "float range")),
        *((f"{NOISE} --deadline {text}", ("--deadline",)) for text in ("0", "-1", "nan", "inf", "soon")),
        (f"{NOISE} --deadline 5 --force", ("--deadline:", "--force")),
        *((f"{NOISE} --dry-run --shard {text!r}", ("--shard:", f"'{text}'", "expected")) for text in SHARDS),
        (f"{NOISE} --per-gpu 2", ("--per-gpu:", "--executor ray")),
        (f"{ON_RAY} --per-gpu 2", ("--per-gpu:", "GPUs")),
        (f"{ON_RAY} --per-gpu 2 --device cuda --ranks 2", ("--per-gpu:", "ranks")),
        *(
            (f"{command} --ray-address auto", ("--ray-address:", "auto", "--executor ray"))
            for command in (NOISE, "sweep caels", "tune simcse --values 1e-5")
        ),
        (f"{ON_RAY} --ray-address head", ("--ray-address:", "'head'", "HOST:PORT")),
        (f"{ON_RAY} --ray-address head:99999", ("--ray-address:", "'head:99999'", "HOST:PORT")),
        (f"{ON_RAY} --ray-address ray://head:10001", ("'ray://head:10001'", "Ray's client", "HOST:PORT")),
        ("show simcse[lr=1]", ("settings", "--profile NAME")),
        ("show simcse --set simcse.lr=1", ("settings", "--profile NAME")),
        ("show simcse,tncse --profile mini", ("'simcse,tncse'", "2 methods")),
        ("show simsce --profile mini", ("method 'simsce'", "'simcse'")),
        ("show simcse --profile mimi", ("profile 'mimi'", "'mini'")),
        ("show simcse --profile mini --set simce.lr=1", ("'simce'", "--set simce.lr=1:")),
        ("show simcse[x=1] --profile mini", ("no option 'x'",)),
        ("show simcse --profile mini --corpus no.txt", ("no.txt",)),
        ("show simcse[match=nothing] --profile mini", ("match=nothing:", "unknown method 'nothing'")),
        ("show simcse[match=noise] --profile mini", ("match=noise:", "'noise' doesn't train")),
        ("show simcse[match=whitening] --profile mini", ("match=whitening:", "'whitening' doesn't train")),
        ("show simcse[match=pair,steps=4] --profile mini", ("steps beside match=pair",)),
        ("show simcse[match=pair,steps=4,epochs=1] --profile mini", ("epochs and steps", "match=pair")),
        ("show simcse --profile mini --set simcse.match=rankcse", ("'rankcse'", "to itself")),  # its teacher
        (
            "show simcse --profile mini --set simcse.match=static --set static.of=noise",
            ("match=static:", "'static' doesn't train"),
        ),
        ("show simcse --profile mini --set simcse.match=pair --set simcse.steps=4", ("beside match=pair",)),
        ("show hf:.", ("model folder",)),
        ("tune noise --option scale --values 1", ("'noise' doesn't train",)),
        ("export untrained --out out --precision bf16", ("--precision bf16:", "fp32")),
        ("export untrained --out out --seed 1", ("'untrained'", "deterministic")),
        (
            "tune simcse --values 1e-5 --set simcse.batch_size=1000000",
            ("profile mini:", "1,000,000 of simcse[batch_size=1000000"),
        ),
    ],
)
def test_a_line_is_all(cli: Cli, tmp_path: Path, line: str, facts: tuple[str, ...]) -> None:
    code, out, err = cli(*shlex.split(line))
    assert (code, out, missing_facts(err, *facts)) == (2, "", []), err
    assert err.count("error: ") == 1
    assert not list(tmp_path.rglob("*.json"))


def test_the_last_share_is_one() -> None:
    assert parse_shard("16/16") == (16, 16)


ENOUGH = 8


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A sentence less than a batch of ENOUGH."""
    return written(tmp_path / "short.txt", ENOUGH - 1)


def written(path: Path, lines: int) -> Path:
    path.write_text("\n".join(toy_sentences()[:lines]) + "\n")
    return path


def planned(methods: str, text: Path, model: Path, *sets: str) -> list[str]:
    overrides, asked = tuple(map(parse_override, sets)), parse_methods(methods)
    spec = RunSpec(asked, (1, 2), "mini", ("toy",), str(model), overrides, corpus=text, dev="toy")
    return [job.cell.method for job in make_plan(spec).jobs]


def asked(text: Path, model: Path) -> tuple[str, ...]:
    return ("--corpus", text.name, "--backbone", str(model), "--dev", "toy")


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--estimate",), ("--ranks", "2")])
def test_runs(cli: Cli, tmp_path: Path, tiny_bert: Path, text: Path, more: tuple[str, ...]) -> None:
    run = ("run", "--methods", "word_overlap,simcse[batch_size=8]", "--seeds", "1-2", "--suite", "toy", *more)
    error = refusal(cli, *run, *asked(text, tiny_bert))
    assert not missing_facts(error, "--corpus short.txt:", "7 sentences", "8 of simcse[batch_size=8]")
    assert "--set METHOD.batch_size=7" in error
    assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]


@pytest.mark.parametrize(
    "command",
    [
        ("export", "simcse", "--seed", "1", "--out", "vectors.npy", "--vectors", "short.txt"),
        ("export", "simcse", "--seed", "1", "--out", "folder"),
        ("gradient", "simcse", "--out", "g", "--suite", "toy"),
    ],
    ids=lambda words: words[-2],
)
def test_commands(cli: Cli, tmp_path: Path, tiny_bert: Path, text: Path, command: tuple[str, ...]) -> None:
    assert not missing_facts(refusal(cli, *command, *asked(text, tiny_bert)), "7 sentences", "64 of simcse")
    assert not (tmp_path / "results").exists()


def test_a_whole_batch_is_enough(tmp_path: Path, tiny_bert: Path, text: Path) -> None:
    assert len(planned("simcse", written(tmp_path / "x.txt", ENOUGH), tiny_bert, "simcse.batch_size=8")) == 2
    assert len(planned("simcse", text, tiny_bert, "simcse.batch_size=7")) == 2
    with pytest.raises(InputError, match=r"7 sentences, .* 8 of simcse"):
        planned("simcse", text, tiny_bert, "simcse.batch_size=8")


def test_methods_and_members_are_named(tiny_bert: Path, text: Path) -> None:
    with pytest.raises(InputError) as caught:
        planned("distill:ensemble:simcse+untrained,word_overlap", text, tiny_bert, "simcse.batch_size=32")
    name = "distill:ensemble:simcse+untrained"
    assert not missing_facts(caught.value, f"32 of {name} (teacher/1/simcse)", f"64 of {name}", "7 sentences")
    with pytest.raises(InputError, match=r"arccse, barlow, esimcse and 2 more"):
        planned("arccse,barlow,esimcse,mhe,mhs", text, tiny_bert)


def test_a_plug_ins_stage_is_held_to_its_batch(tiny_bert: Path, text: Path) -> None:
    with pytest.raises(InputError, match=r"8 of pair \(one\), pair \(two\);"):
        planned("pair", text, tiny_bert)


@pytest.mark.parametrize(
    ("method", "facts"),
    [
        *((f"{name}[batch_size=1]", ("batch_size", 1, "at least 2")) for name in ("consert", "mhe", "tncse")),
        ("ct_batch[batch_size=1]", ("batch_size", 1, "at least 2")),
        ("ct[batch_size=2,negatives=1]", ("ct.batch_size", "pairs=released", "3 or more")),
        ("distill[of=noise,student_loss=contrastive,student_queue=0,batch_size=1]", ("queue", "2 or more")),
        ("scd[batch_size=4,epochs=1]", ("last batch has 1 of 4", "2 or more", "another batch_size")),
        ("sup_simcse[batch_size=1]", ("pairs.tsv", "no hard negatives", "2 or more")),
    ],
)
def test_a_batch_without_a_contrast_is_refused(
    cli: Cli, tmp_path: Path, tiny_bert: Path, method: str, facts: tuple[object, ...]
) -> None:
    text = written(tmp_path / "nine.txt", 9)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{line}\tA cat sits.\n" for line in text.read_text().splitlines()))
    source = ("--pairs", str(pairs)) if method.startswith("sup") else ("--corpus", str(text))
    run = ("run", "--methods", method, "--seeds", "1", "--suite", "toy", "--dev", "toy", *source)
    error = refusal(cli, *run, "--backbone", str(tiny_bert))
    assert not missing_facts(error, *facts)
    assert not (tmp_path / "results").exists()


def test_a_message_prints_a_boolean_as_it_is_typed(cli: Cli, tiny_bert: Path, text: Path) -> None:
    run = (
        "run",
        "--methods",
        "simcse[checkpoint_layers=TRUE,batch_size=4]",
        "--seeds",
        "1",
        "--suite",
        "toy",
    )
    error = refusal(cli, *run, "--set", "simcse.checkpoint_layers=false", *asked(text, tiny_bert))
    assert not missing_facts(error, "its checkpoint_layers is true;")


def test_one_sentence_trains_where_the_loss_allows_it(tmp_path: Path, tiny_bert: Path) -> None:
    text = written(tmp_path / "nine.txt", 9)
    rows = ["ct[batch_size=2,pairs=paper]", "tsdae[batch_size=1]"]
    assert [*dict.fromkeys(planned(",".join(rows), text, tiny_bert))] == rows


def test_a_method_without_batches_takes_any_text(tmp_path: Path, tiny_bert: Path) -> None:
    one = written(tmp_path / "one.txt", 1)
    assert planned("whitening[fit=train]", one, tiny_bert) == ["whitening[fit=train]"]
    with pytest.raises(InputError, match="has 1 sentence,"):
        planned("whitening[fit=train],simcse", one, tiny_bert)


def test_held_out_sentences_do_not_fill_a_batch(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("".join(f"The doctor reads book {number}.\n" for number in range(1280)))
    command = ("gradient", "simcse[batch_size=1280]", "--out", "g", "--suite", "toy")
    assert not missing_facts(refusal(cli, *command, *asked(text, tiny_bert)), "1152 sentences", "1280")


def test_a_head_is_not_trained_on_less_than_a_batch(tmp_path: Path, tiny_bert: Path) -> None:
    text = read_corpus(written(tmp_path / "x.txt", 10))
    settings = MlmSettings(
        steps=1, batch_size=8, lr=1e-3, warmup=0.1, max_length=20, mask=0.15, weight_decay=0.0
    )
    folder = resolve_folder(str(tiny_bert), where="x")
    with pytest.raises(InputError, match=r"5 lines .* 8"):
        train_mlm_head(folder, text, settings, seed=1, out=tmp_path / "out", command="x")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dry", [True, False])
def test_mteb_needs_vectors(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    suite = f"local:{write_local_suite(tmp_path)}"
    place = ("--results", str(tmp_path / "r"))
    run = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", suite, *place)
    code, out, err = cli(*run, *(["--dry-run"] if dry else []))
    assert (code, out) == (2, "")
    assert not missing_facts(err, f"--suite {suite}:", "word_overlap", "no vectors", "out of --methods")
    assert not (tmp_path / "r").exists()
    code, _, err = cli("run", "--methods", "word_overlap", "--suite", "toy", *place, "--dry-run")
    assert code == 0, err


def test_every_scorer_says_so() -> None:
    scorers = [name for name, method in discover() if method.card.scores_pairs]
    assert scorers == ["word_overlap"]


def test_missing_data_are_refused_first(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mteb", exc_type=ImportError)
    from huggingface_hub import constants

    def never(*_: Any) -> None:
        raise AssertionError("mteb takes seconds to import")

    monkeypatch.setattr(mteb_tasks, "import_mteb", never)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "sets"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = ("--results", str(tmp_path / "r"))
    run = ("run", "--methods", "noise", "--seeds", "1-3", "--suite", "toy,mteb:BIOSSES", *place)
    for dry in ([], ["--dry-run"]):
        code, out, err = cli(*run, *dry)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert not missing_facts(
            err, "--suite mteb:BIOSSES:", "1 data set", "mteb/biosses-sts", "HF_HUB_OFFLINE=0"
        )
    assert not (tmp_path / "r").exists()
    assert cli(*run[:2], "nobody", *run[3:])[2].startswith("error: --methods: ")
    record = tmp_path / "r" / "local" / "mini" / "noise" / "seed-1" / f"{safe_name('mteb:BIOSSES')}.json"
    record.parent.mkdir(parents=True)
    record.write_text("a finished cell, for all that is known without mteb")
    for asked in (run, (*run[:2], "noise,word_overlap", *run[3:], "--campaign", "new")):
        with pytest.raises(AssertionError, match="takes seconds"):
            cli("--debug", *asked)


def test_scorers_are_left_out_of_all(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    run = ("run", "--methods", "all", "--seeds", "1", "--suite", f"local:{write_local_suite(tmp_path)}")
    code, out, err = cli(*run, "--results", str(tmp_path / "r"), "--dry-run")
    assert code == 0, err
    assert "untrained" in out
    assert "word_overlap" not in out
    assert "bert_flow" not in out
    fitted = cli(*run, "--set", "bert_flow.fit=train", "--results", str(tmp_path / "r"), "--dry-run")
    assert (fitted[0], "bert_flow" in fitted[1], "word_overlap" in fitted[1]) == (0, True, False), fitted[2]


RUN = ("run", "--methods", "noise,word_overlap", "--seeds", "1", "--suite", "toy")


@pytest.fixture(autouse=True)
def small_dev_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe the toy pairs, not the mini world's dev set."""
    monkeypatch.setattr(record_probes, "find_probe_suite", lambda _spec: "toy")
    monkeypatch.setattr("bench.execution.cell_run.find_probe_suite", lambda _spec: "toy")


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("thop", "mteb", "ray"):
        monkeypatch.setitem(sys.modules, name, None)


def test_all_probes_but_the_one_that_lacks_its_package(cli: Cli, tmp_path: Path, blocked: None) -> None:
    code, _, err = cli(*RUN, "--probes", "all")
    assert code == 0, err
    assert err.count("(pip install thop)\n") == err.count("probe cost") == 1
    for record in records(tmp_path).values():
        assert set(PROBES) - {"cost"} <= record.probes.keys()
        assert "cost" not in record.probes


def test_it_comes_later(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "thop", None)
        assert cli(*RUN, "--probes", "all")[0] == 0
    assert cli(*RUN, "--probes", "all")[0] == 0
    assert all("cost" in record.probes for record in records(tmp_path).values())


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--probes", "isotropy,cost"), ("--probes:", "probe cost", "thop is not installed")),
        (("--suite", "toy,mteb:STS12"), ("pip install 'cse-bench[mteb]'",)),
        (("--executor", "ray"), ("--executor ray:", "pip install 'cse-bench[ray]'")),
    ],
)
def test_what_is_named_is_refused_before_anything_runs(
    cli: Cli, tmp_path: Path, blocked: None, options: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    assert not missing_facts(refusal(cli, *RUN, *options), *facts)
    assert records(tmp_path) == {}


def test_bench_probe_does_so_too(cli: Cli, blocked: None) -> None:
    code, out, err = cli("probe", "word_overlap", "--dev", "toy")
    assert code != 0 or "isotropy" in out
    assert not missing_facts(err, "probe cost", "(pip install thop)")
