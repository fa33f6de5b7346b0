"""Findings of the fuzz tests, each as a case of its own."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from bench.config import profiles
from bench.config.plugins import load_plugin, read_plugin
from bench.data import published_tables, released_checkpoints, senteval
from bench.data.corpus import make_corpus, read_corpus
from bench.data.local_tasks import read_local_suite
from bench.data.training_data import read_copy
from bench.data.word_vectors import read_word_vectors
from bench.errors import DataError, InputError, NewerRecordError
from bench.method_card import BuildContext, MethodCard, Option
from bench.probes.training_overlap import read_training_lines
from bench.records.fingerprint import compute_family_key
from bench.records.record import SCHEMA, RunRecord, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.registry import METHODS
from bench.reports.record_groups import round_averages
from bench.stats.seeds import one_sample, welch
from tests.fuzz.toml_tables import as_toml, packaged, swapped
from tests.support.campaigns import make_record, probes_of
from tests.support.cli import Cli, refusal
from tests.support.conformance import RIGHT
from tests.support.forge import forge
from tests.support.messages import check_error, missing_facts

TOY = ("--suite", "toy")
ENDLESS = ("Infinity", "NaN", "1e999", "1e300")
MARK = b"\xef\xbb\xbf"
RECORD = make_record("m", 1, {"A": 0.5, "B": 0.25}, probes=probes_of(1))


def changed(record: RunRecord, **values: Any) -> str:
    """Return the record's JSON with other values; ``a__b`` is the place b in a."""
    block = data = json.loads(record_to_json(replace(record, schema=SCHEMA)))
    for path, value in values.items():
        *parents, name = path.split("__")
        for parent in parents:
            block = block[int(parent) if isinstance(block, list) else parent]
        block[name] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"scores__0__value": 10**400}, "scores[0].value"),
        ({"scores__0__value": True}, "scores[0].value"),
        ({"scores__0__value": "0.5"}, "scores[0].value"),
        ({"scores__0__value": 1.5}, "spearman is 1.5"),
        ({"scores__0__n": True}, "scores[0].n"),
        ({"scores__0__n": "2"}, "scores[0].n"),
        ({"scores__0__value": 42}, "spearman is 42"),
        ({"scores__1__task": "A"}, "two scores"),
        ({"scores__1__task": "C"}, "score of C"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"version": None}, "version"),
        ({"notes": "abc"}, "notes"),
        ({"notes": ["\ud800"]}, "notes[0]"),
        ({"suite": "\ud800"}, "suite"),
        ({"options": {"lr": [1]}}, "options.lr"),
        ({"tasks__A__reference": "yes"}, "tasks.A.reference"),
        ({"training__corpus": "text"}, "training.corpus"),
        ({"training__stages": []}, "training.stages"),
        ({"training__stages__simcse__sentences_seen": "9"}, "training.stages.simcse.sentences_seen"),
        ({"training__stages__simcse__dev_curve": [[1]]}, "training.stages.simcse.dev_curve[0]"),
        ({"training__members": {"a": {"method": "x"}}}, "training.members.a.options"),
        ({"timing": {}}, "timing.training_cpu_seconds"),
        ({"timing__training_cpu_seconds": {"a": "x"}}, "timing.training_cpu_seconds.a"),
        ({"provenance__encoder": 5}, "provenance.encoder"),
        ({"provenance__git": "abc"}, "provenance.git"),
        ({"probes__cost__gmac": "1"}, "probes.cost.gmac"),
        ({"probes__attention_sink__layers": [1]}, "probes.attention_sink.layers[0]"),
        ({"probes__data__sentences": 1e400}, "probes.data.sentences"),
        ({"schema": "1"}, "no schema"),
        ({"schema": 0}, "no schema"),
        ({"schema": True}, "no schema"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_record_with_a_wrong_block_is_refused_by_its_place(values: dict[str, Any], place: str) -> None:
    text = changed(RECORD, **values)
    check_error(lambda: parse_record(text, "r.json"), "r.json", "not a run record", place, kind=DataError)


def test_a_name_twice_in_a_record_is_refused() -> None:
    text = changed(RECORD).replace('"value": 0.5', '"value": 0.5, "value": 0.75', 1)
    check_error(lambda: parse_record(text, "r.json"), "twice", kind=DataError)


def older(record: RunRecord, schema: int) -> str:
    """Return a record as written until 2026-11-22: with a family, without the evaluation block."""
    data = json.loads(record_to_json(record)) | {"schema": schema, "family": "f" * 64}
    return json.dumps({name: value for name, value in data.items() if name != "evaluation"})


@pytest.mark.parametrize("schema", [1, 2])
def test_records_of_older_schemas_load_and_are_sealed(schema: int, cli: Cli, tmp_path: Path) -> None:
    run = ("run", "--methods", "noise", "--seeds", "1-2", *TOY)
    assert cli(*run)[0] == 0
    paths = sorted((tmp_path / "results" / "local" / "mini" / "noise").glob("*/toy.json"))
    assert len(paths) == 2
    whole = [path.read_bytes() for path in paths]
    for path in paths:
        record = parse_record(path.read_text(), "x")
        unsealed = {name: value for name, value in record.timing.items() if name != "record_sha256"}
        path.write_text(older(replace(record, timing=unsealed), schema))
        loaded = parse_record(path.read_text(), "x")
        assert loaded.scores == record.scores
        assert compute_family_key(loaded) == compute_family_key(record)
    before = [path.read_bytes() for path in paths]
    for arguments in (("report",), ("stats",), run, (*run, "--force"), ("verify", str(paths[0]), "--rerun")):
        code, out, err = cli(*arguments)
        assert code in (1, 2)
        assert not missing_facts(err, "seed-1/toy.json", "no seal", "bench verify --seal")
        assert [path.read_bytes() for path in paths] == before
    assert cli("verify")[0] == 1
    code, out, _ = cli("verify", "--seal")
    assert (code, out.count(": sealed\n")) == (0, 2), out
    assert cli("verify")[0] == 0
    for path, text in zip(paths, whole, strict=True):
        assert parse_record(path.read_text(), "x").key == json.loads(text)["key"]
    averages = [score["value"] for text in whole for score in json.loads(text)["scores"]]
    mean = fmean(averages)
    for form, fact in (
        ("text", f"{100 * mean:.2f}"),
        ("csv", averages[0]),
        ("json", mean),
        ("html", "noise"),
    ):
        code, out, err = cli("report", "--format", form)
        assert (code, err, str(fact) in out) == (0, "", True)
    assert "2 of 2 cells" in cli(*run)[2]


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99])
def test_newer_schemas_are_refused_with_a_hint(schema: int) -> None:
    text = json.dumps(
        json.loads(record_to_json(replace(RECORD, schema=schema))) | {"whatever": {"is": "new"}}
    )
    facts = (f"schema {schema}", f"schema {SCHEMA}", "upgrade cse-bench")
    check_error(lambda: parse_record(text, "r.json"), *facts, kind=NewerRecordError)


