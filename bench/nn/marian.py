"""OPUS-MT: find its models on this machine, and translate with them in batches of similar length."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.data.round_trip_translation import Translated
from bench.data.tasks import normalise_spaces
from bench.encoder import Progress
from bench.errors import BenchError, InputError
from bench.nn.model_folder import ModelFolder, hash_model, resolve_folder
from bench.nn.tokens import length_sorted_batches
from bench.nn.untrusted_folder import check_folder, check_weights, forbid_hub, loading_error

HUB = "Helsinki-NLP"
BATCH_TOKENS = {"cpu": 4096, "cuda": 32_768, "mps": 8192}
"""Fastest on a CPU of 240 to 8,160 at OPUS-MT's size on one thread; MPS is unmeasured."""
_TOKENIZER = ("source.spm", "target.spm", "vocab.json")
_STEP = 16


@dataclass(frozen=True)
class TranslationModel(ModelFolder):
    """A model folder with the hub's commit where the folder is in its cache; records omit the path."""

    revision: str | None

    @property
    def facts(self) -> dict[str, str | None]:
        """Return name, fingerprint and revision."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


def check_sentencepiece() -> None:
    """Raise InputError if sentencepiece, which reads OPUS-MT's tokenizers, is missing."""
    if find_spec("sentencepiece") is None:
        raise InputError("translation needs the package sentencepiece", hint="pip install 'cse-bench[rtt]'")


def find_translation_model(source: str, target: str, models: Path | None) -> TranslationModel:
    """Find ``opus-mt-SOURCE-TARGET`` below ``models``, or in the hub's cache; InputError if incomplete."""
    name = f"opus-mt-{source}-{target}"
    if models is None:
        where = "bench data rtt"
        try:
            model = resolve_folder(f"{HUB}/{name}", where=where)
        except InputError as error:
            hint = f"{error.hint or f'hf download {HUB}/{name}'}, or name a folder of models with --models"
            raise InputError(error.what, where=where, expected=error.expected, hint=hint) from error
    else:
        folder, where = models / name, f"--models {models}"
        if not folder.is_dir():
            expected = f"config.json, {', '.join(_TOKENIZER)} and model.safetensors (or pytorch_model.bin)"
            hint = f"get it with: hf download {HUB}/{name} --local-dir {folder}"
            raise InputError(f"there is no folder '{name}'", where=where, expected=expected, hint=hint)
        model = resolve_folder(str(folder), where=where, name=name)
    path = model.path
    missing = [file for file in _TOKENIZER if not (path / file).is_file()]
    if missing:
        raise InputError(f"the model {name} has no {', '.join(missing)}", where=where)
    revision = path.name if path.parent.name == "snapshots" else None
    digest = hashlib.sha256(hash_model(path).encode())
    for file in ("source.spm", "target.spm"):
        digest.update((path / file).read_bytes())
    return TranslationModel(path, model.name, digest.hexdigest(), revision)


