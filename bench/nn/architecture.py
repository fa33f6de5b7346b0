"""Traits of a transformer of any architecture: causality, padding, longest input, vocabulary."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForTextEncoding

from bench.errors import InputError
from bench.nn.deep_prompts import count_shifted
from bench.nn.folder_facts import list_model_types
from bench.nn.half_precision import compute_in_float32
from bench.nn.hidden_states import is_layered
from bench.nn.tokens import pad_chunk, send_tensor

ENCODERS_OF_PAIRS = ("t5", "mt5", "umt5")
"""Encoder-decoders that give the encoder's states; BART's kind reads a sentence with both sides."""
DEFAULT_LENGTH = 512
"""Longest input by default (relative positions)."""
_UNBOUNDED = 1_000_000  # transformers' tokenizers say 1e30
_EQUAL = 1e-6  # of the largest component: a state that nothing behind it has changed
_NEAR = 1e-4  # of the largest component: rounding is below 1e-6, what padding changes above 1e-2
_PROBE = 8  # tokens of a row alone, which is padded to twice as many
_INSTEAD = ("eos_token", "bos_token", "unk_token")


class ModelTraits(NamedTuple):
    """A model's traits, measured on a few tokens."""

    dim: int  # components of a state of its last layer
    causal: bool  # the first token's state depends on that token only
    sees_padding: bool  # masked padding changes a sentence's states


def select_auto_class(kind: object) -> Any:
    """Return the class of transformers that reads sentences for a ``model_type``."""
    return AutoModelForTextEncoding if kind in ENCODERS_OF_PAIRS else AutoModel