@pytest.mark.parametrize(
    "array",
    [
        np.array([{"a": 1}], dtype=object),
        np.zeros((1, 4), np.float32),
        np.zeros(4, np.float64),
        np.array(["a"]),
        np.array([0.5, np.nan], np.float32),
        np.float32(1),
        np.zeros(9, np.float32),
        None,
    ],
    ids=["objects", "two axes", "float64", "texts", "nan", "a number", "one less", "no archive"],
)
def test_predictions_of_another_kind_are_refused(array: Any, tmp_path: Path) -> None:
    store = ResultStore(tmp_path, "camp")
    record = store.write(RECORD.place, RECORD, {"A": np.zeros(10, np.float32), "B": np.zeros(10, np.float32)})
    stream = io.BytesIO()
    if array is None:
        np.save(stream, np.zeros(3))
    else:
        np.savez(stream, allow_pickle=True, A=array, B=np.zeros(10, np.float32))
    file = store.path(record.place).with_suffix(".npz")
    file.write_bytes(stream.getvalue())
    digest = hashlib.sha256(stream.getvalue()).hexdigest()
    kinds = r"these are no predictions|the predictions of A are damaged|predictions of A \(9\), B \(10\);"
    with pytest.raises(DataError, match=rf"sts7\.npz: ({kinds})"):
        store.predictions(replace(record, predictions={"file": "sts7.npz", "sha256": digest}))


