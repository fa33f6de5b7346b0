"""Encoders from sentence-transformers folders, with whatever modules they bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bench.encoder import FloatArray, Progress
from bench.errors import InputError
from bench.nn.backbone import quiet
from bench.nn.batches import default_batch_tokens, length_sorted_batches
from bench.nn.untrusted import check_modules, check_tokenizer, check_weights, not_loadable, offline


class SentenceTransformerEncoder:
    """A sentence-transformers model as it is: its own pooling, normalisation and maximal length.

    Args:
        folder: The model folder; foreign module code is never executed.
        device: "cpu" or "cuda".

    Raises:
        InputError: sentence-transformers can't load it, or it isn't whole.
    """

    def __init__(self, folder: Path, *, device: str = "cpu") -> None:
        self.device = device
        if not (folder / "modules.json").is_file():
            raise InputError(
                "not a sentence-transformers folder (it would silently become mean pooling)",
                where=folder.name,
                expected="modules.json in it",
                hint="use hf:PATH:pooling for a plain transformers folder",
            )
        from sentence_transformers import SentenceTransformer  # slow, and the probes import this module

        places = check_modules(folder)
        try:
            with quiet(), offline():
                self.model = SentenceTransformer(
                    str(folder),
                    device=device,
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": "float32"},
                )
                for module, place in zip(self.model, places, strict=True):
                    _check_whole(module, place)
            self.model.eval()
            self.dim = int(self.model.get_embedding_dimension() or 0)
            limit = self.model.max_seq_length
            self.max_length = int(limit) if limit and math.isfinite(limit) else 0  # 0: no limit
            self.encode(["a"])
        except InputError:
            raise
        except Exception as error:  # many kinds; all mean that the folder can't be used
            raise not_loadable(error, folder.name) from error
        self.facts: dict[str, str | int] = {
            "modules": "+".join(type(module).__name__ for module in self.model),
            "max_length": self.max_length,
            "dim": self.dim,
        }

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode in batches of like length; see :class:`bench.encoder.Encoder`."""
        output = np.empty((len(sentences), self.dim), dtype=np.float32)
        if not sentences:
            return output
        lengths = self._lengths(sentences)
        for batch in length_sorted_batches(lengths, batch_tokens or default_batch_tokens(self.device)):
            output[batch] = self.model.encode(
                [sentences[index] for index in batch],
                batch_size=len(batch),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            if progress:
                progress(len(batch))
        return output

    def _lengths(self, sentences: Sequence[str]) -> list[int]:
        """Tokens of each sentence, or its characters where the model has no transformers tokenizer."""
        if not callable(self.model.tokenizer):
            return [len(sentence) + 1 for sentence in sentences]
        rows = self.model.tokenizer(list(sentences), truncation=False)["input_ids"]
        return [min(len(row), self.max_length or len(row)) for row in rows]


def _check_whole(module: object, folder: Path) -> None:
    """Raise InputError if sentence-transformers made up weights or a vocabulary that the folder lacks."""
    model = getattr(module, "auto_model", None)
    if not isinstance(model, PreTrainedModel):
        return  # other modules' weights are loaded strictly
    kind: Any = type(model)
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "weights_only": True}
    _, info = kind.from_pretrained(folder, config=model.config, output_loading_info=True, **safe)
    missing = [key for key in sorted(info["missing_keys"]) if "pooler" not in key.split(".")]
    check_weights(missing, folder.name)
    tokenizer = getattr(module, "tokenizer", None)
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        check_tokenizer(tokenizer, folder)
