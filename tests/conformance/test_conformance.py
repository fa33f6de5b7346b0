"""Every check finds a method that is wrong in its way, and every registered method passes all of them."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.config import profiles
from bench.config.plugins import load_plugin, read_plugin
from bench.conformance import parametrize, parametrize_with_checks
from bench.conformance.check_registry import CHECKS
from bench.conformance.check_run import FAILED, NO_CASE, NOT_RUN, PASSED, Finding, check_method, load_methods
from bench.conformance.encoder_checks import SENTENCES
from bench.conformance.subject import BUDGET, Subject
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.registry import METHODS, discover
from tests.support.architectures import tiny
from tests.support.conformance import RIGHT
from tests.support.folders import sentence_transformers_folder
from tests.support.messages import missing_facts
from tests.support.modules import left_out

Cli = Callable[..., tuple[int, str, str]]
TRAINED = RIGHT.replace("needs_backbone=False,\n", "").replace(
    "    def build(self, context):\n        return Hashed(context.seed)\n",
    """
    def stages(self, options):
        return (StageSpec("fit", "mine", 1, (("scale", options["scale"]),), fit),)

    def build(self, context):
        return Hashed(int((context.stages["fit"] / "n").read_text()) * 1000 + context.seed)


def fit(context):
    (context.out / "n").write_text(str(len(context.sentences)))
    return {"steps": 1, "sentences_seen": 8, "dev_curve": [], "selected_step": 1, "selected_dev": None,
            "cpu_seconds": 0.1}
""",
)
ROWS = "        rows = [self.row(sentence) for sentence in sentences]\n"
RETURN = "        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dim)\n"
BUILD = "return Hashed(context.seed)"
CARD = 'summary="hashed sentences"'
OPTION = 'Option("scale", 1.0, "no effect", minimum=0)'


TRIAL = {"gradients", "loss", "dropout"}
TRAINING = {"stages", "workers", "training facts", *TRIAL}


def write(folder: Path, source: str) -> Path:
    file = folder / "mine.py"
    file.write_text(source)
    return file


def checked(source: str, folder: Path) -> list[Finding]:
    """Findings of a plug-in file's one method."""
    (name,) = load_plugin(read_plugin(str(write(folder, source)), folder / "results"))
    return check_method(name, folder / "scratch")


def failures(found: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.reason for finding in found if finding.verdict == FAILED}


@pytest.mark.parametrize(
    ("source", "no_case"),
    [
        (RIGHT, TRAINING),
        (
            RIGHT.replace(CARD, f"{CARD}, deterministic=True"),
            {*TRAINING, "other seed"},
        ),
        (
            RIGHT.replace(CARD, f"{CARD}, deterministic=True").replace(BUILD, "return Scorer()"),
            {*TRAINING, "other seed", "alone", "batch size"},
        ),
    ],
    ids=["seeded", "deterministic", "scorer"],
)
def test_a_right_method_passes(source: str, no_case: set[str], tmp_path: Path) -> None:
    found = checked(source, tmp_path)
    assert failures(found) == {}
    assert len(found) == 31
    assert [finding.check for finding in found] == [check.name for check in CHECKS]
    assert {finding.check for finding in found if finding.verdict == NO_CASE} == no_case


def change_rows(code: str) -> tuple[str, str]:
    """Lines of code before the encoder's return."""
    return RETURN, textwrap.indent(code + "\n", 8 * " ") + RETURN