def test_statistics_of_a_record_without_an_average_say_so(cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise", "--seeds", "1-2", *TOY)
    path = tmp_path / "results" / "local" / "mini" / "noise" / "seed-1" / "toy.json"

    def leave_out(record: dict[str, Any]) -> None:
        record["scores"] = [score for score in record["scores"] if score["task"] != "avg"]

    forge(path, leave_out)
    err = refusal(cli, "stats", "--draws", "100")
    assert not missing_facts(err, path.name, "avg", "is missing", "its predictions give", "again")


def test_an_average_of_no_task_is_not_rounded() -> None:
    scores = tuple(replace(score, metric="f1") if score.task == "avg" else score for score in RECORD.scores)
    check_error(lambda: round_averages([replace(RECORD, scores=scores)]), "f1", kind=DataError)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"points": [["x", "jtcse", "noise"]]}, "'x' is not a number"),
        ({"points": [["0", "jtcse"]]}, "'points[0]' is missing"),
        ({"points": [["0", 5, "noise"]]}, "'points[0][1]' is missing"),
        ({"points": []}, "it has no cells"),
        ({"suites": "toy"}, "'suites' is missing"),
        ({"seeds": ["1"]}, "'seeds[0]' is missing"),
        ({"sweep": "cael"}, "no sweep 'cael'"),
    ],
)
def test_damaged_grids_are_refused(change: dict[str, Any], said: str, cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "noise", "--seeds", "1", *TOY)
    points = [["0", "jtcse", "noise"]]
    good = {"sweep": "caels", "profile": "mini", "suites": ["toy"], "seeds": [1], "points": points}
    path = tmp_path / "results" / "local" / "sweeps" / "mini-caels.json"
    path.parent.mkdir()
    path.write_text(json.dumps(good))
    assert cli("report", "--format", "html")[0] == 0
    path.write_text(json.dumps(good | change))
    assert not missing_facts(refusal(cli, "report", "--format", "html"), "mini-caels.json", "damaged", said)


@pytest.mark.parametrize(
    "probes",
    [
        *(f'{{"density": {{"groups": [ONE], "curves": [[HALVES, {end}]]}}}}' for end in ENDLESS),
        '{"density": {"groups": [ONE], "curves": [[HALVES]]}}',
        '{"attention_sink": {"maps": [{"tokens": [], "layers": [[]]}]}}',
        '{"attention_sink": {"maps": [{"tokens": ["a", "b"], "layers": [[[0.5, 0.5]]]}]}}',
        '{"attention_sink": {"maps": [{"tokens": ["a", "b"], "layers": [[[0.5, 0.5], [1.0]]]}]}}',
    ],
    ids=[*ENDLESS, "a number less", "no token", "a row less", "a cell less"],
)
def test_a_probes_file_that_nobody_can_draw_is_refused(probes: str, cli: Cli, tmp_path: Path) -> None:
    cli("run", "--methods", "word_overlap", *TOY)
    for name, value in (("ONE", '{"low": 0.0, "high": 1.0}'), ("HALVES", ", ".join(["0.5"] * 100))):
        probes = probes.replace(name, value)
    text = f'[{{"method": "m", "seed": 1, "profile": "mini", "probes": {probes}}}]'
    (tmp_path / "results" / "local" / "probes.json").write_text(text)
    err = refusal(cli, "report", "--format", "html")
    assert not missing_facts(err, "probes.json", "damaged")


def test_seeds_that_agree_in_all_but_their_last_digits_give_numbers_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a in ([0.7, np.nextafter(0.7, 1), 0.7], *([0.0, tiny, 0.0] for tiny in (5e-324, 1e-252, 1e-80))):
            for test in (welch(a, [0.7, 0.7, 0.7]), welch(a, [0.0, 0.0]), one_sample(a, 0.25)):
                values = (test.difference, test.low, test.high, test.p, test.t or 0.0, test.df or 0.0)
                assert all(map(math.isfinite, values))


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(MARK + b"one\ntwo\n")
    assert read_corpus(path).sentences == ("one", "two")
    assert read_copy(path, make_corpus("x", ["a", "b"]), where="here").sentences == ("one", "two")
    assert list(read_training_lines(path)) == ["one", "two"]
    assert senteval.read_lines(tmp_path, "text.txt") == ["one", "two"]
    assert senteval.read_lines(tmp_path, "text.txt", "latin-1")[0] != "one"


