"""``--methods all`` leaves out rows with a missing input, with the reason; options that rows don't use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.config.method_ids import parse_methods, parse_override
from bench.config.run_spec import RunSpec
from bench.errors import InputError
from bench.plan.all_methods import LeftOut
from bench.plan.plan import Plan, make_plan
from bench.plan.unused_options import describe_unused_options
from bench.registry import discover
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

COPIES = {"bsl", "denosent", "edfse", "edfse_d", "jtcse", "jtcse_d", "tncse", "tncse_d"}
PAIRS = {"angle", "sup_simcse"}


LINES = 1_200


def write_text(path: Path, lines: int) -> None:
    path.write_text("".join(f"The doctor reads book {number}.\n" for number in range(lines)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the training text of profile minilm-lm, and nothing else."""
    (tmp_path / "data" / "corpus").mkdir(parents=True)
    write_text(tmp_path / "data" / "corpus" / "wiki.txt", 60_000)
    return tmp_path / "data"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "own text"
    write_text(file, LINES)
    return file


def planned(methods: str, model: Path, *sets: str, profile: str = "mini", **changes: object) -> Plan:
    overrides = tuple(map(parse_override, sets))
    spec = RunSpec(parse_methods(methods), (1,), profile, ("toy",), str(model), overrides, dev="toy")
    return make_plan(replace(spec, **changes))  # type: ignore[arg-type]


def rows(plan: Plan) -> set[str]:
    return {job.cell.method for job in plan.jobs}


def lacking(plan: Plan) -> set[str]:
    return {method for left_out in plan.left_out for method in left_out.methods}


def test_a_row_stays_or_is_left_out_by_name(tiny_bert: Path, text: Path) -> None:
    plan = planned("all", tiny_bert, corpus=text)
    alone = {method.card.name for _, method in discover() if method.card.stands_alone}
    assert rows(plan) | lacking(plan) == alone
    assert not rows(plan) & lacking(plan)
    assert {"simcse", "untrained", "word_overlap"} <= rows(plan)
    assert lacking(plan) >= COPIES
    assert {request.name for request in plan.spec.methods} == rows(plan) == set(plan.ids)


def test_the_reason_has_the_command(tiny_bert: Path, text: Path) -> None:
    plan = planned("all", tiny_bert, corpus=text)
    (copies,) = (left for left in plan.left_out if {"tncse", "jtcse"} <= {*left.methods})
    facts = ("copies a, b", f"--pivots fr,ru --corpus '{text}'", "--copy b=copies/own text.en-ru-en.txt")
    assert not missing_facts(str(copies), "left out: jtcse, ", *facts)
    assert not missing_facts(str(copies.reason), *facts)
    given = planned("all", tiny_bert, corpus=text, copies=(("a", text), ("b", text)))
    assert {"tncse", "jtcse", "bsl"} <= rows(given)
    assert {"denosent", "edfse"} <= lacking(given)


def test_labelled_pairs_of_the_profile(tiny_bert: Path, data: Path) -> None:
    plan = planned("all", tiny_bert, profile="minilm-lm", data=data)
    (pairs,) = (left for left in plan.left_out if "sup_simcse" in left.methods)
    assert set(pairs.methods) == {*PAIRS, "sup_prompteol_cse"}
    assert not missing_facts(str(pairs), "missing", f"bench data fetch nli --data {data}")
    assert {"simcse", "tncse"} <= rows(plan)  # the profile's copies are turned off
    with pytest.raises(InputError, match="labelled pairs are missing"):
        planned("all,sup_simcse", tiny_bert, profile="minilm-lm", data=data)  # it is named


def test_a_model_that_the_user_names_is_an_error(tiny_bert: Path, text: Path) -> None:
    plan = planned("all", tiny_bert, profile="minilm", corpus=text)
    (generator,) = (left for left in plan.left_out if "diffcse.generator" in str(left))
    assert set(generator.methods) == {"diffcse", "rankcse"}
    with pytest.raises(InputError, match=r"diffcse\.generator: 'nowhere'"):
        planned("all", tiny_bert, "diffcse.generator=nowhere", profile="minilm", corpus=text)


