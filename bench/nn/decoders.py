"""Prompts that turn a causal language model into a sentence encoder by its states at one place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.encoder import FloatArray, Progress
from bench.errors import InputError
from bench.nn.architecture import find_special_ids, measure_widths
from bench.nn.backbone import Loadable, TransformerEncoder, load_backbone, transformer_layers
from bench.nn.hidden_states import select_last_state
from bench.nn.output_layers import check_output_layer, check_prepended_layers
from bench.nn.tokens import Chunk

ONE_WORD = 'This sentence : "{sentence}" means in one word:"'
"""PromptEOL's template (Jiang et al. 2023, released code)."""
ECHO = "Rewrite the sentence: {sentence}, rewritten sentence: {sentence}"
"""Echo embeddings' template (Springer et al. 2024, section 3.2)."""
PLACEHOLDER = "<PST>"
"""Token Prepending's token (Fu et al. 2025, released code)."""
_PLACE = "{sentence}"


def end_prompt_sentence(sentence: str) -> str:
    """Return the sentence as PromptEOL's code puts it into its template.

    A full stop is added unless the last character is one of . ? " ', double quotes become single ones, and a
    final question mark becomes a full stop.

    >>> [end_prompt_sentence(text) for text in ('He said "why?"', "Is it?", "A dog", "")]
    ["He said 'why?'", 'Is it.', 'A dog.', '']
    """
    if sentence and sentence[-1] not in ".?\"'":
        sentence += "."
    sentence = sentence.replace('"', "'")
    return f"{sentence[:-1]}." if sentence.endswith("?") else sentence


class TemplateEncoder(TransformerEncoder):
    """A causal model that reads sentences inside a template with {sentence} ``places`` times."""

    def __init__(self, source: Loadable, template: str, places: int, pooling: str, device: str) -> None:
        super().__init__(source, pooling, device=device)
        if not self.causal:
            what = f"{type(self.model).__name__} is a bidirectional encoder"
            expected = "a causal decoder, such as GPT-2, OPT or Llama"
            raise InputError(what, where=self._name, expected=expected, hint="use hf:PATH for an encoder")
        if template.count(_PLACE) != places:
            what = f"the template '{template}' has {_PLACE} {template.count(_PLACE)} times"
            raise InputError(what, expected="once" if places == 1 else "twice")
        self.template = self.facts["template"] = template
        self._first, _ = find_special_ids(self.tokenizer)  # specials after the prompt are left out

    def _tokenize_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts of any length, special tokens excluded."""
        if not texts:
            return []
        rows = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        ids: list[list[int]] = rows["input_ids"]
        return ids

    def keep_first_tokens(self, sentence: str, most: int) -> str:
        """Return the text of a sentence's first tokens, specials excluded; a shorter one stays as it is."""
        (ids,) = self._tokenize_plain([sentence])
        return sentence if len(ids) <= most else self._decode(ids[:most])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def _room_error(self, taken: int) -> InputError:
        what = f"the template '{self.template}' takes {taken} tokens of {self.max_length}"
        return InputError(what, expected="room for a sentence")


