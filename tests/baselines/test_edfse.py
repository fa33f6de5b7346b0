"""EDFSE and EDFSE-D: paired texts, one step against a transcription, the sum, the distillation, records."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.baselines.edfse import SUBMODELS, distillation_loss
from bench.data.data_source import ALL_COPIES, COPIES, FURTHER_COPIES, World
from bench.data.mini.generator import TRAINING_SENTENCES, word_cosine
from bench.data.mini.world_text import graded_pairs, pretraining_text, training_copy, training_text
from bench.encoder import Encoder
from bench.method_card import BuildContext
from bench.nn.backbone import TransformerEncoder, tokenize_rows
from bench.nn.sum_encoder import SumEncoder
from bench.registry import discover
from tests.support.steps import cls_of, nce_by_loops, objective_of, same_step, simcse_loss, under_head
from tests.support.training import SENTENCES, by_loops, options_of, plan_on_toy, random, stages_of

OTHERS = ["A book is read by the doctor.", "two", "On the hill a song is sung.", "a farmer"]
NOTE = ": the grammar's own paraphrases are positives in its training: not ranked here."
FROZEN_COPIES = {
    1: {
        "a": "120085db18230f55e2e749deaf397816859c671f8d44603ab694d03716c12180",
        "b": "e9f2a84f52a61d4f661cfa60d3f7a6007e02087502645511eb1f05ac6f9edcb5",
        "c": "8cec948d5b5c5164bc41c67d1622e6ff0650d6d10e550958064e11bfa13112c6",
        "d": "28ef739692a0fe019990c2b7171ae9213dd3b95bc85fece989762e70740ce1d4",
        "e": "dc5ec16f3888ad48ef15b7dd49d74a2e125337740e35f78050806ee3ea7fc81e",
        "f": "f01e4a252e068a7c733cfc3d5e2d2e5a5828a7852102d3eae296cb92ce6990b4",
    },
    2: {
        "b": "f817d972eb4e94ca48055b8de6afc6dab9ed3a878b89a1bdee91c55ad6b15730",
        "f": "f627abeaed1b71f358e7e686e71eecc794633b39afb95583fe55cdb7449912b9",
    },
}
PRETRAINING = "26694c0ecc7cda765429694a4455e6a671f26c8d0ff0985ac154294ec00706d6"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", FROZEN_COPIES)
def test_copies_are_frozen(seed: int) -> None:
    """The first two and the backbone's text are older than the others, which changed nothing about them."""
    world = World(seed)
    expected = FROZEN_COPIES[seed]
    assert {copy: training_copy(world, copy).sha256 for copy in expected} == expected
    if seed == 1:
        assert pretraining_text(world).sha256 == PRETRAINING


def test_six_copies_say_the_same_line_by_line_in_other_words() -> None:
    world = World(1)
    assert (*COPIES, *FURTHER_COPIES) == ALL_COPIES
    assert tuple(copy for _, copy in SUBMODELS) == ALL_COPIES
    columns = [training_text(world).sentences, *(training_copy(world, copy).sentences for copy in ALL_COPIES)]
    assert {len(column) for column in columns} == {TRAINING_SENTENCES}
    assert all(len(set(line)) == 7 for line in zip(*columns, strict=True))
    for column in columns[3:]:
        shuffled = [*column[1:], column[0]]
        same = np.mean([word_cosine(a, b) for a, b in zip(columns[0], column, strict=True)])
        other = np.mean([word_cosine(a, b) for a, b in zip(columns[0], shuffled, strict=True)])
        assert same > 1.4 * other
    test = {s for pair in graded_pairs(world, "test").all_pairs() for s in pair}
    assert not test & {sentence for column in columns for sentence in column}


@pytest.mark.slow
def test_each_encoder_asks_for_its_own_text(tmp_path: Path) -> None:
    variants = ("edfse", "edfse[pairing=replace]", "edfse[sick=true]", "edfse[rtt=none]")
    plan = plan_on_toy(",".join(variants), tmp_path)
    texts = {job.cell.method: [stage.spec.text for stage in job.cell.stages] for job in plan.jobs}
    assert list(texts.values()) == [
        [f"train:{copy}" for copy in "abcdef"],
        list("abcdef"),
        [f"train:{copy}+sick" for copy in "abcdef"],
        ["train"] * 6,
    ]
    keys = [stage.key for job in plan.jobs for stage in job.cell.stages]
    assert len(set(keys)) == len(keys) == 24  # without translations too: each role has its streams
    assert {stage.spec.role for job in plan.jobs for stage in job.cell.stages} == {r for r, _ in SUBMODELS}
    training = plan.training
    assert training is not None
    for name in ("train:c", "train:c+sick"):
        more = name.removeprefix("train:c")
        text = training.texts[name]
        assert text.sentences == training.texts[f"train{more}"].sentences
        assert training.partners(name) == training.texts[f"c{more}"].sentences
        both = f"{training.texts[f'train{more}'].sha256}\n{training.texts[f'c{more}'].sha256}"
        assert text.sha256 == hashlib.sha256(both.encode()).hexdigest()
        assert len(training.partners(name)) == len(text.sentences)
    assert training.partners("train:c+sick")[-1] == training.texts["train+sick"].sentences[-1]
    assert training.partners("train") == training.partners("c") == ()


