"""Encoders from sentence-transformers folders, with all of their modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.encoder import FloatArray, Progress
from bench.errors import InputError
from bench.nn.adapter_view import adapter_facts, open_plain_folder
from bench.nn.backbone import silence_libraries
from bench.nn.folder_checks import check_folder_kind, check_modules_file, check_weight_types, dtype_facts
from bench.nn.folder_facts import read_json_object
from bench.nn.half_precision import compute_in_float32, get_build_dtype
from bench.nn.prompt_prefix import prompt_facts
from bench.nn.st_modules import ModulePart, check_module_part, match_modules
from bench.nn.tokens import default_batch_tokens, length_sorted_batches
from bench.nn.untrusted_folder import check_modules, forbid_hub, list_inner_folders, loading_error
from bench.nn.weight_reading import read_converted_tensors

_SETTINGS = "config_sentence_transformers.json"
_NEAR = 1e-4  # of the largest component, as in bench.nn.architecture


class SentenceTransformerEncoder:
    """A sentence-transformers model with its own prompts, pooling, normalisation and maximal length.

    It is a :class:`bench.encoder.PromptedEncoder`.

    Args:
        folder: The model folder; foreign module code is refused.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: an incomplete folder, or one that sentence-transformers refuses.
    """

    def __init__(self, folder: Path, *, device: str = "cpu") -> None:
        self.device, self.name = device, folder.name
        check_modules_file(folder)
        with open_plain_folder(folder) as plain:
            self._load(plain, folder)

    def _load(self, folder: Path, source: Path) -> None:
        """Load a plain folder with the adapters of its ``source``."""
        from sentence_transformers import SentenceTransformer  # slow, and the probes import this module

        device = self.device
        places = check_modules(folder)
        check_folder_kind(folder)
        weights = tuple(dict.fromkeys((folder, *list_inner_folders(places))))
        for place in weights:
            check_weight_types(place)
        part_facts: dict[str, str | int] = {}
        dtype = get_build_dtype()
        try:
            with silence_libraries(), forbid_hub(), read_converted_tensors(dtype, *weights):
                self.model = SentenceTransformer(
                    str(folder),
                    device=device,
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": str(dtype).removeprefix("torch.")},
                )
                parts = match_modules(self.model, folder)
                for part in parts:
                    part_facts |= check_module_part(part, source / part.folder.relative_to(folder))
            self.model.to(dtype).eval()  # tables of static models too, which keep their folder's type
            self.dim = int(self.model.get_embedding_dimension() or 0)
            with silence_libraries():  # a router logs the route whose length it takes
                limit = self.model.max_seq_length
            self.max_length = int(limit) if limit and math.isfinite(limit) else 0  # 0: no limit
            self._alone = False
            with compute_in_float32(self.model):
                self._alone = self._sees_padding()
        except InputError:
            raise
        except Exception as error:  # many kinds
            raise loading_error(error, folder.name) from error
        self.prompts: dict[str, str] = {name: text or "" for name, text in self.model.prompts.items()}
        self.similarity = str(self.model.similarity_fn_name)
        kinds = [type(module).__name__ for module in self.model]
        parameters = sum(values.numel() for values in self.model.parameters())
        self.table_parameters = parameters if {*kinds} <= {"StaticEmbedding", "Normalize"} else 0
        named = read_json_object(folder / _SETTINGS).get("similarity_fn_name") is not None
        self.facts: dict[str, str | int] = {
            "modules": "+".join(kinds),
            "max_length": self.max_length,
            "dim": self.dim,
            "parameters": parameters,
            **_pooling_facts(parts),
            **prompt_facts(self._map_prompts(), _SETTINGS),
            **self._task_prompt_facts(),
            "similarity": self.similarity,
            "similarity_from": _SETTINGS if named else "the default",
            **dtype_facts(*dict.fromkeys((folder, *(part.folder for part in parts)))),
            **adapter_facts(source),
            **part_facts,
        }
        if self._alone:
            self.facts["batches"] = "of one sentence each"

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode in batches of like length; see :class:`bench.encoder.Encoder`."""
        return self.encode_as(sentences, "", None, batch_tokens, progress)

    def encode_as(
        self,
        sentences: Sequence[str],
        kind: str,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Encode as the model does this kind; see :class:`bench.encoder.PromptedEncoder`."""
        output = np.empty((len(sentences), self.dim), dtype=np.float32)
        if not sentences:
            return output
        encoders = {"query": self.model.encode_query, "document": self.model.encode_document}
        encode: Any = encoders.get(kind, self.model.encode)
        how: dict[str, Any] = {"prompt": prompt, "show_progress_bar": False, "convert_to_numpy": True}
        budget = 1 if self._alone else batch_tokens or default_batch_tokens(self.device)
        for batch in length_sorted_batches(self._measure_lengths(sentences), budget):
            try:
                vectors = encode([sentences[index] for index in batch], batch_size=len(batch), **how)
            except (IndexError, RuntimeError, ValueError) as error:
                reason = str(error).strip().split("\n")[0]
                what = f"sentence-transformers can't encode with it: {reason}"
                raise InputError(what, where=self.name) from error
            if np.shape(vectors) != (len(batch), self.dim):
                what = f"its modules say vectors of {self.dim} components, and give {np.shape(vectors)[-1]}"
                raise InputError(what, where=self.name)
            output[batch] = vectors
            if progress:
                progress(len(batch))
        return output

    def _sees_padding(self) -> bool:
        """Test whether a sentence's vector changes with the others of its batch."""
        (alone,), (padded, _) = self.encode(["a"]), self.encode(["a", "a" + 14 * " b"])
        return bool(np.abs(padded - alone).max() > _NEAR * np.abs(alone).max())

    def _map_prompts(self) -> dict[str, str]:
        """Return the prompt of each kind of text, as sentence-transformers looks it up."""
        document = next((name for name in ("document", "passage", "corpus") if name in self.prompts), "")
        names = {"": self.model.default_prompt_name or "", "query": "query", "document": document}
        return {kind: self.prompts.get(name, "") for kind, name in names.items()}

    def _task_prompt_facts(self) -> dict[str, str | int]:
        """Describe the prompts of single tasks and types of task, which mteb looks up by name."""
        others = {"query", "document", "passage", "corpus", self.model.default_prompt_name}
        facts = prompt_facts({name: text for name, text in self.prompts.items() if name not in others}, "")
        return {} if facts["prompt"] == "none" else {"prompts": facts["prompt"], "prompts_from": _SETTINGS}

    def _measure_lengths(self, sentences: Sequence[str]) -> list[int]:
        """Count each sentence's tokens, or its characters for a foreign tokenizer."""
        if not callable(self.model.tokenizer):
            return [len(sentence) + 1 for sentence in sentences]
        rows = self.model.tokenizer(list(sentences), truncation=False, verbose=False)["input_ids"]
        return [min(len(row), self.max_length or len(row)) for row in rows]


def _pooling_facts(parts: Sequence[ModulePart]) -> dict[str, str | int]:
    """Describe the modules' pooling, the file that names it, and the modules of each route of a router."""
    facts: dict[str, str | int] = {}
    routes: dict[str, list[str]] = {}
    for part in parts:
        pooling = part.kind == "Pooling"
        if part.route:
            kind = f"{part.kind} {_format_pooling(part)}" if pooling else part.kind
            routes.setdefault(part.route, []).append(kind)
        elif pooling and not facts:
            facts |= {"pooling": _format_pooling(part), "pooling_from": f"{part.folder.name}/config.json"}
    if routes:
        facts["routes"] = "; ".join(f"{name}: {'+'.join(kinds)}" for name, kinds in routes.items())
    return facts


def _format_pooling(part: ModulePart) -> str:
    mode = getattr(part.module, "pooling_mode", "unknown")
    return mode if isinstance(mode, str) else "+".join(map(str, mode))
