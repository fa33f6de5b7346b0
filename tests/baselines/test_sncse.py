"""SNCSE: its margin loss, negations by list and by parse, a step against a transcription, training."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.baselines.sncse import bidirectional_margin_loss, load_negation
from bench.errors import BenchError, InputError
from bench.losses.contrastive import info_nce
from bench.method_card import BuildContext
from bench.nn.backbone import load_backbone
from bench.registry import discover
from bench.training import negation
from bench.training.negation import ParsedToken, hash_folder_files, negate_by_rule, negate_parsed
from tests.support.messages import missing_facts
from tests.support.steps import objective_of, same_step
from tests.support.training import SENTENCES, options_of, plan_on_toy, random, train_alone

options = partial(options_of, "sncse")


def test_margin_loss_is_the_formula() -> None:
    a, p, n = (random(9, 4, seed=seed) for seed in range(3))
    expected = 0.0
    for i in range(9):
        near, soft = (float(a[i] @ x[i] / (a[i].norm() * x[i].norm())) for x in (p, n))
        expected += (max(0.0, soft - near + 0.1) + max(0.0, near - soft - 0.3)) / 9
    assert float(bidirectional_margin_loss(a, p, n, 0.1, 0.3)) == pytest.approx(expected)
    assert float(bidirectional_margin_loss(a, p, p, 0.1, 0.3)) == pytest.approx(0.1)  # as the positive
    assert float(bidirectional_margin_loss(a, a, -a, 0.1, 0.3)) == pytest.approx(1.7)
    assert float(bidirectional_margin_loss(a, -a, a, 0.1, 0.3)) == pytest.approx(2.1)


@pytest.mark.parametrize(
    ("difference", "penalty"), [(-0.5, 0.2), (-0.3, 0.0), (-0.2, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.4, 0.5)]
)
def test_penalty_of_a_difference(difference: float, penalty: float) -> None:
    """Alpha 0.1, beta 0.3; the positive's cosine is 0.5."""
    anchor, near, soft = (
        torch.tensor([[3 * c, 3 * math.sqrt(1 - c * c)]], dtype=torch.float64)
        for c in (1.0, 0.5, 0.5 + difference)
    )
    loss = float(bidirectional_margin_loss(anchor, near, soft, 0.1, 0.3))
    assert loss == pytest.approx(penalty, abs=1e-12)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("He is not here.", "He is here."),  # "not" goes, the first one alone
        ("It is not what is not.", "It is what is not."),
        ("not", ""),
        ("The man is singing.", "The man is not singing."),  # after the first auxiliary or form of be
        ("They can swim and will win.", "They can not swim and will win."),
        ("He was, it seems, tired.", "He was not, it seems, tired."),
        ("The man sings.", "Not The man sings."),  # otherwise
        ("", "Not "),
        ("In May Will sang.", "Not In May Will sang."),  # names
        ("He can't sing.", "Not He can't sing."),  # negated already
        ("He did n't sing.", "Not He did n't sing."),
        ("He isn't what he was.", "He isn't what he was not."),
        ("The would-be king sang.", "Not The would-be king sang."),
        ("A knot is tied.", "A knot is not tied."),
    ],
)
def test_negation_by_the_word_list(sentence: str, expected: str) -> None:
    assert negate_by_rule(sentence) == expected


def parsed(text: str) -> list[ParsedToken]:
    """Tokens written as text/dependency/tag/lemma; what is left out is empty."""
    return [ParsedToken(*(f"{token}///".split("/")[:4])) for token in text.split()]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ("He is/ROOT/VBZ/be not here not", "He is here not"),
        ("He has/aux/VBZ/have been/aux/VBN/be seen/ROOT/VBN/see", "He has not been seen"),
        ("It was/auxpass/VBD/be made/ROOT/VBN/make", "It was not made"),
        ("He thinks/ROOT/VBZ/think it will/aux/MD/will rain", "He does not think it will rain"),  # root first
        ("He is/ROOT/VBZ/be tall", "He is not tall"),
        ("Must/ROOT/MD/must he", "Must not he"),
        ("She sings/ROOT/VBZ/sing .", "She does not sing ."),
        ("She sang/ROOT/VBD/sing .", "She did not sing ."),
        ("Sing/ROOT/VB/sing !", "Not Sing !"),
        ("A song/ROOT/NN/song", "Not A song"),
        ("", "Not"),
    ],
)
def test_negation_by_a_parse(tokens: str, expected: str) -> None:
    assert negate_parsed(parsed(tokens)) == expected


