"""The papers' profiles: settings, inputs, missing inputs, time and costs."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.config import profiles
from bench.execution.dry_run import TimeEstimate, format_cost, format_estimate
from bench.execution.encoder_builder import EncoderBuilder
from bench.execution.monitor import format_duration
from bench.execution.stage_cache import StageCache
from bench.method_card import OptionValue
from bench.nn.backbone import load_backbone
from bench.papers import paper_compute as scale
from bench.plan.cell_expansion import profile_options
from bench.plan.profile_costs import SUSTAINED
from bench.registry import METHODS, discover
from bench.stages import Stage
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts, numbers_in
from tests.support.rank_work import Gradients, Stop
from tests.support.released import hub_folder
from tests.support.whole import plainly

DOCS = Path(__file__).parents[2] / "docs"
_NAMES = """
    simcse tncse_single arccse esimcse crop diffcse infocse mixcse dclr iscse rankcse sncse promptbert
    sup_simcse angle whitenedcse vascl denosent pcl bsl edfse edfse_d tncse jtcse tncse_d jtcse_d tncse_uc
    tncse_uc_d jtcse_uc jtcse_uc_d unsee_byol unsee_barlow unsee_vicreg unsee_corinfomax infonce arccon
    mpt met mat paradigm mhe barlow vicreg mhs m_mhe m_mhs m_barlow m_vicreg
"""
_OPTIONS = "batch_size lr epochs max_length eval_every steps dropout w sub1.lr sub2.lr sub1.batch_size"
LISTED, SETTINGS = _NAMES.split(), _OPTIONS.split()
FROZEN = {
    "bert-base": "9ff1ecce7c2fd609d0510c8b7dd8587b243210658f2abc2fe18ca868528b9366",
    "roberta-base": "2b49d49604d8a5d70f2475436b0264809c1ab611918ba7ade796a02db14d57b6",
}
MODELS = {
    "bert-base": ("google-bert/bert-base-uncased", "distilbert/distilbert-base-uncased"),
    "roberta-base": ("FacebookAI/roberta-base", "distilbert/distilroberta-base"),
}
LANGUAGES = {
    "bert-base": ("fr", "ru", "nl", "zh", "de", "es"),
    "roberta-base": ("nl", "zh", "fr", "ru", "de", "es"),
}
PAPERS = sorted(MODELS)


@pytest.mark.parametrize("name", PAPERS)
def test_the_settings_of_the_papers_are_frozen(name: str) -> None:
    profile = profiles.load_profile(name)
    own = {method for method, _ in discover() if METHODS.origin(method).startswith("bench.")}
    assert profile.methods.keys() <= own
    settings = {}
    for method in LISTED:
        options = profile_options(METHODS.get(method).card, profile)
        settings[method] = {option: options[option] for option in SETTINGS if option in options}
    assert settings["simcse"]["batch_size"] == {"bert-base": 64, "roberta-base": 512}[name]
    assert settings["tncse"]["dropout"] == {"bert-base": 2.5e-4, "roberta-base": 0.0175}[name]
    assert hashlib.sha256(json.dumps(settings).encode()).hexdigest() == FROZEN[name], settings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with all that the papers' profiles train on, in small."""
    folder = tmp_path / "data" / "corpus"
    folder.mkdir(parents=True)
    lines = "".join(f"the doctor is reading book {n}\n" for n in range(1024))
    for name in ("", *(f".en-{language}-en" for language in LANGUAGES["bert-base"])):
        (folder / f"wiki1m_for_simcse{name}.txt").write_text(lines)
    triplets = "".join(f"the doctor reads {n},a doctor reads {n},the farmer sings\n" for n in range(512))
    (folder / "nli_for_simcse.csv").write_text(f"sent0,sent1,hard_neg\n{triplets}")
    (folder / "sick_unlabelled.txt").write_text("a man is singing\nthe farmer\n")
    return folder.parent