def test_methods_that_see_the_grammars_synonyms_are_footnoted(tmp_path: Path) -> None:
    seen = ("edfse", "edfse_d", "bsl", "distill:edfse", "ensemble:edfse+untrained")
    unseen = ("simcse", "tncse", "edfse[rtt=none]", "edfse[pairing=replace]", "bsl[rtt=none]", "untrained")
    plan = plan_on_toy(",".join((*seen, *unseen)), tmp_path)
    notes = [(job.cell.method, note) for job in plan.jobs for note in job.record.notes if NOTE in note]
    assert sorted(notes) == sorted((method, method + NOTE) for method in seen)
    few = plan_on_toy("simcse,tncse", tmp_path / "few").training
    assert few is not None
    assert set(few.texts) == {"train", "a", "b"}  # unused copies are not made


@pytest.mark.parametrize("chosen", [[2, 0, 3, 1], [1], [3, 1]])
def test_one_step_equals_a_transcription(tiny_bert: Path, chosen: list[int]) -> None:
    made, batch, tokenizer = objective_of("edfse", tiny_bert, SENTENCES, {"partners": OTHERS}, max_length=12)
    other_rows = tokenize_rows(tokenizer, OTHERS, 12)
    expected = nce_by_loops(
        [under_head(made, batch[i][1]) for i in chosen], [under_head(made, other_rows[i]) for i in chosen]
    )
    same_step(made, made([batch[i] for i in chosen]), expected)
    alone, batch, _ = objective_of("edfse", tiny_bert, SENTENCES, {"partners": SENTENCES})
    assert float(alone(batch).detach()) == simcse_loss(alone, tiny_bert)  # equal translations, no dropout


def test_six_copies_of_one_model_have_its_cosines(tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "selected").symlink_to(tiny_bert)
    folders = {role: tmp_path for role, _ in SUBMODELS}
    built = discover().get("edfse").build(BuildContext({"pooling": "cls"}, 1, None, "cpu", folders))
    assert isinstance(built, SumEncoder)
    assert (len(built.parts), built.weights) == (6, (1.0,) * 6)
    vectors, single = built.encode(SENTENCES), TransformerEncoder(tiny_bert, "cls").encode(SENTENCES)
    np.testing.assert_allclose(vectors, 6 * single, rtol=1e-5)


def test_distillation_losses_by_hand_and_limits() -> None:
    s, t = random(4, 3), random(4, 3, seed=1)
    assert float(distillation_loss(s, t, "contrastive", 0.05)) == pytest.approx(by_loops(s, t, 0.05))
    squares = [float(s[i, k] - t[i, k]) ** 2 for i in range(4) for k in range(3)]
    assert float(distillation_loss(s, t, "mse", 0.05)) == pytest.approx(sum(squares) / 12)
    assert float(distillation_loss(t, t, "mse", 0.05)) == 0  # the student gives the exact sum
    near = torch.eye(5, dtype=torch.float64)
    assert float(distillation_loss(near, 3 * near, "contrastive", 0.05)) == pytest.approx(0, abs=1e-8)
    assert float(distillation_loss(s[:1], t[:1], "contrastive", 0.05)) == 0


@pytest.mark.parametrize("form", ["contrastive", "mse"])
def test_one_step_of_the_student(tiny_bert: Path, form: str) -> None:
    """Its [CLS] against the whole sum; the teacher has no gradient, and stays as it is."""
    s, t = random(4, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_()
    torch.autograd.backward(distillation_loss(s, t, form, 0.3))
    assert t.grad is None
    parts = [TransformerEncoder(tiny_bert, pooling) for pooling in ("cls", "avg")]
    teacher: Encoder = SumEncoder([*parts, parts[0]])
    given = {"members": {"teacher": teacher}}
    made, batch, _ = objective_of("edfse_d", tiny_bert, SENTENCES, given, distillation=form, tau=0.1)
    chosen = (2, 0, 3)
    states = torch.stack([cls_of(made.encoder, batch[i][1]) for i in chosen])
    goal = torch.from_numpy(teacher.encode([SENTENCES[i] for i in chosen])).double()
    mean = ((states - goal) ** 2).mean()
    expected = nce_by_loops(list(states), list(goal), 0.1) if form == "contrastive" else mean
    got = same_step(made, made([batch[i] for i in chosen]), expected)
    assert all(p.grad is None for part in parts for p in part.model.parameters())
    assert {name.split(".")[0] for name in got} == {"encoder"}
    (stage,) = stages_of("edfse_d", options_of("edfse_d", distillation=form))
    assert dict(stage.config)["distillation"] == form


def test_records_name_each_encoders_text_and_the_teachers_stages(tmp_path: Path, corpus: Path) -> None:
    corpus.write_text(2 * corpus.read_text())  # more than a batch
    copies = []
    for turn, name in enumerate("abcdef", start=1):
        words = [line.split() for line in corpus.read_text().splitlines()]
        copies.append((name, tmp_path / f"{name}.txt"))
        copies[-1][1].write_text("".join(" ".join(row[turn:] + row[:turn]) + "\n" for row in words))
    plan = partial(plan_on_toy, folder=tmp_path, corpus=corpus, dev="toy", copies=tuple(copies))
    jobs = plan("edfse,edfse_d").jobs
    stages, student = (job.record.training["stages"] for job in jobs)
    assert list(stages) == [role for role, _ in SUBMODELS]
    assert [stage["text"]["name"] for stage in stages.values()] == [
        f"corpus.txt with {n}.txt" for n in "abcdef"
    ]
    assert all(stage["text"]["paired"] for stage in stages.values())
    assert not any(NOTE in note for job in jobs for note in job.record.notes)  # not the grammar's pairs
    shared = {f"teacher/{role}": stage["key"] for role, stage in stages.items()}
    assert {role: stage["key"] for role, stage in student.items() if role != "distill"} == shared
    (plain,) = plan("edfse[rtt=none]", copies=()).jobs
    assert not any("text" in stage for stage in plain.record.training["stages"].values())
