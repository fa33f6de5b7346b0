"""Prompts that make a causal language model say in one place what a sentence means, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.errors import InputError
from bench.nn.architecture import find_special_ids
from bench.nn.backbone import TransformerEncoder
from bench.nn.hidden_states import select_last_state
from bench.nn.tokens import Chunk

ONE_WORD = 'This sentence : "{sentence}" means in one word:"'
"""PromptEOL's template (Jiang et al. 2023, released code)."""
ECHO = "Rewrite the sentence: {sentence}, rewritten sentence: {sentence}"
"""Echo embeddings' template (Springer et al. 2024, section 3.2)."""
_PLACE = "{sentence}"


def end_prompt_sentence(sentence: str) -> str:
    """The sentence as PromptEOL's code puts it into its template.

    It ends with a full stop unless it ends with one of . ? " ', its double quotes become single ones, and a
    question mark at its end becomes a full stop.

    >>> [end_prompt_sentence(text) for text in ('He said "why?"', "Is it?", "A dog", "")]
    ["He said 'why?'", 'Is it.', 'A dog.', '']
    """
    if sentence and sentence[-1] not in ".?\"'":
        sentence += "."
    sentence = sentence.replace('"', "'")
    return f"{sentence[:-1]}." if sentence.endswith("?") else sentence


class TemplateEncoder(TransformerEncoder):
    """A causal model that reads sentences inside a template.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: Text with {sentence}.
        places: How often it has to stand there.
        pooling: See :func:`bench.nn.hidden_states.pool_states`.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: a model that is not causal, or a template that lacks {sentence}.
    """

    def __init__(
        self, source: Path | tuple[Any, Any], template: str, places: int, pooling: str, device: str
    ) -> None:
        super().__init__(source, pooling, device=device)
        if not self.causal:
            raise InputError(
                f"{type(self.model).__name__} reads a sentence as a whole: it is no causal language model",
                where=Path(str(self.tokenizer.name_or_path)).name,
                expected="a decoder, such as GPT-2, OPT or Llama",
                hint="use hf:PATH for an encoder",
            )
        if template.count(_PLACE) != places:
            raise InputError(
                f"the template '{template}' has {_PLACE} {template.count(_PLACE)} times",
                expected="once" if places == 1 else "twice",
            )
        self.template = template
        self._first = find_special_ids(self.tokenizer)[
            0
        ]  # what the tokenizer appends would come behind the prompt
        self.facts["template"] = template

    def _tokenize_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts of any length, without special tokens."""
        if not texts:
            return []
        found = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        ids: list[list[int]] = found["input_ids"]
        return ids

    def _room_error(self, taken: int) -> InputError:
        return InputError(
            f"the template '{self.template}' takes {taken} tokens of {self.max_length}",
            expected="room for a sentence",
        )


class OneWordEncoder(TemplateEncoder):
    """The last token's state of a prompt that asks for a sentence's meaning in one word (PromptEOL).

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: Text with {sentence} once.
        form: "released" puts :func:`finished` sentences into it, "paper" sentences as they are.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: a model that is not causal, or a template that lacks {sentence} or leaves it no room.
    """

    def __init__(
        self,
        source: Path | tuple[Any, Any],
        template: str = ONE_WORD,
        *,
        form: str = "released",
        device: str = "cpu",
    ) -> None:
        super().__init__(source, template.strip(), 1, "last", device)
        self.form = form
        if (taken := len(self._tokenize_prompts([""])[0])) >= self.max_length:
            raise self._room_error(taken)

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of the prompts; of one that is too long the sentence is cut, never the template."""
        ready = [end_prompt_sentence(each) if self.form == "released" else each for each in sentences]
        rows = self._tokenize_prompts(ready)
        return [
            row if len(row) <= self.max_length else self._cut_sentence(sentence, len(row) - self.max_length)
            for sentence, row in zip(ready, rows, strict=True)
        ]

    def _tokenize_prompts(self, sentences: Sequence[str]) -> list[list[int]]:
        """Prompts are tokenised as a whole: a quotation mark may be one token with what it encloses."""
        texts = [self.template.replace(_PLACE, each) for each in sentences]
        return [[*self._first, *row] for row in self._tokenize_plain(texts)]

    def _cut_sentence(self, sentence: str, excess: int) -> list[int]:
        (ids,) = self._tokenize_plain([sentence])
        kept = len(ids)
        while excess > 0:
            kept = max(0, kept - excess)
            text = self.tokenizer.decode(ids[:kept], clean_up_tokenization_spaces=False)
            (row,) = self._tokenize_prompts([text])
            excess = len(row) - self.max_length if kept else 0
        return row


class EchoEncoder(TemplateEncoder):
    """A prompt holds a sentence twice; the second time, which has read all of the first, is its vector.

    The sentence and the texts around it are tokenised by themselves, a blank before the sentence with it.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: Text with {sentence} twice.
        pooling: "avg" the mean of the second time's tokens; "last" the last of them.
        device: "cpu", "cuda" or "mps".

    Raises:
        InputError: a model that is not causal, or a template that can't be used.
    """

    def __init__(
        self,
        source: Path | tuple[Any, Any],
        template: str = ECHO,
        *,
        pooling: str = "avg",
        device: str = "cpu",
    ) -> None:
        super().__init__(source, template, 2, pooling, device)
        before, between, after = template.split(_PLACE)
        self._blank = " " if before.endswith(" ") else ""
        if between.endswith(" ") != before.endswith(" "):
            raise InputError(
                f"the template '{template}' has a blank before one {_PLACE} alone",
                expected="a blank before both, or before none",
            )
        texts = [before.removesuffix(" "), between.removesuffix(" "), after]
        self._before, self._between, self._after = (self._tokenize_plain([text])[0] for text in texts)
        fixed = (self._first, self._before, self._between, self._after)
        self._fixed = sum(map(len, fixed))
        if self._fixed + 2 > self.max_length:
            raise self._room_error(self._fixed)

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of the prompts; a long sentence is cut both times."""
        room = (self.max_length - self._fixed) // 2
        start = [*self._first, *self._before]
        found = self._tokenize_plain([self._blank + each for each in sentences])
        return [[*start, *row[:room], *self._between, *row[:room], *self._after] for row in found]

    def _prepare_rows(self, rows: list[list[int]]) -> Any:
        chunk: Chunk = super()._prepare_rows(rows)
        read = torch.zeros_like(chunk.mask)
        for number, row in enumerate(rows):
            end = len(row) - len(self._after)
            read[number, end - (len(row) - self._fixed) // 2 if self.pooling == "avg" else 0 : end] = 1
        return chunk, read

    def _embed_rows(self, prepared: Any) -> Tensor:
        chunk, read = prepared
        states = self._run_model(chunk).last_hidden_state
        if self.pooling == "last":
            return select_last_state(states, read)
        weights = read.to(states.dtype).unsqueeze(-1)
        total = (states * weights).sum(1)
        mean: Tensor = total / weights.sum(1).clamp(min=1)  # no token, no vector: zeros
        return mean
