"""The twins, TNCSE and JTCSE: one step against a transcription, their stages, and what is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.data.suites import load_suite
from bench.encoder import Encoder
from bench.errors import InputError
from bench.eval.sts import predict_similarities, score_suite
from bench.losses.twin_losses import cross_nce, ltn, tower_nce
from bench.method_card import BuildContext, OptionValue
from bench.methods.tncse_single import SingleObjective
from bench.methods.twin import JointObjective, pooler_layer
from bench.nn.backbone import TransformerEncoder, load_backbone, remove_layer_norms, tokenize_rows
from bench.nn.cael_layers import list_cael_layers
from bench.nn.cross_attention import compute_twin_states
from bench.nn.dropout import set_dropout
from bench.nn.sum_encoder import SumEncoder
from bench.nn.tokens import wrap_chunk
from bench.registry import discover
from bench.training.batch_encoding import pooled_states
from bench.training.distillation import Distillation
from bench.training.randomness import generator, own_random_state
from bench.training.sentence_encoder import checkpoint_folder
from tests.support import layered_encoders
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts
from tests.support.steps import same_step, toy_run
from tests.support.tncse import sets
from tests.support.training import SENTENCES, options_of, plan_on_toy, stage_folders, stages_of


def towers(folder: Path) -> tuple[Any, Any, Any]:
    """Two towers that differ (the second one's weights are moved), in float64, without dropout."""
    first, tokenizer = load_backbone(folder)
    second, _ = load_backbone(folder)
    with torch.no_grad():
        for number, parameter in enumerate(second.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator(number, "test")))
    for model in (first, second):
        set_dropout(model, 0.0)
    return first.double().train(), second.double().train(), tokenizer


EXCHANGED = [(seed, bool(torch.rand((), generator=generator(seed, "coin")) < 0.5)) for seed in range(4)]
assert len({exchanged for _, exchanged in EXCHANGED}) == 2  # the coin falls on both sides


def config(name: str, **changes: OptionValue) -> Mapping[str, OptionValue]:
    return {key: value for key, value in options_of(name, **changes).items() if "." not in key}


def joint(
    folder: Path,
    settings: Mapping[str, OptionValue],
    caels: tuple[int, ...] = (),
    seed: int = 1,
    **given: Any,
) -> tuple[Any, list[list[int]], Any]:
    """An objective of both towers, token rows, and both views of them as one padded batch."""
    first, second, tokenizer = towers(folder)
    for model in (first, second):
        set_dropout(model, given.get("dropout", 0.0))
        if not given.get("pooler", True):
            model.pooler = None
    objective = JointObjective(first, second, 0, settings, caels, generator(seed, "coin")).double()
    twice = [sentence for sentence in SENTENCES for _ in range(2)]
    batch = tokenizer(twice, padding=True, truncation=True, max_length=12, return_tensors="pt")
    return objective, tokenize_rows(tokenizer, SENTENCES, 12), batch


