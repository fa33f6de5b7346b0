"""Static encoders: the mean of vectors from a table of tokens; Model2Vec's folders."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from bench.encoder import FloatArray, Progress
from bench.errors import InputError
from bench.nn.folder_checks import dtype_facts
from bench.nn.tokens import move_to_device
from bench.nn.untrusted_folder import read_model_type, read_settings

WEIGHTS, VOCABULARY = "model.safetensors", "tokenizer.json"
_TABLE = "embedding.weight"  # as sentence-transformers' StaticEmbedding calls it
_EMBEDDINGS = "embeddings"  # as Model2Vec does
_CHUNK = 1024  # sentences that are tokenised together
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class StaticEncoder:
    """The mean of the vectors of a sentence's tokens, special tokens excluded; zeros for an empty sentence.

    Args:
        tokenizer: Truncation and padding are turned off.
        table: Vector of each token, float32 (V, d).
        normalize: Scale vectors to length 1, zeros excepted.
        without: Id of an ignored token.

    Raises:
        InputError: an infinite or NaN table, or one with fewer rows than the tokenizer has tokens.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        table: Tensor,
        *,
        normalize: bool = True,
        without: int | None = None,
        device: str = "cpu",
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        largest = max(tokenizer.get_vocab().values(), default=-1)
        if table.ndim != 2 or not table.shape[1] or len(table) <= largest:
            what = f"a table of token vectors of the shape {tuple(table.shape)}"
            raise InputError(what, expected=f"a row for each token, {largest + 1} or more")
        if not bool(table.isfinite().all()):
            raise InputError("a token vector is not finite")
        self.tokenizer, self.normalize, self.without, self.device = tokenizer, normalize, without, device
        self.table = table.float().to(device)
        self.dim = int(table.shape[1])
        self.table_parameters = table.numel()
        self.facts: dict[str, str | int] = {
            **{"max_length": 0, "dim": self.dim, "parameters": self.table_parameters},
            **{"pooling": "avg", "pooling_from": "the method", "similarity": "cosine", "dtype": "float32"},
        }

    def encode(
        self, sentences: Sequence[str], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode; see :class:`bench.encoder.Encoder`. ``batch_tokens`` has no effect."""
        output = np.empty((len(sentences), self.dim), dtype=np.float32)
        for start in range(0, len(sentences), _CHUNK):
            chunk = sentences[start : start + _CHUNK]
            prepared = move_to_device(self.prepare(chunk), self.device)
            output[start : start + _CHUNK] = self.embed(prepared).cpu().numpy()
            if progress:
                progress(len(chunk))
        return output

    def prepare(self, sentences: Sequence[str], batch_tokens: int | None = None) -> tuple[Tensor, Tensor]:
        """Return all tokens in one row, and each sentence's start in it."""
        ids: list[int] = []
        starts: list[int] = []
        for row in self.tokenizer.encode_batch(list(sentences), add_special_tokens=False):
            starts.append(len(ids))
            ids += [token for token in row.ids if token != self.without]
        return torch.tensor(ids, dtype=torch.long), torch.tensor(starts, dtype=torch.long)

    @torch.no_grad()
    def embed(self, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the vectors; see :class:`bench.encoder.TensorEncoder`."""
        ids, starts = prepared
        vectors = functional.embedding_bag(ids, self.table, starts, mode="mean")
        return functional.normalize(vectors, dim=1) if self.normalize else vectors


def save_static(tokenizer: Tokenizer, table: Tensor, folder: Path) -> None:
    """Write table and tokenizer in the format of sentence-transformers' StaticEmbedding."""
    save_file({_TABLE: table.float().cpu().contiguous()}, folder / WEIGHTS)
    tokenizer.save(str(folder / VOCABULARY))
    shutil.copymode(folder / VOCABULARY, folder / WEIGHTS)  # safetensors keeps others out


def load_static(folder: Path, device: str = "cpu") -> StaticEncoder:
    """Return the encoder of a folder that :func:`save_static` wrote; its vectors have length 1.

    Raises:
        InputError: missing or damaged files.
    """
    table = _load_tensors(folder).get(_TABLE)
    if table is None:
        raise InputError(f"{WEIGHTS} has no '{_TABLE}'", where=folder.name)
    return _build_encoder(folder, table, normalize=True, device=device)


def is_model2vec(folder: Path) -> bool:
    """Test for a Model2Vec folder, which lacks sentence-transformers' modules.json.

    Raises:
        InputError: its config.json is damaged.
    """
    if (folder / "modules.json").is_file() or not (folder / WEIGHTS).is_file():
        return False
    if read_model_type(folder) == "model2vec":
        return True
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as weights:
            return _EMBEDDINGS in weights.keys()  # noqa: SIM118 - it is no dictionary
    except (OSError, SafetensorError):
        return False


def load_model2vec(folder: Path, device: str = "cpu") -> StaticEncoder:
    """Return the encoder of a Model2Vec folder: safetensors, tokenizer.json and config.json.

    A token's vector is embeddings[mapping[token]] * weights[token]; mapping and weights are optional. The
    unknown token doesn't count, and config.json sets normalisation, as in Model2Vec.

    Raises:
        InputError: missing or damaged files, or tensors of unmatched shapes.
    """
    tensors, config = _load_tensors(folder), read_settings(folder / "config.json")
    table, mapping, weights = (tensors.get(name) for name in (_EMBEDDINGS, "mapping", "weights"))
    if table is None or table.ndim != 2:
        raise InputError(f"{WEIGHTS} has no table '{_EMBEDDINGS}'", where=folder.name)
    table = table.float()
    if mapping is not None:
        integers = mapping.ndim == 1 and mapping.dtype in _INTEGERS
        if not integers or not bool(((mapping >= 0) & (mapping < len(table))).all()):
            what = "the mapping of tokens leads out of the table"
            raise InputError(what, where=folder.name, expected="rows of it")
        table = table[mapping.long()]
    if weights is not None:
        if weights.shape != table.shape[:1]:
            what = f"{weights.numel()} weights for {len(table)} tokens"
            raise InputError(what, where=folder.name, expected="one each")
        table = table * weights.float()[:, None]
    normalize = config.get("normalize", False)
    if not isinstance(normalize, bool):
        where = f"{folder.name}/config.json"
        raise InputError(f"normalize {normalize!r}", where=where, expected="true or false")
    return _build_encoder(folder, table, normalize=normalize, device=device, skip_unknown=True)


def _build_encoder(
    folder: Path, table: Tensor, *, normalize: bool, device: str, skip_unknown: bool = False
) -> StaticEncoder:
    try:
        tokenizer = Tokenizer.from_file(str(folder / VOCABULARY))
    except Exception as error:  # tokenizers raises nothing more specific
        reason = str(error).split("\n")[0][:200]
        raise InputError(f"{VOCABULARY} can't be loaded: {reason}", where=folder.name) from error
    unknown = getattr(tokenizer.model, "unk_token", None) if skip_unknown else None
    without = tokenizer.token_to_id(unknown) if unknown is not None else None
    try:
        encoder = StaticEncoder(tokenizer, table, normalize=normalize, without=without, device=device)
    except InputError as error:
        raise InputError(error.what, where=folder.name, expected=error.expected) from error
    encoder.facts |= dtype_facts(folder)
    return encoder


def _load_tensors(folder: Path) -> dict[str, Tensor]:
    try:
        return load_file(folder / WEIGHTS)
    except (OSError, SafetensorError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0][:200]
        raise InputError(f"{WEIGHTS} can't be read: {reason}", where=folder.name) from error
