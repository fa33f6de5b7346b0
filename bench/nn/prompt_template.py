"""Templates around a sentence: a mask token stands for its meaning."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any

from bench.errors import InputError
from bench.nn.architecture import find_special_ids

TEMPLATES = {
    "[MASK]": 'This sentence of "{sentence}" means{mask}.',
    "<mask>": "This sentence : ' {sentence} ' means{mask}.",
}
"""PromptBERT's inference templates, by the tokenizer's mask token (Jiang et al. 2022, released code)."""

FULL_STOPS = {"": None, ".": ".?\"'", " .": string.punctuation}
"""Endings that {sentence}, {sentence.} (PromptBERT) and {sentence .} (SNCSE) give a sentence, and the last
characters that spare it. None: every sentence stays unchanged."""

_EXPECTED = "a tokenizer with a mask token, and {sentence} and {mask} once each in the template"
_SENTENCE = re.compile(r"\{sentence( ?\.)?\}")


class Prompt:
    """A template with its tokenizer.

    The texts before and after the sentence are tokenised separately; a blank before the sentence is read with
    it, as vocabularies of words with their blanks expect.

    Args:
        tokenizer: The model's tokenizer.
        template: Text with {mask} once and once {sentence}. {sentence.} ends a sentence with "." unless its
            last character is one of . ? " '. {sentence .} ends it with " ." unless that is ASCII punctuation;
            an empty sentence stays empty. "auto" takes PromptBERT's of :data:`TEMPLATES`.

    Attributes:
        text: The template.
        before: Token ids before the sentence, special tokens excluded.
        after: Token ids after it.
        length: Tokens of the bare template, both special tokens included.

    Raises:
        InputError: a template that lacks {sentence} or {mask}, or a tokenizer that lacks a mask token.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        mask = tokenizer.mask_token
        self.tokenizer = tokenizer
        self.text: str = TEMPLATES.get(mask, template) if template == "auto" else template
        places = _SENTENCE.findall(self.text)
        if mask is None or len(places) != 1 or self.text.count("{mask}") != 1:
            raise self._template_error()
        before, after = _SENTENCE.sub("\0", self.text.replace("{mask}", mask)).split("\0")
        if [len(ids) for ids in find_special_ids(tokenizer)] != [1, 1]:
            raise self._template_error("a tokenizer with one special token on each side of a sentence")
        self._stop: str = places[0]
        self._blank = " " if before != before.rstrip() else ""
        self.before: list[int] = tokenizer(before.rstrip(), add_special_tokens=False)["input_ids"]
        self.after: list[int] = tokenizer(after, add_special_tokens=False)["input_ids"]
        self.length = len(self.before) + len(self.after) + 2
        if [*self.before, *self.after].count(tokenizer.mask_token_id) != 1:
            raise self._template_error()

    def finished(self, sentence: str) -> str:
        """Return the sentence with the ending that the template asks for."""
        spared = FULL_STOPS[self._stop]
        if spared is None or not sentence.strip() or sentence.rstrip()[-1] in spared:
            return sentence
        return sentence + self._stop

    def rows(self, sentences: Sequence[str], longest: int) -> list[list[int]]:
        """Return the token ids of each sentence in the template; its own mask tokens are left out.

        A sentence is cut so that a row has at most ``longest`` tokens; InputError where the template fills
        them.
        """
        room = longest - self.length
        if room < 1:
            what = f"the template '{self.text}' takes {self.length} tokens of {longest}"
            raise InputError(what, expected="room for a sentence")
        texts = [self._blank + self.finished(sentence) for sentence in sentences]
        if not texts:
            return []
        mask_id = self.tokenizer.mask_token_id
        rows: list[list[int]] = []
        for first, *inner, last in self.tokenizer(texts, truncation=True, max_length=room + 2)["input_ids"]:
            rows.append([first, *self.before, *(i for i in inner if i != mask_id), *self.after, last])
        return rows

    def _template_error(self, expected: str = _EXPECTED) -> InputError:
        return InputError(f"the template '{self.text}' can't be used with this model", expected=expected)