def inspect_model(model: Any, where: str) -> ModelTraits:
    """Measure size, causality and sensitivity to padding; InputError where ids give no state a token."""
    if is_layered(model):
        return ModelTraits(int(model.config.hidden_size), causal=False, sees_padding=False)
    middle, long = _count_embeddings(model) // 2, min(2 * _PROBE, count_positions(model) or 2 * _PROBE)
    short = max(1, long // 2)
    row = [middle, *(middle + 1 + i % 2 for i in range(short - 1))]
    longer = [middle, *(middle - 1 - i % 2 for i in range(long - 1))]
    states = _compute_states(model, [row, longer], where)
    first, second = states[:, 0]
    dim = int(states.shape[-1])
    if bool((first - second).abs().max() <= _EQUAL * first.abs().max()):
        return ModelTraits(dim, causal=True, sees_padding=False)
    (unpadded,) = _compute_states(model, [row], where)
    sees = bool((unpadded - states[0, :short]).abs().max() > _NEAR * unpadded.abs().max())
    if sees:  # sentences of one length are then read together, the shortest ones too
        try:
            _compute_states(model, [row[:2]], where)
        except InputError as error:
            name = type(model).__name__
            what = f"padding changes the states of {name}, which can't read two tokens without"
            expected = "a model that reads short sentences or masks padding"
            raise InputError(what, where=where, expected=expected) from error
    return ModelTraits(dim, causal=False, sees_padding=sees)


def is_bidirectional_decoder(config: Any) -> bool:
    """Test for a decoder's configuration without the causal mask, see :mod:`bench.nn.bidirectional`."""
    kind = str(getattr(config, "model_type", ""))
    return getattr(config, "is_causal", None) is False and kind in list_model_types("causal")


def check_padding_index(model: Any, where: str) -> None:
    """Raise InputError for a RoBERTa-like model that lacks the padding id from which positions count."""
    part = getattr(model, "embeddings", None)
    if hasattr(part, "position_embeddings") and getattr(part, "padding_idx", 0) is None:
        what = f"{type(model).__name__} counts positions from pad_token_id, which config.json leaves out"
        raise InputError(what, where=where, expected="a number")


def state_size(model: Any) -> int:
    """Return the components of a last-layer state; in OPT-350m, say, fewer than its hidden size."""
    if is_layered(model):
        return int(model.config.hidden_size)
    was_training = model.training
    size = inspect_model(model.eval(), type(model).__name__).dim
    model.train(was_training)
    return size


@torch.no_grad()
def measure_widths(model: Any) -> list[int]:
    """Return the components of a state of the embeddings and of each layer: OPT-350m's last is narrower.

    Of a model with two sides they are the decoder's.
    """
    ids = torch.full((1, 2), _count_embeddings(model) // 2, device=model.device)
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    states = getattr(output, "hidden_states", None) or output.decoder_hidden_states
    return [int(state.shape[-1]) for state in states]


def check_one_width(model: Any, pooling: str, where: str) -> None:
    """Raise InputError where a pooling of two layers would add states of two widths."""
    *others, last = measure_widths(model)
    if {*others} != {last}:
        what = f"layers with states of {others[-1]} components and a last one of {last}"
        hint = f"pooling '{pooling}' adds states of two layers"
        raise InputError(what, where=where, expected="pooling avg, last or weighted_mean", hint=hint)


@torch.no_grad()
def _compute_states(model: Any, rows: Sequence[Sequence[int]], where: str) -> Tensor:
    """Return the states of padded rows of token ids, (B, L, H) in float32."""
    chunk = pad_chunk(rows, 0)
    ids, mask = send_tensor(chunk.ids, model.device), send_tensor(chunk.mask, model.device)
    try:
        with compute_in_float32(model):
            states: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
    except Exception as error:  # many kinds: an architecture that needs more than token ids
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        what = f"{type(model).__name__} can't be run on token ids alone: {reason}"
        raise InputError(what, where=where, expected="an encoder or a decoder of text") from error
    if states.shape[:2] != ids.shape:
        what = f"{type(model).__name__} gives {states.shape[1]} states for {ids.shape[1]} tokens"
        raise InputError(what, where=where, expected="a state for each token")
    return states.float()


def check_first_token(model: Any, tokenizer: Any, *, causal: bool, where: str) -> None:
    """Raise InputError where pooling 'cls' would take a meaningless token."""
    if causal:
        raise InputError(
            f"{type(model).__name__} is causal: its first token knows nothing of what follows, so pooling "
            "'cls' would give all sentences that begin alike one vector",
            where=where,
            expected="pooling last, weighted_mean or avg",
            hint="name it after a colon, as in hf:PATH:last; or prompteol:PATH, echo:PATH",
        )
    before, after = find_special_ids(tokenizer)
    mark = tokenizer.cls_token_id
    if mark is not None and mark in after and mark not in before:
        what = "its tokenizer puts the classification token last, so pooling 'cls' would take the first word"
        raise InputError(what, where=where, expected="pooling last for that token, or avg")


def find_special_ids(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and after a sentence, which must stay whole."""
    bare: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole: list[int] = tokenizer("a")["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    raise InputError("the tokenizer's special tokens can't be told from a sentence's")


class TokenTypes(NamedTuple):
    """Token types of a row: of the leading specials, the sentence's tokens and the trailing specials."""

    before: list[int]
    inner: int
    after: list[int]

    def of(self, mask: Tensor) -> Tensor:
        """Return the types of rows by their mask (1 on tokens), (B, L); padding has 0."""
        lengths = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
        types = torch.full_like(place, self.inner)
        for number, kind in enumerate(self.before):
            types = types.masked_fill(place == number, kind)
        for number, kind in enumerate(self.after, start=-len(self.after)):
            types = types.masked_fill(place == lengths + number, kind)
        return types.masked_fill(mask == 0, 0)


def find_token_types(model: Any, tokenizer: Any) -> TokenTypes | None:
    """Return the token types that a tokenizer gives and a model reads; None where all are 0."""
    given = tokenizer("a").get("token_type_ids", [])
    if not any(given) or "token_type_ids" not in inspect.signature(model.forward).parameters:
        return None
    types = getattr(model.config, "type_vocab_size", None)
    if isinstance(types, int) and max(given) >= types:
        what = f"the tokenizer gives the token type {max(given)}, and the model has {types}"
        raise InputError(what, where=Path(str(tokenizer.name_or_path)).name)
    before, after = map(len, find_special_ids(tokenizer))
    return TokenTypes(given[:before], given[before], given[len(given) - after :])


def first_position(model: Any) -> int:
    """Return the position of a row's first token: 0, but padding_idx + 1 in RoBERTa's kind."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def count_positions(model: Any) -> int | None:
    """Return the tokens that a transformer has positions for; None for relative positions."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if positions is None or positions < 0:
        return None
    return int(positions) - first_position(model) - count_shifted(model)


def find_longest_input(model: Any, tokenizer: Any) -> int:
    """Return the longest input in tokens, specials included; InputError where it is too short for a word."""
    positions, given = count_positions(model), tokenizer.model_max_length
    if not isinstance(given, int | float) or not given >= 3 or (positions is not None and positions < 3):
        what = f"its longest input is {given!r} tokens by its tokenizer, {positions} by its positions"
        expected = "room for a word between the two special tokens"
        raise InputError(what, where=Path(str(tokenizer.name_or_path)).name, expected=expected)
    if positions is None:
        return int(given) if given < _UNBOUNDED else DEFAULT_LENGTH
    return int(min(positions, given))


def set_padding_token(model: Any, tokenizer: Any, where: str) -> None:
    """Give a causal model's tokenizer a padding token; InputError where all candidates are unsuitable."""
    size, pad = _count_embeddings(model), tokenizer.pad_token_id
    if pad is not None and pad < size:
        return
    for name in _INSTEAD:
        token = getattr(tokenizer, name)
        if token is not None and tokenizer.convert_tokens_to_ids(token) < size:
            tokenizer.pad_token = token
            return
    what = "no padding token" if pad is None else f"a padding token of id {pad}, the model's table has {size}"
    raise InputError(f"the tokenizer has {what}", where=where)


def check_vocabulary(model: Any, tokenizer: Any, where: str) -> None:
    """Raise InputError for a token beyond the model's table, added tokens excepted."""
    size, added = _count_embeddings(model), tokenizer.added_tokens_decoder
    if len(tokenizer) <= size:
        return
    beyond = {i: token for token, i in tokenizer.get_vocab().items() if i >= size and i not in added}
    if beyond:
        raise missing_embedding_error(size, min(beyond), beyond[min(beyond)], where)


def missing_embedding_error(size: int, number: int, token: str, where: str) -> InputError:
    """Return the error for a token beyond the table of embeddings."""
    what = f"the tokenizer's token {token!a} has the id {number}, the model's table of embeddings {size} rows"
    return InputError(what, where=where, expected="the tokenizer that the model was trained with")


def find_table_limit(model: Any, tokenizer: Any) -> int | None:
    """Return the rows of a model's table of embeddings if the tokenizer has ids beyond it, otherwise None."""
    size = _count_embeddings(model)
    return size if max(tokenizer.get_vocab().values(), default=0) >= size else None


def _count_embeddings(model: Any) -> int:
    try:
        return int(model.get_input_embeddings().weight.shape[0])
    except (NotImplementedError, AttributeError) as error:
        what = f"{type(model).__name__} has no table of token embeddings"
        raise InputError(what, expected="an encoder or a decoder of tokens") from error