@pytest.mark.parametrize("profile", PAPERS)
def test_a_dry_run_lists_all_inputs(profile: str, cli: Cli, hub: Path, data: Path, tiny_mlm: Path) -> None:
    for number, name in enumerate(MODELS[profile]):
        shutil.copytree(tiny_mlm, data / str(number))
        with (data / str(number) / "config.json").open("a") as stream:
            stream.write("\n" * number)  # another hash
        hub_folder(hub, name, 40 * "a", data / str(number))
    sick = [part for twin in ("tncse", "jtcse", "tncse_d") for part in ("--set", f"{twin}.sick=true")]
    sick += ["--set", "promcse.prompt_length=4"]  # the model has 40 positions
    run = ("run", "--methods", "all", "--seeds", "1-5", "--profile", profile, "--data", str(data))
    code, out, err = cli(*run, "--suite", "toy", "--dev", "toy", *sick, "--dry-run")
    left_out, note = err.splitlines()
    assert code == 0
    assert left_out.startswith("left out: llm2vec, prompteol_cse, sup_prompteol_cse: ")
    assert note.startswith("note: --dev toy: not used by ")
    cells = {line.split(" ")[0].partition("[")[0] for line in out.splitlines() if line.endswith(" to do")}
    assert cells >= {*LISTED} | {"tncse_uc", "jtcse_uc", "whitening", "untrained", "word_overlap"}
    assert len([line for line in out.splitlines() if line.startswith("simcse seed ")]) == 5
    inputs = [line.removeprefix("reads ") for line in out.splitlines() if line.startswith("reads ")]
    read = {what: names.split(", sha256 ")[0] for what, names in (line.split(": ", 1) for line in inputs)}
    backbone, generator = MODELS[profile]
    copies = [f"wiki1m_for_simcse.en-{language}-en.txt" for language in LANGUAGES[profile]]
    text, sick_text = "wiki1m_for_simcse.txt", "sick_unlabelled.txt"
    texts = {"train+sick": f"{text} + {sick_text}", "pairs": "nli_for_simcse.csv"}
    texts |= {f"{name}+sick": f"{copy} + {sick_text}" for name, copy in zip("ab", copies, strict=False)}
    texts |= {f"train:{name}": f"{text} with {copy}" for name, copy in zip("abcdef", copies, strict=True)}
    named = ("backbone", *(f"{method}.mlm_head" for method in ("denosent", "infocse", "tsdae")))
    heads = dict.fromkeys(named, backbone.split("/")[-1])
    others = {"diffcse.generator": generator, "training text": text, "dev set": "TOY", "suite": "toy: TOY"}
    assert read == {**heads, **others, **{f"text {name}": names for name, names in texts.items()}}


