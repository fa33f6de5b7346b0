"""SimCSE: its loss, one step against an independent transcription, and the whole way through the command."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.baselines.simcse import ExtendedObjective, SimCSEObjective
from bench.errors import InputError
from bench.losses.contrastive import info_nce
from bench.method_card import OptionValue
from bench.nn.masked_lm import load_masked_lm
from bench.training.randomness import generator
from tests.support.cli import Cli, stable_bytes
from tests.support.steps import (
    gradients_of,
    masked_alone,
    nce_by_loops,
    objective_of,
    same_step,
    under_head,
    word_logits,
)
from tests.support.training import SENTENCES, arguments, by_loops, random, stage_folders, the_record


def test_loss_is_the_formula() -> None:
    for batch in (1, 2, 7):
        a, p = random(batch, 5), random(batch, 5, seed=1)
        assert float(info_nce(a, p, 0.05)) == pytest.approx(by_loops(a, p, 0.05), rel=1e-9, abs=1e-12)
    a, p = torch.eye(2, dtype=torch.float64), torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    c = 1 / math.sqrt(2)  # rows: (1, c) and (0, c)
    expected = (math.log(1 + math.exp(c - 1)) + math.log(1 + math.exp(-c))) / 2
    assert float(info_nce(a, p, 1.0)) == pytest.approx(expected)


def test_limits_and_invariances() -> None:
    equal, orthogonal = torch.ones(64, 8, dtype=torch.float64), torch.eye(64, dtype=torch.float64)
    assert float(info_nce(equal, equal, 0.05)) == pytest.approx(math.log(64))
    closed = math.log(1 + 63 * math.exp(-1 / 0.05))
    assert float(info_nce(orthogonal, orthogonal, 0.05)) == pytest.approx(closed, rel=1e-6)
    one = random(1, 4).requires_grad_()
    loss = info_nce(one, random(1, 4, seed=1), 0.05)
    assert float(loss.detach()) == 0
    assert float(torch.autograd.grad(loss, one)[0].abs().max()) == 0
    a, p, order = random(6, 5), random(6, 5, seed=1), torch.tensor([3, 1, 0, 5, 4, 2])
    base = float(info_nce(a, p, 0.05))
    assert float(info_nce(a * 7, p * 0.1, 0.05)) == pytest.approx(base)
    assert float(info_nce(a[order], p[order], 0.05)) == pytest.approx(base)
    assert float(info_nce(p, a, 0.05)) != pytest.approx(base)  # rows only


def test_one_step_equals_an_independent_transcription(tiny_bert: Path) -> None:
    """Loss and gradient at dropout 0, padded to the longest, one forward, Hugging Face's own tokenisation."""
    made, rows, tokenizer = objective_of("simcse", tiny_bert, max_length=8)
    batch = tokenizer(SENTENCES * 2, padding=True, truncation=True, max_length=8, return_tensors="pt")
    cls = made.encoder(**batch).last_hidden_state[:, 0]
    z = torch.tanh(cls @ made.head.weight.T + made.head.bias)
    same_step(made, made(rows), nce_by_loops(z[:4], z[4:]), rel=1e-10)


def mlm_loss(made: ExtendedObjective, rows: list[list[int]], share: float, masks: torch.Generator) -> Tensor:
    """The masked-LM loss of both views, each row alone and so without padding."""
    views, losses = [*rows, *rows], []
    for n, masked, chosen in masked_alone(views, made.tokenizer, share, masks):
        states = made.encoder(input_ids=masked).last_hidden_state[0]
        for t in chosen:
            logits = word_logits(made.lm_head, states[t])
            losses.append(torch.logsumexp(logits, 0) - logits[views[n][t]])
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("backbone", "changes"),
    [
        ("tiny_mlm", {"mlm_term": 0.1, "mlm_share": 0.5}),
        ("tiny_roberta", {"mlm_term": 2.0, "mlm_share": 0.9}),
        ("tiny_bert", {"noise_negatives": 5}),
        ("tiny_mlm", {"mlm_term": 0.3, "mlm_share": 0.9, "noise_negatives": 3}),
    ],
)
def test_more_terms(backbone: str, changes: dict[str, OptionValue], request: pytest.FixtureRequest) -> None:
    """Two steps, so that the second draws anew. Half the noise gives the same: the cosine has no length."""
    made, rows, _ = objective_of("simcse", request.getfixturevalue(backbone), **changes)
    masks, draws = (generator(1, f"{name}/simcse") for name in ("mask", "noise"))
    found = []
    for _ in range(2):
        loss = made(rows)
        noise = 0.5 * torch.randn(int(changes.get("noise_negatives", 0)), 16, generator=draws).double()
        z = [under_head(made, row) for row in rows]
        expected = nce_by_loops(z, z, queue=noise)
        if "mlm_term" in changes:
            restored = mlm_loss(made, rows, float(changes["mlm_share"]), masks)
            expected = expected + float(changes["mlm_term"]) * restored
        same_step(made, loss, expected, rel=1e-8, least=30)
        found.append(float(loss.detach()))
    assert found[0] != found[1]


