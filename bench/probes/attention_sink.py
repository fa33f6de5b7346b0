"""Attention sink: shares of the attention weights by class of token (JTCSE, Fig. 9)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.encoder import Encoder
from bench.nn.observer import LayerView, ObservedTower, Observer, UntraceableError
from bench.probes.cls_energy import LayerMeans, mean_profile
from bench.probes.interface import TOWERS, Probe, ProbeColumn, ProbeInputs

if TYPE_CHECKING:
    from torch import Tensor

PAPER_SENTENCE = "This is an example sentence for visualizing attention scores."
"""The sentence of JTCSE's Fig. 9."""
CLASSES = ("cls", "sep", "final_punctuation", "other")
CONVENTION = (
    "share of a query's attention on [CLS] (first token), on [SEP] or </s>, on the punctuation that ends the "
    "sentence, on all other tokens; mean over heads, all query positions (special tokens in, padding out), "
    "then sentences, then towers; sink score: share of [SEP] and final punctuation in the last layer"
)
_MARKERS = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}\N{LOWER ONE EIGHTH BLOCK}#"  # of sub-words


def punctuation_tokens(tokenizer: Any) -> Tensor:
    """Return bool (V,), True for each token of the vocabulary that is only punctuation."""
    import torch

    texts = [str(text) for text in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    special = set(tokenizer.all_special_tokens)
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    spelt = texts
    if type(decoder).__name__ == "ByteLevel":  # such a vocabulary spells bytes as letters
        spelt = [tokenizer.convert_tokens_to_string([text]).strip() for text in texts]
    pairs = zip(texts, spelt, strict=True)
    return torch.tensor([text not in special and _is_punctuation(token) for text, token in pairs])


def token_classes(ids: Tensor, mask: Tensor, sep_id: int | None, punctuation: Tensor) -> Tensor:
    """Return each token's class among CLASSES, float32 (B, T, 4), one 1 a token, zeros for padding.

    Ids and mask (True on tokens) are (B, T), [CLS] first. Final punctuation is the run of punctuation tokens,
    a (V,) mask of the vocabulary, that ends the sentence before [SEP]. [CLS], a word, a full stop, [SEP] and
    padding:

    >>> import torch
    >>> full_stop = torch.arange(9) == 7
    >>> mask = torch.tensor([[True, True, True, True, False]])
    >>> classes = token_classes(torch.tensor([[1, 5, 7, 2, 0]]), mask, 2, full_stop)[0]
    >>> [CLASSES[int(row.argmax())] if row.any() else None for row in classes]
    ['cls', 'other', 'final_punctuation', 'sep', None]
    """
    import torch

    first = torch.zeros_like(mask)
    first[:, 0] = True
    sep = (ids == sep_id) & mask & ~first if sep_id is not None else torch.zeros_like(mask)
    mark = punctuation.to(ids.device)[ids]
    ending = (mark | sep | ~mask).flip(1).cumprod(1).flip(1).bool()  # only these from here on
    final = ending & mark & mask & ~sep & ~first
    return torch.stack([first, sep, final, mask & ~(first | sep | final)], dim=2).float()


def attention_mass(weights: Tensor, mask: Tensor, classes: Tensor) -> Tensor:
    """Mean share of a query's attention on each class of tokens: (B, heads, C), each row of C sums to 1.

    Weights are (B, heads, T, T), the mask of query positions (B, T), classes (B, T, C). Of two tokens the
    first attends to both alike, the second only to itself; each is a class of its own:

    >>> import torch
    >>> weights = torch.tensor([[[[0.5, 0.5], [0.0, 1.0]]]])
    >>> attention_mass(weights, torch.tensor([[True, True]]), torch.eye(2)[None]).tolist()
    [[[0.25, 0.75]]]
    """
    queries = mask.to(weights.dtype)
    queries = queries / queries.sum(1, keepdim=True)
    received = queries[:, None, None] @ weights  # (B, heads, 1, T)
    return (received @ classes.to(weights.dtype)[:, None])[:, :, 0]


class AttentionMass(Observer):
    """Means of the attention mass by tower, layer and head; needs a tokenizer, or UntraceableError."""

    def __init__(self, watched: Sequence[ObservedTower]) -> None:
        from bench.nn.tokens import send_tensor

        self._means = [LayerMeans() for _ in watched]
        self._separators = [_separator_id(tower) for tower in watched]
        self._punctuation = [
            send_tensor(punctuation_tokens(tower.tokenizer), tower.model.device) for tower in watched
        ]
        self._with_final: list[int | Tensor] = [0 for _ in watched]
        self._classes: Tensor

    def on_batch(self, tower: int, ids: Tensor, mask: Tensor) -> None:
        """Sort the batch's tokens into classes, once for all layers."""
        self._classes = token_classes(ids, mask, self._separators[tower], self._punctuation[tower])
        self._with_final[tower] += self._classes[:, :, 2].any(1).sum()

    def on_layer(self, view: LayerView) -> None:
        """Add a batch."""
        mass = attention_mass(view.weights(), view.mask, self._classes)
        self._means[view.tower].add(view.layer, mass)

    def result(self, *, per_head: bool = False) -> dict[str, Any]:
        """Return the sink score and the shares of CLASSES by layer; infinite ones raise BenchError."""
        towers = []
        for means in self._means:
            heads = means.result("attention mass")
            layers = heads.mean(1)
            tower = {"value": float(layers[-1, 1] + layers[-1, 2]), "layers": layers.tolist()}
            towers.append({**tower, "heads": heads.tolist()} if per_head else tower)
        return {
            **mean_profile(towers),
            "towers": towers,
            "classes": list(CLASSES),
            "sentences_with_final_punctuation": max(int(count) for count in self._with_final),
            "convention": CONVENTION,
        }


class _AttentionMaps(Observer):
    """The weights of one sentence, averaged over heads."""

    def __init__(self, count: int) -> None:
        self._tokens: dict[int, tuple[Tensor, Tensor]] = {}
        self._layers: list[list[Tensor]] = [[] for _ in range(count)]

    def on_batch(self, tower: int, ids: Tensor, mask: Tensor) -> None:
        self._tokens[tower] = ids[0], mask[0]

    def on_layer(self, view: LayerView) -> None:
        from bench.nn.device import to_float64

        self._layers[view.tower].append(to_float64(view.weights()[0].mean(0)))

    def result(self, tower: int) -> tuple[list[int], list[list[list[float]]]]:
        """Return token ids and each layer's weights, cut to the sentence's own length."""
        import torch

        ids, mask = self._tokens[tower]
        length = int(mask.sum())
        weights = torch.stack(self._layers[tower])[:, :length, :length]
        return ids[:length].tolist(), weights.tolist()


def attention_maps(encoder: Encoder, sentence: str = PAPER_SENTENCE) -> list[dict[str, Any]]:
    """Return (T,) "tokens" and (layers, T, T) "layers" of each tower: mean weights of queries on keys."""
    from bench.nn.hooks import find_towers, watch_towers

    watched = find_towers(encoder)
    if not watched:
        raise UntraceableError("no transformer to watch")
    maps = _AttentionMaps(len(watched))
    with watch_towers(watched, [maps]):
        encoder.encode([sentence])
    results = []
    for number, tower in enumerate(watched):
        ids, layers = maps.result(number)
        results.append({"tokens": tower.tokenizer.convert_ids_to_tokens(ids), "layers": layers})
    return results


def _separator_id(tower: ObservedTower) -> int | None:
    if tower.tokenizer is None:
        raise UntraceableError("its tokenizer is not known", where=type(tower.model).__name__)
    identity: int | None = tower.tokenizer.sep_token_id
    return tower.tokenizer.eos_token_id if identity is None else identity


def _is_punctuation(token: str) -> bool:
    text = token.lstrip(_MARKERS) if len(token) > 1 else token
    return bool(text) and all(unicodedata.category(char)[0] == "P" for char in text)


def _measure_attention(inputs: ProbeInputs) -> dict[str, Any]:
    options = inputs.options
    facts = inputs.observed(AttentionMass).result(per_head=options.per_head)
    if options.sentence is not None and inputs.encoder is not None:
        facts["maps"] = attention_maps(inputs.encoder, options.sentence)
    return facts


PROBE = Probe(
    "attention_sink",
    "share of the attention on [CLS], [SEP], final punctuation and the rest, by layer",
    needs="trace",
    measure=_measure_attention,
    table=TOWERS,
    columns=(
        ProbeColumn("sink"),
        ProbeColumn("on CLS", ("layers", -1, 0)),
        ProbeColumn("on SEP", ("layers", -1, 1)),
        ProbeColumn("on final punct.", ("layers", -1, 2)),
    ),
    drawn=("maps",),
    observer=AttentionMass,
)
