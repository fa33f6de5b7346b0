"""Masking, masked language models as parts, and the head of bench pretrain."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

from bench.config import profiles
from bench.data.corpus import Corpus, make_corpus
from bench.errors import BenchError, DataError, InputError
from bench.nn.backbone import load_backbone, tokenize_rows
from bench.nn.dropout import set_dropout
from bench.nn.hidden_states import run_layers
from bench.nn.layer_adapters import build_attention_mask
from bench.nn.layer_streams import check_callable_layers, init_layers
from bench.nn.masked_lm import check_same_vocabulary, copy_mlm_head, load_masked_lm
from bench.nn.model_folder import resolve_folder
from bench.nn.tokens import wrap_chunk
from bench.training.masked_lm_training import MlmSettings, masked_accuracy
from bench.training.masking import mask_text, mask_tokens
from bench.training.pretraining import read_documents, read_pretraining_text, train_mlm_head
from bench.training.randomness import generator
from tests.support.cli import Cli
from tests.support.messages import missing_facts


@pytest.fixture
def tokenizer(tiny_bert: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_bert)


def rows(words: int, count: int = 200) -> Tensor:
    """[CLS], words from id 5 on, [UNK], [SEP], two of padding."""
    return torch.tensor([[2, *range(5, 5 + words), 1, 3, 0, 0]]).repeat(count, 1)


def test_shares_are_berts(tokenizer: Any) -> None:
    ids = rows(80)
    inputs, chosen = mask_tokens(ids, tokenizer, 0.3, generator(1, "mask"))
    assert not chosen[:, [0, 81, 82, 83, 84]].any()
    assert torch.equal(inputs[~chosen], ids[~chosen])
    masked = inputs[chosen] == tokenizer.mask_token_id
    kept = inputs[chosen] == ids[chosen]
    shares = (chosen[:, 1:81].float().mean(), masked.float().mean(), kept.float().mean())
    assert [float(share) for share in shares] == pytest.approx([0.3, 0.8, 0.1], abs=0.02)
    others = inputs[chosen][~masked & ~kept]
    assert not torch.isin(others, torch.tensor(tokenizer.all_special_ids)).any()
    assert len(set(others.tolist())) > 80  # any ordinary word
    assert chosen.any(0)[1:81].all()  # no place is left out
    for share, expected in ((0.0, 0), (1.0, 5)):
        inputs, chosen = mask_tokens(rows(5, 1), tokenizer, share, generator(1, "mask"))
        assert int(chosen.sum()) == expected
        assert expected or torch.equal(inputs, rows(5, 1))


def test_views_are_masked_apart_and_draws_are_the_generators_own(tokenizer: Any) -> None:
    ids = rows(20, 2)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    inputs, chosen = mask_tokens(ids, tokenizer, 0.3, generator(1, "mask/x"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(chosen[0], chosen[1])
    again, _ = mask_tokens(ids, tokenizer, 0.3, generator(1, "mask/x"))
    other, _ = mask_tokens(ids, tokenizer, 0.3, generator(2, "mask/x"))
    assert torch.equal(inputs, again)
    assert not torch.equal(inputs, other)
    draws = [generator(1, "mask/x") for _ in range(2)]
    mask_tokens(ids, tokenizer, 0.0, draws[0])
    mask_tokens(ids, tokenizer, 0.9, draws[1])
    assert torch.equal(draws[0].get_state(), draws[1].get_state())  # the share changes nothing that follows


def test_at_least_one_is_an_ordinary_token(tokenizer: Any) -> None:
    for seed in range(20):
        _, chosen = mask_tokens(rows(3, 2), tokenizer, 0.0, generator(seed, "m"), at_least_one=True)
        assert int(chosen.sum()) == 1
        assert bool(chosen[:, 1:4].any())
    nothing, none = mask_tokens(torch.tensor([[2, 1, 3]]), tokenizer, 0.9, generator(1, "m"))
    assert not none.any()
    assert nothing.tolist() == [[2, 1, 3]]


def test_loading_and_the_head(tiny_mlm: Path) -> None:
    model, tokenizer = load_masked_lm(tiny_mlm)
    assert next(model.parameters()).dtype == torch.float32
    head = copy_mlm_head(model)
    states = torch.randn(3, 16, generator=generator(1, "x"))
    torch.testing.assert_close(head(states), model.cls(states))
    assert head.predictions.decoder.weight is not model.bert.embeddings.word_embeddings.weight  # type: ignore[union-attr]
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.add_(1.0)
    assert not torch.allclose(head(states), model.cls(states))
    check_same_vocabulary(tokenizer, AutoTokenizer.from_pretrained(tiny_mlm), where="x")


def test_what_is_no_masked_lm(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tiny-bert: \d+ weight\(s\) are missing .*cls\.predictions"):
        load_masked_lm(tiny_bert)
    with torch.random.fork_rng(devices=[]):
        model, _ = load_masked_lm(tiny_bert, new_head=True)
    backbone, tokenizer = load_backbone(tiny_bert)
    kept = dict(backbone.named_parameters())
    assert all(torch.equal(value, kept[name]) for name, value in model.bert.named_parameters())
    with pytest.raises(InputError, match="can't be loaded"):
        load_masked_lm(tmp_path)
    with pytest.raises(InputError, match=r"BertModel; expected a masked language model"):
        copy_mlm_head(backbone)
    with pytest.raises(InputError, match="Linear"):
        check_callable_layers(torch.nn.Linear(2, 2))
    check_callable_layers(backbone)
    other = AutoTokenizer.from_pretrained(tiny_bert)
    other.add_tokens(["quokka"])
    with pytest.raises(InputError, match=r"^generator x: its vocabulary \(\d+ tokens\)"):
        check_same_vocabulary(tokenizer, other, where="generator x")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_layers_on_given_states_are_the_models_own(tiny_bert: Path, implementation: str) -> None:
    model, _ = load_backbone(tiny_bert)
    model.set_attn_implementation(implementation)
    model.eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    mask = (ids != 0).long()
    states = model.embeddings(input_ids=ids)
    whole = build_attention_mask(model.config, wrap_chunk(ids, mask))
    got = run_layers(model.encoder.layer, states, whole)
    torch.testing.assert_close(got, model(input_ids=ids, attention_mask=mask).last_hidden_state)
    alone = run_layers(model.encoder.layer, states[1:, :3], None)
    torch.testing.assert_close(got[1, :3], alone[0], rtol=1e-4, atol=1e-5)  # padding is not attended
    with torch.random.fork_rng(devices=[]):
        fresh = init_layers(model, 2)
    set_dropout(fresh, 0.0)
    assert run_layers(fresh, states, whole).shape == states.shape
    assert len(fresh) == 2
    own, drawn = model.encoder.layer[0].state_dict(), fresh[0].state_dict()
    assert not any(torch.equal(own[name], drawn[name]) for name in own if name.endswith("dense.weight"))


HEAD = MlmSettings(max_length=24, steps=60, batch_size=8, lr=3e-3, warmup=0.1, mask=0.2, weight_decay=0.01)


def test_a_backbone_gets_a_head(tiny_bert: Path, tmp_path: Path, text: Corpus) -> None:
    backbone = resolve_folder(str(tiny_bert), where="test")
    seen: list[int] = []
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    how: dict[str, Any] = {"seed": 1, "command": "c"}
    facts = train_mlm_head(backbone, text, HEAD, out=tmp_path / "m", progress=seen.append, **how)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert json.loads((tmp_path / "m" / "pretraining.json").read_text()) == facts
    assert facts["backbone"] == {"name": "tiny-bert", "sha256": backbone.sha256}
    assert (facts["settings"], facts["seed"], len(seen)) == (asdict(HEAD), 1, 60)
    model, tokenizer = load_masked_lm(tmp_path / "m")
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight  # tied
    check_same_vocabulary(tokenizer, AutoTokenizer.from_pretrained(tiny_bert), where="x")
    rows = tokenize_rows(tokenizer, text.sentences, 24)
    with torch.random.fork_rng(devices=[]):
        untrained, _ = load_masked_lm(tiny_bert, new_head=True)
    after, chance = (masked_accuracy(m.eval(), tokenizer, rows, 0.2, 1) for m in (model, untrained))
    assert after > chance + 0.05
    assert 0 <= facts["masked_accuracy"] <= 1
    assert facts["cut"]["lines"] == sum(len(row) == 24 for row in rows) == 0
    assert facts["loss_curve"][-1][0] == 60
    train_mlm_head(backbone, text, HEAD, out=tmp_path / "again", **how)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "again")]
    assert weights[0] == weights[1]
    facts = train_mlm_head(backbone, text, HEAD, out=tmp_path / "timed", minutes=0.03, **how)
    assert facts["settings"]["steps"] == facts["loss_curve"][-1][0]
    assert facts["minutes"] == 0.03


def test_masked_accuracy_by_hand(tiny_mlm: Path, text: Corpus) -> None:
    model, tokenizer = load_masked_lm(tiny_mlm)
    rows = tokenize_rows(tokenizer, text.sentences[:40], 24)
    left = list(rows)

    def restore_even_ids(input_ids: Tensor, attention_mask: Tensor) -> Any:
        ids = torch.zeros_like(input_ids)
        for target in ids:
            row = torch.tensor(left.pop(0))
            target[: len(row)] = row * (row % 2 == 0)
        return SimpleNamespace(logits=torch.nn.functional.one_hot(ids, len(tokenizer)).float())

    restorer = torch.nn.Module()
    restorer.device, restorer.forward = "cpu", restore_even_ids  # type: ignore[assignment]
    even = [token % 2 == 0 for row in rows for token in row[1:-1]]
    assert masked_accuracy(restorer, tokenizer, rows, 1.0, 1) == pytest.approx(sum(even) / len(even))
    assert masked_accuracy(model.eval(), tokenizer, rows, 0.2, 1) < 0.2


def test_what_has_no_head_to_get(tiny_bert: Path, tiny_roberta: Path, tmp_path: Path, text: Corpus) -> None:
    backbone, other = (resolve_folder(str(folder), where="test") for folder in (tiny_bert, tiny_roberta))
    wild, line = replace(HEAD, lr=1e30, warmup=0.0), make_corpus("one.txt", ["a"])
    for model, corpus, settings, kind, message in (
        (other, text, HEAD, InputError, "tiny-roberta: .*RobertaForMaskedLM; .* a BERT"),
        (backbone, line, HEAD, BenchError, "one.txt: .*two lines"),
        (backbone, text, wild, BenchError, "loss is nan"),
    ):
        with pytest.raises(kind, match=message):
            train_mlm_head(model, corpus, settings, seed=1, out=tmp_path / "m", command="c")
    assert not (tmp_path / "m").exists()


def test_places_and_targets_are_those_of_the_chosen_tokens(tokenizer: Any) -> None:
    ids = torch.tensor([[2, 7, 8, 9, 3, 0], [2, 10, 11, 12, 13, 3]])
    inputs, chosen = mask_tokens(ids, tokenizer, 0.5, generator(1, "m"))
    masked = mask_text(ids, tokenizer, 0.5, generator(1, "m"))
    assert torch.equal(masked.inputs, inputs)
    assert [divmod(place, 6) for place in masked.places.tolist()] == [*map(tuple, chosen.nonzero().tolist())]
    assert torch.equal(masked.targets, ids[chosen])
    assert len(masked.places) > 1
    assert len(mask_text(ids, tokenizer, 0.0, generator(1, "m")).places) == 0


def test_documents(tmp_path: Path) -> None:
    path = tmp_path / "t.txt.xz"
    path.write_bytes(lzma.compress("one  two\n\n drei\u00e9 \n".encode()))
    corpus = read_documents(path)
    assert (corpus.name, corpus.sentences) == ("t.txt.xz", ("one two", "drei\u00e9"))
    (tmp_path / "t.txt").write_text("one  two\n\n drei\u00e9 \n", encoding="utf-8")
    for file in tmp_path.iterdir():
        assert read_pretraining_text(file).sentences == corpus.sentences
    with pytest.raises(InputError, match=r"t.md: .* expected a file .txt or .txt.xz"):
        read_pretraining_text(tmp_path / "t.md")
    whole = path.read_bytes()
    for content, message in (
        (whole[:-20], "can't be read"),
        (b"plain", "can't be read"),
        (lzma.compress(b"\xff\xfe\n"), r"t\.txt\.xz:1: .*utf-8"),
        (lzma.compress(b"\n"), "text is empty"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_documents(path)
    with pytest.raises(DataError, match="can't be read"):
        read_documents(tmp_path / "none.xz")


def test_the_command(
    cli: Cli, tmp_path: Path, tiny_bert: Path, text: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    chosen = profiles.load_profile("minilm-mlm")
    assert MlmSettings(**chosen.pretrain).steps == 360
    tiny = replace(chosen, pretrain=asdict(HEAD), corpus={"file": "t.xz"}, backbone={"name": "tiny-bert"})
    known = profiles.load_profile
    monkeypatch.setattr(profiles, "load_profile", lambda name: tiny if name == "minilm-mlm" else known(name))
    monkeypatch.setattr(profiles, "backbone_reference", lambda _profile: str(tiny_bert))
    command = ("pretrain", "--profile", "minilm-mlm", "--out", "made")
    code, _, err = cli(*command)
    assert (code, missing_facts(err, "t.xz", "--data", "BENCH_DATA")) == (2, [])
    (tmp_path / "t.xz").write_bytes(lzma.compress("\n".join(text.sentences).encode()))
    code, out, err = cli(*command, "--data", ".")
    assert code == 0, err
    assert "masked accuracy 0." in out
    facts = json.loads((tmp_path / "made" / "pretraining.json").read_text())
    assert facts["command"] == "bench pretrain --profile minilm-mlm --seed 1 --out DIR"
    for extra, message in (
        (("--world-seed", "2"), "not synthetic"),
        (("--profile", "mini"), "not read from data"),
        (("--corpus", "t.txt"), "--corpus"),
    ):
        code, _, err = cli(*command, "--out", "new", "--data", ".", *extra)
        assert (code, message in err) == (2, True), err
    code, _, err = cli("run", "--methods", "untrained", "--profile", "minilm-mlm")
    assert (code, missing_facts(err, "'minilm-mlm'", "bench pretrain")) == (2, [])
