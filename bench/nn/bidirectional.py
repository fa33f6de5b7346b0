"""Attention in both directions in a decoder: each token reads every token of its row (LLM2Vec).

transformers builds a decoder's attention mask from its configuration. ``is_causal: false`` there gives the
mask of an encoder, which hides padding alone. The setting is saved with the model: a folder that has it in
its config.json stays bidirectional wherever transformers 5 loads it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from bench.errors import InputError
from bench.nn.architecture import set_padding_token
from bench.nn.backbone import load_backbone, load_folder, silence_libraries, transformer_layers
from bench.nn.untrusted_folder import check_weights
from bench.records.filesystem import replace_folder

_TOKENS = 6  # of the probe's rows, fewer in a narrow window; the last one changes, or is padding
_SEEN = 1e-6  # of the usual token's largest component: a state that another token has changed
_NEAR = 1e-4  # of the same: rounding
_EXPECTED = "a decoder of attention layers, such as Llama, Mistral, Qwen or GPT-2"


def make_bidirectional(model: Any, where: str) -> None:
    """Let each token of a decoder attend to all tokens of its row, in place; padding stays masked.

    A layer with a sliding window keeps it: its tokens attend to that many tokens on either side.

    Raises InputError where a probe finds a layer in which a token's state is independent of later tokens, or
    depends on padding.
    """
    model.config.is_causal = False
    for module in model.modules():
        if "is_causal" in vars(module):  # read where a mask is left out
            module.is_causal = False
    causal, leaking = _probe_layers(model)
    for faulty, what in ((causal, "stays causal"), (leaking, "attends to padding")):
        if faulty:
            layers = f"layer {faulty[0] + 1} of a {type(model).__name__}"
            raise InputError(f"{layers} {what} with bidirectional attention", where=where, expected=_EXPECTED)


def load_bidirectional(folder: Path) -> tuple[Any, Any]:
    """Load (model, tokenizer) as :func:`bench.nn.backbone.load_backbone`, attention in both directions.

    Raises InputError as that, and as :func:`make_bidirectional`.
    """
    model, tokenizer = load_backbone(folder)
    make_bidirectional(model, folder.name)
    return model, tokenizer


def load_bidirectional_lm(folder: Path) -> tuple[Any, Any, nn.Module]:
    """Load (model, tokenizer, language-model head), attention in both directions.

    The head maps last states to logits; it shares its weights with the model where these are tied. Raises
    InputError as :func:`load_bidirectional`, for a missing head, and for one that is more than a matrix.
    """
    what = "this causal language model"
    whole, tokenizer, missing, _ = load_folder(folder, AutoModelForCausalLM, what=what)
    check_weights(missing, folder.name, expected="a causal language model with its head")
    model, head = whole.base_model, whole.get_output_embeddings()
    set_padding_token(model, tokenizer, folder.name)
    _check_head(whole.eval(), head, folder.name)
    make_bidirectional(model, folder.name)
    return model, tokenizer, head


def write_merged_folder(folder: Path) -> None:
    """Replace a stage's folder of adapters by the whole bidirectional model, with the adapters added.

    The model is written next to the folder first, so a kill or a full disk leaves the trained adapters.
    """
    model, tokenizer = load_bidirectional(folder)
    with replace_folder(folder) as scratch, silence_libraries():
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)


@torch.no_grad()
def _check_head(whole: Any, head: Any, where: str) -> None:
    """Raise InputError unless a model's logits are its head's matrix times the last states."""
    ids = _probe_ids(whole).unsqueeze(0)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    logits, states = whole(**given).logits, whole.base_model(**given).last_hidden_state
    alone = head(states) if isinstance(head, nn.Linear) and head.in_features == states.shape[-1] else None
    if alone is None or not torch.allclose(alone, logits, rtol=0, atol=_NEAR * float(logits.abs().max())):
        what = f"the head of a {type(whole).__name__} is more than a matrix"
        raise InputError(what, where=where, expected="a language model whose logits are linear in its states")


def _probe_ids(model: Any) -> Tensor:
    """Return the token ids of a row from the middle of the vocabulary, inside the model's sliding window."""
    size = int(model.get_input_embeddings().weight.shape[0])
    window = getattr(model.config, "sliding_window", None) or _TOKENS
    count = min(_TOKENS, max(2, int(window)))
    first = max(0, size // 2 - _TOKENS // 2)
    padding = getattr(model.config, "pad_token_id", None)  # its embedding may be zero
    ids = torch.arange(first, first + 2 * count, device=model.device) % size
    return ids[ids != (-1 if padding is None else padding)][:count]


@torch.no_grad()
def _probe_layers(model: Any) -> tuple[list[int], list[int]]:
    """Return the numbers of the layers that stay causal, and of those that attend to padding.

    Every layer gets four rows of equal states: two whole ones and two with padding at the end, the last state
    turned around in one of each. Its output tells what the other tokens have read.
    """
    ids = _probe_ids(model).expand(4, -1)
    mask = torch.ones_like(ids)
    mask[2:, -1] = 0
    causal, leaking = list[int](), list[int]()

    def give_equal_rows(_layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs["hidden_states"]
        rows = given[:1].repeat(4, 1, 1)
        rows[1::2, -1] *= -1
        if args:
            return (rows, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": rows}

    def compare_rows(number: int, output: Any) -> None:
        states = (output if isinstance(output, Tensor) else output[0])[:, :-1].float()
        scale = float(states[0].abs().amax(-1).median())
        read = (states[1] - states[0]).abs().amax(-1)
        if bool((read <= _SEEN * scale).any()):
            causal.append(number)
        if bool((states[3] - states[2]).abs().max() > _NEAR * scale):
            leaking.append(number)

    was_training = model.training
    with ExitStack() as hooks:
        for number, layer in enumerate(transformer_layers(model)):
            before = layer.register_forward_pre_hook(give_equal_rows, with_kwargs=True)
            after = layer.register_forward_hook(
                lambda _layer, _args, output, number=number: compare_rows(number, output)
            )
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        model.eval()(input_ids=ids, attention_mask=mask, use_cache=False)
    model.train(was_training)
    return causal, leaking