class OneWordEncoder(TemplateEncoder):
    """The last token's state of a prompt that asks for a sentence's meaning in one word (PromptEOL).

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: Text with {sentence} once.
        form: "released" puts :func:`end_prompt_sentence` of a sentence into it, "paper" the sentence.
        layer: Place of the states among the embeddings' and all layers' outputs, counted from the end: -1 is
            the last layer's behind the final norm, -2 that of the layer before it.

    Raises:
        InputError: a bidirectional model, a template that lacks {sentence} or is too long, or a layer that
            the model lacks.
    """

    def __init__(
        self,
        source: Loadable,
        template: str = ONE_WORD,
        *,
        form: str = "released",
        layer: int = -1,
        device: str = "cpu",
    ) -> None:
        super().__init__(source, template.strip(), 1, "last", device)
        self.form, self.layer, layers = form, layer, int(self.model.config.num_hidden_layers)
        check_output_layer(layer, layers)
        if layer < -1:
            self.dim = self.facts["dim"] = measure_widths(self.model)[layer]
        if (taken := len(self._tokenize_prompts([""])[0])) >= self.max_length:
            raise self._room_error(taken)

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token ids of the prompts; a long sentence is cut, the template stays."""
        if self.form == "released":
            sentences = [end_prompt_sentence(sentence) for sentence in sentences]
        rows = self._tokenize_prompts(sentences)
        for number, row in enumerate(rows):
            if len(row) > self.max_length:
                rows[number] = self._cut_sentence(sentences[number], len(row) - self.max_length)
        return rows

    def _embed_rows(self, prepared: Any) -> Tensor:
        chunk: Chunk = prepared
        if self.layer == -1:
            return super()._embed_rows(chunk)
        return select_last_state(
            self._run_model(chunk, every_layer=True).hidden_states[self.layer], chunk.mask
        )

    def _tokenize_prompts(self, sentences: Sequence[str]) -> list[list[int]]:
        """Tokenize whole prompts: a quotation mark may form one token with its neighbour."""
        prompts = self._tokenize_plain([self.template.replace(_PLACE, sentence) for sentence in sentences])
        return [[*self._first, *row] for row in prompts]

    def _cut_sentence(self, sentence: str, excess: int) -> list[int]:
        (ids,) = self._tokenize_plain([sentence])
        kept = len(ids)
        while excess > 0:
            kept = max(0, kept - excess)
            (row,) = self._tokenize_prompts([self._decode(ids[:kept])])
            excess = len(row) - self.max_length if kept else 0
        return row


class MeanPromptEncoder(OneWordEncoder):
    """The mean of a sentence's last states in several one-word prompts, of equal weight (MetaEOL).

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        templates: Texts with {sentence} once each.
        form: As for :class:`OneWordEncoder`, like ``layer``.

    Raises:
        InputError: As for :class:`OneWordEncoder`.
    """

    def __init__(
        self,
        source: Loadable,
        templates: Sequence[str],
        *,
        form: str = "released",
        layer: int = -1,
        device: str = "cpu",
    ) -> None:
        super().__init__(source, templates[0], form=form, layer=layer, device=device)
        loaded = (self.model, self.tokenizer)
        self._prompts = [
            OneWordEncoder(loaded, template, form=form, layer=layer, device=device) for template in templates
        ]
        if len(templates) > 1:
            self.facts["templates"] = len(templates)

    def encode_rows(
        self, ids: list[list[int]], batch_tokens: int | None = None, progress: Progress | None = None
    ) -> FloatArray:
        """Encode the rows of all prompts of each sentence, and take their means."""
        vectors = super().encode_rows(ids, batch_tokens, _count_sentences(progress, len(self._prompts)))
        means: FloatArray = self._average(vectors)
        return means

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each sentence's prompts, one after the other."""
        rows = [prompt.token_ids(sentences) for prompt in self._prompts]
        return [row for of_sentence in zip(*rows, strict=True) for row in of_sentence]

    @torch.no_grad()
    def embed(self, prepared: tuple[tuple[Any, ...], Tensor]) -> Tensor:
        """Compute the means; see :class:`bench.encoder.TensorEncoder`."""
        means: Tensor = self._average(super().embed(prepared))
        return means

    def _average(self, vectors: Any) -> Any:
        return vectors.reshape(-1, len(self._prompts), self.dim).mean(1)


