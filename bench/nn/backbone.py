"""Encoders around Hugging Face transformers: safe loading, pooling, batching."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from bench.encoder import FloatArray, Progress
from bench.errors import InputError
from bench.nn import (
    adapter_folder,
    adapter_merge,
    adapter_view,
    architecture,
    folder_checks,
    lora,
    model_parts,
    untrusted_folder,
)
from bench.nn.half_precision import get_build_dtype
from bench.nn.hidden_states import is_layered, pool_states, select_mask_state
from bench.nn.layer_adapters import build_attention_mask
from bench.nn.ngram_layers import pool_ngrams, require_ngrams
from bench.nn.prompt_template import Prompt
from bench.nn.tokens import (
    BUCKET,
    Chunk,
    default_batch_tokens,
    invert_order,
    length_sorted_batches,
    move_to_device,
    pad_chunk,
    send_tensor,
)
from bench.nn.weight_reading import read_converted_tensors

Loadable = Path | tuple[Any, Any]
"""A model folder, or a loaded (model, tokenizer)."""
_OF_TWO_LAYERS = ("avg_first_last", "avg_last_two")
_UNREAD = "_bench_unread"
_TOGETHER = 32  # batches that CUDA encodes before the host waits for them


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Mute transformers and sentence-transformers; bench checks a folder itself and raises."""
    loggers = [logging.getLogger(name) for name in ("sentence_transformers", "transformers")]
    levels, bars = [logger.level for logger in loggers], transformers_logging.is_progress_bar_enabled()
    hide: Callable[[], None] = transformers_logging.disable_progress_bar
    show: Callable[[], None] = transformers_logging.enable_progress_bar
    for logger in loggers:
        _set_level(logger, logging.ERROR)
    hide()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            _set_level(logger, level)
        if bars:
            show()


def _set_level(logger: logging.Logger, level: int) -> None:
    """Set a logger's level only where it differs: setting one empties logging's cache of levels."""
    if logger.level != level:
        logger.setLevel(level)


def load_backbone(
    folder: Path,
    *,
    needs_pooler: bool = False,
    dtype: torch.dtype | None = None,
    keep_adapters: bool = False,
) -> tuple[Any, Any]:
    """Load (model, tokenizer) from a folder, quietly.

    Args:
        folder: Model folder with config, tokenizer and weights (safetensors, or .bin with weights_only), or a
            stage's folder of adapters, which are added to the weights of their base model.
        needs_pooler: Refuse a checkpoint that lacks the pooler's weights.
        dtype: Floating-point type of the weights; buffers such as rotary frequencies stay float32. By default
            float32, or the type of :func:`bench.nn.half_precision.build_at_precision`, of buffers too.
        keep_adapters: Leave adapters in the model, with its weights frozen, for further training.

    Raises:
        InputError: an incomplete folder: model, weights or padding token are missing.
    """
    # transformers draws weights that the checkpoint lacks
    kind = dtype or get_build_dtype()
    with silence_libraries(), torch.random.fork_rng(devices=[]):
        model, tokenizer = _load_whole_model(
            folder, needs_pooler=needs_pooler, dtype=kind, merge=not keep_adapters
        )
        if keep_adapters and adapter_folder.is_adapter(folder):
            lora.read_lora(model, folder)
    if dtype is None and kind != torch.float32:
        model.to(kind)  # buffers too
    return model, tokenizer


def remove_layer_norms(model: Any, count: int) -> None:
    """Turn off the norms of the last ``count`` layers; their weights stay, for saving the model."""
    if not count:
        return
    layers = transformer_layers(model)
    if count > len(layers):
        raise InputError(
            f"LayerNorms of {count} layers can't be removed", expected=f"at most the {len(layers)} there are"
        )
    for layer in layers[len(layers) - count :]:
        for norm in (module for module in layer.modules() if "Norm" in type(module).__name__):
            norm.forward = lambda states: states


def transformer_layers(model: Any) -> list[nn.Module]:
    """Return a transformer's layers, first to last; raises InputError where they share weights."""
    count = getattr(model.config, "num_hidden_layers", None)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    stacks = [[*layers] for layers in lists if len(layers) == count]
    if not stacks:
        what = f"the layers of a {type(model).__name__} share their weights"
        raise InputError(what, expected=f"a list of its {count} layers, each with weights of its own")
    return max(stacks, key=lambda layers: sum(p.numel() for layer in layers for p in layer.parameters()))


