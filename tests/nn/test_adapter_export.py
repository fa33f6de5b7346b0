"""Exported adapters: whole models or adapters by themselves, with equal vectors from every loader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import LoraConfig, PeftModel
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

import bench
from bench.errors import InputError
from bench.nn.adapter_folder import BASE, write_base
from bench.nn.backbone import TransformerEncoder, silence_libraries
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.lora_settings import CONFIG, WEIGHTS
from bench.nn.model_folder import hash_model, resolve_folder
from bench.nn.sum_encoder import SumEncoder
from tests.support.adapters import add_adapter
from tests.support.cli import Cli, records

SENTENCES = ["the boy reads a book", "", "a", "a woman sings " * 20]


@pytest.fixture
def stage(zoo: Callable[[str], Path], tmp_path: Path) -> Callable[[int], TransformerEncoder]:
    """An encoder of a folder as in the stage cache, which names its base with the path."""
    base = resolve_folder(str(shutil.copytree(zoo("bert"), tmp_path / "far" / "base")), where="here")

    def make(seed: int) -> TransformerEncoder:
        folder = tmp_path / "stages" / str(seed)
        add_adapter(base.path, folder, LoraConfig(r=2, target_modules=["query", "dense"]), seed)
        write_base(folder, base, path=str(base.path))
        return TransformerEncoder(folder, "cls")

    return make


def test_adapter_is_read_by_bench_peft_and_sentence_transformers(
    stage: Callable[[int], TransformerEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, out = stage(1), tmp_path / "out" / "a"
    expected = encoder.encode(SENTENCES)
    export_encoder(encoder, out, "# A card\n", adapter=True)
    assert not (out / "model.safetensors").exists()
    assert not (out / "config.json").exists()
    assert (out / WEIGHTS).read_bytes() == (tmp_path / "stages" / "1" / WEIGHTS).read_bytes()
    assert not any(str(tmp_path) in file.read_text("utf-8", "ignore") for file in out.glob("*.*"))
    pin = json.loads((out / BASE).read_text())
    base = tmp_path / "far" / "base"
    assert pin == {"schema": 1, "name": "base", "sha256": hash_model(base)}
    readme = (out / "README.md").read_text()
    assert f"- base, sha256 {pin['sha256']}" in readme
    assert 'base_model: ["base"]\nbase_model_relation: adapter\n' in readme
    with pytest.raises(InputError, match="its base model 'base' is not on this machine"):
        load_encoder(out)
    shutil.move(base, out.parent / "base")
    assert np.array_equal(load_encoder(out).encode(SENTENCES), expected)
    assert np.array_equal(bench.load(out).encode(SENTENCES), expected)
    import transformers.integrations.peft as integration

    monkeypatch.setattr(integration, "MIN_PEFT_VERSION", "0.21")  # 5.24 asks for 0.22
    monkeypatch.chdir(out.parent)
    with silence_libraries():
        other = SentenceTransformer(str(out), device="cpu", local_files_only=True).encode(SENTENCES)
        model: Any = PeftModel.from_pretrained(AutoModel.from_pretrained("base"), out)
    scale = 1e-5 * np.abs(expected).max()
    assert np.abs(other - expected).max() < scale
    merged = TransformerEncoder((model.eval().base_model.model, encoder.tokenizer), "cls").encode(SENTENCES)
    assert np.abs(merged - expected).max() < scale


def test_merged_folder_is_a_plain_model(stage: Callable[[int], TransformerEncoder], tmp_path: Path) -> None:
    encoder = stage(1)
    export_encoder(encoder, tmp_path / "out", "# A card\n")
    assert not {CONFIG, WEIGHTS, BASE} & {file.name for file in (tmp_path / "out").iterdir()}
    shutil.rmtree(tmp_path / "far")
    assert np.array_equal(load_encoder(tmp_path / "out").encode(SENTENCES), encoder.encode(SENTENCES))


def test_sum_of_adapters_has_parts(stage: Callable[[int], TransformerEncoder], tmp_path: Path) -> None:
    twin = SumEncoder([stage(1), stage(2)], [0.5, 2.0])
    export_encoder(twin, tmp_path / "out", "# A card\n", adapter=True)
    first, second = (tmp_path / "out" / name / WEIGHTS for name in ("part-1", "part-2"))
    assert first.read_bytes() != second.read_bytes()
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.count("- base, sha256 ") == 1
    shutil.move(tmp_path / "far" / "base", tmp_path / "base")
    assert np.array_equal(load_encoder(tmp_path / "out").encode(SENTENCES), twin.encode(SENTENCES))
    before = hash_model(tmp_path / "out")
    folder = resolve_folder(str(tmp_path / "out"), where="here")
    assert folder.sha256 == before
    assert [base.place for base in getattr(folder, "bases", ())] == ["part-1", "part-2"]


def test_encoders_without_an_adapter_are_refused(
    stage: Callable[[int], TransformerEncoder], tmp_path: Path
) -> None:
    plain = TransformerEncoder(tmp_path / "far" / "base", "cls")
    with pytest.raises(InputError, match="--adapter: the encoder has no LoRA adapter; leave it out"):
        export_encoder(plain, tmp_path / "out", "", adapter=True)
    with pytest.raises(InputError, match="part 2 has no LoRA adapter"):
        export_encoder(SumEncoder([stage(1), plain]), tmp_path / "out", "", adapter=True)
    assert not (tmp_path / "out").exists()


def test_commands_take_adapters(stage: Callable[[int], TransformerEncoder], cli: Cli, tmp_path: Path) -> None:
    stage(1)
    shutil.copytree(tmp_path / "far" / "base", tmp_path / "base")
    folder = Path(shutil.copytree(tmp_path / "stages" / "1", tmp_path / "adapter"))
    (folder / BASE).unlink()  # as peft alone writes it
    base = hash_model(tmp_path / "base")
    code, out, _ = cli("show", f"hf:{folder}")
    assert (code, f"base, sha256 {base[:12]}" in out) == (0, True)
    assert "LoRA of rank 2 on 9 modules" in out
    code, out, _ = cli("run", "--suite", "toy", "--methods", f"hf:{folder}:cls", "--dry-run")
    assert (code, f"adapter of base {base[:12]}" in out) == (0, True)
    assert cli("run", "--suite", "toy", "--methods", f"hf:{folder}:cls")[0] == 0
    (record,) = records(tmp_path).values()
    model = record.backbone or {}
    assert model == {"name": "adapter", "sha256": hash_model(folder), "bases": {"base": base}}
    assert record.provenance["encoder"]["adapter"] == "LoRA of rank 2 on 9 modules"
    assert str(tmp_path) not in json.dumps(record.provenance["encoder"])
    lora = (
        "--methods",
        "simcse[lora_rank=2,steps=1,eval_every=1]",
        "--backbone",
        str(folder),
        "--seeds",
        "1",
    )
    code, _, err = cli("run", "--suite", "toy", *lora, "--dry-run")
    assert (code, "which is an adapter itself; expected a whole model; merge it" in err) == (2, True)
    plain = ("export", "simcse[steps=1]", "--seed", "1", "--out", str(tmp_path / "out"), "--adapter")
    code, _, err = cli(*plain)
    assert (code, "has no LoRA adapter; leave it out" in err, "trained first" in err) == (2, True, False)
    shutil.rmtree(tmp_path / "base")
    shutil.rmtree(tmp_path / "far")
    code, _, err = cli("run", "--suite", "toy", "--methods", f"hf:{folder}:cls", "--dry-run")
    assert (code, "is not on this machine" in err, "Traceback" in err) == (2, True, False)