TEXT = [*SENTENCES, "the man is not a farmer.", "the doctor is reading a book " * 5]


def prompted(tokenizer: Any, second: bool, subwords: list[int]) -> list[int]:
    """[CLS] this sentence : " X " means [MASK] . [SEP], with "of" in place of ":" in the second template."""
    words = ["[CLS]", "this", "sentence", "of" if second else ":", '"']
    ids = tokenizer.convert_tokens_to_ids
    return [*ids(words), *subwords, *ids(['"', "means", "[MASK]", ".", "[SEP]"])]


@pytest.mark.parametrize("weight", [0.5, 0.0])
@pytest.mark.parametrize("whole", [False, True])
def test_a_step_equals_a_transcription(tiny_bert: Path, weight: float, whole: bool) -> None:
    """Loss and gradient: views written out by hand, each row alone in a forward of its own."""
    made, batch, tokenizer = objective_of(
        "sncse", tiny_bert, TEXT, bml_weight=weight, negate_unfinished=whole, max_length=32
    )

    def vector(second: bool, text: str) -> Tensor:
        subwords = tokenizer(text, add_special_tokens=False)["input_ids"][:22]
        row = prompted(tokenizer, second, subwords)
        assert len(row) <= 32
        assert row.count(tokenizer.mask_token_id) == 1
        h = made.encoder(input_ids=torch.tensor([row])).last_hidden_state[0, len(row) - 3]
        projected: Tensor = torch.tanh(made.head.weight @ h + made.head.bias)
        return projected

    finished = [text if text.endswith(".") else f"{text} ." for text in TEXT]
    assert finished != TEXT
    z, near = (torch.stack([vector(second, text) for text in finished]) for second in (False, True))
    expected = info_nce(z, near, 0.05)
    if weight:
        opposites = [
            "The doctor is not reading a book.",
            "Not a .",
            "Two children are not singing a song on the hill.",
            "Not the farmer .",
            "the man is a farmer.",
            "the doctor is not reading a book " + "the doctor is reading a book " * 4 + ".",
        ]
        if not whole:  # no final punctuation: the look-up fails
            opposites[-1] = f"Not {finished[-1]}"
        soft = torch.stack([vector(True, text) for text in opposites])
        cosines = [torch.nn.functional.cosine_similarity(z, x) for x in (near, soft)]
        difference = cosines[1] - cosines[0]
        penalty = torch.relu(difference + 0.1) + torch.relu(-difference - 0.3)
        assert float(penalty.detach().max()) > 0
        expected = expected + weight * penalty.mean()
    same_step(made, made(batch), expected, rel=1e-8)


@pytest.mark.parametrize("sentences", [["two"], ["not"], ["", "the farmer"], ["the [MASK] man"], TEXT[5:]])
def test_every_view_has_one_mask(tiny_bert: Path, sentences: list[str]) -> None:
    made, batch, tokenizer = objective_of(
        "sncse", tiny_bert, sentences, negate_unfinished=True, bml_weight=0.5, max_length=32
    )
    rows = [row for chunk in made.prepare(batch).chunks for row in chunk.ids]
    assert [int((row == tokenizer.mask_token_id).sum()) for row in rows] == [1] * 3 * len(sentences)