@pytest.mark.parametrize(
    "terms", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]
)
@pytest.mark.parametrize("ltn", [{}, {"ltn_input": "cls"}, {"drop_norms": 1}])
def test_a_tncse_step_by_hand(tiny_bert: Path, terms: tuple[bool, ...], ltn: dict[str, OptionValue]) -> None:
    """Padded to the longest, one forward a tower, the released row-wise loops."""
    settings = config("tncse", **dict(zip(("nce", "icnce", "ictn"), terms, strict=True)), **ltn)
    objective, rows, batch = joint(tiny_bert, settings)
    outputs = [tower(**batch) for tower in objective.towers]
    h1, h2 = (out.last_hidden_state[:, 0] for out in outputs)
    p1, p2 = (h1, h2) if ltn else (out.pooler_output for out in outputs)

    def nce(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        losses = []
        for i in range(len(a)):
            scores = [torch.cosine_similarity(a[i], b[j], dim=0) / 0.05 for j in range(len(b)) if j != i]
            target = torch.cosine_similarity(a[i], b[i ^ 1], dim=0) / 0.05
            losses.append(torch.logsumexp(torch.stack(scores), 0) - target)
        return torch.stack(losses).mean()

    def norm_loss(ha: torch.Tensor, pa: torch.Tensor, hb: torch.Tensor, pb: torch.Tensor) -> torch.Tensor:
        losses = []
        for i in range(0, len(ha), 2):
            cosine = torch.cosine_similarity(ha[i], hb[i + 1], dim=0)
            weight = -torch.log(cosine if cosine > 0 else torch.tensor(1e-4, dtype=torch.float64))
            losses.append(weight * (pa[i] - pb[i + 1]).norm() / (pa[i].norm() + pb[i + 1].norm()) / 2)
        return torch.stack(losses).mean()

    expected = torch.zeros((), dtype=torch.float64)
    if terms[0]:
        expected = expected + nce(h1, h1) + nce(h2, h2)
    if terms[1]:
        expected = expected + nce(h1, h2)
    if terms[2]:
        expected = expected + norm_loss(h1, p1, h2, p2) + norm_loss(h2, p2, h1, p1)
    same_step(objective, objective(rows), expected, least=80)


def test_both_towers_start_from_one_fresh_pooler(tiny_bert: Path) -> None:
    """As from the backbone's own: two random ones would make LTN's norms those of unrelated vectors."""
    # with its own poolers `towers` moves the second one
    for fresh, own, same in (("one", False, True), ("each", False, False), ("one", True, False)):
        objective, rows, _ = joint(tiny_bert, config("tncse", fresh_pooler=fresh), pooler=own)
        torch.autograd.backward(objective(rows))
        weights = [p for name, p in objective.poolers.named_parameters() if name.endswith("weight")]
        assert torch.equal(*weights) == same
        one, two = (p.grad for p in weights)
        assert one is not None
        assert two is not None
        assert not torch.equal(one, two)  # started from one, not shared


@pytest.mark.parametrize("name", ["bert", "albert", "distilbert"])
def test_a_pretrained_pooler_is_the_one_that_ltn_reads(name: str) -> None:
    model = layered_encoders.encoder(name)
    layer: Any = pooler_layer(model)
    if name == "distilbert":  # has none
        assert not layer.bias.any()
        return
    rows = torch.tensor([[5, 6, 7]])
    output = model(input_ids=rows)
    assert torch.allclose(torch.tanh(layer(output.last_hidden_state[:, 0])), output.pooler_output)


def test_jtcse_without_caels_is_tncse_to_the_bit(tiny_bert: Path) -> None:
    found = []
    for name in ("tncse", "jtcse"):
        objective, rows, _ = joint(tiny_bert, config(name), dropout=0.1)
        with own_random_state(3, "dropout"):
            loss = objective(rows)
        weight = objective.towers[0].encoder.layer[0].attention.self.value.weight
        found.append((loss.detach(), torch.autograd.grad(loss, weight)[0]))
        assert torch.equal(objective.coin.get_state(), generator(1, "coin").get_state())  # no draw
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("seed", "exchanged"), EXCHANGED)
def test_jtcse_step_adds_the_cross_streams(tiny_bert: Path, seed: int, exchanged: bool) -> None:
    layers = list_cael_layers(3, 3)
    objective, rows, batch = joint(tiny_bert, config("jtcse"), layers, seed)
    first, second = objective.towers
    chunk = wrap_chunk(batch["input_ids"], batch["attention_mask"])
    twin = compute_twin_states(first, second, chunk, layers, "carry")
    h1, h2, c1, c2 = twin.first[:, 0], twin.second[:, 0], twin.cross_first, twin.cross_second
    assert c1 is not None
    assert c2 is not None
    p1, p2 = first.pooler(twin.first), second.pooler(twin.second)
    expected = tower_nce(h1, 0.05) + tower_nce(h2, 0.05)
    for a, b in ((h2, h1), (c2, c1)) if exchanged else ((h1, h2), (c1, c2)):
        expected = expected + cross_nce(a, b, 0.05)
    expected = expected + ltn(h1, p1, h2, p2) + ltn(h2, p2, h1, p1)
    assert float(objective(rows).detach()) == pytest.approx(float(expected.detach()), rel=1e-9)


def test_stages_are_shared_between_the_twins_and_depend_on_what_they_should() -> None:
    def stages(name: str, **changes: OptionValue) -> dict[str, Any]:
        return {stage.role: stage for stage in stages_of(name, options_of(name, **changes))}

    tncse, jtcse = stages("tncse"), stages("jtcse")
    for role, text in (("sub1", "a"), ("sub2", "b")):
        assert replace(tncse[role], train=jtcse[role].train) == jtcse[role]
        assert tncse[role].text == text
        assert stages("tncse", rtt="none")[role].text == "train"
    assert tncse["joint"].inputs == ("sub1", "sub2")
    assert tncse["joint"].kind != jtcse["joint"].kind
    assert stages("tncse", pooling="avg")["joint"] == tncse["joint"]  # an inference-time switch
    assert stages("tncse", ictn=False)["joint"].config != tncse["joint"].config
    assert stages("tncse", **{"sub1.lr": 1.0})["joint"].config == tncse["joint"].config
    lrs = [dict(tncse[role].config)["lr"] for role in ("sub1", "sub2")]
    assert lrs == [1.5e-5, 2e-5]
    assert dict(tncse["joint"].config)["lr"] == 1e-6


