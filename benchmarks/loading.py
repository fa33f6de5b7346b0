"""Peak memory of loading a sharded model of 200 MB, in the type of its folder and in another.

Each load is a process of its own, which first loads a small model of the same kind. What counts is the most
resident memory while the model is loaded and encodes a sentence, less that before; mapped pages count.
The peer is the size of the weights in the type they are loaded in.

    python benchmarks/loading.py [--megabytes 200] [--loads fp32:fp32 bf16:fp32] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from claim import add_json, bounded, show
from memory import peak_megabytes

GOAL = 1.2
KINDS = {"fp32": "float32", "bf16": "bfloat16"}
LOADS = ("fp32:fp32", "bf16:bf16", "bf16:fp32", "fp32:bf16", "bin:fp32")
SHARDS = 5
WORDS = 1000
WIDTH = 512


def make_tokenizer() -> Any:
    """Return a tokenizer of numbered words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words = [*names.values(), *(f"word{number}" for number in range(WORDS - len(names)))]
    model = models.WordLevel(
        {word: number for number, word in enumerate(words)}, unk_token=names["unk_token"]
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **names)


def make_folder(folder: Path, dtype: str, megabytes: float, form: str = "safetensors") -> int:
    """Write a decoder with random weights and its tokenizer; return the number of weights."""
    import torch
    from transformers import LlamaConfig, LlamaModel
    from transformers.utils import logging

    bytes_each = 4 if dtype == "float32" else 2
    of_layer = 4 * WIDTH**2 + 3 * WIDTH * 3 * WIDTH
    layers = max(1, math.ceil((megabytes * 1e6 / bytes_each - WORDS * WIDTH) / of_layer))
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        intermediate_size=3 * WIDTH,
        **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    )
    logging.disable_progress_bar()
    model = LlamaModel(config).to(getattr(torch, dtype))
    make_tokenizer().save_pretrained(folder)
    if form == "safetensors":
        model.save_pretrained(folder, max_shard_size=f"{max(1, math.ceil(megabytes / SHARDS))}MB")
    else:
        model.config.save_pretrained(folder)
        write_bin_shards(model.state_dict(), folder)
    return int(model.num_parameters())


def write_bin_shards(weights: dict[str, Any], folder: Path) -> None:
    """Write weights as files of torch, with their index."""
    import torch

    names, places = list(weights), dict[str, str]()
    for number in range(SHARDS):
        file = f"pytorch_model-{number + 1:05d}-of-{SHARDS:05d}.bin"
        part = names[number::SHARDS]
        torch.save({name: weights[name].clone() for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")


def load_folders(small: Path, large: Path, precision: str) -> float:
    """Load and use a small and a large model; return the megabytes that the large one adds at most."""
    from bench.nn.backbone import TransformerEncoder
    from bench.nn.half_precision import build_at_precision

    def use(folder: Path) -> Any:
        with build_at_precision(precision):
            encoder = TransformerEncoder(folder, "avg")
        encoder.encode(["word1 word2 word3"])
        return encoder

    use(small)
    gc.collect()
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5", encoding="utf-8")  # the peak becomes what is resident now
    before = peak_megabytes()
    _encoder = use(large)
    return peak_megabytes() - before


def measure_peak(small: Path, large: Path, precision: str) -> float:
    """Return :func:`load_folders` of a fresh process."""
    words = ["--one", str(small), str(large), precision]
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure every load."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=200, help="size of the folder's weights")
    parser.add_argument("--loads", nargs="+", default=LOADS, metavar="STORED:PRECISION")
    parser.add_argument("--one", nargs=3, metavar=("SMALL", "LARGE", "PRECISION"), help="measure this here")
    add_json(parser)
    given = parser.parse_args()
    if given.one:
        small, large, precision = given.one
        print(load_folders(Path(small), Path(large), precision))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for load in given.loads:
            stored, precision = load.split(":")
            form = "bin" if stored == "bin" else "safetensors"
            small, large = (Path(temporary) / f"{stored}-{precision}-{size}" for size in ("small", "large"))
            dtype = KINDS.get(stored, "float32")
            make_folder(small, dtype, 1, form)
            weights = make_folder(large, dtype, given.megabytes, form)
            size = weights * (4 if precision == "fp32" else 2) / 1e6
            ours = measure_peak(small, large, precision)
            what = f"a folder of {stored} loaded in {precision}, peak memory: its weights in {precision}"
            claim = bounded(f"loading {load}", what, ours=round(ours, 1), peer=size, unit="MB", goal=GOAL)
            show(given.json, claim)
            if not given.json:
                print(f"{load}: {ours:.0f} MB for {size:.0f} MB of weights, {ours / size:.2f} times")


if __name__ == "__main__":
    main()