def test_soft_negatives_stay_out_of_the_softmax(tiny_bert: Path) -> None:
    """A margin that nothing breaks leaves prompted InfoNCE, whatever the negations are."""
    losses = []
    for bounds in ({"alpha": -2.0, "beta": 2.0, "bml_weight": 0.5}, {"bml_weight": 0.0}):
        made, batch, _ = objective_of("sncse", tiny_bert, TEXT, **bounds)
        losses.append(float(made(batch).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_build(tmp_path: Path, tiny_bert: Path) -> None:
    stage = tmp_path / "stage" / "selected"
    model, tokenizer = load_backbone(tiny_bert)
    model.save_pretrained(stage)
    tokenizer.save_pretrained(stage)
    context = BuildContext(options(), 1, None, "cpu", {"sncse": stage.parent})
    encoder: Any = discover().get("sncse").build(context)
    rows = encoder.token_ids(["the man", "the man .", "the man,", ""])
    assert rows[0] == rows[1] == prompted(tokenizer, False, tokenizer("the man .")["input_ids"][1:-1])
    assert rows[2] != rows[0]


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for spaCy whose one model takes every word's second half for its dependency."""
    module: Any = ModuleType("spacy")
    module.__spec__ = SimpleNamespace(name="spacy")
    folder = tmp_path / "en_tiny"
    (folder / "parser").mkdir(parents=True)
    (folder / "config.cfg").write_text("[nlp]\n")
    (folder / "parser" / "model").write_bytes(b"weights")

    def load(path: Path) -> Any:
        if path != folder:
            raise OSError(f"[E050] Can't find model {path}\nand more")

        def parse(text: str) -> list[Any]:
            tags = {"is": ("ROOT", "VBZ", "be"), "are": ("ROOT", "VBP", "be")}
            tokens = [(word, *tags.get(word, ("dep", "NN", word))) for word in text.split()]
            return [SimpleNamespace(text=w, dep_=d, tag_=t, lemma_=m) for w, d, t, m in tokens]

        return parse

    module.load = load
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setenv(negation.SPACY_FOLDER, str(folder))
    return folder


def test_spacys_negation(tmp_path: Path, tiny_bert: Path, spacy: Path) -> None:
    """Another model is another cell; one that changes after planning is noticed."""

    def keys() -> tuple[str, str]:
        (job,) = plan_on_toy("sncse[negation=spacy]", tmp_path, backbone=str(tiny_bert)).jobs
        return job.key, job.cell.stages[0].key

    digest, first = hash_folder_files(spacy), keys()
    negate, facts = load_negation({"negation": "spacy", "spacy_model": digest})
    assert negate("The man is tall .") == "The man is not tall ."
    assert negate("A song") == "Not A song"
    assert facts == {"spacy_model": {"name": "en_tiny", "sha256": digest}}  # no path of this machine
    train = partial(train_alone, "sncse", tiny_bert, tmp_path, max_length=24, bml_weight=0.5, steps=1)
    assert train(negation="spacy").facts.items() >= facts.items()
    assert "spacy_model" not in train().facts
    with pytest.raises(InputError, match="other"):
        negation.load_spacy_negation(spacy.parent / "other")
    assert keys() == first
    (spacy / "parser" / "model").write_bytes(b"other weights")
    assert hash_folder_files(spacy) != digest
    assert not set(keys()) & set(first)
    with pytest.raises(BenchError, match="changed since the run was planned"):
        load_negation({"negation": "spacy", "spacy_model": digest})


@pytest.mark.parametrize("case", ["missing package", "no folder", "another folder"])
def test_what_spacy_needs_is_said_before_anything_runs(
    tmp_path: Path, tiny_bert: Path, spacy: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    facts = ["negation=spacy"]
    if case == "missing package":
        monkeypatch.delitem(sys.modules, "spacy")
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        facts.append("package spacy")
    elif case == "no folder":
        monkeypatch.delenv(negation.SPACY_FOLDER)
        facts.append("BENCH_SPACY")
    else:
        monkeypatch.setenv(negation.SPACY_FOLDER, str(tiny_bert))
        facts.append("BENCH_SPACY")
    with pytest.raises(InputError) as caught:
        plan_on_toy("sncse[negation=spacy]", tmp_path, backbone=str(tiny_bert))
    assert not missing_facts(caught.value, *facts)