def test_the_head_is_the_backbones_own_and_needed(tiny_mlm: Path, tiny_bert: Path) -> None:
    made, rows, _ = objective_of("simcse", tiny_mlm, mlm_term=0.1)
    pretrained = load_masked_lm(tiny_mlm)[0].cls.predictions.transform.dense.weight.double()
    assert torch.equal(made.lm_head.predictions.transform.dense.weight, pretrained)
    assert any(name.startswith("lm_head") for name in gradients_of(made, made(rows)))
    with pytest.raises(InputError, match="a masked language model with its head"):
        objective_of("simcse", tiny_bert, mlm_term=0.1)


def test_no_masked_token_is_no_loss_and_no_option_is_plain_simcse(tiny_mlm: Path) -> None:
    made, rows, _ = objective_of("simcse", tiny_mlm, mlm_term=0.5, mlm_share=0.0)
    plain, _, _ = objective_of("simcse", tiny_mlm)
    assert (type(made), type(plain)) == (ExtendedObjective, SimCSEObjective)
    losses = [made(rows), plain(rows)]
    assert torch.equal(*losses)
    assert all(bool(part.isfinite().all()) for part in gradients_of(made, losses[0]).values())


def test_the_whole_way(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    """What a record says of a training; stages are not trained again, and a stale one is never met."""
    code, out, _ = cli(*arguments(tiny_bert, corpus))
    assert code == 0
    assert "cpu s" in out
    record = the_record(tmp_path, 1)
    stage = record.training["stages"]["simcse"]
    assert stage["steps"] == 5
    assert stage["sentences_seen"] == 40
    assert [step for step, _ in stage["dev_curve"]] == [2, 4]
    assert stage["selected_dev"] == max(score for _, score in stage["dev_curve"])
    assert record.training["corpus"]["sentences"] == 60
    assert record.score("TOY") == pytest.approx(stage["selected_dev"], abs=1e-6)  # dev is the test set here
    last = record.score("TOY", metric="spearman_last")
    assert last is not None
    assert last != record.score("TOY")
    assert record.timing["training_cpu_seconds"]["simcse"] > 0

    first = stage_folders(tmp_path)
    assert len(first) == 2
    dry = cli(*arguments(tiny_bert, corpus, "--campaign", "other", "--dry-run"))[1]
    assert "2 training stages (2 done already, 0 uses shared)" in dry
    assert cli(*arguments(tiny_bert, corpus, "--campaign", "other"))[0] == 0
    assert stage_folders(tmp_path) == first
    assert stable_bytes(tmp_path, "other") == stable_bytes(tmp_path)
    with corpus.open("a") as stream:
        stream.write("one more sentence\n")
    code, _, err = cli(*arguments(tiny_bert, corpus))
    assert (code, "training text" in err) == (1, True)
    assert cli(*arguments(tiny_bert, corpus, "--campaign", "third", "--seeds", "1"))[0] == 0
    assert len(stage_folders(tmp_path)) == 3
    assert the_record(tmp_path, 1, "third").key != record.key


@pytest.mark.long
@pytest.mark.slow
def test_same_bytes_with_workers(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    torch.rand(7)  # whatever ran before in the process
    found = []
    for name, workers in (("one", ()), ("two", ("--workers", "2"))):
        code, _, err = cli(*arguments(tiny_bert, corpus, "--results", name, *workers))
        assert code == 0, err
        files = [p for p in (tmp_path / name).rglob("*") if p.suffix in (".npz", ".safetensors")]
        found.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def test_a_diverging_run_is_a_failed_record(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    diverging = ("--set", "simcse.lr=1e30", "--set", "simcse.clip=0", "--seeds", "1")
    code, _, err = cli(*arguments(tiny_bert, corpus, *diverging))
    record = the_record(tmp_path, 1)
    assert (code, record.status, record.scores) == (1, "failed", ()), err
    assert "nan" in str(record.reason) or "not finite" in str(record.reason)
    code, _, err = cli("run", "--methods", "noise", "--suite", "toy", "--corpus", "x")
    assert (code, "note: --corpus x" in err) == (0, True)  # no method of that run trains