def test_needs_that_the_backbone_lacks(tiny_bert: Path, text: Path) -> None:
    plan = planned("all", tiny_bert, corpus=text)  # it has no head
    reasons = {method: str(left.reason) for left in plan.left_out for method in left.methods}
    assert not missing_facts(reasons["infocse"], "lacks a masked-LM head", "--backbone", "bench show hf:")


def test_a_text_of_less_than_a_batch(tiny_bert: Path, text: Path) -> None:
    plan = planned("all", tiny_bert, f"pcl.batch_size={LINES + 1}", corpus=text)
    (short,) = (left for left in plan.left_out if "pcl" in left.methods)
    assert not missing_facts(str(short), "1,200 sentences", "batch of 1,201", "--set METHOD.batch_size=1200")
    assert "simcse" in rows(plan)
    with pytest.raises(InputError, match="batch of 1,201 of pcl"):
        planned("pcl,simcse", tiny_bert, f"pcl.batch_size={LINES + 1}", corpus=text)


def test_inputs_that_all_share_are_errors(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a training text"):
        planned("all", tiny_bert, profile="minilm-lm")
    with pytest.raises(InputError, match="nowhere"):
        planned("all", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"simcse\.tau=-1"):
        planned("all", tiny_bert, "simcse.tau=-1")


def test_run_prints_what_it_leaves_out(cli: Cli, tmp_path: Path, tiny_bert: Path, text: Path) -> None:
    run = ("run", "--methods", "all", "--seeds", "1", "--suite", "toy", "--dev", "toy", "--dry-run")
    code, out, err = cli(*run, "--backbone", str(tiny_bert), "--corpus", text.name)
    assert code == 0, err
    assert "simcse" in out
    assert "tncse " not in out
    lines = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert any("tncse" in line and "bench data rtt" in line for line in lines)
    assert len(lines) == len(set(lines))


def test_nothing_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.plan import all_methods

    missing = InputError("no pairs", hint="bench data fetch nli")
    with pytest.raises(InputError, match=r"no method of 'all' .* no pairs; bench data fetch nli"):
        all_methods.expand_all_methods(parse_methods("all"), lambda _: [missing])
    assert str(LeftOut(("a", "b"), missing)) == "left out: a, b: no pairs; bench data fetch nli"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--corpus", "own text"),
        ("--dev", "toy"),
        ("--pairs", "own text"),
        ("--copy", "a=own text.txt"),
    ],
)
def test_an_option_for_training_is_a_note_where_no_row_trains(
    cli: Cli, text: Path, option: str, value: str
) -> None:
    run = ("run", "--methods", "word_overlap", "--suite", "toy", option, value)
    for more in ([], ["--dry-run"]):
        code, _, err = cli(*run, *more)
        assert (code, err.splitlines()[0]) == (0, f"note: {option} {value}: not used, no method here trains")


def test_an_option_that_no_training_row_reads_is_an_error(cli: Cli, text: Path) -> None:
    run = ("run", "--seeds", "1", "--suite", "toy", "--dry-run", "--methods")
    for methods, option, value in (
        ("simcse,untrained", "--pairs", text.name),
        ("sup_simcse,untrained", "--corpus", text.name),
        ("simcse,untrained", "--copy", f"a={text.name}"),
    ):
        assert f"{option} {value}: " in refusal(cli, *run, methods, option, value)
    assert "--corpus FILE" in refusal(cli, *run, "untrained", "--text-column", "x")


def test_notes_name_the_shorter_side() -> None:
    spec = RunSpec((), (1,), "mini", corpus=Path("c"), pairs=Path("p"), dev="toy", copies=(("a", Path("k")),))
    texts = {"plain": (), "simcse": ("train",), "twin": ("train:a", "train"), "sup": ("pairs",)}
    assert list(describe_unused_options(spec, texts)) == [
        "--corpus c: not used by plain, sup",
        "--pairs p: used only by sup",
        "--dev toy: not used by plain",
        "--copy a=k: used only by twin",
    ]
    assert list(describe_unused_options(replace(spec, pairs=None), {"twin": texts["twin"]})) == []