SHORT = (*sets("tncse"), *sets("jtcse", caels=3))


@pytest.mark.slow
def test_without_terms_a_twin_is_an_ensemble(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    """Neither twin trains anything more, and both stand for the same vectors, of either checkpoint."""
    # the first sub-encoder's last step is not evaluated, so that another one is selected
    odd = ("tncse.sub1.steps=5", "tncse.sub1.eval_every=2", "jtcse.sub1.steps=5", "jtcse.sub1.eval_every=2")
    none = "nce=false,icnce=false,ictn=false"
    given = toy_run(tiny_bert, corpus, f"joint=tncse,none=tncse[{none}],other=jtcse[{none}]", *SHORT)
    code, _, err = cli(*given, *(part for text in odd for part in ("--set", text)))
    assert code == 0, err
    assert len(stage_folders(tmp_path)) == 3
    found = {record.method: record for record in records(tmp_path).values()}
    one, all_stages = found["none"], found["joint"].training["stages"]
    assert one.scores == found["other"].scores
    stages = one.training["stages"]
    assert all_stages["joint"]["sentences_seen"] == 16
    assert {"joint": all_stages["joint"], **stages} == all_stages
    assert stages["sub1"]["selected_step"] < 5
    assert stages["sub2"]["selected_step"] == 3
    tasks, root = load_suite("toy")[1], tmp_path / "results" / ".stages"
    for checkpoint, metric in (("selected", "spearman"), ("last", "spearman_last")):
        folders = [checkpoint_folder(root / stages[role]["key"], checkpoint) for role in ("sub1", "sub2")]
        ensemble = SumEncoder([TransformerEncoder(folder, "cls") for folder in folders])
        scores = score_suite(tasks, predict_similarities(ensemble, tasks))
        (score,) = {score.value for score in scores if score.task == "avg"}
        assert one.score("avg", metric=metric) == pytest.approx(score, abs=1e-6)
    assert one.score("avg") != one.score("avg", metric="spearman_last")


@pytest.mark.parametrize(
    ("methods", "given", "code", "facts"),
    [
        ("tncse", (), 2, ("stage 'sub1'", "rtt=none")),  # it trains on translations
        ("tncse_uc[uc=word_overlap]", sets("tncse"), 2, ("word_overlap", "no vectors")),
        ("tncse,jtcse", (*sets("tncse"), *sets("jtcse", caels=2)), 2, ("jtcse", "2", "3 layers")),
    ],
)
def test_what_cannot_be_trained(
    cli: Cli,
    tiny_bert: Path,
    corpus: Path,
    methods: str,
    given: tuple[str, ...],
    code: int,
    facts: tuple[str, ...],
) -> None:
    done, _, err = cli(*toy_run(tiny_bert, corpus, methods, *given))
    assert done == code, err
    assert not missing_facts(err, *facts)


def test_distilled_and_union_build_on_the_twin(tmp_path: Path, tiny_bert: Path) -> None:
    methods = "tncse,simcse,tncse_d,tncse_uc[uc=simcse,w=0.25],tncse_uc_d[uc=simcse,w=0.25]"
    jobs = plan_on_toy(methods, tmp_path, backbone=str(tiny_bert)).jobs
    found = {job.record.name: job.record.training for job in jobs}
    stages = {name: training["stages"] for name, training in found.items()}
    assert set(stages["tncse_d"]) == {"teacher/sub1", "teacher/sub2", "teacher/joint", "distill"}
    assert stages["tncse_d"]["teacher/joint"]["key"] == stages["tncse"]["joint"]["key"]
    assert stages["tncse_uc"]["uc/simcse"]["key"] == stages["simcse"]["simcse"]["key"]
    assert set(stages["tncse_uc_d"]) == {
        "teacher/twin/sub1", "teacher/twin/sub2", "teacher/twin/joint", "teacher/uc/simcse", "distill",
    }  # fmt: skip
    assert found["tncse_uc"]["members"]["uc"]["method"].startswith("simcse")
    keys = {stage["key"] for own in stages.values() for stage in own.values()}
    assert len(keys) == 6  # two subs, joint, simcse and two students


def test_the_union_is_the_weighted_sum(tiny_bert: Path) -> None:
    parts = [TransformerEncoder(tiny_bert, pooling) for pooling in ("cls", "avg", "pooler")]
    members: dict[str, Encoder] = {"twin": SumEncoder(parts[:2]), "uc": parts[2]}
    context = BuildContext({"uc": "simcse", "w": 0.7}, 1, None, "cpu", members=members)
    built = discover().get("tncse_uc").build(context)
    assert isinstance(built, SumEncoder)
    one, two, uc = (part.encode(SENTENCES) for part in parts)
    np.testing.assert_allclose(built.encode(SENTENCES), 0.3 * (one + two) + 0.7 * uc, atol=1e-5)


def test_distillation_has_no_loss_where_the_student_equals_the_teacher(tiny_bert: Path) -> None:
    teacher = TransformerEncoder(tiny_bert, "cls")
    (student, tokenizer), (moved, _) = load_backbone(tiny_bert), load_backbone(tiny_bert)
    with torch.no_grad():
        moved.embeddings.LayerNorm.bias.add_(0.1)
    batch = list(enumerate(tokenize_rows(tokenizer, SENTENCES, 40)))
    assert float(Distillation(student.eval(), 0, teacher, SENTENCES)(batch).detach()) < 1e-12
    loss = Distillation(moved.eval(), 0, teacher, SENTENCES)(batch[1:3])
    torch.autograd.backward(loss)
    targets = teacher.encode(SENTENCES[1:3])
    states = TransformerEncoder((moved, tokenizer), "cls").encode(SENTENCES[1:3])
    assert float(loss.detach()) == pytest.approx(float(((states - targets) ** 2).mean()), rel=1e-4)
    assert all(parameter.grad is None for parameter in teacher.model.parameters())


def test_one_encoder_with_the_tensor_norm_is_tncse_of_a_tower_with_itself(tiny_bert: Path) -> None:
    """NCE(H, H) + LTN(H -> H), the latter as a loop, over the same two dropout views."""
    first, _, tokenizer = towers(tiny_bert)
    settings = options_of("tncse_single")
    rows = tokenize_rows(tokenizer, SENTENCES, 12)
    first.requires_grad_(False)
    set_dropout(first, 0.1)
    with own_random_state(1, "views", "cpu"):
        loss = SingleObjective(first, tokenizer.pad_token_id, settings)(rows)
    with own_random_state(1, "views", "cpu"):
        states = pooled_states(first, [row for row in rows for _ in range(2)], tokenizer.pad_token_id)
    pooled = torch.tanh(first.pooler.dense(states))
    nce = tower_nce(states, 0.05, "released")
    norm = torch.zeros((), dtype=torch.float64)
    for i in range(0, len(states), 2):
        angle = torch.cosine_similarity(states[i], states[i + 1], dim=0)
        difference = (pooled[i] - pooled[i + 1]).norm() / (pooled[i].norm() + pooled[i + 1].norm())
        norm = norm - angle.log() * difference / 2 / len(rows)
    assert float(norm) > 0
    assert float(loss) == pytest.approx(float(nce + norm), abs=1e-10)
    without = SingleObjective(first, tokenizer.pad_token_id, {**settings, "ictn": False})
    with own_random_state(1, "views", "cpu"):
        assert float(without(rows)) == pytest.approx(float(nce), abs=1e-10)


def test_layer_norms_are_taken_out_from_the_end_and_their_weights_stay(tiny_bert: Path) -> None:
    model, tokenizer = load_backbone(tiny_bert)
    layers, names = model.config.num_hidden_layers, set(model.state_dict())
    batch = tokenizer(SENTENCES[:1], return_tensors="pt")  # one sentence: no padding, no mask
    model.eval()
    with torch.no_grad():
        before = model(**batch, output_hidden_states=True).hidden_states
        remove_layer_norms(model, 1)
        after = model(**batch, output_hidden_states=True).hidden_states
        last = model.encoder.layer[-1]
        residual = after[-2] + last.attention.output.dense(last.attention.self(after[-2])[0])
        expected = residual + last.output.dense(last.intermediate(residual))
    assert all(torch.equal(one, other) for one, other in zip(before[:-1], after[:-1], strict=True))
    torch.testing.assert_close(after[-1], expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[-1], after[-1])
    assert set(model.state_dict()) == names
    with pytest.raises(InputError) as caught:
        remove_layer_norms(model, layers + 1)
    assert not missing_facts(caught.value, layers + 1, f"at most the {layers}")