def suite_of(folder: Path) -> object:
    return read_local_suite(folder / "suite.toml")


def profile_of(folder: Path) -> profiles.Profile:
    with packaged(profiles, folder):
        return profiles.load_profile("mine")


def checkpoints_of(folder: Path) -> object:
    with packaged(released_checkpoints, folder):
        return released_checkpoints.load_checkpoints.__wrapped__()


def figures_of(folder: Path) -> object:
    with swapped(published_tables, "files", lambda _: folder):
        return published_tables.load_figures.__wrapped__()


def profile(**changes: Any) -> str:
    good: dict[str, Any] = {"summary": "s", "suites": ["toy"], "dev": "toy", "corpus": {"file": "a.txt"}}
    good |= {"backbone": {"name": "b", "hub": "a/b"}} | changes
    return "\n".join(f"{name} = {as_toml(value)}" for name, value in good.items())


SUITE = '[[task]]\nname = "t"\ntype = "classification"\ntrain = "a{0}"\ntest = "b{0}"\n'
MRPC = "Quality\ta\tb\tc\td\n1\t2\t3\ta\tb\n"
HEAD = "table,section,backbone,method,setting,task,metric,value,note\n"
ROW = "T,sts7,bert-base,simcse,,STS12,spearman,68.40,\n"
READERS: dict[str, tuple[Callable[[Path], object], str, dict[str, str]]] = {
    "MRPC": (
        senteval.SOURCES["MRPC"].read, "MRPC/msr_paraphrase_train.txt", {"MRPC/msr_paraphrase_test.txt": MRPC}
    ),
    "STSB": (senteval.SOURCES["STSB"].read, "STS/STSBenchmark/sts-test.csv", {}),
    "vectors": (lambda folder: read_word_vectors(folder / "vectors.txt"), "vectors.txt", {}),
    "suite": (suite_of, "suite.toml", {}),
    ".csv": (suite_of, "a.csv", {"suite.toml": SUITE.format(".csv"), "b.csv": "text,label\none,good\n"}),
    ".jsonl": (
        suite_of, "a.jsonl", {"suite.toml": SUITE.format(".jsonl"), "b.jsonl": '{"text": "a", "label": "x"}'}
    ),
    "profile": (profile_of, "mine.toml", {}),
    "released": (checkpoints_of, "released.toml", {}),
    "published": (
        figures_of, "published/unsee.csv", {f"published/{p}.csv": HEAD for p in published_tables.PAPERS}
    ),
}  # fmt: skip
"""Reader of a file, the file, and others next to it."""
BUDGET = {"sentences": 1, "evaluate_every": 1}
PROFILES: tuple[tuple[str, dict[str, object]], ...] = (
    ("suites", {"suites": "toy"}),
    ("suites[0]", {"suites": [5]}),
    ("backbone.hub", {"backbone": {"name": "b"}}),
    ("corpus.exclude_lines", {"corpus": {"file": "a", "exclude_lines": [1]}}),
    ("corpus.file", {"corpus": {"file": "a\x00"}}),
    ("corpus.world", {"corpus": {}}),
    ("backbone.folder", {"backbone": {"name": "b", "package": "p", "extra": "e"}}),
    ("budget.evaluate_every", {"budget": {"epochs": 1}}),
    ("budget.sentences", {"budget": BUDGET | {"sentences": 0}}),
    ("budget.steps", {"budget": BUDGET | {"steps": 1}}),
    ("methods.noise", {"methods": {"noise": 5}}),
    ("methods.noise.scale", {"methods": {"noise": {"scale": [1]}}}),
    ("mehtods", {"mehtods": {}}),
    ("summary", {"summary": 5}),
)
DAMAGED: dict[str, tuple[tuple[str, str], ...]] = {
    "MRPC": (  # a row is never taken for the header
        *(
            (text, "_train.txt:1|header")
            for text in ("", "1\t2\t3\ta\tb\n", "Quality\ta\tb\tc\td1\t2\t3\ta\tb\n")
        ),
        (MRPC.replace("1\t", "7\t"), "_train.txt:2|'7'|0, 1"),
    ),
    "STSB": tuple(
        (f"a\tb\tc\td\t{score}\tone\ttwo\n", f"sts-test.csv:1|'{score}'|gold score")
        for score in ("0_1", "\u0663", "0x1", "1e999", "nan")
    ),
    "vectors": (("cat 1_0 2\n", "vectors.txt:1"), ("9" * 5000 + " 2\ncat 1 2\n", "vectors.txt:2")),
    "suite": (
        ("task = [1]", "1 is not"),
        ('[[task]]\ntype = ["sts"]', "type = ['sts']"),
        ("task = " + "[" * 5000, "not a TOML file"),
        (SUITE.format(".csv").replace("a.csv", "a\\u0000.csv"), "can't be read"),
        ('[[task]]\nname = "t"\ntype = "bitext"\nfile = "a.csv"\ncolumns = [1, 2]', "distinct names"),
    ),
    ".csv": (  # rows are never lost
        ('text,label\none,good\ntwo,bad\nthree,"good\nfour,bad\n', "a.csv:4|unexpected end"),
        ("text,label,label\none,good,bad\n", "a.csv:1|text, label, label|distinct"),
        ('text,label\none,"good"x\n', "a.csv:2"),
    ),
    ".jsonl": (
        ('{"text": "a", "label": "x", "label": "y"}\n', "a.jsonl:1|no JSON|twice"),
        ("[" * 100_000, "a.jsonl:1|no JSON"),
    ),
    "profile": (
        *((text, "mine.toml|not a profile") for text in ("\udcff", "x = [[[", "x = " + "[" * 5000)),
        *((profile(**changes), f"mine.toml|not a profile|'{place}'") for place, changes in PROFILES),
    ),
    "released": (
        ("x = 5", "'x'"),
        ('x = {method = "a", backbone = "b", towers = []}', "'x.towers'"),
        ("x = [", "no table"),
    ),
    "published": (
        (ROW, "unsee.csv:1|columns"),
        *((HEAD + ROW.replace("68.40", text), f"unsee.csv:2|'{text}'") for text in ("n/a", "1e999")),
        (HEAD + ROW.replace("68.40", "68,40"), "unsee.csv:2|10 cells"),
        (HEAD + ROW + ROW.replace("68.40", "86.40"), "unsee.csv:3|twice"),
        (HEAD + ROW.replace(",,STS12", ",x,STS12"), "unsee.csv:2|setting 'x'"),
        (HEAD + ROW.replace("sts7", "ablation_cael"), "unsee.csv:2|setting ''|with cael"),
        (HEAD + ROW.replace("T,", '"T,'), "unsee.csv:2|no table"),
        (HEAD + "a\n", "unsee.csv:2|1 cells"),
    ),
}