ALONE, TWICE = "where a sentence is encoded alone (by ", "from a sentence to the same again (by "
CACHE = """Hashed.kept = getattr(self, 'kept', {})
key = self.seed, tuple(sentences)
if key not in self.kept:
    self.kept[key] = np.asarray(rows, dtype=np.float32).reshape(-1, 8)
return self.kept[key]"""
BUFFER = """Hashed.buffer = getattr(self, 'buffer', np.zeros((500, 8), np.float32))
self.buffer[: len(rows)] = np.reshape(rows, (-1, 8))
return self.buffer[: len(rows)]"""
LAX = "class Lax(MethodCard):\n    option = lambda self, name, where: self.options[0]\n\nMethodCard = Lax\n"
MEMBERS = "    members = lambda self, options: {'a': options['no']}\n\n"
WRONG: dict[str, tuple[str, str, dict[str, str]]] = {
    "no summary": (CARD, 'summary=""', {"card": "no summary;"}),
    "kind": ('kind="method"', 'kind="mine"', {"card": "kind 'mine';"}),
    "version": ("version=1", "version=0", {"card": "version 0;"}),
    "no equations": ('("v = h(seed, s)",)', "()", {"card": "no equations;"}),
    "long text on the card": (CARD, 'summary="a\\nb"', {"card": "several lines;"}),
    "name": ('name="mine"', 'name="aux"', {"path": "aux"}),
    "long name": ('name="mine"', f'name="{81 * "m"}"', {"path": f"the folder '{80 * 'm'}-"}),
    "option twice": (OPTION, f"{OPTION}, {OPTION}", {"options": "two options 'scale';"}),
    "no help": ('"no effect"', '""', {"options": "no help for 'scale';"}),
    "default": ("minimum=0)", "minimum=2)",
        {"options": "scale: 1.0 is too small for scale; expected at least 2;"}),
    "short option": (CARD, f'{CARD}, short_option="k"', {"options": "an option 'k'"}),
    "lax card": ("@add_method", f"{LAX}\n\n@add_method", {"refused options": "'no_such_option' is taken;"}),
    "build crashes": (BUILD, "return 1 / 0",
        {"build": "ZeroDivisionError: division by zero (mine.py:LINE);"}),
    "no facts": ("self.facts = seed, {", "self.dims = seed, {", {"build": "a Hashed without facts;"}),
    "signature": (", batch_tokens=None, progress=None", "", {"build": "encode(sentences): too many"}),
    "no dimension": ("dim = 8", "dim = 0", {"build": "dim 0;"}),
    "fact": ('{"dim": 8}', '{"dim": [8]}', {"facts": "dim is a list;"}),
    "path in a fact": ('{"dim": 8}', '{"model": "/home/me/model"}', {"facts": "model has a path"}),
    "shape": (RETURN, RETURN.rstrip() + "[:, : 8 - (len(rows) > 0)]\n",
        {"shape": "(9, 7) for 9 sentences, not (9, 8);"}),
    "dtype": ("dtype=np.float32).reshape", "dtype=float).reshape", {"dtype": "float64;"}),
    "list": (RETURN, RETURN.rstrip() + ".tolist()\n", {"dtype": "list;", "empty list": "None"}),
    "nan": (*change_rows("rows = [r * (np.nan if s[:3] == 'Two' else 1) for r, s in zip(rows, sentences)]"),
        {"finite": "no finite values for 'Two children"}),
    "sorted": ("for sentence in sentences]", "for sentence in sorted(sentences, key=len)]",
        {"order": "with the order (by ", "alone": ALONE, "duplicates": TWICE}),
    "batch mean": (*change_rows("rows = list(np.array(rows) - np.mean(rows, axis=0)) if rows else []"),
        {"alone": ALONE}),
    "batch size": (*change_rows("rows = [row + 0.001 * (batch_tokens == 16) for row in rows]"),
        {"batch size": "with batch_tokens=16 (by "}),
    "noise": (*change_rows("rows = [r + 0.01 * (sentences[i] in sentences[:i]) for i, r in enumerate(rows)]"),
        {"duplicates": TWICE}),
    "history": (*change_rows("rows = [r + (self.previous == 3) for r in rows]\nself.previous = len(rows)"),
        {"history": "after other sentences;"}),
    "entropy": (BUILD, "return Hashed(int(np.random.default_rng().integers(10**9)))",
        {"same seed": "a second training from the same seed (by "}),
    "not deterministic": (CARD, f"{CARD}, deterministic=True", {"same seed": "a second build (by "}),
    "global draw": (BUILD, "return Hashed(context.seed + np.random.random())",
        {"same seed": "a second training", "random state": "building changes the state of numpy.random;"}),
    "no seed": (BUILD, "return Hashed(0)", {"other seed": "seeds 1 and 2;"}),
    "seeds globally": (ROWS, f"        random.seed(0)\n{ROWS}",
        {"random state": "encoding changes the state of random;"}),
    "empty list": (RETURN, "        return np.stack(rows).astype(np.float32)\n",
        {"empty list": "ValueError: need at least one array to stack (mine.py:LINE);"}),
    "empty list as one row": (RETURN, "        return np.asarray(rows or [8 * [0]], dtype=np.float32)\n",
        {"empty list": "float32 (1, 8), not float32 (0, 8);"}),
    "empty string": ("{self.seed} {sentence}", "{self.seed} {sentence} {sentence[0]}",
        {"empty string": "IndexError: string index out of range (mine.py:LINE);"}),
    "long text": (".normal(size=self.dim)", ".normal(size=8) * (np.nan if len(sentence) > 1000 else 1)",
        {"long text": "no finite values for 'The old man"}),
    "ascii": (".encode()", '.encode("ascii")', {"scripts": "UnicodeEncodeError: 'ascii'"}),
    "input": (*change_rows("if isinstance(sentences, list):\n    sentences += ['']"),
        {"input": "other sentences"}),
    "list only": ("for sentence in sentences]", "for sentence in (sentences + [''])[:-1]]",
        {"input": "TypeError: can only concatenate tuple (not \"list\") to tuple (mine.py:LINE);"}),
    "buffer": (*change_rows(BUFFER), {"output": "the next call"}),
    "cache": (*change_rows(CACHE), {"output": "the next result;"}),
    "large suites": (ROWS, f"        assert len(sentences) < 50, 'too many'\n{ROWS}",
        {"record": "AssertionError: too many;"}),
    "members": ("    def build(", f"{MEMBERS}    def build(", {"keys": "KeyError: 'no' (mine.py:LINE);"}),
}  # fmt: skip


