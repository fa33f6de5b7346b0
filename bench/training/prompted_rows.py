"""Token rows of a training text: plain, or in the prompt whose mask token is trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import InputError
from bench.method_card import OptionValue
from bench.nn.architecture import find_longest_input
from bench.nn.backbone import IndexedRows, TokenRows
from bench.nn.prompt_template import Prompt
from bench.stages import StageContext
from bench.training.encoder_options import find_train_pooling

MASK = "mask"
"""The training pooling that reads the mask token of a prompt."""


class PromptedRows:
    """Rows of sentences in the prompt of pooling "mask" at inference, or (number, row), made on request.

    A sentence keeps ``max_length`` tokens, specials included; those of the prompt are added. ``length`` is a
    row's longest.
    """

    def __init__(
        self, tokenizer: Any, sentences: Sequence[str], max_length: int, *, numbered: bool = False
    ) -> None:
        # its own copy: a thread may prepare a step while the dev evaluation uses the tokenizer
        self._prompt, self._sentences = Prompt(copy.deepcopy(tokenizer), "auto"), sentences
        self.length, self._numbered = self._prompt.length - 2 + max_length, numbered

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self._sentences)

    def __getitem__(self, index: int) -> Any:
        """Put a sentence into the prompt."""
        row = self.make(self._sentences[index])
        return (index, row) if self._numbered else row

    def make(self, sentence: str) -> list[int]:
        """Return the row of any sentence."""
        (row,) = self._prompt.rows([sentence], self.length)
        return row


def build_rows(
    tokenizer: Any, sentences: Sequence[str], config: Mapping[str, OptionValue], *, numbered: bool = False
) -> IndexedRows:
    """Return the rows of a text for a stage's settings: prompted where it trains the mask token's state."""
    make = PromptedRows if find_train_pooling(config, "") == MASK else TokenRows
    return make(tokenizer, sentences, int(config["max_length"]), numbered=numbered)


def build_checked_rows(
    context: StageContext, towers: Sequence[tuple[Any, Any]], *, numbered: bool, prompted: bool
) -> IndexedRows:
    """Return the text's token rows; raises InputError for one that is longer than the model can read."""
    max_length, tokenizer = int(context.config["max_length"]), towers[0][1]
    longest = min(find_longest_input(model, tokenizer) for model, _ in towers)
    if prompted:
        in_prompt = PromptedRows(tokenizer, context.sentences, max_length, numbered=numbered)
        if in_prompt.length > longest:
            what = f"max_length {max_length} and the prompt are {in_prompt.length} tokens"
            expected = f"a max_length up to {max_length - in_prompt.length + longest}"
            raise InputError(f"{what}, the model's longest input has {longest}", expected=expected)
        return in_prompt
    rows = TokenRows(tokenizer, context.sentences, max_length, numbered=numbered)
    if max_length > longest:
        one = TokenRows(tokenizer, context.sentences, longest + 1)
        long = next((number for number in range(len(one)) if len(one[number]) > longest), None)
        if long is not None:
            what = f"max_length {max_length}, and sentence {long + 1} has more than {longest} tokens"
            expected = f"at most {longest}, the model's longest input"
            raise InputError(what, expected=expected, hint=f"give --set METHOD.max_length={longest}")
    return rows