def tokenize_rows(tokenizer: Any, sentences: Sequence[str], max_length: int) -> list[list[int]]:
    """Return the token ids of each sentence, specials included, cut to ``max_length``."""
    if not sentences:
        return []
    ids: list[list[int]] = tokenizer(list(sentences), truncation=True, max_length=max_length)["input_ids"]
    return ids


class IndexedRows(Protocol):
    """The part of a list that training needs: rows by number, and their count."""

    def __len__(self) -> int:
        """Count the rows."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return a row."""
        ...


class TokenRows:
    """The rows of :func:`tokenize_rows`, or (number, row), made on request by a copy of the tokenizer."""

    def __init__(
        self, tokenizer: Any, sentences: Sequence[str], max_length: int, *, numbered: bool = False
    ) -> None:
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self._tokenizer, self._sentences = copy.deepcopy(tokenizer), sentences
        self._max_length, self._numbered = max_length, numbered

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self._sentences)

    def __getitem__(self, index: int) -> Any:
        """Tokenize a sentence."""
        (row,) = tokenize_rows(self._tokenizer, [self._sentences[index]], self._max_length)
        return (index, row) if self._numbered else row


def pad_rows(rows: Sequence[list[int]], pad_id: int, device: str) -> tuple[Tensor, Tensor]:
    """Pad rows on the right to the longest: (ids, mask), each (B, L)."""
    chunk = pad_chunk(rows, pad_id)
    return send_tensor(chunk.ids, device), send_tensor(chunk.mask, device)