SCALE, OUT = '(("scale", options["scale"]),)', '    (context.out / "n")'
WRONG_TRAINING: dict[str, tuple[str, str, dict[str, str]]] = {
    "nothing": ("import hashlib", "import hashlib", {}),
    "clock": (SCALE, '(("scale", time.time_ns()),)',
        {"keys": "the cell mine seed 1", "stages": "asked for once more;"}),
    "config": (SCALE, '(("scale", [1]),)', {"stages": "scale=[1] in the config of stage 'fit';"}),
    "roles": ("fit),)", "fit),) * 2", {"stages": "two stages 'fit';"}),
    "a choice": ('options["scale"]),)', 'options["scale"] if options["on"] else time.time_ns()),)',
        {"stages": "once more with on=false;"}),
    "lambda": (", fit),)", ", lambda c: fit(c)),)", {"workers": "of stage 'fit': Can't pickle"}),
    "facts": ('"dev_curve": [], ', "", {"training facts": "stage 'fit' leaves no dev_curve;"}),
    "another fact": ('"steps": 1', '"steps": "1"', {"training facts": "stage 'fit' leaves steps \"1\";"}),
    "global seed": (OUT, f"    random.seed(1)\n{OUT}",
        {"random state": "building changes the state of random;"}),
    "training": (OUT, f"    context.sentences[64]\n{OUT}",
        {"build": "IndexError: tuple index out of range (mine.py:"}),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [*WRONG, *(pytest.param(case, marks=pytest.mark.slow) for case in WRONG_TRAINING)]
)
def test_a_check_finds_what_is_wrong_and_no_other_does(case: str, tmp_path: Path) -> None:
    old, new, expected = (WRONG | WRONG_TRAINING)[case]
    source = RIGHT if case != "not deterministic" else RIGHT.replace(BUILD, WRONG["entropy"][1])
    if case in WRONG_TRAINING:
        source = TRAINED.replace(OPTION, f'{OPTION}, Option("on", True, "no effect")')
    assert old in source
    source = source.replace(old, new)
    found = checked(source, tmp_path)
    line = source[: source.index(new)].count("\n") + 1
    seen = failures(found)
    if {"shape", "dtype", "build", "facts", "finite", "input", "training facts"} & expected.keys():
        seen.pop("record", None)  # no cell can be finished so
    assert seen.keys() == expected.keys(), seen
    for check, text in expected.items():
        assert text.replace("LINE", str(line)) in seen[check]
    verdicts = {finding.check: finding.verdict for finding in found}
    if "build" in expected or case == "members":
        assert verdicts["record"] == verdicts["shape"] == NOT_RUN
    assert verdicts["refused options"] == (FAILED if "refused options" in expected else PASSED)
    no_case = {check for check, verdict in verdicts.items() if verdict == NO_CASE}
    assert case != "nothing" or no_case == TRIAL  # it has a loop of its own


