"""The cased texts reach what the embedded world lacks: case, repeated pairs, ties, subsets, short batches."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.config import profiles
from bench.data.cased.texts import (
    NAMES,
    make_dev_task,
    make_pair_task,
    make_training_text,
    make_transfer_task,
)
from bench.data.suites import CASED, CASED_DEV, CASED_TRANSFER, load_suite, load_transfer
from bench.errors import InputError
from bench.nn.backbone import load_backbone
from bench.nn.model_folder import resolve_folder


def test_the_text_has_short_batches_and_lengths_that_differ() -> None:
    sentences = make_training_text().sentences
    assert len(set(sentences)) == len(sentences) == 90
    assert 0 < len(sentences) % 16 < 16
    assert len({len(sentence.split()) for sentence in sentences}) > 5


def test_pairs_repeat_tie_and_form_subsets_of_several_sizes() -> None:
    task = make_pair_task()
    assert task.counts == {"names": 48, "repeated": 24, "short": 9}
    assert max(Counter(task.all_pairs()).values()) == 2
    assert max(Counter(grade for subset in task.subsets for grade in subset.gold).values()) > 5
    assert make_dev_task().pairs == 12
    assert load_suite(CASED)[1] == [task]
    assert load_suite(CASED_DEV)[1] == [make_dev_task()]
    with pytest.raises(InputError, match=CASED_TRANSFER):
        load_suite(CASED_TRANSFER)


def test_case_tells_a_name_from_a_word() -> None:
    (task,) = load_transfer(CASED_TRANSFER)
    assert task == make_transfer_task()
    for split in task.splits:
        assert len(set(split.labels)) == 2
        for sentence, label in zip(split.first, split.labels, strict=True):
            assert sum(name in sentence.split() for name in NAMES) == (2 if label == "name" else 1)


def test_the_backbone_keeps_case_and_knows_every_word() -> None:
    profile = profiles.load_profile("cased")
    folder = resolve_folder(profiles.backbone_reference(profile), where="cased", name="cased-bert").path
    _, tokenizer = load_backbone(folder)
    rows = tokenizer(list(make_training_text().sentences))["input_ids"]
    assert tokenizer.unk_token_id not in np.concatenate(rows)
    rose, lower = tokenizer(["Rose", "rose"])["input_ids"]
    assert rose != lower
