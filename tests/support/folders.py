"""Model folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def sentence_transformers_folder(tiny_bert: Path, target: Path, *, mean: bool) -> Path:
    folder = copy(tiny_bert, target)
    kind = "sentence_transformers.models."
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": not mean,
        "pooling_mode_mean_tokens": mean,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 12, "do_lower_case": False})
    )
    return folder


def prompted_folder(
    tiny_bert: Path, target: Path, prompts: dict[str, str], *, default: str | None, similarity: str
) -> Path:
    """A sentence-transformers folder whose author says how it is used."""
    folder = sentence_transformers_folder(tiny_bert, target, mean=True)
    said = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": similarity}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40}))
    return folder
