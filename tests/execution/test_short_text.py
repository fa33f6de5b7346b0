"""A training text shorter than a batch: refused in one line before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods, parse_override
from bench.config.spec import RunSpec
from bench.data.corpus import read_corpus
from bench.errors import InputError
from bench.nn.model_folder import resolve_folder
from bench.plan.plan import make_plan
from bench.training.masked_lm_training import MlmSettings
from bench.training.pretraining import train_mlm_head
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts
from tests.support.training import toy_sentences

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
        ("encode", "simcse", "--seed", "1", "--out", "vectors.npy", "--input", "short.txt"),
        ("export", "simcse", "--seed", "1", "--out", "folder"),
        ("gradient", "simcse", "--out", "g", "--suite", "toy"),
    ],
    ids=lambda words: words[0],
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
