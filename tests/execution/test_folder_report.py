"""``bench show hf:FOLDER``: what is read of a folder, and which methods can train on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bench.execution.folder_report import find_first_lack
from bench.nn.model_folder import read_folder_facts
from bench.registry import discover
from bench.stages import TrainedMethod
from tests.support.cli import Cli, show
from tests.support.shortened import shortened

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
    assert {"simcse", "tncse"} <= set(report["can train"][0].split(", "))
    (layers,) = (line for line in report["can't train"] if "transformer layers" in line)
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


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["modernbert", "llama", "distilbert"])
def test_the_report_matches_every_training(cli: Cli, zoo: Callable[[str], Path], backbone: str) -> None:
    """Every method trains a step, or is refused by the plan: nothing fails in between."""
    facts = read_folder_facts(zoo(backbone))
    with shortened():
        for name in TRAINING:
            run = ("run", "--methods", name, "--seeds", "1", "--suite", "toy")
            code, _, err = cli(*run, "--backbone", str(zoo(backbone)))
            assert code == (2 if find_first_lack(name, facts) else 0), f"{name}: {err}"
