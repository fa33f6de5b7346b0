"""One step of a method: the module that its stage makes, and its loss against a transcription."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

from bench.method_card import OptionValue
from bench.nn.backbone import load_backbone
from bench.training import sentence_encoder
from bench.training.masking import mask_tokens
from bench.training.randomness import own_random_state
from tests.support.rank_work import Stop, in_float64
from tests.support.training import SENTENCES, options_of, stage_context, stages_of

Vectors = Tensor | Sequence[Tensor]


def objective_of(
    name: str,
    backbone: Path,
    sentences: Sequence[str] = SENTENCES,
    given: Mapping[str, Any] | None = None,
    /,
    **changes: OptionValue,
) -> tuple[Any, list[Any], Any]:
    """What a method's first stage would train, in float64, all sentences as a batch, and the tokenizer."""
    options = options_of(name, **({"dropout": 0.0, "batch_size": 2, "max_length": 20} | changes))
    stage = stages_of(name, options)[0]
    looped = patch.object(sentence_encoder, "train", side_effect=Stop)
    with TemporaryDirectory() as out, in_float64(), looped as loop, suppress(Stop):
        stage.train(stage_context(stage, backbone, Path(out), sentences=sentences, **(given or {})))
    made, _, rows = loop.call_args.args[:3]
    batch = [rows[number] for number in range(len(sentences))]
    return made.double().train(), batch, AutoTokenizer.from_pretrained(backbone)


def without_pooler(backbone: Path, folder: Path) -> Path:
    """A copy of a backbone that has no pooler."""
    model, tokenizer = load_backbone(backbone)
    model.pooler = None
    for part in (model, tokenizer):
        part.save_pretrained(folder / "bare")
    return folder / "bare"


def gradients_of(module: Any, loss: Tensor) -> dict[str, Tensor]:
    """The gradient of every parameter that the loss reaches."""
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
    return {name: part for name, part in zip(named, found, strict=True) if part is not None}


def same_step(
    module: Any,
    loss: Tensor,
    expected: Tensor,
    *,
    rel: float = 1e-9,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    scaled: float = 0.0,
    least: int = 40,
) -> dict[str, Tensor]:
    """Compare a loss and its gradients with those of a transcription; return the gradients."""
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=rel, abs=1e-12)
    got, wanted = gradients_of(module, loss), gradients_of(module, expected)
    for name, gradient in wanted.items():
        own = got.get(name, torch.zeros_like(gradient))
        torch.testing.assert_close(own, gradient, rtol=rtol, atol=atol + scaled * float(gradient.abs().max()))
    assert not any(bool(got[name].any()) for name in got.keys() - wanted.keys())
    assert len(wanted) > least
    return got


def descend(made: Any, gradients: Mapping[str, Tensor], rate: float = 0.1) -> None:
    """Move an objective's weights against their gradients."""
    with torch.no_grad():
        for name, gradient in gradients.items():
            made.module.get_parameter(name).sub_(rate * gradient)


def follow(slow: Any, fast: Any) -> None:
    """Move a module's weights towards another's: 0.9 of the old ones."""
    with torch.no_grad():
        for own, other in zip(slow.parameters(), fast.parameters(), strict=True):
            own.copy_(0.9 * own + 0.1 * other)


def simcse_loss(made: Any, backbone: Path, sentences: Sequence[str] = SENTENCES) -> float:
    """SimCSE's loss of all sentences under another objective's head."""
    plain, rows, _ = objective_of("simcse", backbone, sentences)
    plain.head.load_state_dict(made.head.state_dict())
    return float(plain(rows).detach())


def count_losses(
    step: Callable[..., tuple[Any, list[Any], Any]],
    changes: Iterable[Mapping[str, OptionValue]],
    batches: Sequence[Sequence[int]] = (),
) -> int:
    """Count the different losses of a step, or of steps on these batches, under each of the changes."""
    losses = set()
    for change in changes:
        made, rows, _ = step(**change)
        with own_random_state(1, "noise"):
            loss = sum(
                float(made([rows[i] for i in chosen]).detach()) for chosen in batches or [range(len(rows))]
            )
        losses.add(round(loss, 9))
    return len(losses)


def cls_of(model: Any, row: Sequence[int]) -> Tensor:
    """[CLS] of one token row, alone and so without padding."""
    states: Tensor = model(input_ids=torch.tensor([row])).last_hidden_state
    return states[0, 0]


def under_head(made: Any, row: Sequence[int]) -> Tensor:
    """z = tanh(W h_cls + b) of one token row."""
    return torch.tanh(made.head.weight @ cls_of(made.encoder, row) + made.head.bias)


def nce_by_loops(anchors: Vectors, positives: Vectors, tau: float = 0.05, queue: Vectors = ()) -> Tensor:
    """InfoNCE as it is printed, with further negatives that all anchors share."""
    rows = []
    for i, anchor in enumerate(anchors):
        others = [*positives, *queue]
        scores = torch.stack([torch.cosine_similarity(anchor, other, dim=0) / tau for other in others])
        rows.append(torch.logsumexp(scores, 0) - scores[i])
    return torch.stack(rows).mean()


def under_batch_norms(head: Any, states: Tensor) -> Tensor:
    """DiffCSE's head of all rows: two layers, each followed by a batch norm, the first with weights."""
    for linear, affine in ((head[0], head[1]), (head[3], None)):
        states = states @ linear.weight.T
        states = (states - states.mean(0)) / (states.var(0, unbiased=False) + 1e-5).sqrt()
        states = torch.relu(states * affine.weight + affine.bias) if affine is not None else states
    return states


def masked_alone(
    rows: Sequence[list[int]], tokenizer: Any, share: float, masks: torch.Generator
) -> Iterator[tuple[int, Tensor, list[int]]]:
    """Each masked row's number, its ids (1, L) without padding, and the places that were chosen."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
    masked, chosen = mask_tokens(ids, tokenizer, share, masks)
    for n, row in enumerate(rows):
        yield n, masked[n : n + 1, : len(row)], [t for t in range(len(row)) if chosen[n, t]]


def word_logits(head: Any, state: Tensor) -> Tensor:
    """Logits of BERT's or RoBERTa's masked-LM head for one state."""
    bert = getattr(head, "predictions", None)
    dense, norm = (bert.transform.dense, bert.transform.LayerNorm) if bert else (head.dense, head.layer_norm)
    decoder = (bert or head).decoder
    hidden: Tensor = norm(torch.nn.functional.gelu(state @ dense.weight.T + dense.bias))
    logits: Tensor = hidden @ decoder.weight.T + decoder.bias
    return logits


def toy_run(backbone: Path, corpus: Path, methods: str, *extra: str) -> tuple[str, ...]:
    """``bench run`` of methods in seed 1 that train on a corpus, with the toy suite as dev and test set."""
    return (
        "run", "--methods", methods, "--seeds", "1", "--suite", "toy", "--backbone", str(backbone),
        "--corpus", str(corpus), "--dev", "toy", *extra,
    )  # fmt: skip