@pytest.mark.parametrize(
    ("kind", "text", "facts"), [(kind, *case) for kind, cases in DAMAGED.items() for case in cases]
)
def test_a_damaged_file_is_refused_by_its_place(kind: str, text: str, facts: str, tmp_path: Path) -> None:
    read, file, others = READERS[kind]
    for name, content in (others | {file: text}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    check_error(lambda: read(tmp_path), *facts.split("|"))


def test_good_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(profile())
    assert profile_of(tmp_path).corpus == {"file": "a.txt"}
    assert released_checkpoints.load_checkpoints()


def plugin(folder: Path, *, more: str = "", facts: str = "{}", build: str = "return Hashed(1)") -> str:
    """Write a plug-in file; return its path."""
    text = re.sub(rf"\b{more.partition('=')[0]}=\(.*\),", "", RIGHT) if more else RIGHT
    text = text.replace("version=1,", f"version=1, {more}{',' * bool(more)}").replace('{"dim": 8}', facts)
    path = folder / f"mine_{hashlib.sha256((more + facts + build).encode()).hexdigest()[:8]}.py"
    path.write_text(text.replace("return Hashed(context.seed)", build))
    return str(path)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("options=None", "options"),
        ("options=(5,)", "options[0]"),
        ('options=(Option("a", None, "h"),)', "options[0].default"),
        ('options=(Option("a", float("nan"), "h"),)', "options[0].default"),
        ('options=(Option("a", 10**30, "h"),)', "options[0].default"),
        ('options=(Option("a", 1, "h", minimum="x"),)', "options[0].minimum"),
        ('options=(Option("a", "x", "h", (None,)),)', "options[0].choices[0]"),
        ("equations=None", "equations"),
        ('equations="text"', "equations"),
        ("paper=5", "paper"),
        ('deterministic="yes"', "deterministic"),
        ('published_names=("a",)', "published_names[0]"),
    ],
)
def test_a_card_of_other_types_is_refused_by_its_place(more: str, place: str, tmp_path: Path) -> None:
    source = read_plugin(plugin(tmp_path, more=more), tmp_path / "results")
    check_error(lambda: load_plugin(source), f"'{place}'", "Mine", kind=InputError)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ("None", "'.'"),
        ('{"x": float("nan")}', "float values"),
        ('{"x": {1}}', "type set"),
        ('{"parts": "two"}', "'parts'"),
        ('{"x": 10**30}', "'x'"),
    ],
)
def test_facts_of_another_type_fail_the_cell(facts: str, fault: str, cli: Cli, tmp_path: Path) -> None:
    arguments = ("--methods", "mine", "--seeds", "1", *TOY, "--plugin", plugin(tmp_path, facts=facts))
    code, _, err = cli("run", *arguments)
    assert (code, missing_facts(err, "encoder's facts", fault)) == (1, [])
    assert cli("report")[0] == 0  # the failed record can be read