class TransformerEncoder:
    """One transformer with a pooling, float32; it encodes in evaluation mode.

    Args:
        source: Model folder (see :func:`load_backbone`), or a loaded (model, tokenizer).
        pooling: cls, avg, avg_first_last, avg_last_two, pooler, last, weighted_mean, mask or ngrams.
        first_layer: "embedding" or "layer1", see :func:`bench.nn.hidden_states.pool_states`.
        template: For "mask", see :class:`bench.nn.prompt_template.Prompt`; "auto" takes PromptBERT's.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: an incomplete folder (weights, the pooler's with pooling "pooler", or a padding token are
            missing), or a template that lacks {sentence} or {mask}.
    """

    def __init__(
        self,
        source: Loadable,
        pooling: str = "cls",
        *,
        first_layer: str = "embedding",
        template: str = "auto",
        device: str = "cpu",
    ) -> None:
        self.pooling, self.first_layer, self.device = pooling, first_layer, device
        folder = source if isinstance(source, Path) else None
        with silence_libraries():
            if isinstance(source, Path):
                source = load_backbone(source, needs_pooler=pooling == "pooler")
            self.model, self.tokenizer = source
            self._name = Path(str(self.tokenizer.name_or_path)).name
            self.dim, self.causal, self.sees_padding = architecture.inspect_model(
                self.model.eval(), self._name
            )
        self._check_pooling()
        self.adapter = folder if folder is not None and adapter_folder.is_adapter(folder) else None
        if pooling == "ngrams":
            self.dim = require_ngrams(self.model, self._name).width
        self.model.to(device)
        self.max_length = architecture.find_longest_input(self.model, self.tokenizer)
        self._table = architecture.find_table_limit(self.model, self.tokenizer)
        self._specials = bool(self.tokenizer("")["input_ids"])
        self._types = architecture.find_token_types(self.model, self.tokenizer)
        self.facts: dict[str, str | int] = {
            "attention": str(self.model.config._attn_implementation),
            "max_length": self.max_length,
            "dim": self.dim,
            "parameters": self.model.num_parameters(),
            **{"pooling": pooling, "pooling_from": "the method", "similarity": "cosine"},
            **_folder_facts(folder),
        }
        if self.model.config.model_type in architecture.ENCODERS_OF_PAIRS:
            self.facts["states"] = "the encoder's"
        elif self.model.config.is_encoder_decoder:
            self.facts["states"] = "the decoder's"
        if architecture.is_bidirectional_decoder(self.model.config):
            self.facts["reads"] = "both directions"
        if unread := vars(self.model).get(_UNREAD):
            self.facts["unread"] = ", ".join(unread)
        if self.sees_padding:
            self.facts["batches"] = "of one length each"
        self.prompt = Prompt(self.tokenizer, template) if pooling == "mask" else None
        if self.prompt is not None:
            self.facts |= {"prompt": self.prompt.text, "prompt_from": "the method"}

    def _check_pooling(self) -> None:
        """Raise InputError for a pooling of states that the model lacks."""
        if is_layered(self.model):
            return
        if self.pooling == "cls":
            architecture.check_first_token(self.model, self.tokenizer, causal=self.causal, where=self._name)
        if self.pooling in _OF_TWO_LAYERS:
            architecture.check_one_width(self.model, self.pooling, self._name)

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode in batches of like length; see :class:`bench.encoder.Encoder`."""
        return self.encode_rows(self.token_ids(sentences), batch_tokens, progress)

    def encode_rows(
        self, ids: list[list[int]], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode rows of token ids, as :meth:`token_ids` makes them."""
        output = np.empty((len(ids), self.dim), dtype=np.float32)
        waiting: list[tuple[list[int], Tensor]] = []
        batches = list(self._batch_rows(ids, batch_tokens))
        for number, batch in enumerate(batches, start=1):
            with torch.inference_mode():
                prepared = move_to_device(self._prepare_rows([ids[index] for index in batch]), self.device)
                vectors = self._embed_rows(prepared).contiguous()  # [CLS] is a view of all states
                waiting.append((batch, vectors))
            if self.device == "cpu" or number % _TOGETHER == 0 or number == len(batches):
                fetched = torch.cat([vectors for _, vectors in waiting]).float().cpu().numpy()
                start = 0
                for rows, _ in waiting:
                    output[rows] = fetched[start : start + len(rows)]
                    start += len(rows)
                    if progress:
                        progress(len(rows))
                waiting = []
        return output

    def prepare(
        self, sentences: Sequence[str], batch_tokens: int | None = None
    ) -> tuple[tuple[Any, ...], Tensor]:
        """Prepare the batches on the CPU; see :class:`bench.encoder.TensorEncoder`."""
        ids = self.token_ids(sentences)
        batches = list(self._batch_rows(ids, batch_tokens))
        parts = tuple(self._prepare_rows([ids[index] for index in batch]) for batch in batches)
        return parts, invert_order([index for batch in batches for index in batch])

    @torch.no_grad()
    def embed(self, prepared: tuple[tuple[Any, ...], Tensor]) -> Tensor:
        """Compute the vectors; see :class:`bench.encoder.TensorEncoder`."""
        parts, place = prepared
        return torch.cat([self._embed_rows(part).float() for part in parts])[place]

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return token ids with specials, cut at the model's maximum ("mask": inside the template)."""
        if self.prompt is not None:
            return self.prompt.rows(sentences, self.max_length)
        return tokenize_rows(self.tokenizer, sentences, self.max_length)

    def _batch_rows(self, ids: list[list[int]], batch_tokens: int | None) -> Iterator[list[int]]:
        budget = batch_tokens or default_batch_tokens(self.device)
        return length_sorted_batches([len(row) for row in ids], budget, equal=self.sees_padding)

    def _prepare_rows(self, rows: list[list[int]]) -> Any:
        """Pad rows on the CPU."""
        largest = 0 if self._table is None else max(max(row, default=0) for row in rows)
        if self._table is not None and largest >= self._table:
            token = self.tokenizer.convert_ids_to_tokens(largest)
            raise architecture.missing_embedding_error(self._table, largest, token, self._name)
        multiple = 1 if self.device == "cpu" or self.sees_padding else BUCKET
        pad = self.tokenizer.pad_token_id
        return pad_chunk(rows, pad, multiple=multiple, room=self.max_length, masked=True)

    def _embed_rows(self, prepared: Any) -> Tensor:
        """Compute the vectors of rows that go through the model together."""
        chunk = prepared
        every_layer = self.pooling in _OF_TWO_LAYERS
        output = self._run_model(chunk, every_layer=every_layer)
        if self.pooling == "pooler":
            pooled: Tensor = output.pooler_output
            return pooled
        if self.pooling == "mask":
            return select_mask_state(output.last_hidden_state, chunk.ids, self.tokenizer.mask_token_id)
        states = (output.last_hidden_state,)
        if every_layer:  # the decoder's where a model has two sides
            states = getattr(output, "hidden_states", None) or output.decoder_hidden_states
        if self.pooling == "ngrams":
            vectors = pool_ngrams(self.model, states[0], chunk.mask)
        else:
            vectors = pool_states(states, chunk.mask, self.pooling, first_layer=self.first_layer)
        if self._specials:
            return vectors
        return torch.where(chunk.mask.any(1, keepdim=True), vectors, 0)  # no token, no vector: zeros

    def _run_model(self, chunk: Chunk, *, every_layer: bool = False) -> Any:
        """Run the model on a chunk."""
        mask: Tensor | None = chunk.mask
        if is_layered(self.model):  # transformers would read a mask of tokens back
            mask = build_attention_mask(self.model.config, chunk, self.model.dtype)
        types = {} if self._types is None else {"token_type_ids": self._types.of(chunk.mask)}
        return self.model(input_ids=chunk.ids, attention_mask=mask, output_hidden_states=every_layer, **types)


