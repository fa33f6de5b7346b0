"""``ensemble:``, ``distill:``, and the texts that members train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.config.method_ids import OF_METHODS, parse_methods, parse_override
from bench.config.run_spec import RunSpec
from bench.data.tasks import PairTask
from bench.method_card import BuildContext
from bench.methods.ensemble import parse_weighted_members
from bench.nn.backbone import TransformerEncoder
from bench.plan.cell import Cell
from bench.plan.plan import Plan, make_plan
from bench.registry import discover
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts
from tests.support.steps import toy_run
from tests.support.training import stage_folders

SHORT = ("--set", "simcse.steps=2", "--set", "simcse.eval_every=2", "--set", "simcse.batch_size=8")


def plan_of(methods: str, tmp_path: Path, seeds: tuple[int, ...] = (1,)) -> Plan:
    return make_plan(RunSpec(parse_methods(methods), seeds=seeds, profile="mini", results=tmp_path))


def cells(methods: str, tmp_path: Path, seeds: tuple[int, ...] = (1,)) -> list[Cell]:
    return [job.cell for job in plan_of(methods, tmp_path, seeds).jobs]


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("a+b", [(1.0, "a"), (1.0, "b")]),
        ("0.3*a[x=1,y=2]+.7*b:avg + c", [(0.3, "a[x=1,y=2]"), (0.7, "b:avg"), (1.0, "c")]),
        ("2*a+distill:b[c=d+e]", [(2.0, "a"), (1.0, "distill:b[c=d+e]")]),
    ],
)
def test_members_and_weights(text: str, members: list[tuple[float, str]]) -> None:
    assert parse_weighted_members(text) == members


def test_an_ensemble_shares_stages(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    methods = "simcse,untrained:avg,ensemble:0.25*simcse+untrained:avg"
    code, _, err = cli(*toy_run(tiny_bert, corpus, methods, *SHORT))
    assert code == 0, err
    assert len(stage_folders(tmp_path)) == 1  # the ensemble trains nothing of its own
    found = {record.name: record for record in records(tmp_path).values()}
    sum_record = found["ensemble"]
    assert sum_record.provenance["encoder"]["weights"] == "0.25+1"
    own = found["simcse"].training["stages"]["simcse"]
    assert sum_record.training["stages"]["1/simcse"]["key"] == own["key"]
    members = sum_record.training["members"]
    assert (members["1"]["options"]["steps"], members["2"]["options"]["pooling"]) == (2, "avg")
    average = sum_record.score("avg")
    assert average is not None
    assert average not in (found["simcse"].score("avg"), found["untrained"].score("avg"))


def test_a_second_copy_has_its_own_streams(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    code, _, err = cli(*toy_run(tiny_bert, corpus, "ensemble:simcse+simcse", *SHORT))
    assert code == 0, err
    (record,) = records(tmp_path).values()
    first, second = (record.training["stages"][f"{number}/simcse"] for number in (1, 2))
    assert first["key"] != second["key"]
    assert first["last_loss"] != second["last_loss"]
    folders = [tmp_path / "results" / ".stages" / stage["key"] / "selected" for stage in (first, second)]
    one, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one != other


@pytest.mark.slow
def test_distil_any_method_and_share_the_stage_of_the_named_form(tmp_path: Path) -> None:
    given = "lr=1e-5,steps=7,eval_every=7,max_length=64"
    student, named = cells(f"distill:tncse,tncse_d[{given}]", tmp_path)
    assert student.method == "distill:tncse"
    assert student.stages[-1].key != named.stages[-1].key
    sets = tuple(parse_override(f"distill.{setting}") for setting in given.split(","))
    spec = RunSpec(parse_methods("distill:tncse"), (1,), "mini", overrides=sets, results=tmp_path)
    assert make_plan(spec).jobs[0].cell.stages[-1].key == named.stages[-1].key


def test_nested_copies_and_seedless_sums(tmp_path: Path) -> None:
    (cell,) = cells("ensemble:distill:simcse+distill:simcse+simcse", tmp_path)
    copies = [(member.card.name, member.copy) for _, member in cell.members]
    assert copies == [("distill", ""), ("distill", "2"), ("simcse", "")]
    teachers = [member.members[0][1].copy for _, member in cell.members[:2]]
    assert teachers == ["", "2"]
    keys = [stage.key for stage in cell.all_stages]
    assert len(keys) == len(set(keys)) == 4  # the third member is the first one's teacher
    seeds = [cell.seed for cell in cells("ensemble:untrained+untrained:avg", tmp_path, seeds=(1, 2, 3))]
    assert seeds == [None]


@pytest.mark.slow
def test_every_text_is_another_stage_and_sick_stands_at_the_end(tmp_path: Path) -> None:
    texts = ("train", "a", "b", "train+sick", "a+sick", "b+sick")
    plan = plan_of(",".join(f"simcse[text={text}]" for text in texts), tmp_path)
    assert len({job.cell.stages[0].key for job in plan.jobs}) == 6
    assert plan.training is not None
    named = plan.training.texts
    (mini,) = (task for task in plan.suites["mini"] if isinstance(task, PairTask))
    test = {s for pair in mini.all_pairs() for s in pair}
    for text in ("train", "a", "b"):
        more = named[f"{text}+sick"].sentences
        assert more[: len(named[text].sentences)] == named[text].sentences
        assert set(more[len(named[text].sentences) :]) == test
    (joint,) = [s for s in cells("tncse[sick=true]", tmp_path)[0].stages if s.spec.role == "joint"]
    assert joint.spec.text == "train+sick"
    subs = [s.spec.text for s in cells("tncse[sick=true,rtt=none]", tmp_path)[0].stages]
    assert subs == ["train+sick"] * 3


def test_sick_needs_data_that_has_it(
    cli: Cli, tiny_bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    given = toy_run(tiny_bert, corpus, "simcse[text=train+sick]", "--profile", "minilm")
    code, _, err = cli(*given)
    assert code == 2
    assert not missing_facts(err, "SICK's unlabelled sentences", "--data DIR", "BENCH_DATA")
    data = tmp_path / "data"
    (data / "corpus").mkdir(parents=True)
    (data / "corpus" / "sick_unlabelled.txt").write_text("A made-up sentence.\n")
    code, _, err = cli(*given, "--data", str(data), *SHORT)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    name = record.training["stages"]["simcse"]["text"]["name"]
    assert name == "corpus.txt + sick_unlabelled.txt"
    (path,) = (tmp_path / "results" / "local").glob("*/*/*/*.json")
    again = (
        "verify",
        str(path),
        "--rerun",
        "--model",
        str(tiny_bert),
        "--corpus",
        str(corpus),
        "--data",
        str(data),
    )
    code, out, err = cli(*again)
    assert (code, out.split(":")[0]) == (0, "equal"), err


def test_the_sum_is_that_of_the_members_vectors(tiny_bert: Path) -> None:
    one, two = TransformerEncoder(tiny_bert, "cls"), TransformerEncoder(tiny_bert, "avg")
    context = BuildContext({"of": "2*a+b"}, 1, None, "cpu", members={"1": one, "2": two})
    encoder: Any = discover().get("ensemble").build(context)
    expected = 2 * one.encode(["a b", "c"]) + two.encode(["a b", "c"])
    np.testing.assert_allclose(encoder.encode(["a b", "c"]), expected, rtol=1e-6)


def test_all_is_every_method_that_needs_no_path_and_no_methods(tmp_path: Path) -> None:
    plan = plan_of("all,two=ensemble:simcse+untrained", tmp_path)
    names = [job.cell.card.name for job in plan.jobs]
    missing = {name for name, _ in discover()} - set(names)
    decoders = {"prompteol", "echo", "pretended_cot", "knowledge_enhancement", "metaeol", "token_prepending"}
    decoders |= {"prompteol_cse", "sup_prompteol_cse", "llm2vec"}  # mini's backbone is an encoder
    assert missing == {"hf", "st", "exported", "vectors", "distill", "released", "compressed", *decoders}
    assert len(set(names)) == len(names)
    assert plan.ids["simcse"] == "simcse"
    of_methods = {name for name, method in discover() if method.card.takes_methods}
    assert of_methods == set(OF_METHODS)  # as the parser knows them


@pytest.mark.slow
def test_no_path_of_a_member_enters_a_record(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    method = f"ensemble:0.5*hf:{tiny_bert}:avg+distill:hf:{tiny_bert}"
    short = tuple(text.replace("simcse", "distill") for text in SHORT)
    code, _, err = cli(*toy_run(tiny_bert, corpus, method, *short))
    assert code == 0, err
    (path,) = records(tmp_path)
    text = (tmp_path / "results" / "local" / path).read_text()
    digits = json.loads(text)["training"]["members"]["1"]["method"].split("[")[0].removeprefix("tiny-bert-")
    name = f"tiny-bert-{digits}"
    assert (len(digits), str(tiny_bert) in text + path) == (8, False)
    of = f"0.5*{name}[pooling=avg]+distill:{name}[batch_size=8,eval_every=2,steps=2]"
    assert (json.loads(text)["method"], json.loads(text)["options"]) == (f"ensemble:{of}", {"of": of})
    code, _, err = cli(
        "verify", str(tmp_path / "results" / "local" / path), "--rerun", "--model", str(tiny_bert)
    )
    assert code == 2
    assert f"'{name}'" in err