@pytest.mark.parametrize("build", ["raise SystemExit(7)", "return None", "import nothing"])
def test_a_build_that_fails_is_no_estimate_and_a_failed_cell(build: str, cli: Cli, tmp_path: Path) -> None:
    arguments = ("--methods", "mine", "--seeds", "1", *TOY, "--plugin", plugin(tmp_path, build=build))
    code, out, _ = cli("run", "--estimate", *arguments)
    assert (code, "no estimate: " in out) == (0, True)
    code, _, err = cli("run", *arguments)
    assert (code, missing_facts(err, "mine seed 1", "FAILED")) == (1, [])
    assert cli("report")[0] == 0


def test_a_whole_number_that_no_record_holds_is_no_option_value() -> None:
    assert Option("a", 1, "h").parse(str(2**63 - 1), "w") == 2**63 - 1
    check_error(
        lambda: Option("a", 1, "h").parse(str(2**63), "w"), "expected a whole number", kind=InputError
    )


def test_an_auxiliary_that_is_no_option_is_named(cli: Cli, tmp_path: Path) -> None:
    class Lacking:
        card = MethodCard("lacking", "test", "s", 1, needs_backbone=False, auxiliaries=("model",))

        def build(self, context: BuildContext) -> Any:
            return None

    METHODS.register("lacking", Lacking(), "here")
    err = refusal(cli, "run", "--dry-run", "--methods", "lacking", *TOY)
    assert not missing_facts(err, "models of lacking", "'model'")


@pytest.mark.slow
def test_a_teacher_of_another_width_is_refused(tiny_bert: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("One line.\nAnother line.\n")
    text = ("--corpus", "corpus.txt", "--dev", "toy", "--backbone", str(tiny_bert))
    code, _, err = cli("run", "--methods", "distill[of=noise,batch_size=2]", "--seeds", "1", *TOY, *text)
    assert (code, missing_facts(err, "8 dimensions", "16", "same width")) == (1, [])


@pytest.mark.parametrize(
    "arguments",
    [("compare", "a", "b", "--level"), ("stats", "--level"), ("check", "--level"), ("check", "--tolerance")],
)
def test_no_number_is_no_level(arguments: tuple[str, ...], cli: Cli) -> None:
    err = refusal(cli, *arguments, "nan")
    assert not missing_facts(err, f"bench {arguments[0]}", f"'{arguments[-1]}'", "'nan'")


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "X", "b"),
        ("report", "--results", "X"),
        ("check", "--reference", "X"),
        ("verify", "X", "--rerun"),
    ],
)
def test_a_name_that_no_file_can_have_is_one_line(arguments: tuple[str, ...], cli: Cli) -> None:
    name = "x" * 5000
    err = refusal(cli, *(name if argument == "X" else argument for argument in arguments))
    assert "too long" in err
    assert "internal error" not in err