def _folder_facts(folder: Path | None) -> dict[str, str | int]:
    if folder is None:
        return folder_checks.dtype_facts(None)
    with adapter_view.open_plain_folder(folder) as plain:
        facts = {**folder_checks.dtype_facts(plain), **untrusted_folder.find_ignored_code(plain)}
    return facts | adapter_view.adapter_facts(folder)


def _load_whole_model(
    folder: Path, *, needs_pooler: bool, dtype: torch.dtype, merge: bool = True
) -> tuple[Any, Any]:
    """Load model and tokenizer from a folder; raises InputError for an incomplete one."""
    where, expected = folder.name, "a transformers checkpoint with its tokenizer"
    model, tokenizer, missing, unread = load_folder(folder, expected=expected, dtype=dtype, merge=merge)
    missing_pooler = [key for key in missing if "pooler" in key.split(".")]
    untrusted_folder.check_weights([key for key in missing if key not in missing_pooler], where)
    if needs_pooler and (trained := folder_checks.find_projections(unread)):
        raise folder_checks.projection_error(trained, where)
    if needs_pooler and (missing_pooler or getattr(model, "pooler", None) is None):
        what = "the checkpoint has no pooler weights, so pooling 'pooler' is not possible"
        raise InputError(what, where=where, hint="use another pooling, such as cls or avg")
    if missing_pooler:
        model.pooler = None  # transformers drew one at random, which would differ from load to load
    vars(model)[_UNREAD] = folder_checks.find_projections(unread)
    architecture.check_vocabulary(model, tokenizer, where)
    architecture.set_padding_token(model, tokenizer, where)
    architecture.check_padding_index(model, where)
    return model, tokenizer


def load_folder(
    folder: Path,
    kind: Any = None,
    *,
    what: str = "this model",
    expected: str | None = None,
    dtype: torch.dtype = torch.float32,
    merge: bool = True,
) -> tuple[Any, Any, list[str], list[str]]:
    """Load a folder in ``dtype``, quietly: (model, tokenizer, missing weights, unread weights).

    ``kind`` is transformers' class for the model, by default that of its encoder, which gets the folder's
    prompts and convolutions. InputError, with ``what`` and ``expected`` in its words, refuses a folder that
    is unloadable, would run or fetch something, or has quantised or unread weights. An adapter is merged
    into its base model, or left out with ``merge`` off.
    """
    if kind is not None:
        model_parts.check_without_parts(folder, expected)
    with adapter_view.open_plain_folder(folder) as plain:
        kind = kind or architecture.select_auto_class(untrusted_folder.read_model_type(plain))
        model, tokenizer, missing, unread = _load_plain_folder(plain, kind, what, expected, dtype)
        if merge and adapter_folder.is_adapter(folder):
            unread += adapter_merge.merge_adapter(model, folder, missing)
    model_parts.read_parts(model, folder)
    return model, tokenizer, missing, unread


def _load_plain_folder(
    folder: Path, kind: Any, what: str, expected: str | None, dtype: torch.dtype
) -> tuple[Any, Any, list[str], list[str]]:
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    untrusted_folder.check_folder(folder)
    folder_checks.check_weight_types(folder)
    try:
        with silence_libraries(), untrusted_folder.forbid_hub(), read_converted_tensors(dtype, folder):
            model, info = kind.from_pretrained(
                folder, dtype=dtype, weights_only=True, output_loading_info=True, **safe
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
    except Exception as error:  # transformers raises many kinds here; all mean that the folder can't be used
        raise untrusted_folder.loading_error(error, folder.name, what, expected) from error
    untrusted_folder.check_tokenizer(tokenizer, folder, model.config)
    missing = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
    unread = folder_checks.check_unread_weights(model, sorted(info["unexpected_keys"]), folder.name)
    return model, tokenizer, missing, unread