def _count_sentences(progress: Progress | None, prompts: int) -> Progress | None:
    """Return a progress of rows that reports a sentence for so many of them."""
    if progress is None:
        return None
    report, rows = progress, 0

    def count(finished: int) -> None:
        nonlocal rows
        before = rows // prompts
        rows += finished
        report(rows // prompts - before)

    return count


class PrependedEncoder(MeanPromptEncoder):
    """One-word prompts whose last state is put before the sentence, from layer to layer (Token Prepending).

    Before each layer from ``start`` to ``end`` (exclusive, counted from 0) the state of the placeholder takes
    that of the prompt's last token, so a sentence's first words have read the whole of it.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        templates: Texts with the placeholder <PST> before {sentence}, once each; the vector is the mean.
        start: First layer before which the state is put.
        end: Layer that is the first without; one beyond the last stands for all.
        seed: Seed of the placeholder's vector, N(0, I), which the layers before ``start`` read.
        form: As for :class:`OneWordEncoder`, like ``layer``.

    Raises:
        InputError: As for :class:`OneWordEncoder`, layers in the wrong order, or a start behind ``layer``.
    """

    def __init__(
        self,
        source: Loadable,
        templates: Sequence[str],
        *,
        start: int,
        end: int,
        seed: int,
        form: str = "released",
        layer: int = -1,
        device: str = "cpu",
    ) -> None:
        for template in templates:
            before = template.split(_PLACE)[0]
            if before.count(PLACEHOLDER) != 1 or template.count(PLACEHOLDER) != 1:
                what = f"the template '{template}' has no single {PLACEHOLDER} before {_PLACE}"
                expected = f'a text such as: This sentence : {PLACEHOLDER} "{_PLACE}" means'
                raise InputError(what, expected=expected)
        model, tokenizer = load_backbone(source) if isinstance(source, Path) else source
        tokenizer = copy.deepcopy(tokenizer)
        self._placeholder = len(tokenizer)
        super().__init__((model, tokenizer), templates, form=form, layer=layer, device=device)
        tokenizer.add_tokens([PLACEHOLDER])
        self._placeholder = int(tokenizer.convert_tokens_to_ids(PLACEHOLDER))
        check_prepended_layers(start, end, layer, int(model.config.num_hidden_layers))
        self._start, self._end = start, end
        draws = torch.Generator().manual_seed(seed)
        size = int(model.get_input_embeddings().weight.shape[1])
        self._vector = torch.randn(size, generator=draws)

    def _run_model(self, chunk: Chunk, *, every_layer: bool = False) -> Any:
        known = chunk.ids.masked_fill(chunk.ids == self._placeholder, 0)
        states = self.model.get_input_embeddings()(known)
        vector = self._vector.to(states.device, states.dtype)
        states = torch.where((chunk.ids == self._placeholder).unsqueeze(-1), vector, states)
        rows = torch.arange(len(chunk.ids), device=chunk.ids.device)
        place = (chunk.ids == self._placeholder).int().argmax(1)
        last = chunk.mask.sum(1) - 1

        def prepend(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = args[0] if args else kwargs["hidden_states"]
            changed = given.clone()
            changed[rows, place] = given[rows, last]
            if args:
                return (changed, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": changed}

        with ExitStack() as hooks:
            for layer in transformer_layers(self.model)[self._start : self._end]:
                hook = layer.register_forward_pre_hook(prepend, with_kwargs=True)
                hooks.callback(hook.remove)
            return self.model(
                inputs_embeds=states, attention_mask=chunk.mask, output_hidden_states=every_layer
            )


class EchoEncoder(TemplateEncoder):
    """The second occurrence of a sentence in a prompt, which has read all of the first (echo embeddings).

    Sentence and surrounding texts are tokenised separately, a blank before the sentence with it.

    Args:
        source: As for :class:`bench.nn.backbone.TransformerEncoder`.
        template: Text with {sentence} twice.
        pooling: "avg" the mean of the second occurrence's tokens; "last" its last token.

    Raises:
        InputError: a bidirectional model, or an unusable template.
    """

    def __init__(
        self, source: Loadable, template: str = ECHO, *, pooling: str = "avg", device: str = "cpu"
    ) -> None:
        super().__init__(source, template, 2, pooling, device)
        before, between, after = template.split(_PLACE)
        self._blank = " " if before.endswith(" ") else ""
        if between.endswith(" ") != before.endswith(" "):
            what = f"the template '{template}' has a blank before only one {_PLACE}"
            raise InputError(what, expected="a blank before both, or before none")
        texts = [before.removesuffix(" "), between.removesuffix(" "), after]
        self._before, self._between, self._after = (self._tokenize_plain([text])[0] for text in texts)
        self._fixed = sum(map(len, (self._first, self._before, self._between, self._after)))
        if self._fixed + 2 > self.max_length:
            raise self._room_error(self._fixed)

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token ids of the prompts; a long sentence is cut both times."""
        room = (self.max_length - self._fixed) // 2
        start = [*self._first, *self._before]
        rows = self._tokenize_plain([self._blank + sentence for sentence in sentences])
        return [[*start, *row[:room], *self._between, *row[:room], *self._after] for row in rows]

    def _prepare_rows(self, rows: list[list[int]]) -> Any:
        chunk: Chunk = super()._prepare_rows(rows)
        read = torch.zeros_like(chunk.mask)
        for number, row in enumerate(rows):
            end = len(row) - len(self._after)
            start = end - (len(row) - self._fixed) // 2 if self.pooling == "avg" else 0
            read[number, start:end] = 1
        return chunk, read

    def _embed_rows(self, prepared: Any) -> Tensor:
        chunk, read = prepared
        states = self._run_model(chunk).last_hidden_state
        if self.pooling == "last":
            return select_last_state(states, read)
        weights = read.to(states.dtype).unsqueeze(-1)
        total = (states * weights).sum(1)
        mean: Tensor = total / weights.sum(1).clamp(min=1)  # zeros for an empty sentence
        return mean
