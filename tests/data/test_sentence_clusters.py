from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bench.data.sentence_clusters import cluster_items, identify_sentence


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_the_connected_components_of_items_and_sentences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, sentences = (40, 25, 35), 120
    pairs = rng.integers(0, sentences, (sum(sizes), 2))
    texts = [(f"Sentence {a}.", f"sentence  {b}") for a, b in pairs.tolist()]
    ends = np.cumsum(sizes)
    parts = [texts[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    labels = cluster_items(parts)
    assert tuple(map(len, labels)) == sizes
    ours = np.concatenate(labels)
    graph = coo_matrix((np.ones(len(pairs)), pairs.T), shape=(sentences, sentences))
    theirs = connected_components(graph, directed=False)[1][pairs[:, 0]]
    assert ((ours[:, None] == ours) == (theirs[:, None] == theirs)).all()
    _, first = np.unique(ours, return_index=True)
    assert (np.diff(first) > 0).all()  # numbered in the order of their first items
    assert 1 < ours.max() + 1 < len(ours)


def test_a_longer_chain_is_one_cluster_from_any_end() -> None:
    chain = [(str(i), str(i + 1)) for i in range(2000)]
    for items in (chain, chain[::-1], chain[::2] + chain[1::2]):
        assert cluster_items([items])[0].max() == 0
    (apart,) = cluster_items([chain[::2]])
    assert apart.tolist() == list(range(1000))


def test_items_of_unknown_texts_are_clusters() -> None:
    labels = cluster_items([[("a",), ("b",)], 3, [("b",), ("c",)]])
    assert [part.tolist() for part in labels] == [[0, 1], [2, 3, 4], [1, 5]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A man is playing.", " a  man is playing"),
        ("Straße 5", "STRASSE5"),
        ("ﬁne", "fine"),
        ("Él come.", "él come"),
    ],
)
def test_equal_sentences(one: str, other: str) -> None:
    assert identify_sentence(one) == identify_sentence(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("cafe", "café"), ("?!", "!?"), ("1.", "2."), ("", " "), ("男人弹琴", "女人弹琴")],
)
def test_other_sentences(one: str, other: str) -> None:
    assert identify_sentence(one) != identify_sentence(other)
