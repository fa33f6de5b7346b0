"""What methods need of a backbone: what the plan refuses, and what bench show reports of a folder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bench.errors import InputError
from bench.execution.model_folder_report import find_first_lack
from bench.method_card import NEEDS, MethodCard, Need, check_card
from bench.nn.folder_facts import read_folder_facts
from bench.registry import METHODS, discover
from bench.stages import TrainedMethod
from tests.support.cli import Cli, records, refusal, show
from tests.support.messages import missing_facts
from tests.support.shortened import shortened
from tests.support.zoo import ZOO

RUN = "run --seeds 1 --suite toy --backbone"
ENCODERS = (
    *("albert", "bert", "deberta-v2", "distilbert", "electra", "eurobert", "modernbert"),
    *("modernbert-drawing", "mpnet", "nomic", "roberta", "xlm-roberta"),
)
LONG = pytest.mark.long
LAYER_METHODS = ("jtcse", "diffcse", "infocse", "denosent", "promptbert", "rankcse", "infonce")
TWO_STEPS = " ".join(
    f"--set {name}.steps=2 --set {name}.eval_every=2 --set {name}.batch_size=8"
    for name in ("tncse", "tncse.sub1", "tncse.sub2")
)


@pytest.mark.parametrize(
    ("methods", "backbone", "what"),
    [
        ("simcse", "llama", "first token"),
        ("tncse", "qwen2", "first token"),
        ("jtcse", "bart", "layers"),
        ("jtcse_d", "t5", "layers"),  # its teacher needs them
        ("diffcse", "bart", "layers"),
        ("diffcse", "electra", "masked LM"),
        ("infocse", "electra", "masked-LM head"),
        ("denosent", "eurobert", "masked-LM transform"),
        ("denosent", "electra", "masked-LM head"),
        ("promptbert[prompt_head=mlm]", "eurobert", "masked-LM transform"),
        ("promptbert", "deberta-v3", "position ids"),  # all positions are relative
        ("jtcse", "deberta-conv", "layers"),
        ("infocse", "albert-inner", "layers"),
        ("tncse[drop_norms=1]", "albert", "layer norms"),
        ("tncse[drop_norms=3]", "modernbert", "layer norms"),  # of two layers
        ("simcse[mlm_term=0.1]", "electra", "masked-LM head"),
        ("tsdae", "distilbert", "decoding layers"),
        ("tsdae", "modernbert", "decoding layers"),
        ("tsdae", "electra", "masked-LM head"),
        ("sup_simcse", "distilbert", "pooler layer"),
        ("simcse[pooling=pooler]", "bert", "pooler"),
        ("infonce[pooler=avg]", "qwen2", "embeddings"),
        ("promptbert", "qwen3", "mask token"),
        ("infonce[freeze_layers=1]", "albert", "layer norms"),  # its layers share their weights
        ("promptbert", "bart", "position ids"),
        ("untrained", "mistral", "first token"),
        ("unsee_barlow", "mamba", "dropout"),
        ("prompteol_cse[lora_rank=4]", "modernbert", "causal"),
        ("llm2vec[lora_rank=4]", "mamba", "both ways"),
        ("sup_prompteol_cse[lora_rank=4]", "t5", "causal"),
        ("untrained[pooling=avg_last_two]", "opt-narrow", "one width"),
        ("simcse[train_pooling=last,pooling=avg_first_last]", "opt-narrow", "one width"),
        ("simcse[train_pooling=avg_first_last,pooling=avg]", "opt-narrow", "one width"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_the_plan_refuses_a_backbone_without(
    cli: Cli, zoo: Callable[[str], Path], methods: str, backbone: str, what: str, dry: bool, tmp_path: Path
) -> None:
    line = [*RUN.split(), str(zoo(backbone)), "--methods", methods, *["--dry-run"][: int(dry)]]
    error = refusal(cli, *line)
    assert NEEDS[what] in error
    assert backbone in error
    assert ("--backbone DIR of a decoder" if what == "causal" else "bench show hf:") in error
    assert not list(tmp_path.rglob("*.json"))  # refused before anything is trained


def test_the_plan_refuses_a_decoders_prompt_on_an_encoder(cli: Cli, zoo: Callable[[str], Path]) -> None:
    names = ("prompteol", "metaeol", "echo", "pretended_cot", "knowledge_enhancement", "token_prepending")
    rows = [f"{name}:{zoo('bert')}" for name in names]
    error = refusal(cli, *["run", "--seeds", "1", "--suite", "toy", "--dry-run", "--methods"], ",".join(rows))
    assert f"{NEEDS['causal']}, which bert (bert) hasn't got" in error
    assert all(error.count(name) == 1 for name in names)
    assert "use hf:PATH for an encoder" in error


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("start=50,end=60", "start 50: the model has 2 layers"),
        ("start=50,end=60,output_layer=-1", "start 50: the model has 2 layers; expected start from 0 to 1"),
        ("start=1", "output_layer -2 is layer 0, counted from 0; expected start=0"),
        ("start=2,end=1", "start 2 and end 1"),
        ("output_layer=-3", "output_layer -3; expected -1 to -2"),
        ("start=0", ""),
        ("start=1,output_layer=-1", ""),
    ],
)
def test_the_plan_refuses_layers_that_prepend_nothing(
    cli: Cli, zoo: Callable[[str], Path], options: str, what: str
) -> None:
    row = f"token_prepending:{zoo('llama')}[{options}]"
    line = ("run", "--seeds", "1", "--suite", "toy", "--dry-run", "--methods", row)
    if what:
        assert what in refusal(cli, *line)
    else:
        assert cli(*line)[0] == 0


@pytest.mark.parametrize(
    ("methods", "backbone"),
    [
        ("jtcse[caels=0]", "bart"),
        ("promptbert[denoising=false]", "deberta-v3"),
        ("promptbert[denoising=false]", "bart"),
        ("untrained[pooling=avg],unsee_barlow", "llama"),
        ("tncse[drop_norms=2]", "modernbert"),
        ("unsee_barlow[dropout=0]", "mamba"),
    ],
)
def test_advice_works(cli: Cli, zoo: Callable[[str], Path], methods: str, backbone: str) -> None:
    code, out, err = cli(*RUN.split(), str(zoo(backbone)), "--methods", methods, "--dry-run")
    assert (code, "to do" in out) == (0, True), err


@pytest.mark.parametrize(
    ("methods", "backbone", "way"),
    [
        ("infonce", "qwen2", "infonce[pooler=avg,freeze_embeddings=false]"),
        ("infonce[pooler=avg,steps=4]", "qwen2", "infonce[pooler=avg,steps=4,freeze_embeddings=false]"),
        ("jtcse_d", "bart", "jtcse_d --set jtcse.caels=0"),
        ("simcse[mlm_term=0.1]", "electra", "simcse[mlm_term=0.0]"),
        ("simcse", "llama", "simcse[train_pooling=last,pooling=last]"),
        ("simcse[train_pooling=avg]", "gpt2", "simcse[train_pooling=avg,pooling=avg]"),
        ("crop[train_pooling=cls]", "gpt2", "crop[train_pooling=last]"),
        ("jtcse", "gpt2", "jtcse[train_pooling=last,caels=0,pooling=last]"),
        ("simcse[train_pooling=mask]", "gpt2", "simcse[train_pooling=last,pooling=last]"),
        ("distill:bsl", "qwen2", "distill:bsl --set distill.train_pooling=last --set distill.pooling=last"),
        ("x=infonce[pooler=avg]", "qwen2", "x --set x.freeze_embeddings=false"),
        ("promptbert", "qwen2", ""),  # no option gives a tokenizer a mask token
        ("tncse_uc_d", "qwen2", ""),
    ],
)
def test_ways(cli: Cli, zoo: Callable[[str], Path], methods: str, backbone: str, way: str) -> None:
    error = refusal(cli, *RUN.split(), str(zoo(backbone)), "--methods", methods, "--dry-run")
    assert f"expected another model{' or ' + way if way else ''}; bench show" in error
    if way:
        given = shlex.split(way.replace("x ", f"{methods} ") if "=" in methods.partition("[")[0] else way)
        code, _, err = cli(*RUN.split(), str(zoo(backbone)), "--methods", *given, "--dry-run")
        assert code == 0, err


@pytest.mark.parametrize(
    ("methods", "backbone", "notes"),
    [
        ("simcse[train_pooling=avg]", "bert", ["add pooling=avg"]),
        ("simcse[train_pooling=avg,pooling=avg]", "gpt2", []),
        ("simcse[pooling=avg],crop[pooling=cls]", "bert", []),  # as ever
        ("simcse[train_pooling=last,pooling=last]", "gpt2", ["the last word"]),
        ("simcse[train_pooling=last]", "bert", ["add pooling=last"]),
        ("crop[pooling=last]", "llama", ["the last word"]),
    ],
)
def test_notes_on_poolings(
    cli: Cli, zoo: Callable[[str], Path], methods: str, backbone: str, notes: list[str]
) -> None:
    err = cli(*RUN.split(), str(zoo(backbone)), "--methods", methods, "--dry-run")[2]
    lines = [line for line in err.splitlines() if "pooling" in line and line.startswith("note: ")]
    assert [note in line for note, line in zip(notes, lines, strict=True)] == [True] * len(notes)


def test_all_refused_methods_are_named_at_once(cli: Cli, zoo: Callable[[str], Path]) -> None:
    line = (*RUN.split(), str(zoo("qwen2")), "--methods", "simcse,bsl,promptbert", "--seeds", "1-3")
    error = refusal(cli, *line, "--dry-run")
    assert not missing_facts(error, "simcse seed 1 needs", NEEDS["first token"], NEEDS["mask token"])


SHORT = ("modernbert",)
"""Encoders of the suite that every build runs; the long one has all."""


@pytest.mark.slow
@pytest.mark.parametrize("backbone", [pytest.param(name, marks=LONG) for name in ("t5", "qwen2")])
def test_offers_train(cli: Cli, zoo: Callable[[str], Path], backbone: str, tmp_path: Path) -> None:
    shown = cli("show", f"hf:{zoo(backbone)}:avg")[1]
    ways = re.findall(r"\(but (\S+\])\)", shown)
    assert ways
    with shortened():
        code, _, err = cli(*RUN.split(), str(zoo(backbone)), "--methods", ",".join(ways), as_is=True)
    assert code == 0, err


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "backbone",
    [name if name in ("albert", "modernbert") else pytest.param(name, marks=LONG) for name in ENCODERS],
)
def test_tncse_trains(cli: Cli, zoo: Callable[[str], Path], backbone: str, tmp_path: Path) -> None:
    line = f"{RUN} {shlex.quote(str(zoo(backbone)))} --methods tncse {TWO_STEPS}"
    code, _, err = cli(*shlex.split(line), as_is=True)
    assert code == 0, err
    (record,) = records(tmp_path).values()
    assert record.status == "ok"
    other = backbone in ("eurobert", "modernbert", "modernbert-drawing", "nomic")
    assert record.training.get("dropout") == ("architecture" if other else None)


def test_every_need_of_a_card_is_known_and_names_options_of_it() -> None:
    for name, method in discover():
        card = method.card
        options = {option.name for option in card.options}
        for need in card.needs:
            assert need.what in NEEDS, name
            assert {need.option, need.of} - {""} <= options, name


def test_an_unknown_need_is_refused() -> None:
    class Wrong:
        card = MethodCard(name="x", kind="test", summary="", version=1, needs=(Need("wings"),))

        def build(self, context: object) -> None: ...

    with pytest.raises(InputError, match="needs 'wings'"):
        check_card(Wrong())
    assert "x" not in METHODS.names()


TRAINING = [
    name
    for name, method in discover()
    if isinstance(method, TrainedMethod) and method.card.needs_backbone and method.card.stands_alone
]


def test_an_encoder_is_described(cli: Cli, zoo: Callable[[str], Path]) -> None:
    report = show(cli, f"hf:{zoo('modernbert')}")
    assert report["missing"] == ["nothing"]
    assert "head.dense.weight" in report["not read"][0]
    assert report["pooling"] == ["cls"]
    assert report["longest input"] == ["64 tokens"]
    assert "ModernBertAttention" in report["dropout"][0]
    assert {"simcse", "tncse", "jtcse", "diffcse", "infocse"} <= set(report["can train"][0].split(", "))
    other = show(cli, f"hf:{zoo('bart')}")
    (layers,) = (line for line in other["can't train"] if "transformer layers" in line)
    assert {"jtcse (but jtcse[caels=0])", "diffcse"} <= set(layers.partition(":")[0].split(", "))


def test_a_decoder_and_a_model_without_dropout_are_described(cli: Cli, zoo: Callable[[str], Path]) -> None:
    llama, mamba = (show(cli, f"hf:{zoo(name)}:last") for name in ("llama", "mamba"))
    assert llama["pooling"] == ["last"]
    assert "unsee_barlow" in llama["can train"][0]
    assert mamba["dropout"] == ["none"]
    assert "unsee_barlow" not in mamba["can train"][0]
    assert any("unsee_barlow" in line and "dropout" in line for line in mamba["can't train"])


def test_missing_tensors_are_named(cli: Cli, zoo: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(zoo("bert"), tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1.output" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    report = show(cli, f"hf:{folder}")
    assert "encoder.layer.1.output.LayerNorm.bias" in report["missing"][0]
    assert "refused" in report["as a row"][0]


def test_a_mask_token_without_released_templates_is_refused_in_the_plan(
    cli: Cli, zoo: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(zoo("eurobert"), tmp_path / "other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("<mask>", "<|mask|>"), encoding="utf-8")
    line = (*RUN.split(), str(folder), "--dry-run", "--methods")
    error = refusal(cli, *line, "promptbert")
    assert not missing_facts(error, "promptbert seed 1", "'<|mask|>'", "[MASK], <mask>", "template2")
    texts = ("promptbert.template={sentence} is{mask}.", "promptbert.template2=So {sentence} is{mask}.")
    code, out, err = cli(*line, "promptbert", "--set", texts[0], "--set", texts[1])
    assert (code, "to do" in out) == (0, True), err


@pytest.mark.slow
@pytest.mark.parametrize(
    "backbone",
    [one if one in SHORT else pytest.param(one, marks=pytest.mark.long) for one in (*ENCODERS, "deberta-v3")],
)
def test_methods_that_call_layers_train(
    cli: Cli, zoo: Callable[[str], Path], backbone: str, tmp_path: Path
) -> None:
    """What the table of docs/backbones.md calls "yes" of them trains a step; the rest is refused."""
    facts = read_folder_facts(zoo(backbone))
    able = [name for name in LAYER_METHODS if find_first_lack(name, facts) is None]
    assert "jtcse" in able
    if facts.mlm_head:
        able += ["simcse[mlm_term=0.1]", "jtcse[cross_stream=last]"]
    if facts.mlm_transform:
        able.append("promptbert[prompt_head=mlm,denoising=false]")
    with shortened():
        line = (*RUN.split(), str(zoo(backbone)), "--methods", ",".join(able))
        code, _, err = cli(*line, as_is=True)
    assert code == 0, err
    trained = [record for record in records(tmp_path).values() if record.status == "ok"]
    assert len(trained) == len(able)


def test_a_number_of_layers_that_a_method_cant_divide_is_refused_in_the_plan(
    cli: Cli, zoo: Callable[[str], Path]
) -> None:
    for methods, layers, said in (
        ("jtcse", 5, "jtcse seed 1 on the backbone .*: 2 cross-attention layers for 5 layers; .*0, 1, 5"),
        ("jtcse_d", 5, "jtcse seed 1 .*: 2 cross-attention layers for 5 layers"),
        ("infocse", 1, "infocse seed 1 .*only one layer"),
    ):
        folder = str(zoo(f"distilbert-{layers}"))
        error = refusal(cli, *RUN.split(), folder, "--methods", methods, "--dry-run")
        assert re.search(said, error), error


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("backbone", [name for name in ZOO if name != "mamba"])
def test_the_report_matches_every_training(
    cli: Cli, zoo: Callable[[str], Path], backbone: str, tmp_path: Path
) -> None:
    """Each "yes" of the table in docs/backbones.md trains a step, each "-" is refused in the plan."""
    facts, folder = read_folder_facts(zoo(backbone)), str(zoo(backbone))
    able = [name for name in TRAINING if find_first_lack(name, facts) is None]
    prompted = [name for name in able if name in ("prompteol_cse", "sup_prompteol_cse")]
    few = ("lora_rank=4", "max_length=16", "steps=1", "eval_every=1", "batch_size=8")
    sets = [part for name in prompted for one in few for part in ("--set", f"{name}.{one}")]
    if "llm2vec" in able:
        both = [*few, "mntp.max_length=16", "mntp.steps=1", "mntp.eval_every=1", "mntp.batch_size=8"]
        sets += [part for one in both for part in ("--set", f"llm2vec.{one}")]
    with shortened():
        code, _, err = cli(*RUN.split(), folder, "--methods", ",".join(able), *sets, as_is=True)
        assert code == 0, err
        assert len(records(tmp_path)) == len(able)
        for name in set(TRAINING) - set(able):
            assert NEEDS[find_first_lack(name, facts) or ""] in refusal(
                cli, *RUN.split(), folder, "--methods", name, "--dry-run"
            )