CHEAP = ("untrained", "word_overlap")
MADE = (
    "ensemble:untrained+untrained:avg",
    "distill:untrained",
    "hf:MODEL:avg",
    "prompteol:DECODER",
    "echo:DECODER",
    "pretended_cot:DECODER",
    "knowledge_enhancement:DECODER",
    "metaeol:DECODER",
    "token_prepending:DECODER[output_layer=-1]",
    "compressed[of=untrained,dims=8]",
    "st:SENTENCES",
    "exported:EXPORTED",
    "vectors:WORDS",
    "vectors:WORDS:sif",
    "released:tncse_bert",
    "whitening[fit=train]",
    "bert_flow[fit=train]",
)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> dict[str, str]:
    """What methods with a path are given."""
    root = tmp_path_factory.mktemp("models")
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    numbers = np.random.default_rng(0).normal(size=(len(words), 5))
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, numbers, strict=True))
    (root / "words.txt").write_text("".join(lines))
    for tower in (1, 2):
        shutil.copytree(tiny_bert, root / "TNCSE_BERT_CKPT" / f"BERT_{tower}")
    export_encoder(TransformerEncoder(tiny_bert, "avg"), root / "exported", "# tiny\n")
    sentences, decoder = sentence_transformers_folder(tiny_bert, root / "st", mean=True), root / "gpt2"
    paths = {"MODEL": tiny_bert, "DECODER": tiny("gpt2", decoder, length=1024), "EXPORTED": root / "exported"}
    paths |= {"SENTENCES": sentences, "WORDS": root / "words.txt", "RELEASED": root}
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all methods: a stage that several share is trained once."""
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture(scope="session")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mini backbone without its upper half: a check of many trainings asks for no more."""
    from transformers import BertForMaskedLM

    source = Path(profiles.backbone_reference(profiles.load_profile("mini")))
    folder = Path(shutil.copytree(source, tmp_path_factory.mktemp("two-layers") / "mini-bert"))
    BertForMaskedLM.from_pretrained(source, num_hidden_layers=2).save_pretrained(folder)
    return folder


COSTLY = [name for name in (*load_methods("all"), *MADE) if name not in CHEAP]
ALIKE = (
    "metaeol:DECODER",
    "knowledge_enhancement:DECODER",
    *(
        "tncse",
        "bsl",
        "sncse",
        "angle",
        "arccon",
        "barlow",
        "mixcse",
        "tncse_single",
        "rankcse",
        "promptbert",
        "diffcse",
    ),
    *("bert_flow", "isbert", "mirror_bert", "scd", "ct", "promcse"),
    "sup_prompteol_cse",
    "llm2vec",
)
LEFT_OUT = {*left_out(), *ALIKE}  # their parts are in others too
SLOW = [pytest.param(m, marks=pytest.mark.slow) for m in COSTLY if m not in LEFT_OUT]
LONG = [pytest.param(m, marks=(pytest.mark.slow, pytest.mark.long)) for m in COSTLY if m in LEFT_OUT]