class MarianTranslator:
    """One direction, float32, in evaluation mode, deterministic.

    Decoding uses the settings below in place of the model's. A sentence's limit depends only on its own
    length, and a batch has one limit. So the batch changes a translation only where two candidates' scores
    are equal within float32 rounding.

    Args:
        model: Model of one pair of languages, or of several targets.
        beams: 1 for greedy decoding.
        batch_tokens: Padded source tokens a batch may hold; None for the device's default.
        code: Target language of a model with several, such as "cmn_Hans".

    Raises:
        InputError: the folder is unloadable, or the code is unknown or missing.
    """

    def __init__(
        self,
        model: TranslationModel,
        *,
        beams: int = 1,
        batch_tokens: int | None = None,
        device: str = "cpu",
        code: str | None = None,
    ) -> None:
        self.device, self.batch_tokens = device, batch_tokens or BATCH_TOKENS[device]
        self.model, self.tokenizer = _load_marian(model)
        self._prefix = _language_prefix(model.name, self.tokenizer.supported_language_codes, code)
        config = self.model.config
        self.longest: int = config.max_position_embeddings
        self.eos, self.pad = int(config.eos_token_id), int(config.pad_token_id)
        self.model.generation_config = type(self.model.generation_config)(
            do_sample=False,
            num_beams=beams,
            early_stopping=beams > 1,
            decoder_start_token_id=config.decoder_start_token_id,
            eos_token_id=self.eos,
            pad_token_id=self.pad,
            suppress_tokens=[self.pad],
        )
        self.model.eval().to(device)

    def __call__(self, sentences: Sequence[str], progress: Progress | None = None) -> Translated:
        """Translate; raises BenchError where the device's memory is full."""
        import torch

        from bench.nn.backbone import silence_libraries

        try:
            with silence_libraries(), torch.inference_mode():
                return self._translate(sentences, progress)
        except torch.OutOfMemoryError as error:
            hint = "choose a smaller --batch-tokens"
            raise BenchError(f"the memory of {self.device} is full", hint=hint) from error

    def _translate(self, sentences: Sequence[str], progress: Progress | None) -> Translated:
        from bench.nn.backbone import pad_rows

        rows, truncated = self._tokenize_sentences(sentences)
        texts = [""] * len(rows)
        unfinished = 0
        for limit, batch in split_by_limit([len(row) for row in rows], self.batch_tokens):
            ids, mask = pad_rows([rows[index] for index in batch], self.pad, self.device)
            longest = min(limit, self.longest - 1)
            output = self.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=longest)
            translations = output[:, 1:].tolist()  # padded behind their ends
            unfinished += sum(self.eos not in row for row in translations)
            decoded = self.tokenizer.batch_decode(
                translations, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            for index, text in zip(batch, decoded, strict=True):
                texts[index] = normalise_spaces(text)
            if progress:
                progress(len(batch))
        return Translated(texts, truncated, unfinished)

    def _tokenize_sentences(self, sentences: Sequence[str]) -> tuple[list[list[int]], int]:
        """Return token ids of each sentence, cut to the model's limit, and the number cut."""
        if not sentences:
            return [], 0
        rows: list[list[int]] = self.tokenizer([self._prefix + text for text in sentences])["input_ids"]
        longer = [index for index, row in enumerate(rows) if len(row) > self.longest]
        for index in longer:
            rows[index] = [*rows[index][: self.longest - 1], self.eos]
        return rows, len(longer)


def split_by_limit(lengths: Sequence[int], budget: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (longest translation, indices) by rising length, with one limit for all sentences of a batch.

    The limit is twice the sentence's tokens, rounded up to a multiple of 16, plus 16.
    """
    steps = [-(-length // _STEP) for length in lengths]
    for step in sorted(set(steps)):
        group = [index for index, value in enumerate(steps) if value == step]
        for batch in length_sorted_batches([lengths[index] for index in group], budget):
            yield (2 * step + 1) * _STEP, [group[index] for index in batch]


def _load_marian(model: TranslationModel) -> tuple[Any, Any]:
    """Load model and tokenizer in float32, quietly; safetensors, or .bin with weights_only."""
    import torch
    from transformers import AutoConfig, MarianMTModel, MarianTokenizer

    from bench.nn.backbone import silence_libraries

    model_class: Any = MarianMTModel
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    check_folder(model.path)
    with silence_libraries(), forbid_hub(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # not used
        try:
            config = AutoConfig.from_pretrained(model.path, **safe)
            if config.model_type != "marian":
                raise ValueError(f"its type is {config.model_type}")
            loaded, info = model_class.from_pretrained(
                model.path, dtype=torch.float32, weights_only=True, output_loading_info=True, **safe
            )
            tokenizer = MarianTokenizer.from_pretrained(model.path, **safe)
        except Exception as error:  # transformers raises many kinds here
            raise loading_error(error, model.name, expected="a Marian model of OPUS-MT") from error
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    check_weights(missing, model.name)
    return loaded, tokenizer


def _language_prefix(name: str, codes: Sequence[str], code: str | None) -> str:
    """Return the prefix of every sentence: the code of the target language, or nothing."""
    known = sorted(text.strip("<>") for text in codes)
    if code in known:
        return f">>{code}<< "
    if code is not None or known:
        what = f"{name} translates into several languages"
        if code:
            what = f"'{code}' is no target language of {name}"
        expected = f"PIVOT:CODE, a code of {', '.join(known)}" if known else "a pivot without a code"
        raise InputError(what, where="--pivots", expected=expected)
    return ""