@pytest.mark.parametrize("profile", PAPERS)
def test_without_any_of_it_one_line_names_all(profile: str, cli: Cli, hub: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    code, out, err = cli("run", "--methods", "all", "--profile", profile, "--data", "d", "--dry-run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    lines = err.removeprefix("error: 3 inputs are missing or wrong: ").rstrip("\n").split(" | ")
    backbone, generator = MODELS[profile]
    shared = (
        (f"profile {profile}: '{backbone}'", f"hf download {backbone}"),
        ("d/corpus/wiki1m_for_simcse.txt: ", "bench data fetch wiki1m --data d"),
        ("d: ", "senteval/downstream/", "bench data fetch sts7"),
    )
    for line, facts in zip(lines, shared, strict=True):  # what rows alone need, they are left out for
        assert not missing_facts(line, *facts)
    named = ("diffcse,tncse,edfse", "--set", "tncse.sick=true")
    code, out, err = cli("run", "--methods", *named, "--profile", profile, "--data", "d", "--dry-run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    lines = err.removeprefix("error: 6 inputs are missing or wrong: ").rstrip("\n").split(" | ")
    languages = LANGUAGES[profile]
    files = [f"wiki1m_for_simcse.en-{language}-en.txt" for language in languages]
    pivots = ",".join("zh:cmn_Hans" if language == "zh" else language for language in languages)
    models = [model for code in languages for model in (f"opus-mt-en-{code}", f"opus-mt-{code}-en")]
    wanted = (
        (f"profile {profile}: '{backbone}'", f"hf download {backbone}"),
        ("d/corpus/wiki1m_for_simcse.txt: ", "bench data fetch wiki1m --data d"),
        (f"diffcse.generator: '{generator}'", f"hf download {generator}"),
        ("d/corpus: ", "copies a, b, c, d, e, f", f"--pivots {pivots}", "--out d/corpus", *files, *models),
        ("d/corpus/sick_unlabelled.txt: ", "SICK's training split", "docs/reproduce.md"),
        ("d: ", "senteval/downstream/", "bench data fetch sts7"),
    )
    for line, facts in zip(lines, wanted, strict=True):
        assert not missing_facts(line, *facts)
        assert line.startswith(facts[0])


def test_given_or_unused_files_are_not_missing(cli: Cli, hub: Path, data: Path, tiny_bert: Path) -> None:
    corpus = data / "corpus"
    (corpus / "wiki1m_for_simcse.en-ru-en.txt").rename(data / "mine.txt")
    for language in "nl", "zh", "de", "es":
        (corpus / f"wiki1m_for_simcse.en-{language}-en.txt").unlink()
    (corpus / "sick_unlabelled.txt").unlink()
    where = ("--profile", "bert-base", "--data", str(data), "--backbone", str(tiny_bert))
    base = ("run", *where, "--suite", "toy", "--dev", "toy", "--dry-run", "--seeds", "1", "--methods")
    code, out, err = cli(*base, "tncse", "--copy", f"b={data / 'mine.txt'}")
    assert code == 0, err
    assert not missing_facts(out, "text a: wiki1m_for_simcse.en-fr-en.txt", "text b: mine.txt")
    assert cli(*base, "bsl,simcse,tncse[rtt=none]")[0] == 0
    for command, facts in (
        (("tncse,bsl,simcse",), ("copies b", "missing")),
        (("simcse[text=train+sick]",), ("sick_unlabelled.txt", "missing")),
        # the profile's copy is one of another text
        (("bsl", "--corpus", str(corpus / "wiki1m_for_simcse.txt")), ("--copy a=FILE",)),
    ):
        assert not missing_facts(refusal(cli, *base, *command), *facts)


def test_times_and_costs(cli: Cli) -> None:
    durations = [format_duration(seconds) for seconds in (0.4, 99.4, 100, 5999, 6000, 36_000)]
    assert durations == ["0 s", "99 s", "2 min", "100 min", "1.7 h", "10.0 h"]
    assert format_cost(1800, 3.0, 8) == "12.00"
    err = refusal(cli, "run", "--methods", "word_overlap", "--suite", "toy", "--price-per-hour", "3")
    assert not missing_facts(err, "--price-per-hour", "expected --estimate")
    estimate = TimeEstimate("simcse", 2, training=7200.0, evaluation=720.0)
    assert numbers_in(format_estimate(estimate, None, 1)) == [2, 66, 60, 6]
    assert numbers_in(format_estimate(estimate, 2.5, 4)) == [2, 66, 60, 6, 11]


def short(model: Path, corpus: Path, methods: str, stages: tuple[str, ...], steps: int) -> tuple[str, ...]:
    given = (f"steps={steps}", "batch_size=4", "eval_every=10", "max_length=12")
    sets = [part for stage in stages for setting in given for part in ("--set", f"{stage}.{setting}")]
    where = ("--suite", "toy", "--dev", "toy", "--backbone", str(model), "--corpus", str(corpus))
    return ("run", "--methods", methods, *where, *sets)


@pytest.mark.long
@pytest.mark.slow
def test_an_estimate_times_every_stage(
    cli: Cli, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_facts = StageCache.facts
    times = {"sub1": (36.0, 0.0), "sub2": (36.0, 0.0), "joint": (72.0, 3.6)}
    times |= {"simcse": (3.6, 0.0), "distill": (1.8, 0.0)}

    def facts(cache: StageCache, stage: Stage) -> dict[str, Any]:
        measured, (step, dev) = read_facts(cache, stage), times[stage.spec.role]
        assert measured["step_seconds"] > 0
        assert measured["dev_seconds"] > 0
        return measured | {"step_seconds": step, "dev_seconds": dev}

    monkeypatch.setattr(StageCache, "facts", facts)
    stages = ("tncse", "tncse.sub1", "tncse.sub2", "tncse_d", "simcse")
    run = short(tiny_bert, corpus, "simcse,tncse,tncse_d,untrained", stages, 100)
    more = ("--set", "tncse.rtt=none", "--seeds", "1-2", "--workers", "2", "--price-per-hour", "1")
    code, out, err = cli(*run, *more, "--dry-run")
    assert (code, err) == (0, "")
    lines = [re.sub(r"\[.*?\] +", " ", line) for line in out.splitlines()[-5:]]
    assert [line.split()[0] for line in lines] == ["untrained", "simcse", "tncse", "tncse_d", "about"]
    assert [numbers_in(line) for line in lines] == [
        [1, 0, 0, 0, 0],
        [2, 6, 6, 0, 0.1],
        [2, 4, 4, 0, 4.02],  # half the dev pairs
        [2, 3, 3, 0, 0.05],
        [4.2, 2, 8.34],
    ]


def test_trained_stages_cost_nothing(
    cli: Cli, tiny_bert: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (*short(tiny_bert, corpus, "simcse,broken,noise", ("simcse",), 2), "--seeds", "2")
    assert cli(*run)[0] == 1
    monkeypatch.setattr(EncoderBuilder, "_train_stage", lambda *_: pytest.fail("trained again"))
    code, out, _ = cli(*run, "--campaign", "other", "--estimate")
    assert code == 0
    simcse, broken, noise, total = (re.sub(r"\[.*?\] +", " ", line) for line in out.splitlines()[-4:])
    assert numbers_in(simcse)[::2] == numbers_in(noise)[::2] == [1, 0]  # cells, seconds of training
    assert numbers_in(total)[1] == 1
    assert not missing_facts(broken, "broken: RuntimeError")


def test_the_page_says_what_the_arithmetic_gives() -> None:
    text = (DOCS / "scale.md").read_text()
    trained = scale.trained_methods("bert-base")
    grids = {profile: scale.grid_hours(profile) for profile in PAPERS}
    method, alone = scale.longest_method("bert-base")
    for name, hours in (
        (f"{len(trained)} trained methods x 5 seeds, BERT-base", grids["bert-base"]),
        ("the same, RoBERTa-base", grids["roberta-base"]),
        ("both", sum(grids.values())),
    ):
        assert f"| {name} | {hours:.0f} h | {hours / 8:.0f} h | {max(hours / 64, alone):.0f} h |" in text
    assert f"one seed of `{method}`, {alone:.1f} h" in text
    assert f"about {round(3 * sum(grids.values()), -1):.0f}" in text
    for name in trained:
        bert, roberta = (scale.training_hours(name, profile) for profile in PAPERS)
        assert roberta == pytest.approx(bert, rel=0.03)
    assert f"{scale.token_operations(32) / 1e6:.0f} million at 32" in text
    assert f"sustains {SUSTAINED / 1e12:.0f} TFLOP/s" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "role", "passes"),
    [
        *((name, name, None) for name in ("simcse", "whitenedcse", "rankcse", "dclr", "pcl")),
        *((name, "joint", None) for name in ("tncse", "jtcse")),
        ("tncse_d", "distill", 4.0),  # of a teacher of one tower
    ],
)
def test_torch_counts_the_passes(
    method: str, role: str, passes: float | None, tiny_bert: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_bert, tmp_path / "sub" / "selected")
    work = Gradients({}, tiny_bert, tiny_bert, tmp_path / "sub", ("the doctor is reading a book",) * 8)
    counted: list[float] = []

    def count(objective: Any, encoder: Any, rows: Any, *_: object, **__: object) -> None:
        batch = [rows[i] for i in range(len(rows))]
        ids = torch.tensor([rows[0] if isinstance(rows[0], list) else rows[0][1]])
        model = load_backbone(tiny_bert)[0].requires_grad_(False)
        for whole in (True, False):
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                if whole:
                    objective.train()(batch).backward()
                else:
                    model(input_ids=ids, attention_mask=torch.ones_like(ids))
            counted.append(counter.get_total_flops())
        raise Stop

    changes: dict[str, OptionValue] = {"max_length": 8, **({"groups": 4} if method == "whitenedcse" else {})}
    changes |= {"rtt": "none"} if role == "joint" else {}
    work.of(method, changes, role, tmp_path, count)
    with plainly():
        work.of(method, changes, role, tmp_path, count)
    less, _, whole, row = counted
    assert whole / 8 / row == pytest.approx(passes or discover().get(method).card.passes, rel=0.05)
    assert less < 0.9 * whole
