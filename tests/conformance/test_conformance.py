"""Every check finds a method that is wrong in its way, and every registered method passes all of them."""

from __future__ import annotations

import json
import shutil
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
        (RIGHT, {"stages", "workers", "training facts"}),
        (
            RIGHT.replace(CARD, f"{CARD}, deterministic=True"),
            {"stages", "workers", "training facts", "other seed"},
        ),
        (
            RIGHT.replace(CARD, f"{CARD}, deterministic=True").replace(BUILD, "return Scorer()"),
            {"stages", "workers", "training facts", "other seed", "alone", "batch size"},
        ),
    ],
    ids=["seeded", "deterministic", "scorer"],
)
def test_a_right_method_passes(source: str, no_case: set[str], tmp_path: Path) -> None:
    found = checked(source, tmp_path)
    assert failures(found) == {}
    assert [finding.check for finding in found] == [check.name for check in CHECKS]
    assert {finding.check for finding in found if finding.verdict == NO_CASE} == no_case


WRONG: dict[str, tuple[str, str, dict[str, str]]] = {
    "no summary": (CARD, 'summary=""', {"card": "seen: no summary;"}),
    "kind": ('kind="method"', 'kind="mine"', {"card": "seen: kind 'mine';"}),
    "version": ("version=1", "version=0", {"card": "seen: version 0;"}),
    "no equations": ('("v = h(seed, s)",)', "()", {"card": "seen: no equations;"}),
    "long text on the card": (CARD, 'summary="a\\nb"', {"card": "seen: a text of several lines;"}),
    "name": ('name="mine"', 'name="my method"', {"path": "seen: the name 'my method';"}),
    "long name": ('name="mine"', f'name="{81 * "m"}"', {"path": f"seen: the folder '{80 * 'm'}-"}),
    "option twice": (OPTION, f"{OPTION}, {OPTION}", {"options": "seen: two options 'scale';"}),
    "no help": ('"no effect"', '""', {"options": "seen: no help for 'scale';"}),
    "default": ("minimum=0)", "minimum=2)",
        {"options": "seen: the default of scale: 1.0 is too small for it; expected at least 2;"}),
    "short option": (CARD, f'{CARD}, short_option="k"',
        {"options": "seen: the card names an option 'k' that isn't among its options;"}),
    "lax card": ("@add_method",
        "class Lax(MethodCard):\n    def option(self, name, where):\n        return self.options[0]\n\n\n"
        "MethodCard = Lax\n\n\n@add_method",
        {"refused options": "seen: option 'no_such_option' is taken;"}),
    "build crashes": (BUILD, "return 1 / 0",
        {"build": "seen: ZeroDivisionError: division by zero (mine.py:LINE);"}),
    "no facts": ("self.seed, self.facts = seed, {", "self.seed, self.dims = seed, {",
        {"build": "seen: a Hashed without facts;"}),
    "signature": ("sentences, batch_tokens=None, progress=None", "sentences",
        {"build": "seen: encode(sentences): too many positional arguments;"}),
    "no dimension": ("dim = 8", "dim = 0", {"build": "seen: dim 0;"}),
    "fact": ('{"dim": 8}', '{"dim": [8]}', {"facts": "seen: dim is a list;"}),
    "path in a fact": ('{"dim": 8}', '{"model": "/home/me/model"}',
        {"facts": "seen: model has a path of this machine;"}),
    "shape": (RETURN, RETURN.rstrip() + "[:, : 8 - (len(rows) > 0)]\n",
        {"shape": "seen: (9, 7) for 9 sentences, not (9, 8);"}),
    "dtype": ("dtype=np.float32).reshape", "dtype=float).reshape", {"dtype": "seen: float64;"}),
    "list": (RETURN, RETURN.rstrip() + ".tolist()\n", {"dtype": "seen: list;", "empty list": "seen: None"}),
    "nan": (RETURN,
        "        rows = [r * (np.nan if s[:3] == 'Two' else 1) for r, s in zip(rows, sentences)]\n" + RETURN,
        {"finite": "seen: no finite values for 'Two children are repairing the'...;"}),
    "sorted": ("for sentence in sentences]", "for sentence in sorted(sentences, key=len)]",
        {"order": "seen: the result changes with the order (by ",
         "alone": "seen: the result changes where a sentence is encoded alone (by ",
         "duplicates": "seen: the result changes from a sentence to the same again (by "}),
    "batch mean": (RETURN,
        "        rows = list(np.array(rows) - np.mean(rows, axis=0)) if rows else []\n" + RETURN,
        {"alone": "seen: the result changes where a sentence is encoded alone (by "}),
    "batch size": (RETURN, "        rows = [row + 0.001 * (batch_tokens == 16) for row in rows]\n" + RETURN,
        {"batch size": "seen: the result changes with batch_tokens=16 (by "}),
    "noise": (RETURN,
        "        rows = [r + 0.01 * (sentences[i] in sentences[:i]) for i, r in enumerate(rows)]\n" + RETURN,
        {"duplicates": "seen: the result changes from a sentence to the same again (by "}),
    "history": (RETURN,
        "        rows = [row + (self.previous == 3) for row in rows]\n"
        "        self.previous = len(rows)\n" + RETURN,
        {"history": "seen: another result after other sentences;"}),
    "entropy": (BUILD, "return Hashed(int(np.random.default_rng().integers(10**9)))",
        {"same seed": "seen: another result of a second training from the same seed (by "}),
    "not deterministic": (CARD, f"{CARD}, deterministic=True",
        {"same seed": "seen: another result of a second build (by "}),
    "global draw": (BUILD, "return Hashed(context.seed + np.random.random())",
        {"same seed": "seen: another result of a second training from the same seed (by ",
         "random state": "seen: building changes the state of numpy.random;"}),
    "no seed": (BUILD, "return Hashed(0)", {"other seed": "seen: the same result from seeds 1 and 2;"}),
    "seeds globally": (ROWS, f"        random.seed(0)\n{ROWS}",
        {"random state": "seen: encoding changes the state of random;"}),
    "empty list": (RETURN, "        return np.stack(rows).astype(np.float32)\n",
        {"empty list": "seen: ValueError: need at least one array to stack (mine.py:LINE);"}),
    "empty list as one row": (RETURN, "        return np.asarray(rows or [8 * [0]], dtype=np.float32)\n",
        {"empty list": "seen: float32 (1, 8), not float32 (0, 8);"}),
    "empty string": ("{self.seed} {sentence}", "{self.seed} {sentence} {sentence[0]}",
        {"empty string": "seen: IndexError: string index out of range (mine.py:LINE);"}),
    "long text": (".normal(size=self.dim)",
        ".normal(size=self.dim) * (np.nan if len(sentence) > 1000 else 1)",
        {"long text": "seen: no finite values for 'The old man is buying a car in'...;"}),
    "ascii": (".encode()", '.encode("ascii")',
        {"scripts": "seen: UnicodeEncodeError: 'ascii' codec can't encode character '\\xe4'"}),
    "input": (RETURN, "        if isinstance(sentences, list):\n            sentences += ['']\n" + RETURN,
        {"input": "seen: the list has other sentences afterwards;"}),
    "list only": ("for sentence in sentences]", "for sentence in (sentences + [''])[:-1]]",
        {"input": "seen: TypeError: can only concatenate tuple (not \"list\") to tuple (mine.py:LINE);"}),
    "buffer": (RETURN,
        "        Hashed.buffer = getattr(self, 'buffer', np.zeros((500, 8), np.float32))\n"
        "        self.buffer[: len(rows)] = np.reshape(rows, (-1, 8))\n"
        "        return self.buffer[: len(rows)]\n",
        {"output": "seen: the next call writes into the array of the one before;"}),
    "cache": (RETURN,
        "        Hashed.kept = getattr(self, 'kept', {})\n"
        "        key = self.seed, tuple(sentences)\n"
        "        if key not in self.kept:\n"
        "            self.kept[key] = np.asarray(rows, dtype=np.float32).reshape(-1, 8)\n"
        "        return self.kept[key]\n",
        {"output": "seen: writing to the array changes the next result;"}),
    "large suites": (ROWS, f"        assert len(sentences) < 50, 'too many'\n{ROWS}",
        {"record": "seen: AssertionError: too many;"}),
    "members": ("    def build(",
        "    members = lambda self, options: {'a': options['no']}\n\n    def build(",
        {"keys": "seen: KeyError: 'no' (mine.py:LINE);"}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_check_finds_what_is_wrong_and_no_other_does(case: str, tmp_path: Path) -> None:
    old, new, expected = WRONG[case]
    source = RIGHT if case != "not deterministic" else RIGHT.replace(BUILD, WRONG["entropy"][1])
    assert old in source
    source = source.replace(old, new)
    found = checked(source, tmp_path)
    line = source[: source.index(new)].count("\n") + 1
    seen = failures(found)
    if {"shape", "dtype", "build", "facts", "finite", "input"} & expected.keys():
        seen.pop("record", None)  # no cell can be finished so
    assert seen.keys() == expected.keys(), seen
    for check, text in expected.items():
        assert text.replace("LINE", str(line)) in seen[check]
    verdicts = {finding.check: finding.verdict for finding in found}
    if expected.keys() & {"keys", "build"}:
        assert verdicts["record"] == verdicts["shape"] == NOT_RUN
    assert verdicts["refused options"] == (FAILED if "refused options" in expected else PASSED)


WRONG_TRAINING: dict[str, tuple[str, str, dict[str, str]]] = {
    "nothing": ("import hashlib", "import hashlib", {}),
    "clock": ('(("scale", options["scale"]),)', '(("scale", time.time_ns()),)',
        {"keys": "seen: another key of the cell mine seed 1 in a second plan;",
         "stages": "seen: other stages from the same options, asked for once more;"}),
    "config": ('(("scale", options["scale"]),)', '(("scale", [1]),)',
        {"stages": "seen: scale=[1] in the config of stage 'fit';"}),
    "roles": ("fit),)", "fit),) * 2", {"stages": "seen: two stages 'fit';"}),
    "a choice": ('options["scale"]),)', 'options["scale"] if options["on"] else time.time_ns()),)',
        {"stages": "seen: other stages from the same options, asked for once more with on=False;"}),
    "lambda": (", fit),)", ", lambda c: fit(c)),)", {"workers": "seen: of stage 'fit': Can't pickle"}),
    "facts": ('"dev_curve": [], ', "", {"training facts": "seen: stage 'fit' leaves no dev_curve;"}),
    "fact": ('"steps": 1', '"steps": "1"', {"training facts": "seen: stage 'fit' leaves steps \"1\";"}),
    "global seed": ('    (context.out / "n")', '    random.seed(1)\n    (context.out / "n")',
        {"random state": "seen: building changes the state of random;"}),
    "training": ('    (context.out / "n")', "    context.sentences[64]\n" + '    (context.out / "n")',
        {"build": "seen: IndexError: tuple index out of range (mine.py:"}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_TRAINING)
def test_a_check_finds_what_is_wrong_in_training(case: str, tmp_path: Path) -> None:
    old, new, expected = WRONG_TRAINING[case]
    source = TRAINED.replace(OPTION, f'{OPTION}, Option("on", True, "no effect")')
    assert old in source
    found = checked(source.replace(old, new), tmp_path)
    seen = failures(found)
    if "training facts" in expected:
        seen.pop("record", None)  # it can't hold them
    if not expected:
        assert {finding.verdict for finding in found} == {PASSED}
    assert seen.keys() == expected.keys(), seen
    for check, text in expected.items():
        assert text in seen[check]


CHEAP = ("untrained", "word_overlap")
MADE = (
    "ensemble:untrained+untrained:avg",
    "distill:untrained",
    "hf:MODEL:avg",
    "prompteol:DECODER",
    "echo:DECODER",
    "st:SENTENCES",
    "exported:EXPORTED",
    "vectors:WORDS",
    "vectors:WORDS:sif",
    "released:tncse_bert",
    "whitening[fit=train]",
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
    return {
        "MODEL": str(tiny_bert),
        "DECODER": str(tiny("gpt2", root / "gpt2")),
        "EXPORTED": str(root / "exported"),
        "SENTENCES": str(sentence_transformers_folder(tiny_bert, root / "st", mean=True)),
        "WORDS": str(root / "words.txt"),
        "RELEASED": str(root),
    }


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
SLOW = [pytest.param(m, marks=pytest.mark.slow) for m in COSTLY if m not in left_out()]
LONG = [pytest.param(m, marks=(pytest.mark.slow, pytest.mark.long)) for m in COSTLY if m in left_out()]


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
    named = {text.split(":")[0] for text in MADE} | {*CHEAP, *load_methods("all")}
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
    assert [case.id for case in cases] == [f"{m}-{c.name}" for m in ("mine", "word_overlap") for c in CHECKS]
    skipped, failed = Counter[str](), list[str]()
    for method, check in (case.values for case in cases):
        try:
            check(method)
        except pytest.skip.Exception:
            skipped[method] += 1
        except pytest.fail.Exception as failure:
            failed.append(str(failure))
    assert skipped == {"mine": 3, "word_overlap": 6}
    (reason,) = failed
    assert reason.startswith("mine, other seed: expected ")
    assert trained == ["mine", "word_overlap"]
    parametrize._run_checks.cache_clear()


def test_the_pytest_entry_says_which_check_kept_the_others_from_running(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT.replace(BUILD, "return 1 / 0"))
    cases = {case.values[1].args[0]: case.values for case in parametrize_with_checks(str(file)).mark.args[1]}
    for name, reason in (("build", "ZeroDivisionError"), ("shape", "a check before it failed")):
        method, check = cases[name]
        with pytest.raises(pytest.fail.Exception, match=reason):
            check(method)
    parametrize._run_checks.cache_clear()


def test_the_command_says_what_passed(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, RIGHT)
    code, out, err = cli("conformance", "mine.py", "--json", "found.json")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (lines[0], lines[2], lines[-1]) == ("mine", "check verdict", "PASSED, 1 method")
    assert {"card passed", "training facts no case"} <= set(lines)
    data = json.loads((tmp_path / "found.json").read_text())
    assert (data["passed"], data["failed"], len(data["findings"])) == (True, [], len(CHECKS))
    assert data["findings"][0] == {"check": "card", "method": "mine", "reason": "", "verdict": "passed"}


def test_the_command_says_what_failed_and_what_to_do(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, RIGHT.replace(BUILD, "return Hashed(0)"))
    code, out, err = cli("conformance", "mine.py", "word_overlap", "--json", "found.json")
    assert (code, err) == (1, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[2] == ["method", "passed", "failed", "no", "case"]
    assert {("word_overlap", "22", "0", "6"), ("mine", "24", "1", "3")} <= set(map(tuple, rows))
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
    assert (code, err.count("\n")) == (2, 1)
    assert missing_facts(err, "error: ", *expected) == []
    assert ("PASSED" in out) == ("--json" in arguments)