@pytest.mark.parametrize("method", [*CHEAP, *SLOW, *LONG])
def test_a_method_passes(
    method: str, scratch: Path, models: dict[str, str], two_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_CHECKPOINTS", models["RELEASED"])
    monkeypatch.setattr(profiles, "backbone_reference", lambda profile: str(two_layers))
    for name, path in models.items():
        method = method.replace(name, path)
    found = check_method(method, scratch)
    assert failures(found) == {}
    assert NOT_RUN not in {finding.verdict for finding in found}


def test_a_trainings_length_in_brackets_gives_way_to_the_smallest_budget(tmp_path: Path) -> None:
    plan = Subject("ensemble:simcse[steps=900]+simcse[steps=800]", tmp_path).plan()
    (first, second) = (dict(member.options) for _, member in plan.jobs[0].cell.members)
    assert (first["steps"], second["steps"]) == (BUDGET["steps"], BUDGET["steps"])


def test_the_registered_methods_are_all_of_them() -> None:
    own = {name for name, _ in discover() if METHODS.origin(name).startswith("bench.")}
    named = {text.partition("[")[0].partition(":")[0] for text in MADE} | {*CHEAP, *load_methods("all")}
    assert own <= named
    assert not {"hf", "ensemble"} & set(load_methods("all"))


def test_the_pytest_entry_has_a_test_for_every_check_and_trains_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def counted(method: str, folder: Path) -> list[Finding]:
        trained.append(method)
        return check_method(method, folder)

    monkeypatch.setattr(parametrize, "check_method", counted)
    file = write(tmp_path, RIGHT.replace(BUILD, "return Hashed(0)"))
    mark = parametrize_with_checks(str(file), "word_overlap").mark
    names, cases = mark.args
    assert names == ("method", "check")
    assert len(cases) == 2 * len(CHECKS)
    assert [case.id for case in cases] == [f"{m}-{c.name}" for m in ("mine", "word_overlap") for c in CHECKS]
    skipped, failed = Counter[str](), list[str]()
    for method, check in (case.values for case in cases):
        try:
            check(method)
        except pytest.skip.Exception:
            skipped[method] += 1
        except pytest.fail.Exception as failure:
            failed.append(str(failure))
    assert skipped == {"mine": 6, "word_overlap": 9}
    (reason,) = failed
    assert reason.startswith("mine, other seed: expected ")
    assert trained == ["mine", "word_overlap"]
    parametrize._run_checks.cache_clear()


def test_the_pytest_entry_says_which_check_kept_the_others_from_running(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT.replace(BUILD, "return 1 / 0"))
    checks = {case.values[1].args[0]: case.values for case in parametrize_with_checks(str(file)).mark.args[1]}
    for name, reason in (("build", "ZeroDivisionError"), ("shape", "a check before it failed")):
        method, check = checks[name]
        with pytest.raises(pytest.fail.Exception, match=reason):
            check(method)
    parametrize._run_checks.cache_clear()


def test_the_command_says_what_passed_and_what_failed(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("conformance", "word_overlap", "--json", "found.json")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (lines[0], lines[2], lines[-1]) == ("word_overlap", "check verdict", "PASSED, 1 method")
    assert {"card passed", "training facts no case"} <= set(lines)
    data = json.loads((tmp_path / "found.json").read_text())
    assert (data["passed"], data["failed"], len(data["findings"])) == (True, [], len(CHECKS))
    facts = {"check": "card", "method": "word_overlap", "reason": "", "verdict": "passed"}
    assert data["findings"][0] == facts
    write(tmp_path, RIGHT.replace(BUILD, "return Hashed(0)"))
    code, out, err = cli("conformance", "mine.py", "word_overlap", "--json", "found.json")
    assert (code, err) == (1, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[2] == ["method", "passed", "failed", "no", "case"]
    assert {("word_overlap", "22", "0", "9"), ("mine", "24", "1", "6")} <= set(map(tuple, rows))
    assert ["other", "seed", "FAILED"] in rows
    (note,) = (line for line in out.splitlines() if line.startswith("other seed: "))
    assert missing_facts(note, "expected another seed", "seen: ", "1 and 2", "context.seed") == []
    assert out.endswith("\n\nFAILED, 1 of 2 methods: mine\n")
    data = json.loads((tmp_path / "found.json").read_text())
    assert (data["passed"], data["failed"]) == (False, ["mine"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simcsee"], ("bench conformance: ", "'simcsee'", "FILE.py", "'simcse'?")),
        (["mime.py"], ("bench conformance: ", "'mime.py'", "No such file", "FILE.py", "'mine.py'?")),
        (["untrained[k=1]"], ("bench conformance untrained[k=1]: ", "'k'")),
        (["hf"], ("bench conformance hf: ", "'hf'", "hf:PATH")),
        (["ensemble"], ("'ensemble'", "ensemble:METHODS")),
        (["word_overlap,untrained"], ("bench conformance: ", "'word_overlap,untrained'")),
        (["mine.py", "--level", "0.9"], ("bench conformance: ", "'--level'")),
        ([], ("bench conformance: ", "argument")),
        (["word_overlap", "--json", "file/x.json"], ("--json: ", "file/x.json", "can't be written")),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], expected: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    write(tmp_path, "")
    (tmp_path / "file").write_text("")
    code, out, err = cli("conformance", *arguments)
    assert (code, err.count("\n")) == (2, 1 if arguments else 2)  # typed alone: an example too
    assert missing_facts(err, "error: ", *expected) == []
    assert ("PASSED" in out) == ("--json" in arguments)
